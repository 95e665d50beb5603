"""Histories made by hand with more than one thing to be told, so that the second is told, too."""

from __future__ import annotations

from collections.abc import Callable

from tests.judge.histories import WALL_MS, Story
from tests.judge.judge_stories import two

from holdfast.judge.verdict import Anomaly


def _many_refused() -> Story:
    story = Story().send(*range(25))
    for number in range(25):
        story.refuse(number)
    return story


# What the judge must count; what it says of it is in `told.txt`.
TOLD: list[tuple[str, Callable[[], Story], dict[Anomaly, int]]] = [
    (
        "nothing was sent, and the log is empty",
        lambda: Story().expect().final(),
        {},
    ),
    (
        "the bytes are others, the key and the timestamp, and then two that nobody sent",
        lambda: (
            Story()
            .send(0, key="k", timestamp=7)
            .send(1)
            .ack(0, 0)
            .ack(1, 1)
            .read(0, 0, by="a", digest="e", key="l", timestamp=8)
            .read(1, 1, by="a", timestamp=WALL_MS + 1002)
            .read(0, 0, by="b", digest="e", key="l", timestamp=8)
            .read(1, 1, by="b", timestamp=9)
            .read(2, 7, by="b", timestamp=1)
            .read(0, 0, by="final", key="k", timestamp=7)
            .read(1, 1, by="final", timestamp=WALL_MS + 1002)
            .read(2, 7, by="final", timestamp=1)
            .read(3, 8, by="final", timestamp=1)
            .end(0, 4)
        ),
        {Anomaly.PHANTOM: 4, Anomaly.DIVERGED: 2, Anomaly.VANISHED: 3},
    ),
    (
        "three refused records stand in the log, one of them twice, and one that was not refused",
        lambda: (
            Story()
            .send(0, 1, 2, 3)
            .refuse(0)
            .refuse(1)
            .ack(2, 2)
            .refuse(3)
            .read(0, 1)
            .read(1, 0)
            .read(2, 2)
            .read(3, 3)
            .final(1, 0, 2, 3, 1)
        ),
        {Anomaly.RESURRECTED: 3, Anomaly.DUPLICATED: 1, Anomaly.REORDERED: 1},
    ),
    (
        "more strangers and refused records than are shown",
        lambda: _many_refused().final(*range(25), *range(40, 65)),
        {Anomaly.PHANTOM: 25, Anomaly.RESURRECTED: 25},
    ),
    (
        "a record stands seven times, and of its copies five are shown",
        lambda: Story().send(0, 1).ack(0, 0).ack(1, 7).final(*[0] * 7, 1),
        {Anomaly.DUPLICATED: 6},
    ),
    (
        "two records were acknowledged, and two read, when the last read had begun",
        lambda: (
            Story()
            .send(0, 1, 2, 3)
            .ack(0, 0)
            .doubt(3)
            .read(0, 0, by="final")
            .ack(1, 1)
            .ack(2, 2)
            .read(1, 1)
            .read(2, 2)
            .end(0, 1, asked_ms=1005.0)
        ),
        {},
    ),
    (
        "acknowledged at the very moment at which the last read asked for its end",
        lambda: Story().send(0).ack(0, 0).end(0, 0, asked_ms=1002.0),
        {Anomaly.LOST: 1},
    ),
    (
        "read at the very moment at which the last read asked for its end",
        lambda: Story().send(0).doubt(0).read(0, 0).end(0, 0, asked_ms=1003.0),
        {Anomaly.VANISHED: 1},
    ),
    (
        "acknowledged at offset 0, and due, while what its process had sent before stands",
        lambda: Story().send(0, 1).ack(1, 0).ack(0, 5).retention(ms=0).pause(5).final(0, begin=5),
        {},
    ),
    (
        "a key that nobody has used stands where the second one was sent",
        lambda: (
            Story()
            .send(0, key="a")
            .send(1, key="b")
            .ack(0, 0)
            .ack(1, 1)
            .read(0, 0, by="final", key="a")
            .read(1, 1, by="final", key="c")
            .end(0, 2)
        ),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "no key at all stands where one was sent, behind one that was sent without",
        lambda: (
            Story()
            .send(0)
            .send(1, key="b")
            .ack(0, 0)
            .ack(1, 1)
            .read(0, 0, by="final")
            .read(1, 1, by="final")
            .end(0, 2)
        ),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "three partitions, each with its own end, and one without",
        lambda: (
            two()
            .send(2, partition=1)
            .ack(2, 0, partition=1)
            .send(3, partition=2)
            .refuse(3, partition=2)
            .final(0, 1)
            .final(partition=1)
            .position(0, partition=2)
        ),
        {Anomaly.LOST: 1},
    ),
]
