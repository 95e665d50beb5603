"""Goal: each rule holds at its edge: the second of two, a tie, the first and the last of a row.

Method: histories made by hand, each of which only one small mistake in a rule would judge wrongly;
what is counted and all that is told are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.judge.judge_stories import anomalies, two

from holdfast.judge.checker import Checker, Evidence, judge
from holdfast.judge.history import Event, HistoryError, in_runs
from holdfast.judge.verdict import Anomaly
from holdfast.testing.histories import Story

OPEN = (
    "{} {}, and whether retention.bytes allowed it hangs on bytes of which nobody knows whether "
    "they were ever in the log"
)
ACKNOWLEDGED_THEN = "which was sent when this one was acknowledged"
GONE = "records that were acknowledged are gone"

EDGES: list[tuple[str, Callable[[], Story], dict[Anomaly, int], list[str]]] = [
    # -- the log ---------------------------------------------------------------------------------
    (
        "what carries another digest stands in an order, too",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, 1)
            .ack(1, 0)
            .read(0, 1, by="final")
            .read(1, 0, by="final", digest="x")
            .end(0, 2)
        ),
        {Anomaly.PHANTOM: 1, Anomaly.REORDERED: 1},
        [
            "offset 1 holds p:0 with digest x, not d as was sent",
            "p:0 (offset 1) stands behind p:1 (offset 0), which was sent later",
        ],
    ),
    (
        "what nobody sent stands before two that changed places",
        lambda: Story().send(0, 1).doubt(0).doubt(1).final(9, 1, 0),
        {Anomaly.PHANTOM: 1, Anomaly.REORDERED: 1},
        [
            "offset 0 holds p:9, which nobody sent here",
            "p:0 (offset 2) stands behind p:1 (offset 1), which was sent later",
        ],
    ),
    (
        "two stand behind the one that was sent last",
        lambda: Story().send(0, 1, 2).doubt(0).doubt(1).doubt(2).final(2, 0, 1),
        {Anomaly.REORDERED: 2},
        [
            "p:0 (offset 1) stands behind p:2 (offset 0), which was sent later",
            "p:1 (offset 2) stands behind p:2 (offset 0), which was sent later",
        ],
    ),
    (
        "of two that were sent at one moment the later one in the log is named",
        lambda: (
            Story()
            .send(0, by="c")
            .ack(0, 2, by="c")
            .send(0, by="a")
            .send(0, by="b", skew=-1.0)
            .ack(0, 0, by="a")
            .ack(0, 1, by="b")
            .read(0, 0, by="final", of="a")
            .read(1, 0, by="final", of="b")
            .read(2, 0, by="final", of="c")
            .end(0, 3)
        ),
        {Anomaly.REORDERED: 1},
        [
            f"c:0 (offset 2) stands behind b:0 (offset 1), {ACKNOWLEDGED_THEN}",
        ],
    ),
    (
        "due, and acknowledged where the log begins, but it stands elsewhere",
        lambda: Story().send(0).ack(0, 0).retention(ms=0).pause(9).read(1, 0, by="final").end(0, 2),
        {Anomaly.DIVERGED: 1},
        ["p:0 was acknowledged at offset 0 and stands at 1"],
    ),
    (
        "what nobody sent stands three times",
        lambda: Story().final(9, 9, 9),
        {Anomaly.PHANTOM: 3, Anomaly.DUPLICATED: 2},
        [f"offset {offset} holds p:9, which nobody sent here" for offset in range(3)]
        + ["p:9 stands at offsets 0, 1, 2"],
    ),
    (
        "two stand elsewhere than before the log's beginning, and may have gone by size",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, 0)
            .ack(1, 1)
            .retention(size=100)
            .send(2)
            .doubt(2)
            .final(0, 1, begin=2)
            .batch(0, 2, 3, size=50)
        ),
        {},
        [OPEN.format(2, GONE)],
    ),
    (
        "two are gone, and may have gone by size",
        lambda: (
            Story()
            .send(0, 1, 2)
            .ack(0, 0)
            .ack(1, 1)
            .ack(2, 2)
            .retention(size=100)
            .send(3)
            .doubt(3)
            .final(2, begin=2)
            .batch(0, 2, 2, size=50)
        ),
        {},
        [OPEN.format(2, GONE)],
    ),
    (
        "acknowledged at offset 0 before the one that stands there was sent",
        lambda: (
            Story()
            .send(0, by="c")
            .ack(0, 0, by="c")
            .send(0, by="a")
            .doubt(0, by="a")
            .read(0, 0, by="final", of="a")
            .read(1, 0, by="final", of="c")
            .end(0, 2)
        ),
        {Anomaly.DIVERGED: 1, Anomaly.REORDERED: 1},
        [
            "c:0 was acknowledged at offset 0 and stands at 1",
            f"c:0 (offset 1) stands behind a:0 (offset 0), {ACKNOWLEDGED_THEN}",
        ],
    ),
    (
        "sent at the moment of an acknowledgement, and before it in the log",
        lambda: (
            Story()
            .send(0, by="c")
            .ack(0, 1, by="c")
            .send(0, by="a", skew=-1.0)
            .ack(0, 0, by="a")
            .read(0, 0, by="final", of="a")
            .read(1, 0, by="final", of="c")
            .end(0, 2)
        ),
        {},
        [],
    ),
    (
        "the leader epoch falls behind a record of which no epoch is told",
        lambda: (
            Story()
            .send(0, 1, 2, 3)
            .ack(3, 3)
            .read(0, 0, by="final")
            .read(1, 1, by="final", epoch=3)
            .read(2, 2, by="final")
            .read(3, 3, by="final", epoch=2)
            .end(0, 4)
        ),
        {Anomaly.DIVERGED: 1},
        ["the leader epoch falls from 3 at offset 1 to 2 at 3"],
    ),
    # -- readers ---------------------------------------------------------------------------------
    (
        "a refused record stands in the log with other bytes",
        lambda: Story().send(0).refuse(0).read(0, 0, by="final", digest="x").end(0, 1),
        {Anomaly.PHANTOM: 1, Anomaly.RESURRECTED: 1},
        ["offset 0 holds p:0 with digest x, not d as was sent", "p:0 was refused; offset 0"],
    ),
    # -- replicas --------------------------------------------------------------------------------
    (
        "of two replicas that begin at one offset the one of the first node is named first",
        lambda: two().final(0, 1).batch(2, 0, 1).batch(1, 0, 1, digest="c"),
        {Anomaly.DIVERGED: 1},
        ["offset 0: replicas 1 and 2 hold different bytes"],
    ),
]


@pytest.mark.parametrize(
    ("story", "counted", "told"), [row[1:] for row in EDGES], ids=[row[0] for row in EDGES]
)
def test_an_edge(story: Callable[[], Story], counted: dict[Anomaly, int], told: list[str]) -> None:
    assert anomalies(story()) == counted
    events = sorted(story().events, key=lambda event: event.at_ms)
    (partition,) = judge(events).judgement.partitions
    assert [finding.text for finding in partition.findings] + list(partition.undecided) == told


def judged(events: list[Event], length: int) -> Evidence:
    """Judge a history that comes in runs."""
    checker = Checker()
    for run in in_runs(events, length):
        checker.feed(run)
    checker.feed([])
    return checker.finish()


@pytest.mark.parametrize(
    ("story", "odd"),
    [
        (lambda: Story().send(0).ack(0, 1 << 64), -1),
        (lambda: Story().send(0).read(0, 0).read(1 << 64, 0), -1),
        (lambda: Story().batch(0, 0, 1 << 64), -1),
        (lambda: Story().send(0, timestamp=1 << 64).ack(0, 0), 0),
        (lambda: Story().send(0).read(0, 0, epoch=1 << 64).expect(), 1),
    ],
)
@pytest.mark.parametrize("length", [1, 9])
def test_a_number_that_is_too_large_is_told_with_its_event(
    story: Callable[[], Story], odd: int, length: int
) -> None:
    events = story().events
    with pytest.raises(HistoryError) as error:
        judged(events, length)
    left, _, right = str(error.value).partition("): ")
    assert re.match(r"a number is too large \(.*too (big|large)", left)
    assert right == str(events[odd])
