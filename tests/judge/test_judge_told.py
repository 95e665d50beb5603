"""Goal: what the judge tells of a history is true: what happened, where, and which events show it.

Method: a golden transcript of every history that was made by hand. Each piece of evidence has to be
an event of that history, and is named by its place there. `--rewrite` writes what was told into the
file; review it as a diff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import BAD, GOOD, UNDECIDED, anomalies, clean
from tests.judge.judge_told_stories import TOLD

from holdfast.judge.checker import judge
from holdfast.judge.history import Event
from holdfast.judge.series import BUCKET_MS
from holdfast.judge.verdict import Finding, PartitionJudgement

FILE = Path(__file__).with_name("told.txt")
MADE: dict[str, Callable[[], Story]] = {
    "a clean history": clean,
    **{name: story for name, story, _ in BAD},
    **dict(GOOD),
    **{name: story for name, story, _ in UNDECIDED},
    **{name: story for name, story, _ in TOLD},
}


def told(story: Story) -> Iterator[str]:
    """Yield what the judge says of a history, a line each."""
    events = sorted(story.events, key=lambda event: event.at_ms)
    found = judge(events)
    judgement, timeline = found.judgement, found.timeline
    yield f"{judgement.events} events from {timeline.begin_ms:.12g} to {timeline.end_ms:.12g} ms"
    yield f"{judgement.observed.value}; {counted(asdict(judgement.counts))}"
    if judgement.expired_text:
        yield judgement.expired_text
    for partition in judgement.partitions:
        yield from told_of(partition, events)
    assert found.point_ms == BUCKET_MS
    for point in found.points:
        rates = asdict(point)
        answered = {
            f"{topic}-{number}": rate for (topic, number), rate in point.acknowledged.items()
        }
        yield f"point: {counted({**rates, **answered, 'acknowledged': 0})}"


def told_of(partition: PartitionJudgement, events: list[Event]) -> Iterator[str]:
    name = f"{partition.topic}-{partition.partition}"
    anomalies = {anomaly.value: count for anomaly, count in partition.anomalies.items()}
    yield f"{name}: {counted(anomalies)}; {counted(asdict(partition.counts))}"
    yield f"  {counted(asdict(partition.availability))}"
    for finding in partition.findings:
        assert (finding.topic, finding.partition) == (partition.topic, partition.partition)
        yield from evidence(finding, events)
    for expiry in partition.expiries:
        yield f"  expired {expiry.count}: {expiry.text}, {place(expiry.event, events)}"
    for reason in partition.undecided:
        yield f"  undecided: {reason}"
    if not partition.whole_read:
        yield "  not read to its end"


def evidence(finding: Finding, events: list[Event]) -> Iterator[str]:
    yield f"  {finding.anomaly.value}: {finding.text}"
    yield f"    {', '.join(place(event, events) for event in finding.events)}"


def place(event: Event, events: list[Event]) -> str:
    assert event in events, f"no event of this history: {event}"
    return f"{type(event).__name__} {events.index(event)}"


def counted(values: dict[str, Any]) -> str:
    """Return all that is not 0."""
    return ", ".join(f"{name} {value:.12g}" for name, value in values.items() if value) or "nothing"


def sections() -> dict[str, str]:
    """Return what the file says of each history."""
    parts = FILE.read_text(encoding="utf-8").split("\n# ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def test_the_file_has_every_history_and_no_other(rewrite: bool) -> None:
    if rewrite:
        head = FILE.read_text(encoding="utf-8").split("\n# ")[0] + "\n"
        parts = [f"# {name}\n" + "\n".join([*told(story()), ""]) for name, story in MADE.items()]
        FILE.write_text(head + "".join(parts), encoding="utf-8")
    assert list(sections()) == list(MADE)
    assert len(MADE) == 1 + len(BAD) + len(GOOD) + len(UNDECIDED) + len(TOLD), (
        "a name is there twice"
    )


@pytest.mark.parametrize("name", MADE)
def test_what_is_told(name: str) -> None:
    assert "\n".join(told(MADE[name]())) == sections()[name].rstrip("\n")


@pytest.mark.parametrize(("story", "expected"), [row[1:] for row in TOLD], ids=[r[0] for r in TOLD])
def test_what_is_counted(story: Callable[[], Story], expected: dict[Any, int]) -> None:
    assert anomalies(story()) == expected
