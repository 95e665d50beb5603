"""Goal: what excuses a loss reaches as far as its event does, to the millisecond and the byte.

Method: histories made by hand at each of those edges; what is counted and excused is compared.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.judge.histories import WALL_MS, Story
from tests.judge.judge_stories import FUTURE_MS, WEEK_MS, anomalies, three, two

from holdfast.judge.checker import judge
from holdfast.judge.verdict import Anomaly


def aged(timestamp: int) -> Story:
    """A record is gone at 1004 ms, by a policy that keeps nothing."""
    return Story().send(0, timestamp=WALL_MS + timestamp).ack(0, 0).retention(ms=0).end(1, 1)


ROWS: list[tuple[str, Callable[[], Story], dict[Anomaly, int], str]] = [
    ("a millisecond old", lambda: aged(1003), {}, "1 expired as allowed (1 by retention.ms=0)"),
    ("not yet a millisecond old", lambda: aged(1004), {Anomaly.LOST: 1}, ""),
    (
        "size took what stood before the one that age took, and not what stood in its place",
        lambda: (
            Story()
            .send(0, timestamp=FUTURE_MS)
            .send(1, 2)
            .send(3, timestamp=FUTURE_MS)
            .ack(0, 0)
            .ack(1, 1)
            .ack(2, 2)
            .ack(3, 1)
            .retention(ms=0, size=110)
            .final(2, begin=2)
            .batch(0, 2, 2)
        ),
        {Anomaly.LOST: 1},
        "2 expired as allowed (1 by retention.bytes=110, 1 by retention.ms=0)",
    ),
    (
        "sent at the moment at which a policy by size was lifted",
        lambda: (
            Story()
            .send(0, timestamp=FUTURE_MS)
            .send(2)
            .retention(size=110)
            .retention(ms=0)
            .send(1, skew=-1.0)
            .ack(0, 0)
            .ack(1, 1)
            .ack(2, 2)
            .final(2, begin=2)
            .batch(0, 2, 2)
        ),
        {Anomaly.LOST: 1},
        "1 expired as allowed (1 by retention.ms=0)",
    ),
    (
        "deleted by name at the moment at which it was found gone",
        lambda: two().read(1, 1, by="final").delete(1).end(1, 2, skew=-1.0),
        {},
        "1 expired as allowed (1 by DeleteRecords before offset 1)",
    ),
    (
        "of two deletions the longer one counts, also where it came first",
        lambda: three().delete(2).delete(1).final(2, begin=2),
        {},
        "2 expired as allowed (2 by DeleteRecords before offset 2)",
    ),
    (
        "a policy was lifted before its time, and another came later",
        lambda: (
            Story()
            .retention(ms=100)
            .then(two())
            .retention()
            .pause(1000)
            .retention(ms=WEEK_MS)
            .final(1, begin=1)
        ),
        {Anomaly.LOST: 1},
        "",
    ),
    (
        "of three policies the second one was in force for long enough",
        lambda: (
            Story()
            .retention()
            .then(two())
            .retention(ms=100)
            .pause(200)
            .retention()
            .final(1, begin=1)
        ),
        {},
        "1 expired as allowed (1 by retention.ms=100)",
    ),
    (
        "deleted by name, acknowledged without an offset, and size would not allow it",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, None)
            .ack(1, 1)
            .delete(1)
            .retention(size=1000)
            .final(1, begin=1)
            .batch(0, 1, 1)
        ),
        {},
        "1 expired as allowed (1 by DeleteRecords before offset 1)",
    ),
]


@pytest.mark.parametrize(
    ("story", "counted", "expired"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_an_excuse_reaches_just_so_far(
    story: Callable[[], Story], counted: dict[Anomaly, int], expired: str
) -> None:
    assert anomalies(story()) == counted
    events = sorted(story().events, key=lambda event: event.at_ms)
    judgement = judge(events).judgement
    assert judgement.decided
    assert judgement.expired_text == expired
