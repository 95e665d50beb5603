"""Goal: the demo's group is held to its promise like the log and the table.

Method: the folder of a clean run, with the history of one consumer that did all of it, and of one
that skips; the wait for the group to catch up, with members whose histories are written by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.demo.test_demo_check import payments_made, payments_run, seal  # noqa: F401 - fixtures

from holdfast.judge.groups.history import (
    Assigned,
    CalmBegan,
    CalmEnded,
    CommitAcknowledged,
    CommitAsked,
    GroupExpected,
    Joined,
    Processed,
    Started,
    encode_any,
)
from holdfast.judge.history import Event
from holdfast.lab.demo import readers
from holdfast.lab.demo.demo_check import check_demo
from holdfast.lab.demo.demo_plan import Places
from holdfast.lab.demo.demo_report import report_data
from holdfast.lab.demo.readers import GROUP, Readers
from holdfast.lab.journal import HISTORY, Exit
from holdfast.lab.workload_processes import Worker

NAME = "Consumers in a group skip no event, and repeat only what was not committed"
TOPIC = "payments"


def consume(directory: Path, *, skips: bool = False, calm: bool = True) -> None:
    """Write the history of one consumer that processes all three partitions in turn."""
    clock = itertools.count(10_000)
    events: list[Event] = []

    def add(kind: type[Event], **values: Any) -> None:
        values |= {"at_ms": float(next(clock)), "wall_ms": 0, "process": "consumer-1"}
        events.append(kind(group=GROUP, **values))  # type: ignore[call-arg]

    verdict = check_demo(directory)
    add(GroupExpected, topics=(TOPIC,), silence_ms=1.0)
    add(Joined, member="a", epoch=1)
    for each in verdict.evidence.judgement.partitions:
        place = {"topic": TOPIC, "partition": each.partition}
        add(Assigned, **place, member="a", epoch=1)
        add(Started, **place, member="a", committed=None, offset=0, reset="earliest")
        for offset in range(each.counts.in_log):
            if not (skips and offset == 1):
                add(Processed, **place, member="a", offset=offset)
        name = f"c{each.partition}"
        add(CommitAsked, **place, id=name, offset=each.counts.in_log, member="a", epoch=1)
        add(CommitAcknowledged, **place, id=name)
    if calm:
        add(CalmBegan, stuck_ms=1000.0)
        add(CalmEnded)
    text = "".join(encode_any(event) for event in events)
    (directory / HISTORY / "consumer-1.jsonl").write_text(text)
    seal(directory)


def test_a_group_that_skips_nothing_passes(payments_run: Path) -> None:  # noqa: F811 - fixture
    consume(payments_run)
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.KEPT
    (check,) = [check for check in verdict.checks if check.name == NAME]
    assert check.seen == "members processed 30, none skipped, none stuck"
    report = report_data(Places(payments_run), verdict, "holdfast demo")
    assert report.forbidden_groups
    assert "Nothing is skipped" in report.promise


def test_a_group_that_skips_fails_the_demo(payments_run: Path) -> None:  # noqa: F811 - fixture
    consume(payments_run, skips=True)
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.BROKEN
    assert "nobody processed offset 1, and" in verdict.sentence


def test_a_group_that_was_never_left_in_peace_decides_nothing(
    payments_run: Path,  # noqa: F811 - fixture
) -> None:
    consume(payments_run, calm=False)
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.NOT_MADE
    assert "never left in peace" in (verdict.undecided or "")


@pytest.mark.parametrize(("reached", "kept"), [(5, True), (4, False)])
def test_who_does_not_catch_up_is_told(
    monkeypatch: pytest.MonkeyPatch, reached: int, kept: bool
) -> None:
    """Method: no time to stand still is granted."""
    monkeypatch.setattr(readers, "STANDSTILL_S", -1.0)
    told: list[tuple[str, bool]] = []
    left: list[str] = []

    def check(name: str, _expected: str, seen: str, *, kept: bool) -> None:
        assert name == f"Group {GROUP} catches up with the log"
        told.append((seen, kept))

    def until(condition: Callable[[], bool]) -> None:
        assert condition()

    group = SimpleNamespace(
        run=SimpleNamespace(partitions=range(1), check=check),
        position=lambda _p: reached,
        begin_calm=lambda _ms: left.append("calm"),
        end_calm=lambda: left.append("no calm"),
        leave=lambda *_members: left.append("leave"),
        members=[],
    )
    made = object.__new__(Readers)
    made.__dict__ |= {"_group": group, "_lives": 2}
    tail = SimpleNamespace(ends={0: 5})
    tail.poll = lambda: tail
    assert made.catch_up(cast("Worker", SimpleNamespace(tail=tail)), until) is kept
    assert [each[1] for each in told] == [kept]
    assert left == ["calm", "no calm", "leave"]
