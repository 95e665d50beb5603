"""Histories made by hand with more than one thing to be told, so that the second is told, too."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.judge.verdict import Anomaly
from holdfast.testing.histories import WALL_MS, Story


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
]
