"""Goal: the report of a proof says of each part whether the promise was kept in it, or can't say.

Method: results made by hand, as the judge would give them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.verdict import Anomaly
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome, PartResult, report_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Check
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario


def nothing(_run: Run) -> None:
    raise AssertionError("no run here")


MAIN = Part(name="main", title="Main", steps=nothing)
LOSES = Part(name="control", title="Loses", steps=nothing, breaks_with=Anomaly.LOST)
REFUSES = Part(name="control", title="Refuses", steps=nothing, breaks_check="flow")
SCENARIO = Scenario(
    name="made-up", summary="One.", text="Two.", defaults=Parameters(), parts=(MAIN, LOSES)
)
GOOD = Story().send(0).ack(0, 0).final(0)
LOSSY = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0)
UNREAD = Story().send(0).ack(0, 0)
BAD = Check(name="flow", expected="1", seen="2", kept=False)


def result(
    part: Part, story: Story, checks: tuple[Check, ...] = (), broke_off: str | None = None
) -> PartResult:
    evidence = judge(story.events)
    return PartResult(
        part=part,
        parameters=Parameters(),
        evidence=evidence,
        checks=checks,
        tables=(),
        broken=evidence.judgement.broken(Parameters().promise.forbids),
        history=Path("history"),
        broke_off=broke_off,
    )


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (result(MAIN, GOOD), True),
        (result(MAIN, LOSSY), False),
        (result(MAIN, GOOD, (BAD,)), False),
        (result(MAIN, UNREAD), None),
        (result(MAIN, UNREAD, (BAD,)), False),
        (result(MAIN, GOOD, broke_off="too slow"), None),
        (result(MAIN, LOSSY, broke_off="too slow"), False),
        (result(LOSES, LOSSY), False),
        (result(LOSES, GOOD), True),
        (result(REFUSES, GOOD, (BAD,)), True),
        (result(REFUSES, UNREAD, (BAD,)), None),
    ],
)
def test_a_part_says_whether_the_promise_was_kept(found: PartResult, kept: bool | None) -> None:
    (part,) = report_of(outcome(found), "").parts
    assert part.kept is kept
    assert part.as_it_must is found.as_it_must


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (GOOD, "1 of 1 events acknowledged, none lost, doubled or moved"),
        (LOSSY, "2 of 2 events acknowledged, 1 lost. Observed: at most once."),
        (UNREAD, "nobody can say whether any was lost, doubled or moved. Observed: undecided"),
    ],
)
def test_a_headline_says_none_only_where_the_log_was_read(story: Story, words: str) -> None:
    (part,) = report_of(outcome(result(MAIN, story)), "").parts
    assert words in part.headline


def test_every_part_is_in_the_report_with_what_belongs_to_it() -> None:
    report = report_of(
        outcome(result(MAIN, GOOD), result(LOSES, LOSSY), result(REFUSES, GOOD, (BAD,))),
        "holdfast prove made-up",
    )
    assert (report.title, report.summary, report.text) == ("made-up", "One.", "Two.")
    assert "lost" in report.forbidden
    main, loses, refuses = report.parts
    assert not main.control
    assert "with lost events" in loses.control
    assert "“flow”" in refuses.control
    assert "1 lost" in loses.headline
    assert refuses.checks == (BAD,)
    assert main.settings["acks"] == "all"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prove", "one-broker-down"], "pip install 'holdfast[lab]'"),
        (["check", "."], "there is no run"),
    ],
    ids=["a run is refused before it begins", "a folder is judged without it"],
)
def test_without_jinja(tmp_path: Path, words: list[str], said: str) -> None:
    program = "import sys; sys.modules['jinja2'] = None; from holdfast.cli import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert found.returncode == 2, found
    assert said in found.stderr
    assert "jinja2" not in found.stderr or "needs jinja2" in found.stderr
    assert list(tmp_path.iterdir()) == []


def outcome(*results: PartResult) -> Outcome:
    return Outcome(
        scenario=SCENARIO,
        parameters=Parameters(),
        exit=Exit.KEPT,
        verdict="Kept.",
        results=results,
        directory=Path("run"),
        report=None,
    )
