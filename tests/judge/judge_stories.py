"""Histories made by hand: each wrong in one way, or odd and right, or not to be decided."""

from __future__ import annotations

from collections.abc import Callable

from tests.judge.histories import WALL_MS, Story

from holdfast.judge.checker import judge
from holdfast.judge.verdict import Anomaly

WEEK_MS = 7 * 24 * 3600 * 1000
FUTURE_MS = WALL_MS + 52 * WEEK_MS


def anomalies(story: Story) -> dict[Anomaly, int]:
    """What the judge counts in a story, in the order of the clocks that it tells."""
    judgement = judge(sorted(story.events, key=lambda event: event.at_ms)).judgement
    return {anomaly: n for anomaly in Anomaly if (n := judgement.count(anomaly))}


def clean() -> Story:
    """A run without anything wrong: two acknowledged, one refused, two in doubt (one is there)."""
    return (
        Story()
        .send(0, 1, 2, 3, 4)
        .ack(0, 0)
        .ack(1, 1)
        .refuse(2)
        .doubt(3)
        .doubt(4)
        .position(0)
        .read(0, 0)
        .read(1, 1)
        .final(0, 1, 4)
        .batch(0, 0, 2)
        .batch(1, 0, 2)
    )


def two() -> Story:
    return Story().send(0, 1).ack(0, 0).ack(1, 1)


def three() -> Story:
    return two().send(2).ack(2, 2)


def in_doubt() -> Story:
    return Story().send(0, 1, 2).doubt(0).doubt(1).doubt(2)


def size_then_age(limit: int) -> Story:
    """Size may have taken what is of the future, and age what stood behind it."""
    return (
        Story()
        .send(0, timestamp=FUTURE_MS)
        .send(1, 2)
        .ack(0, 0)
        .ack(1, 1)
        .ack(2, 2)
        .retention(ms=0, size=limit)
        .final(2, begin=2)
        .batch(0, 2, 2)
    )


def size_between_ages(limit: int) -> Story:
    """As above, and something due stood before it, too."""
    return (
        Story()
        .send(0)
        .send(1, timestamp=FUTURE_MS)
        .send(2, 3)
        .ack(0, 0)
        .ack(1, 1)
        .ack(2, 2)
        .ack(3, 3)
        .retention(ms=0, size=limit)
        .final(3, begin=3)
        .batch(0, 3, 3)
    )


def many_in_doubt(limit: int) -> Story:
    """Of twenty acknowledged records the last one stands; ten more are in doubt."""
    story = Story().send(*range(30))
    for number in range(20):
        story.ack(number, number)
    for number in range(20, 30):
        story.doubt(number)
    return story.retention(size=limit).final(19, begin=19).batch(0, 19, 19)


# Every anomaly that the judge must name, with its count; all others must be none.
BAD: list[tuple[str, Callable[[], Story], dict[Anomaly, int]]] = [
    (
        "a reader is given the log's records in order, one of them further behind",
        lambda: three().read(0, 0).read(2, 1).final(0, 1, 2),
        {Anomaly.DIVERGED: 1, Anomaly.VANISHED: 1, Anomaly.SKIPPED: 1},
    ),
    (
        "a reader was given before the log's beginning what stands behind it",
        lambda: in_doubt().read(0, 0).read(1, 1).final(0, 1, 2, begin=3),
        {Anomaly.VANISHED: 2},
    ),
    (
        "the last read is given what stands before its beginning",
        lambda: two().read(0, 0, by="final").read(1, 1, by="final").end(1, 2),
        {Anomaly.LOST: 1},
    ),
    (
        "the last read is given all, in another order",
        lambda: (
            three()
            .send(3)
            .ack(3, 3)
            .read(0, 0, by="final")
            .read(2, 2, by="final")
            .read(1, 1, by="final")
            .read(3, 3, by="final")
            .end(0, 4)
        ),
        {Anomaly.REORDERED: 1},
    ),
    (
        "an acknowledged record is not there",
        lambda: Story().send(0, 1).ack(0, 0).ack(1, 1).final(0),
        {Anomaly.LOST: 1},
    ),
    (
        "another record stands where it was acknowledged",
        lambda: Story().send(0, 1).ack(0, 0).send(2).ack(2, 0).final(2),
        {Anomaly.LOST: 1},
    ),
    (
        "acknowledged without an offset (acks=0), and not there",
        lambda: Story().send(0).ack(0, None).final(),
        {Anomaly.LOST: 1},
    ),
    (
        "one record stands three times",
        lambda: Story().send(0, 1).ack(0, 0).ack(1, 1).final(0, 1, 0, 0),
        {Anomaly.DUPLICATED: 2},
    ),
    (
        "a record in doubt stands twice",
        lambda: Story().send(0).doubt(0).final(0, 0),
        {Anomaly.DUPLICATED: 1},
    ),
    (
        "the log has them in another order than they were sent",
        lambda: Story().send(0, 1, 2).doubt(0).ack(1, 0).ack(2, 2).final(1, 0, 2),
        {Anomaly.REORDERED: 1},
    ),
    (
        "a reader is taken back without a word",
        lambda: Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0).read(1, 1).read(0, 0).final(0, 1),
        {Anomaly.REORDERED: 1},
    ),
    (
        "it stands elsewhere than the acknowledgement said",
        lambda: Story().send(1, 0).doubt(1).ack(0, 5).final(1, 0),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "replicas hold different bytes",
        lambda: clean().batch(2, 0, 2, digest="other"),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks a batch",
        lambda: clean().batch(0, 3, 5).batch(2, 0, 2).batch(2, 3, 5),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "two readers see different records in one epoch",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, 0)
            .doubt(1)
            .read(0, 0, by="a", epoch=3)
            .read(0, 1, by="b", epoch=3)
            .final(0, epoch=3)
        ),
        {Anomaly.DIVERGED: 1, Anomaly.VANISHED: 1},
    ),
    (
        "a record that nobody sent",
        lambda: Story().send(0).ack(0, 0).final(0, 9),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a record without an id of ours",
        lambda: Story().send(0).ack(0, 0).final(0).read(1, None),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "the bytes are others than those sent",
        lambda: Story().send(0).ack(0, 0).read(0, 0, digest="x", by="final").end(0, 1),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a refused record is in the log",
        lambda: Story().send(0).refuse(0).final(0),
        {Anomaly.RESURRECTED: 1},
    ),
    (
        "a refused record was read, and is gone again",
        lambda: Story().send(0).refuse(0).read(0, 0).final(),
        {Anomaly.RESURRECTED: 1, Anomaly.VANISHED: 1},
    ),
    (
        "read and then gone",
        lambda: Story().send(0, 1).doubt(0).doubt(1).read(0, 0).read(1, 1).final(0),
        {Anomaly.VANISHED: 1},
    ),
    (
        "read and then another there",
        lambda: Story().send(0, 1).doubt(0).ack(1, 0).read(0, 0, epoch=1).final(1, epoch=2),
        {Anomaly.VANISHED: 1},
    ),
    (
        "one reader is given another record at an offset, later",
        lambda: Story().send(0, 1).doubt(0).ack(1, 0).read(0, 0).position(0).read(0, 1).final(1),
        {Anomaly.VANISHED: 1},
    ),
    (
        "handed out at the high watermark",
        lambda: Story().send(0).ack(0, 0).read(0, 0, committed_end=0).final(0),
        {Anomaly.UNCOMMITTED: 1},
    ),
    (
        "a consumer passed over a record",
        lambda: (
            Story().send(0, 1, 2).ack(0, 0).ack(1, 1).ack(2, 2).read(0, 0).read(2, 2).final(0, 1, 2)
        ),
        {Anomaly.SKIPPED: 1},
    ),
    (
        "the log's beginning is gone, and nothing allows it",
        lambda: two().final(1, begin=1),
        {Anomaly.LOST: 1},
    ),
    (
        "all of the log is gone, and nothing allows it",
        lambda: two().final(begin=2),
        {Anomaly.LOST: 2},
    ),
    (
        "the log's beginning is gone, and was acknowledged when that was read",
        lambda: Story().send(0).final(begin=1).ack(0, 0),
        {Anomaly.LOST: 1},
    ),
    (
        "the log's beginning is gone before its time",
        lambda: Story().retention(ms=10_000).then(two()).final(1, begin=1),
        {Anomaly.LOST: 1},
    ),
    (
        "what carries a future timestamp is gone before that time",
        lambda: (
            Story()
            .retention(ms=0)
            .send(0, timestamp=FUTURE_MS)
            .send(1)
            .ack(0, 0)
            .ack(1, 1)
            .pause(WEEK_MS)
            .final(1, begin=1)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "what carries no timestamp is taken to be of 1970",
        lambda: (
            Story()
            .retention(ms=WEEK_MS)
            .send(0, timestamp=-1)
            .send(1)
            .ack(0, 0)
            .ack(1, 1)
            .final(1, begin=1)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "the log's beginning is gone by a policy that was lifted before its time",
        lambda: Story().retention(ms=100).then(two()).retention().pause(1000).final(1, begin=1),
        {Anomaly.LOST: 1},
    ),
    (
        "the log's beginning is gone by a policy that came later",
        lambda: two().final(1, begin=1).retention(ms=0),
        {Anomaly.LOST: 1},
    ),
    (
        "deleted by name, but not so far",
        lambda: three().delete(1).final(2, begin=2),
        {Anomaly.LOST: 1},
    ),
    (
        "deleted by name when it was gone already",
        lambda: two().final(1, begin=1).delete(1),
        {Anomaly.LOST: 1},
    ),
    (
        "retention by size took what has too little behind it",
        lambda: two().retention(size=101).final(1, begin=1).batch(0, 1, 1).batch(1, 1, 1),
        {Anomaly.LOST: 1},
    ),
    (
        "retention by size took what had too little behind it when its policy was lifted",
        lambda: (
            two()
            .retention(size=200)
            .retention()
            .send(2)
            .ack(2, 2)
            .final(1, 2, begin=1)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "acknowledged without an offset, and sent behind what still stands",
        lambda: Story().send(0, 1).ack(0, 5).ack(1, None).retention(ms=0).final(0, begin=5),
        {Anomaly.LOST: 1},
    ),
    (
        "acknowledged without an offset, and gone before its time",
        lambda: Story().retention(ms=10_000).send(0, 1).ack(0, None).ack(1, 5).final(1, begin=5),
        {Anomaly.LOST: 1},
    ),
    (
        "one copy has expired, another stands",
        lambda: Story().send(0).ack(0, 0).retention(ms=0).final(0, begin=1),
        {Anomaly.DUPLICATED: 1},
    ),
    (
        "acknowledged before the log's beginning, and it stands behind that",
        lambda: Story().send(0).ack(0, 0).final(0, begin=1),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "acknowledged behind the log's end, due, and it stands elsewhere",
        lambda: Story().send(0).ack(0, 5).retention(ms=0).final(0),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "read, and gone with the log's beginning",
        lambda: Story().send(0, 1).doubt(0).doubt(1).read(0, 0).final(1, begin=1),
        {Anomaly.VANISHED: 1},
    ),
    (
        "one reader is given two records at an offset, and both are gone",
        lambda: (
            Story()
            .send(0, 1)
            .doubt(0)
            .doubt(1)
            .read(0, 0, epoch=1)
            .position(0)
            .read(0, 1, epoch=2)
            .final(begin=1)
        ),
        {Anomaly.VANISHED: 2},
    ),
    (
        "one reader is given two records at an offset that nobody reads to the end",
        lambda: (
            Story().send(0, 1).doubt(0).doubt(1).read(0, 0, epoch=1).position(0).read(0, 1, epoch=2)
        ),
        {Anomaly.VANISHED: 1},
    ),
    (
        "one reader is given two records at an offset in one epoch",
        lambda: (
            Story()
            .send(0, 1)
            .doubt(0)
            .ack(1, 0)
            .read(0, 0, epoch=1)
            .position(0)
            .read(0, 1, epoch=1)
            .final(1, epoch=1)
        ),
        {Anomaly.VANISHED: 1, Anomaly.DIVERGED: 1},
    ),
    (
        "two readers are given different records that nobody reads to the end",
        lambda: Story().send(0, 1).doubt(0).doubt(1).read(0, 0, by="a").read(0, 1, by="b"),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the last reader reads twice, and the second time a record is gone",
        lambda: (
            in_doubt()
            .final(0, 1, 2)
            .position(0, by="final")
            .read(0, 0, by="final")
            .read(2, 2, by="final")
            .end(0, 3)
        ),
        {Anomaly.VANISHED: 1},
    ),
    (
        "the last reader reads twice, and the second time an acknowledged record is gone",
        lambda: (
            three()
            .final(0, 1, 2)
            .position(0, by="final")
            .read(0, 0, by="final")
            .read(2, 2, by="final")
            .end(0, 3)
        ),
        {Anomaly.LOST: 1, Anomaly.VANISHED: 1},
    ),
    (
        "the last reader reads twice, and goes back without a word",
        lambda: in_doubt().final(0, 1, 2).final(0, 1),
        {Anomaly.REORDERED: 1, Anomaly.VANISHED: 1},
    ),
    (
        "a reader whose clock is ahead was given what is not there",
        lambda: (
            Story().send(0, 1).doubt(0).ack(1, 0).read(0, 0, epoch=1, skew=1e6).final(1, epoch=2)
        ),
        {Anomaly.VANISHED: 1},
    ),
    (
        "a first whole read lacks what the last one finds",
        lambda: three().read(1, 1, by="a").end(0, 3, by="a").final(0, 1, 2),
        {Anomaly.SKIPPED: 2},
    ),
    (
        "a reader is reset in silence: at position 0 it is given offset 2",
        lambda: three().position(0).read(2, 2).final(0, 1, 2),
        {Anomaly.SKIPPED: 2},
    ),
    (
        "a reader is told that its position is gone, and it is not",
        lambda: three().read(0, 0).position(2, told=True).read(2, 2).final(0, 1, 2),
        {Anomaly.SKIPPED: 1},
    ),
    (
        "a reader is told that the log begins behind where it does",
        lambda: three().position(2, told=True).read(2, 2).final(0, 1, 2),
        {Anomaly.SKIPPED: 2},
    ),
    (
        "a key is not the one that was sent",
        lambda: Story().send(0, key="k").ack(0, 0).read(0, 0, key="other", by="final").end(0, 1),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a key is gone",
        lambda: Story().send(0, key="k").ack(0, 0).read(0, 0, by="final").end(0, 1),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "it stands before what was acknowledged when another producer sent it",
        lambda: (
            Story()
            .send(0, by="a")
            .ack(0, 1, by="a")
            .send(0, by="b")
            .ack(0, 0, by="b")
            .read(0, 0, of="b", by="final")
            .read(1, 0, of="a", by="final")
            .end(0, 2)
        ),
        {Anomaly.REORDERED: 1},
    ),
    (
        "of three producers the first to be acknowledged stands last",
        lambda: (
            Story()
            .send(0, by="a")
            .ack(0, 2, by="a")
            .send(0, by="b")
            .send(0, by="c")
            .ack(0, 1, by="b")
            .ack(0, 0, by="c")
            .read(0, 0, of="c", by="final")
            .read(1, 0, of="b", by="final")
            .read(2, 0, of="a", by="final")
            .end(0, 3)
        ),
        {Anomaly.REORDERED: 1},
    ),
    (
        "it stands elsewhere, and at its offset, too",
        lambda: Story().send(0).ack(0, 1).final(0, 0),
        {Anomaly.DUPLICATED: 1},
    ),
    (
        "what nobody sent stands twice",
        lambda: Story().final(9, 9),
        {Anomaly.PHANTOM: 2, Anomaly.DUPLICATED: 1},
    ),
    (
        "what nobody sent is given to two readers",
        lambda: Story().read(0, 9).final(9),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a refused record is given to two readers",
        lambda: Story().send(0).refuse(0).read(0, 0).final(0),
        {Anomaly.RESURRECTED: 1},
    ),
    (
        "acknowledged without an offset, and gone behind what was deleted",
        lambda: Story().send(0, 1).ack(0, None).ack(1, 2).delete(1).final(1, begin=2),
        {Anomaly.LOST: 1},
    ),
    (
        "acknowledged without an offset, due, and the log has all from its beginning",
        lambda: Story().send(0).ack(0, None).retention(ms=0).final(),
        {Anomaly.LOST: 1},
    ),
    (
        "due, but not before the log's beginning",
        lambda: two().retention(ms=0).end(1, 2),
        {Anomaly.LOST: 1},
    ),
    (
        "it was read where the log has a hole",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, 0)
            .ack(1, 7)
            .read(5, 1)
            .read(0, 0, by="final")
            .read(7, 1, by="final")
            .end(0, 8)
        ),
        {Anomaly.VANISHED: 1},
    ),
    (
        "two readers differ where a third, who read more, did not look",
        lambda: (
            in_doubt().read(5, 2, by="c").read(6, 2, by="c").read(0, 0, by="a").read(0, 1, by="b")
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "one reader is given twice what is gone",
        lambda: (
            Story()
            .send(0, 1)
            .doubt(0)
            .ack(1, 0)
            .read(0, 0, epoch=1)
            .position(0)
            .read(0, 0, epoch=1)
            .final(1, epoch=2)
        ),
        {Anomaly.VANISHED: 1},
    ),
    (
        "a first whole read lacks the end of what it says it read",
        lambda: three().read(0, 0, by="a").read(1, 1, by="a").end(0, 3, by="a").final(0, 1, 2),
        {Anomaly.SKIPPED: 1},
    ),
    (
        "told to go on behind what it did not get, from where it stood",
        lambda: three().position(1).read(1, 1).position(3, told=True).final(0, 1, 2),
        {Anomaly.SKIPPED: 1},
    ),
    (
        "told to go on behind what retention by size must leave",
        lambda: (
            three()
            .retention(size=200)
            .position(2, told=True)
            .read(2, 2)
            .final(0, 1, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
        ),
        {Anomaly.SKIPPED: 2},
    ),
    (
        "told to go on behind what size took only later, when more was sent",
        lambda: (
            two()
            .retention(size=200)
            .position(1, told=True)
            .read(1, 1)
            .send(2)
            .ack(2, 2)
            .final(0, 1, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
        ),
        {Anomaly.SKIPPED: 1},
    ),
    (
        "the last reader begins anew, and the second time a record is gone",
        lambda: (
            in_doubt()
            .read(0, 0, by="final")
            .read(1, 1, by="final")
            .read(2, 2, by="final")
            .position(0, by="final")
            .read(0, 0, by="final")
            .read(2, 2, by="final")
            .end(0, 3)
        ),
        {Anomaly.VANISHED: 1},
    ),
    (
        "the last reader goes back without a word, on its way",
        lambda: (
            two().read(0, 0, by="final").read(1, 1, by="final").read(0, 0, by="final").end(0, 2)
        ),
        {Anomaly.REORDERED: 1},
    ),
    (
        "the log and one replica lack a prefix, and another has it",
        lambda: (
            two()
            .final(1, begin=1)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 1, 2)
            .batch(1, 1, 1)
        ),
        {Anomaly.LOST: 1, Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks a record in doubt that stands in the log and is not due",
        lambda: (
            Story()
            .retention(ms=10_000)
            .send(0, 1)
            .doubt(0)
            .ack(1, 1)
            .final(0, 1)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 1, 2)
            .batch(1, 1, 1)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks what was acknowledged and is not due, and nobody reads to the end",
        lambda: (
            Story()
            .retention(ms=10_000)
            .then(two())
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 1, 2)
            .batch(1, 1, 1)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica begins behind what was deleted, and still has the bytes",
        lambda: (
            three()
            .delete(1)
            .final(1, 2, begin=1)
            .replica(0, 1, 3)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 1, 1)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the log's leader epoch falls",
        lambda: (
            three()
            .read(0, 0, by="final", epoch=3)
            .read(1, 1, by="final", epoch=2)
            .read(2, 2, by="final", epoch=2)
            .end(0, 3)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica's leader epoch falls",
        lambda: two().final(0, 1).batch(0, 0, 0, epoch=3).batch(0, 1, 1, epoch=2),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica's batches overlap",
        lambda: two().final(0, 1).batch(0, 0, 1).batch(0, 1, 1),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks a prefix, and nothing allows it",
        lambda: (
            two()
            .final(0, 1)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 1, 2)
            .batch(1, 1, 1)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks a prefix that was deleted, and more",
        lambda: (
            three()
            .delete(1)
            .final(1, 2, begin=1)
            .replica(0, 1, 3)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks a prefix that is not due",
        lambda: (
            Story()
            .retention(ms=10_000)
            .then(two())
            .final(0, 1)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 1, 2)
            .batch(1, 1, 1)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the only replica lacks a prefix that was read",
        lambda: two().final(0, 1).replica(0, 1, 2).batch(0, 1, 1),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks a prefix that nobody sent, and nothing allows it",
        lambda: (
            Story().replica(0, 0, 2).batch(0, 0, 0).batch(0, 1, 1).replica(1, 1, 2).batch(1, 1, 1)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica holds nothing, and ends where the others do",
        lambda: two().final(0, 1).replica(0, 0, 2).batch(0, 0, 1).replica(1, 2, 2),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica holds nothing and says that this is all",
        lambda: two().final(0, 1).replica(0, 0, 2).batch(0, 0, 1).replica(1, 0, 0),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica's log begins before its bytes do",
        lambda: (
            two()
            .final(0, 1)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 0, 2)
            .batch(1, 1, 1)
        ),
        {Anomaly.DIVERGED: 2},
    ),
    (
        "replicas hold the same offsets in batches that begin elsewhere",
        lambda: (
            two()
            .final(0, 1)
            .replica(0, 0, 2)
            .batch(0, 0, 1)
            .replica(1, 0, 2)
            .batch(1, 0, 0, digest="c")
            .batch(1, 1, 1)
        ),
        {Anomaly.DIVERGED: 2},
    ),
    (
        "two replicas that differ where a third holds nothing any more",
        lambda: (
            two()
            .delete(1)
            .final(1, begin=1)
            .replica(0, 1, 2)
            .batch(0, 1, 1)
            .replica(1, 0, 2)
            .batch(1, 0, 0)
            .batch(1, 1, 1)
            .replica(2, 0, 2)
            .batch(2, 0, 0, digest="c")
            .batch(2, 1, 1)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica ends elsewhere than its bytes and the other one",
        lambda: two().final(0, 1).replica(0, 0, 2).batch(0, 0, 1).replica(1, 0, 3).batch(1, 0, 1),
        {Anomaly.DIVERGED: 2},
    ),
    (
        "the replicas end before the last whole read",
        lambda: two().final(0, 1).replica(0, 0, 1).batch(0, 0, 0),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica begins past what was deleted by name, and only what is in doubt stood there",
        lambda: (
            in_doubt()
            .delete(1)
            .final(2, begin=2)
            .replica(0, 1, 3)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica begins later, and nothing that was sent is old enough, whatever stood there",
        lambda: (
            in_doubt()
            .retention(ms=WEEK_MS)
            .final(2, begin=2)
            .replica(0, 0, 3)
            .batch(0, 0, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica begins later than a deletion reaches, and nobody knows what stood there",
        lambda: (
            in_doubt()
            .delete(1)
            .final(2, begin=2)
            .replica(0, 0, 3)
            .batch(0, 0, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica begins later, and not all that stands in the log is old enough",
        lambda: (
            Story()
            .send(0, timestamp=1)
            .send(1, 2)
            .doubt(0)
            .doubt(1)
            .doubt(2)
            .retention(ms=WEEK_MS)
            .final(0, 1, 2)
            .replica(0, 0, 3)
            .batch(0, 0, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica and the log begin later, and not all that was acknowledged is old enough",
        lambda: (
            Story()
            .send(0, timestamp=1)
            .send(1, 2)
            .ack(0, 0)
            .ack(1, 1)
            .ack(2, 2)
            .retention(ms=WEEK_MS)
            .final(2, begin=2)
            .replica(0, 0, 3)
            .batch(0, 0, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 2, 2)
        ),
        {Anomaly.LOST: 1, Anomaly.DIVERGED: 1},
    ),
    (
        "retention by size, too little behind, and what was refused was never there",
        lambda: (
            two().retention(size=100).send(2).refuse(2).final(1, begin=1).batch(0, 1, 1, size=50)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "retention by size, too little behind, and what is in doubt was sent when it was lifted",
        lambda: (
            two()
            .retention(size=100)
            .retention()
            .send(2)
            .doubt(2)
            .final(1, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "retention by size, too little behind: what is gone is no excuse for what is gone",
        lambda: three().retention(size=150).final(2, begin=2).batch(0, 2, 2, size=50),
        {Anomaly.LOST: 2},
    ),
    (
        "retention by size, too little behind, and nobody knows where the others stood",
        lambda: (
            Story()
            .send(0, 1, 2)
            .ack(0, None)
            .ack(1, 1)
            .ack(2, 2)
            .retention(size=150)
            .final(2, begin=2)
            .batch(0, 2, 2, size=50)
        ),
        {Anomaly.LOST: 2},
    ),
    (
        "retention by size counted what was truncated, and that is lost",
        lambda: (
            three()
            .send(3)
            .ack(3, None)
            .retention(size=300)
            .final(1, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        {Anomaly.LOST: 2},
    ),
    (
        "retention by size, and not even what is in doubt is enough",
        lambda: many_in_doubt(1481),
        {Anomaly.LOST: 19},
    ),
    (
        "retention by size, too little behind, and deleted by name only what stood before",
        lambda: (
            three().send(3).ack(3, 3).retention(size=110).delete(1).final(3, begin=3).batch(0, 3, 3)
        ),
        {Anomaly.LOST: 2},
    ),
    (
        "retention by size, and not even with what age took is it enough",
        lambda: size_then_age(239),
        {Anomaly.LOST: 1},
    ),
    (
        "retention by size was lifted when what age took was sent",
        lambda: (
            Story()
            .send(0, timestamp=FUTURE_MS)
            .send(2)
            .retention(size=110)
            .retention(ms=0)
            .send(1)
            .ack(0, 0)
            .ack(1, 1)
            .ack(2, 2)
            .final(2, begin=2)
            .batch(0, 2, 2)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "every replica says that it holds what none has a batch of",
        lambda: two().final(0, 1).replica(0, 0, 2).replica(1, 0, 2),
        {Anomaly.DIVERGED: 2},
    ),
    (
        "the only replica's batches end before it does",
        lambda: two().final(0, 1).replica(0, 0, 2).batch(0, 0, 0),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the only replica's batches end behind it",
        lambda: two().final(0, 1).replica(0, 0, 2).batch(0, 0, 2),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the only replica's batches begin behind it",
        lambda: two().final(0, 1).replica(0, 0, 2).batch(0, 1, 1),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the only replica holds nothing, but what ends elsewhere",
        lambda: two().delete(2).final(begin=2).replica(0, 2, 2).batch(0, 0, 0),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the only replica has two holes where records were read, three of them in one",
        lambda: (
            Story()
            .send(*range(7))
            .ack(6, 6)
            .final(*range(7))
            .replica(0, 0, 7)
            .batch(0, 0, 0)
            .batch(0, 4, 4)
            .batch(0, 6, 6)
        ),
        {Anomaly.DIVERGED: 2},
    ),
    (
        "one replica has a hole where a record was read, and another the batch",
        lambda: (
            three()
            .final(0, 1, 2)
            .replica(0, 0, 3)
            .batch(0, 0, 0)
            .batch(0, 2, 2)
            .replica(1, 0, 3)
            .batch(1, 0, 0)
            .batch(1, 1, 1)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "the first replica has a hole at its end where records were read, as others have",
        lambda: (
            three()
            .final(0, 1, 2)
            .replica(0, 0, 3)
            .batch(0, 0, 0)
            .batch(0, 2, 2)
            .replica(1, 0, 3)
            .batch(1, 0, 0)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a deletion by name was refused, and the records are gone",
        lambda: two().delete(1).deny(1).final(1, begin=1),
        {Anomaly.LOST: 1},
    ),
    (
        "a deletion by name was refused, and a shorter one carried out",
        lambda: three().delete(1).delete(2).deny(2).final(2, begin=2),
        {Anomaly.LOST: 1},
    ),
    (
        "a deletion by name was refused, and another asked for it when the records were gone",
        lambda: two().delete(1).final(1, begin=1).delete(1, by="other").deny(1),
        {Anomaly.LOST: 1},
    ),
    (
        "a deletion by name was refused when the records were gone",
        lambda: two().delete(1).final(1, begin=1).deny(1),
        {Anomaly.LOST: 1},
    ),
    (
        "two lead in one epoch, as one witness says",
        lambda: two().final(0, 1).lead(1, 3).lead(2, 3).lead(1, 3),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "two lead in one epoch, as two witnesses say, and one of them later, too",
        lambda: two().final(0, 1).lead(1, 3).lead(-1, 4).lead(2, 3, by="b").lead(2, 3, by="b"),
        {Anomaly.DIVERGED: 2},
    ),
    (
        "due, but the log had begun anew by then, and gave their offsets again",
        lambda: (
            Story()
            .retention(ms=0)
            .then(two())
            .send(2, 3)
            .ack(2, 0)
            .ack(3, 1)
            .pause(10)
            .final(begin=2)
        ),
        {Anomaly.LOST: 2},
    ),
    (
        "due, but the log had gone back to before it by then",
        lambda: (
            Story()
            .retention(ms=0)
            .send(0)
            .ack(0, 1)
            .send(1)
            .ack(1, 5)
            .send(2)
            .ack(2, 3)
            .pause(10)
            .final(begin=6)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "two of one offset, at one time, and both are due",
        lambda: Story().retention(ms=0).send(0, 1).ack(0, 0).ack(1, 0).pause(10).final(begin=1),
        {Anomaly.LOST: 1},
    ),
    (
        "two of one offset, and the later one of them had to give way to a third",
        lambda: (
            Story()
            .retention(ms=0)
            .send(0, 1)
            .ack(1, 5)
            .send(2)
            .ack(2, 2)
            .ack(0, 5)
            .pause(10)
            .final(begin=6)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "deleted by name, and what stood there later, too",
        lambda: two().delete(2).send(2).ack(2, 1).final(begin=2),
        {Anomaly.LOST: 1},
    ),
    (
        "perhaps gone by size, if its offset had not been given again",
        lambda: (
            two()
            .retention(size=100)
            .send(2, 3)
            .doubt(2)
            .ack(3, 0)
            .final(1, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "due, and what was acknowledged there later is not, so lost in any case",
        lambda: (
            Story()
            .retention(ms=0)
            .send(0)
            .ack(0, 0)
            .send(1, timestamp=FUTURE_MS)
            .ack(1, 0)
            .pause(10)
            .final(begin=1)
        ),
        {Anomaly.LOST: 1},
    ),
    (
        "a timestamp is not the one that was given",
        lambda: (
            Story().send(0, timestamp=5).ack(0, 0).read(0, 0, by="final", timestamp=6).end(0, 1)
        ),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a timestamp is not the time of sending",
        lambda: Story().send(0).ack(0, 0).read(0, 0, by="final", timestamp=6).end(0, 1),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a record without a timestamp has one",
        lambda: (
            Story().send(0, timestamp=-1).ack(0, 0).read(0, 0, by="final", timestamp=0).end(0, 1)
        ),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a timestamp is not the one that was given, and is read before the clock says it was sent",
        lambda: (
            Story()
            .read(0, 0, timestamp=6)
            .send(0, timestamp=5)
            .ack(0, 0)
            .read(0, 0, by="final", timestamp=5)
            .end(0, 1)
        ),
        {Anomaly.DIVERGED: 1, Anomaly.PHANTOM: 1, Anomaly.VANISHED: 1},
    ),
    (
        "the metadata go back to an earlier leader epoch, twice",
        lambda: two().lead(1, 3).lead(2, 5).lead(1, 4).lead(1, 4).lead(2, 6).final(0, 1),
        {Anomaly.DIVERGED: 2},
    ),
    (
        "another key, and due when a reader was told that it is gone",
        lambda: (
            two()
            .retention(ms=0)
            .pause(5)
            .position(1, told=True)
            .read(1, 1)
            .read(0, 0, by="final", key="k")
            .read(1, 1, by="final")
            .end(0, 2)
        ),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "another key, and a replica has it no more, since it is due",
        lambda: (
            two()
            .retention(ms=0)
            .read(0, 0, by="final", key="k")
            .read(1, 1, by="final")
            .end(0, 2)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 1, 2)
            .batch(1, 1, 1)
        ),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "another key, read, and then due",
        lambda: two().read(0, 0, key="k").retention(ms=0).final(1, begin=1),
        {Anomaly.PHANTOM: 1},
    ),
]


# Nothing is wrong for certain, and nothing is decided. The words say why.
UNDECIDED: list[tuple[str, Callable[[], Story], str]] = [
    (
        "a partition is expected, and nothing else is said of it",
        lambda: Story().expect(),
        "read to",
    ),
    ("nobody reads it to its end", lambda: Story().send(0).ack(0, 0).read(0, 0), "read to its end"),
    ("another partition is expected", lambda: clean().expect(partition=1), "foo-1: .*read to"),
    (
        "acknowledged when the last whole read had begun, behind its end",
        lambda: Story().send(0).final().ack(0, 0),
        "1 records were acknowledged",
    ),
    (
        "acknowledged without an offset when the last whole read had begun",
        lambda: Story().send(0).final().ack(0, None),
        "1 records were acknowledged",
    ),
    (
        "acknowledged when the end was known and the read went on",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, 0)
            .position(0, by="final")
            .read(0, 0, by="final")
            .ack(1, 1)
            .end(0, 1)
        ),
        "1 records were acknowledged",
    ),
    (
        "acknowledged when the end had been asked for, by the reader's word",
        lambda: Story().send(0).ack(0, 0).position(0, by="final").end(0, 0, asked_ms=1001.5),
        "1 records were acknowledged",
    ),
    (
        "acknowledged and read when the end was known, by the last reader itself",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, 0)
            .position(0, by="final")
            .read(0, 0, by="final")
            .ack(1, 1)
            .read(1, 1, by="final")
            .end(0, 1)
        ),
        "1 records were acknowledged",
    ),
    (
        "a reader goes over it twice, and nobody reads to the end",
        lambda: Story().send(0).doubt(0).read(0, 0).position(0).read(0, 0),
        "read to its end",
    ),
    (
        "sent and acknowledged when the end was known",
        lambda: Story().send(0).ack(0, 0).final(0).send(1).ack(1, 1),
        "1 records were acknowledged",
    ),
    (
        "sent and acknowledged without an offset when the end was known, and old enough to go",
        lambda: (
            Story()
            .retention(ms=0)
            .send(0)
            .ack(0, 0)
            .final(begin=1)
            .send(1, timestamp=0)
            .ack(1, None)
        ),
        "1 records were acknowledged",
    ),
    (
        "read behind the end when that was known, and sent before",
        lambda: Story().send(0, 1).ack(0, 0).doubt(1).final(0).read(0, 0).read(1, 1),
        "1 records were read",
    ),
    (
        "acknowledged and gone, and what is in doubt would be enough for retention by size",
        lambda: many_in_doubt(1480),
        "19 records that were acknowledged are gone",
    ),
    (
        "acknowledged and gone, and one in doubt would be enough for retention by size",
        lambda: (
            two().retention(size=100).send(2).doubt(2).final(1, begin=1).batch(0, 1, 1, size=50)
        ),
        "1 records that were acknowledged are gone",
    ),
    (
        "acknowledged before the log's beginning, stands elsewhere, and may have gone by size",
        lambda: (
            Story()
            .send(0)
            .ack(0, 0)
            .retention(size=100)
            .send(2)
            .doubt(2)
            .final(0, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        "1 records that were acknowledged are gone",
    ),
    (
        "acknowledged and gone, and nobody knows how much of it age took later",
        lambda: size_then_age(111),
        "1 records that were acknowledged are gone",
    ),
    (
        "acknowledged and gone, and nobody knows how much age took, before it and behind it",
        lambda: size_between_ages(111),
        "1 records that were acknowledged are gone",
    ),
    (
        "acknowledged and gone, and nobody knows how much of it age took later, at most",
        lambda: size_then_age(238),
        "1 records that were acknowledged are gone",
    ),
    (
        "acknowledged and gone, and what is due may have stood before it or behind it",
        lambda: (
            Story()
            .send(0, timestamp=FUTURE_MS)
            .send(1, by="q", timestamp=0)
            .send(2)
            .ack(0, 0)
            .ack(1, None, by="q")
            .ack(2, 2)
            .retention(ms=WEEK_MS, size=150)
            .final(2, begin=2)
            .batch(0, 2, 2, size=50)
        ),
        "1 records that were acknowledged are gone",
    ),
    (
        "acknowledged and gone by a size that was lifted, and nobody knows what a batch held",
        lambda: (
            two()
            .retention(size=150)
            .retention()
            .read(1, 1, by="final")
            .end(1, 3)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
        ),
        "1 records that were acknowledged are gone",
    ),
    (
        "read and gone, and one in doubt would be enough for retention by size",
        lambda: (
            Story()
            .send(0, 1, 2)
            .doubt(0)
            .ack(1, 1)
            .doubt(2)
            .read(0, 0)
            .retention(size=100)
            .final(1, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        "1 records are gone that readers",
    ),
    (
        "told to pass over what one in doubt would be enough for",
        lambda: (
            three()
            .send(3)
            .doubt(3)
            .retention(size=238)
            .position(2, told=True)
            .read(2, 2)
            .final(0, 1, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .batch(0, 2, 2)
        ),
        "2 records are gone that readers",
    ),
    (
        "a replica begins later, and one in doubt would be enough for retention by size",
        lambda: (
            two()
            .retention(size=100)
            .send(2)
            .doubt(2)
            .final(0, 1)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1, size=50)
            .replica(1, 1, 2)
            .batch(1, 1, 1, size=50)
        ),
        "1 replicas begin later",
    ),
    (
        "a replica begins later: of one record nobody knows whether size took it, one is due",
        lambda: (
            Story()
            .send(0, timestamp=FUTURE_MS)
            .send(1, 2)
            .ack(0, 0)
            .ack(1, 1)
            .ack(2, 2)
            .retention(ms=0, size=150)
            .final(0, 1, 2)
            .replica(0, 0, 3)
            .batch(0, 0, 1)
            .batch(0, 2, 2, size=50)
            .replica(1, 2, 3)
            .batch(1, 2, 2, size=50)
        ),
        "1 replicas begin later",
    ),
    (
        "a replica begins later by a size that was lifted, and nobody reads to the end",
        lambda: (
            two()
            .retention(size=100)
            .retention()
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .replica(1, 1, 2)
            .batch(1, 1, 1)
        ),
        "read to its end",
    ),
    (
        "replicas end behind the last whole read",
        lambda: (
            two()
            .final(0, 1)
            .replica(0, 0, 3)
            .batch(0, 0, 1)
            .batch(0, 2, 2)
            .replica(1, 0, 3)
            .batch(1, 0, 1)
            .batch(1, 2, 2)
        ),
        "replica 0 ends at 3, the last whole read at 2",
    ),
    (
        "a record is read before it was sent",
        lambda: Story().read(0, 0).send(0).ack(0, 0).final(0),
        "clocks disagree: live read p:0",
    ),
]


GOOD: list[tuple[str, Callable[[], Story]]] = [
    (
        "a leader is not there for a while, and is there again in its epoch",
        lambda: two().final(0, 1).lead(-1, 3).lead(1, 3).lead(-1, 3).lead(1, 3, by="b").lead(2, 4),
    ),
    (
        "two records at one time stand in another order than they were sent, and are due",
        lambda: (
            Story().retention(ms=0).send(0, 1).ack(0, 1).ack(1, 0).pause(10).final(begin=2)
        ),
    ),
    (
        "a record was sent at the moment at which one behind it was acknowledged, and both are due",
        lambda: (
            Story()
            .retention(ms=0)
            .send(0, by="a")
            .ack(0, 1, by="a")
            .send(0, by="b", skew=-1.0)
            .ack(0, 0, by="b")
            .pause(10)
            .final(begin=2)
        ),
    ),
    ("nothing at all was sent", lambda: Story().final()),
    ("a hole in the offsets", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 7).read(0, 0, by="final").read(7, 1, by="final")
        .end(0, 8)
    )),
    ("retention took the beginning", lambda: (
        two().read(0, 0).read(1, 1).retention(ms=0).final(1, begin=1)
    )),
    ("retention took what carried an old timestamp", lambda: (
        Story().retention(ms=WEEK_MS).send(0, timestamp=0).send(1).ack(0, 0).ack(1, 1)
        .final(1, begin=1)
    )),
    ("retention took what carried no timestamp, after its time", lambda: (
        Story().retention(ms=500).send(0, timestamp=-1).ack(0, 0).pause(600).final(begin=1)
    )),
    ("retention took it before its policy was lifted", lambda: (
        Story().retention(ms=100).send(0).ack(0, 0).pause(200).retention().pause(200)
        .final(begin=1)
    )),
    ("retention by size took what has enough behind it", lambda: (
        two().retention(size=100).final(1, begin=1).batch(0, 1, 1).batch(1, 1, 1)
    )),
    ("retention by size took it before its policy was lifted", lambda: (
        two().retention(size=100).send(2).ack(2, 2).retention().send(3).ack(3, 3)
        .final(2, 3, begin=2).batch(0, 2, 2).batch(0, 3, 3)
    )),
    ("records were deleted by name", lambda: two().delete(1).final(1, begin=1)),
    ("records were deleted by name, all of them", lambda: two().delete(2).final(begin=2)),
    ("acknowledged without an offset, and expired", lambda: (
        Story().send(0, 1).ack(0, None).ack(1, 1).retention(ms=0).final(1, begin=1)
    )),
    ("acknowledged without an offset, and deleted by name", lambda: (
        Story().send(0, 1).ack(0, None).ack(1, 1).delete(1).final(1, begin=1)
    )),
    ("read, deleted by name, and never acknowledged", lambda: (
        Story().send(0, 1).doubt(0).ack(1, 1).read(0, 0).delete(1).final(1, begin=1)
    )),
    ("told that its position is gone, and it was deleted by name", lambda: (
        two().delete(1).position(0).position(1, told=True).read(1, 1).final(0, 1)
    )),
    ("told to go on behind what size had taken", lambda: (
        three().retention(size=200).position(1, told=True, skew=-1.0).read(1, 1).read(2, 2)
        .final(0, 1, 2).batch(0, 0, 0).batch(0, 1, 1).batch(0, 2, 2)
    )),
    ("told in the very moment of a send to go on behind what size has taken", lambda: (
        two().retention(size=200).send(2).position(1, told=True, skew=-1.0).ack(2, 2)
        .read(1, 1).read(2, 2).final(0, 1, 2).batch(0, 0, 0).batch(0, 1, 1).batch(0, 2, 2)
    )),
    ("told where the log begins, which was then", lambda: (
        two().position(0, told=True).read(0, 0).read(1, 1).retention(ms=0).final(1, begin=1)
    )),
    ("told to go back, because the log is shorter now", lambda: (
        two().position(5).position(1, told=True).read(1, 1).final(0, 1)
    )),
    ("a reader seeks forward by itself", lambda: (
        three().read(0, 0).position(2).read(2, 2).final(0, 1, 2)
    )),
    ("a reader goes back to what it had passed over", lambda: (
        three().read(0, 0).position(2).read(2, 2).position(1).read(1, 1).read(2, 2).final(0, 1, 2)
    )),
    ("position 0, first record 2, and nothing stands before it", lambda: (
        Story().send(0).ack(0, 2).position(0).read(2, 0).read(2, 0, by="final").end(0, 3)
    )),
    ("what a reader was given behind the end was sent when that was known", lambda: (
        Story().send(0).ack(0, 0).final(0).send(1).read(0, 0).read(1, 1).doubt(1)
    )),
    ("the last reader reads twice, and finds more", lambda: (
        Story().send(0).ack(0, 0).final(0).send(1).ack(1, 1).position(0, by="final").final(0, 1)
    )),
    ("the last reader goes on where it was told to", lambda: (
        three().position(0, by="final").read(0, 0, by="final").position(1, by="final", told=True)
        .read(1, 1, by="final").read(2, 2, by="final").end(0, 3)
    )),
    ("two producers whose sends overlap", lambda: (
        Story().send(0, by="a").send(0, by="b").ack(0, 1, by="a").ack(0, 0, by="b")
        .read(0, 0, of="b", by="final").read(1, 0, of="a", by="final").end(0, 2)
    )),
    ("one producer after the other", lambda: (
        Story().send(0, by="a").ack(0, 0, by="a").send(0, by="b").ack(0, 1, by="b")
        .read(0, 0, of="a", by="final").read(1, 0, of="b", by="final").end(0, 2)
    )),
    ("acknowledged without an offset (acks=0), and on its way until later", lambda: (
        Story().send(0, by="a").ack(0, None, by="a").send(0, by="b").ack(0, 0, by="b")
        .read(0, 0, of="b", by="final").read(1, 0, of="a", by="final").end(0, 2)
    )),
    ("told where the log begins, and then it began anew", lambda: (
        Story().position(2, told=True).send(0).ack(0, 0).final(0)
    )),
    ("retention by size took what is not due, and age took later what stood behind it", lambda: (
        size_then_age(110)
    )),
    ("retention by size took what is not due, and age took later what stood around it", lambda: (
        size_between_ages(110)
    )),
    ("retention by size took what has enough behind it, of which nobody knows what it is", lambda: (
        two().retention(size=200).read(1, 1, by="final").end(1, 3).batch(0, 1, 1).batch(0, 2, 2)
    )),
    ("retention by size took what is not due, and a deletion took what stood behind it", lambda: (
        three().retention(size=110).delete(2).final(2, begin=2).batch(0, 2, 2)
    )),
    ("what is in doubt stands behind what was sent later by another", lambda: (
        Story().send(0, by="a").doubt(0, by="a").send(0, by="b").ack(0, 0, by="b")
        .read(0, 0, of="b", by="final").read(1, 0, of="a", by="final").end(0, 2)
    )),
    ("read in the very moment of its send", lambda: (
        Story().read(0, 0, skew=1.0).send(0).ack(0, 0).final(0)
    )),
    ("leader epochs rise along the log and the replicas", lambda: (
        two().read(0, 0, by="final", epoch=3).read(1, 1, by="final", epoch=4).end(0, 2)
        .batch(0, 0, 0, epoch=3).batch(0, 1, 1, epoch=4)
    )),
    ("replicas have the same bytes from where the later one begins, which was deleted", lambda: (
        three().delete(2).final(2, begin=2)
        .replica(0, 0, 3).batch(0, 0, 0).batch(0, 1, 1).batch(0, 2, 2)
        .replica(1, 2, 3).batch(1, 2, 2)
    )),
    ("a replica begins within a batch, and so does the log", lambda: (
        three().delete(2).final(2, begin=2).replica(0, 0, 3).batch(0, 0, 0).batch(0, 1, 2)
        .replica(1, 2, 3).batch(1, 1, 2)
    )),
    ("a replica has expired further than another", lambda: (
        two().retention(ms=0).final(0, 1)
        .replica(0, 0, 2).batch(0, 0, 0).batch(0, 1, 1).replica(1, 1, 2).batch(1, 1, 1)
    )),
    ("a replica has expired further than another, by size", lambda: (
        two().retention(size=100).final(0, 1)
        .replica(0, 0, 2).batch(0, 0, 0).batch(0, 1, 1).replica(1, 1, 2).batch(1, 1, 1)
    )),
    ("timestamps are those that were given, none, or the time of sending", lambda: (
        Story().send(0, timestamp=5).send(1, timestamp=-1).send(2).ack(0, 0).ack(1, 1).ack(2, 2)
        .read(0, 0, timestamp=5).read(1, 1, timestamp=-1).read(2, 2, timestamp=WALL_MS + 1003)
        .final(0, 1, 2)
    )),
    ("a deletion by name was refused, and asked for again", lambda: (
        two().delete(1).deny(1).delete(1).final(1, begin=1)
    )),
    ("a deletion by name was refused, and a longer one carried out", lambda: (
        three().delete(1).delete(2).deny(1).final(2, begin=2)
    )),
    ("a deletion by name was carried out, and asked for again, and then refused", lambda: (
        two().delete(1).final(1, begin=1).delete(1).deny(1)
    )),
    ("a deletion by name was asked for by two, and one was refused", lambda: (
        two().delete(1, by="other").delete(1).deny(1).final(1, begin=1)
    )),
    ("two witnesses name leader epochs at moments of their own", lambda: (
        two().lead(1, 3).lead(2, 5).lead(1, 4, by="other").lead(2, 5, by="other").final(0, 1)
    )),
    ("a hole in the only replica where nothing was read", lambda: (
        two().read(0, 0, by="final").read(1, 1, by="final").end(0, 4)
        .replica(0, 0, 4).batch(0, 0, 1).batch(0, 3, 3)
    )),
    ("a replica holds nothing any more, and its batches are still there", lambda: (
        two().delete(2).final(begin=2).replica(0, 2, 2).batch(0, 0, 1)
    )),
    ("replicas hold nothing, as the log", lambda: (
        two().delete(2).final(begin=2).replica(0, 2, 2).replica(1, 2, 2)
    )),
    ("a replica is looked at again, when it has settled", lambda: (
        two().final(0, 1).replica(0, 0, 2).batch(0, 0, 1).replica(1, 0, 1).batch(1, 0, 0)
        .replica(1, 0, 2).batch(1, 0, 1)
    )),
    ("a reader re-reads after a seek", lambda: (
        Story().send(0).ack(0, 0).read(0, 0).position(0).read(0, 0).final(0)
    )),
    ("a reader stops before the end", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0).final(0, 1)
    )),
    ("a reader joins late", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 1).position(1).read(1, 1).final(0, 1)
    )),
    ("below the committed end, which is not told each time", lambda: (
        two().read(0, 0).read(1, 1, committed_end=2).final(0, 1)
    )),
    ("below the committed end", lambda: (
        Story().send(0).ack(0, 0).read(0, 0, committed_end=1).final(0)
    )),
    ("two readers, two epochs, the first in doubt and never read again", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0, epoch=1).read(1, 1, epoch=2)
        .final(0, 1)
    )),
]  # fmt: skip
