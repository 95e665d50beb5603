"""Goal: a demo's verdict says in words and in JSON what its checks say, and never more.

Method: verdicts made by hand, one of each kind; what they say is compared whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.lab.demo.demo_check import DemoVerdict
from holdfast.lab.demo.demo_plan import DemoPlan
from holdfast.lab.journal import Exit
from holdfast.lab.report import Check

# Two acknowledged, one whose outcome nobody knows, one that was never answered; three in the log.
STORY = Story().send(0, 1, 2, 3).ack(0, 0).ack(1, 1).doubt(2).final(0, 1, 2)
GOOD = Check(name="the log", expected="two", seen="two", kept=True)
BAD = Check(name="the table", expected="two", seen="1 missing", kept=False)
WORSE = Check(name="the sum", expected="0", seen="7", kept=False)
MONEY = "; no money appeared or disappeared"
PASSED = "PASS: 2 events acknowledged; each is in the log once and in the table once"


def verdict(
    *checks: Check,
    kind: Literal["payments", "lines"] = "payments",
    undecided: str | None = None,
    broke_off: str | None = None,
) -> DemoVerdict:
    return DemoVerdict(
        directory=Path("runs/demo"),
        plan=DemoPlan(kind=kind, events=2, rate=1, topic="foo", query="q"),
        evidence=judge(STORY.events),
        checks=checks,
        tables=(),
        undecided=undecided,
        broke_off=broke_off,
    )


@pytest.mark.parametrize(
    ("found", "exit_status", "kept", "sentence"),
    [
        (verdict(GOOD), Exit.KEPT, True, f"{PASSED}{MONEY}."),
        (verdict(GOOD, kind="lines"), Exit.KEPT, True, f"{PASSED}."),
        (verdict(GOOD, BAD), Exit.BROKEN, False, "FAIL: the table: 1 missing."),
        (
            verdict(BAD, GOOD, WORSE, undecided="killed", broke_off="killed"),
            Exit.BROKEN,
            False,
            "FAIL: the table: 1 missing; the sum: 7. The run broke off: killed",
        ),
        (
            verdict(GOOD, undecided="it was killed"),
            Exit.NOT_MADE,
            None,
            "UNDECIDED: it was killed. 2 events were acknowledged, and nothing was seen broken.",
        ),
    ],
)
def test_the_words_of_a_verdict(
    found: DemoVerdict, exit_status: Exit, kept: bool | None, sentence: str
) -> None:
    assert found.exit is exit_status
    assert found.exit.kept is kept
    assert found.sentence == sentence
    told: dict[str, Any] = found.as_json()
    assert (told["exit"], told["verdict"]) == (int(exit_status), sentence.partition(":")[0])


def test_a_verdict_as_json_has_all_of_it() -> None:
    found = verdict(GOOD, BAD, broke_off="killed")
    assert found.as_json() == {
        "exit": 1,
        "verdict": "FAIL",
        "sentence": "FAIL: the table: 1 missing. The run broke off: killed",
        "broke_off": "killed",
        "acknowledged": 2,
        "unknown": 2,
        "in_log": 3,
        "checks": [
            {"name": "the log", "expected": "two", "seen": "two", "kept": True},
            {"name": "the table", "expected": "two", "seen": "1 missing", "kept": False},
        ],
        "directory": "runs/demo",
    }
    assert found.promise == found.plan.parameters.promise
    assert found.still == ()
