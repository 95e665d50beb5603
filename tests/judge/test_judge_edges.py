"""Goal: each rule holds at its edge: the second of two, a tie, the first and the last of a row.

Method: histories made by hand, each of which only one small mistake in a rule would judge wrongly;
what is counted and all that is told are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import anomalies, in_doubt, three, two

from holdfast.judge.checker import Checker, Evidence, judge
from holdfast.judge.history import Event, HistoryError, in_runs, merge
from holdfast.judge.verdict import Anomaly

OPEN = (
    "{} {}, and whether retention.bytes allowed it hangs on bytes of which nobody knows whether "
    "they were ever in the log"
)
ACKNOWLEDGED_THEN = "which was sent when this one was acknowledged"
GONE = "records that were acknowledged are gone"
BEFORE = "it is not in the log, which begins at {}, and nothing allows that"
UNREAD = "it was not read to its end"

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
    (
        "a deletion ends before the last record that is gone; another was acknowledged nowhere",
        lambda: (
            three()
            .send(0, by="q")
            .ack(0, None, by="q")
            .retention(size=100)
            .delete(1)
            .final(2, begin=2)
        ),
        {Anomaly.LOST: 2},
        [
            f"p:1 was acknowledged at offset 1; {BEFORE.format(2)}",
            "q:0 was acknowledged; it is not in the log",
        ],
    ),
    # -- readers ---------------------------------------------------------------------------------
    (
        "a refused record stands in the log with other bytes",
        lambda: Story().send(0).refuse(0).read(0, 0, by="final", digest="x").end(0, 1),
        {Anomaly.PHANTOM: 1, Anomaly.RESURRECTED: 1},
        ["offset 0 holds p:0 with digest x, not d as was sent", "p:0 was refused; offset 0"],
    ),
    (
        "two are gone, the first from before the log's beginning: told as they were read",
        lambda: in_doubt().read(0, 0).read(1, 1).final(2, begin=1),
        {Anomaly.DIVERGED: 1, Anomaly.VANISHED: 2},
        [
            "offset 1: final read p:2, live read p:1, in one epoch",
            "live read p:0 at offset 0; now nothing stands there",
            "live read p:1 at offset 1; now p:2 stands there",
        ],
    ),
    (
        "the same, behind something odd",
        lambda: in_doubt().read(0, 0, committed_end=0).read(1, 1).final(2, begin=1),
        {Anomaly.DIVERGED: 1, Anomaly.VANISHED: 2, Anomaly.UNCOMMITTED: 1},
        [
            "live was given offset 0, committed end 0",
            "offset 1: final read p:2, live read p:1, in one epoch",
            "live read p:0 at offset 0; now nothing stands there",
            "live read p:1 at offset 1; now p:2 stands there",
        ],
    ),
    (
        "back behind something odd, to another record, and nobody read all",
        lambda: two().read(0, 0, committed_end=0).position(0).read(0, 1),
        {Anomaly.VANISHED: 1, Anomaly.UNCOMMITTED: 1},
        [
            "live was given offset 0, committed end 0",
            "live read p:0 at offset 0; now p:1 stands there",
            UNREAD,
        ],
    ),
    (
        "back to another record, in an odd answer, and nobody read all",
        lambda: two().read(0, 0).position(0).read(0, 1, committed_end=0),
        {Anomaly.VANISHED: 1, Anomaly.UNCOMMITTED: 1},
        [
            "live was given offset 0, committed end 0",
            "live read p:0 at offset 0; now p:1 stands there",
            UNREAD,
        ],
    ),
    # -- replicas --------------------------------------------------------------------------------
    (
        "of two replicas that begin at one offset the one of the first node is named first",
        lambda: two().final(0, 1).batch(2, 0, 1).batch(1, 0, 1, digest="c"),
        {Anomaly.DIVERGED: 1},
        ["offset 0: replicas 1 and 2 hold different bytes"],
    ),
    (
        "a batch may have gone by size for its record at offset 0, and a later policy lets none go",
        lambda: (
            Story()
            .retention(size=100)
            .send(0)
            .ack(0, 0)
            .retention()
            .send(1)
            .ack(1, 1)
            .replica(0, 0, 2)
            .batch(0, 0, 1)
            .replica(1, 1, 2)
            .batch(1, 0, 1)
        ),
        {},
        [UNREAD],
    ),
    (
        "between a replica's last batch and its first there is no hole",
        lambda: (
            Story()
            .send(0, 1, 2, 3)
            .doubt(0)
            .doubt(1)
            .doubt(2)
            .doubt(3)
            .final(0, 1, 2, 3)
            .batch(0, 3, 3)
            .batch(0, 0, 0)
        ),
        {Anomaly.DIVERGED: 3},
        [
            "replica 0: the batch at offset 0 begins before the one at 3 ends",
            "replica 0 ends at 1, the last whole read at 4",
            "replica 0 begins at offset 3, the log at 0, and nothing allows that",
        ],
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


def test_a_record_that_was_sent_first_is_known_although_the_clock_says_later() -> None:
    """So of events in the order of their files: a process's own order counts."""
    story = Story().send(0).read(0, 0, skew=-2.5).read(0, 0, by="other", skew=-3.5)
    for length in (1, len(story.events)):
        (partition,) = judged(story.events, length).judgement.partitions
        assert (partition.anomalies, partition.undecided) == ({}, (UNREAD,)), f"runs of {length}"


def test_who_sent_before_the_first_by_the_clock_stands_before_it() -> None:
    """So of a process whose clock went back: its events stand behind those of another one."""
    story = (
        Story()
        .send(0)
        .lead(1, 1, by="q")
        .send(0, by="q", skew=-3.0)
        .ack(0, 1, by="q", skew=-3.5)
        .ack(0, 0)
        .read(0, 0, by="final")
        .read(1, 0, by="final", of="q")
        .end(0, 2)
    )
    own = [event for event in story.events if event.process == "q"]
    events = list(merge([each for each in story.events if each not in own], own))
    assert events == story.events
    (partition,) = judge(events).judgement.partitions
    assert [finding.text for finding in partition.findings] == [
        f"q:0 (offset 1) stands behind p:0 (offset 0), {ACKNOWLEDGED_THEN}"
    ]


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
