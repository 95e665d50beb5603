"""Goal: rules about replicas, sizes and reads that end at one moment hold at their edges.

Method: as in test_judge_edges.py: what is counted and all that is told are compared.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import FUTURE_MS, anomalies, three, two
from tests.judge.test_judge_edges import GONE, OPEN

from holdfast.judge.checker import judge
from holdfast.judge.verdict import Anomaly

NOT_READ = "it was not read to its end"
NOT_ALLOWED = (
    "p:0 was acknowledged at offset 0; it is not in the log, which begins at 1, and nothing "
    "allows that"
)

EDGES: list[tuple[str, Callable[[], Story], dict[Anomaly, int], list[str]]] = [
    (
        "two readers read what was not sent yet",
        lambda: two().read(2, 2, by="a").read(2, 2, by="b").send(2).ack(2, 2).final(0, 1, 2),
        {},
        [f"clocks disagree: {reader} read p:2 before it was sent" for reader in "ab"],
    ),
    (
        "of two reads that ended at one moment that of the later name counts",
        lambda: (
            two()
            .read(0, 0, by="a")
            .read(0, 0, by="b")
            .read(1, 1, by="b")
            .end(0, 1, by="a")
            .end(0, 2, by="b", skew=-1.0)
        ),
        {},
        [],
    ),
    (
        "retention by size, and no replica was looked at",
        lambda: two().retention(size=1).final(1, begin=1),
        {Anomaly.LOST: 1},
        [NOT_ALLOWED],
    ),
    (
        "retention by size was lifted at the moment at which what is in doubt was sent",
        lambda: (
            two()
            .retention(size=100)
            .retention()
            .send(2, skew=-1.0)
            .doubt(2)
            .final(1, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        {Anomaly.LOST: 1},
        [NOT_ALLOWED],
    ),
    (
        "replicas end apart, and nobody reads to the end",
        lambda: two().replica(0, 0, 2).batch(0, 0, 1).replica(1, 0, 1).batch(1, 0, 0),
        {Anomaly.DIVERGED: 1},
        ["replica 1 ends at 1, 0 at 2", NOT_READ],
    ),
    (
        "a replica of which no extent was told begins where the log does",
        lambda: three().delete(1).final(1, 2, begin=1).batch(0, 0, 0).batch(0, 1, 2).batch(1, 1, 2),
        {},
        [],
    ),
    (
        "two replicas begin later, and one in doubt would be enough for retention by size",
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
            .replica(2, 1, 2)
            .batch(2, 1, 1, size=50)
        ),
        {},
        [OPEN.format(2, "replicas begin later than another")],
    ),
    (
        "all was deleted by name, nobody ever sent anything, and a replica still has it",
        lambda: Story().delete(1).end(1, 1).replica(0, 0, 1).batch(0, 0, 0).replica(1, 1, 1),
        {},
        [],
    ),
    (
        "what was acknowledged at offset 0 stood before what is left, whoever sent it",
        lambda: (
            Story()
            .send(0, 1)
            .ack(1, 0)
            .ack(0, 1)
            .retention(size=100)
            .final(0, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        {Anomaly.LOST: 1},
        [NOT_ALLOWED.replace("p:0", "p:1")],
    ),
    (
        "what was acknowledged where the log begins, and is not there, may have stood behind",
        lambda: (
            Story()
            .send(0, 1, 2)
            .ack(0, 0)
            .ack(1, 1)
            .doubt(2)
            .retention(size=100)
            .final(2, begin=1)
            .batch(0, 1, 1, size=50)
        ),
        {Anomaly.LOST: 1},
        [
            "p:1 was acknowledged at offset 1, which now holds p:2; it is not in the log",
            OPEN.format(1, GONE),
        ],
    ),
    (
        "a replica begins later, size allows it not, and nobody reads to the end",
        lambda: (
            two()
            .retention(size=100)
            .replica(0, 0, 2)
            .batch(0, 0, 0)
            .batch(0, 1, 1, size=50)
            .replica(1, 1, 2)
            .batch(1, 1, 1, size=50)
        ),
        {Anomaly.DIVERGED: 1},
        ["replica 1 begins at offset 1, the log at 0, and nothing allows that", NOT_READ],
    ),
    (
        "what nobody sent stands in the log, and what is in doubt does not",
        lambda: (
            two().retention(size=100).send(2).doubt(2).final(1, 9, begin=1).batch(0, 1, 2, size=50)
        ),
        {Anomaly.PHANTOM: 1},
        ["offset 2 holds p:9, which nobody sent here", OPEN.format(1, GONE)],
    ),
    (
        "size took what stood before the first record of all, until its policy was lifted",
        lambda: (
            Story()
            .send(0, 1)
            .ack(1, 0)
            .ack(0, 1)
            .retention(size=100)
            .retention()
            .final(0, begin=1)
            .batch(0, 1, 1)
        ),
        {},
        [],
    ),
    (
        "retention by size was lifted at the moment at which what stands behind was sent",
        lambda: (
            two()
            .retention(size=51)
            .retention()
            .send(2, skew=-1.0)
            .ack(2, 2)
            .final(1, 2, begin=1)
            .batch(0, 1, 1, size=50)
            .batch(0, 2, 2, size=50)
        ),
        {Anomaly.LOST: 1},
        [NOT_ALLOWED],
    ),
    (
        "of a batch that holds what nobody sent, nobody knows when that was",
        lambda: (
            Story()
            .send(0, 2)
            .ack(0, 0)
            .ack(2, 2)
            .retention(size=150)
            .retention()
            .final(9, 2, begin=1)
            .batch(0, 1, 1)
            .batch(0, 2, 2, size=50)
        ),
        {Anomaly.PHANTOM: 1},
        ["offset 1 holds p:9, which nobody sent here", OPEN.format(1, GONE)],
    ),
    (
        "of a batch that holds what nobody acknowledged, nobody knows when that was sent",
        lambda: (
            Story()
            .send(0, 1, 2)
            .ack(0, 0)
            .doubt(1)
            .ack(2, 2)
            .retention(size=150)
            .retention()
            .replica(0, 0, 3)
            .batch(0, 0, 0)
            .batch(0, 1, 1)
            .batch(0, 2, 2, size=50)
            .replica(1, 1, 3)
            .batch(1, 1, 1)
            .batch(1, 2, 2, size=50)
        ),
        {},
        [NOT_READ, OPEN.format(1, "replicas begin later than another")],
    ),
    (
        "a replica begins later, the first that it lacks is not due, and nobody reads to the end",
        lambda: (
            Story()
            .send(0, timestamp=FUTURE_MS)
            .send(1, 2, timestamp=1)
            .ack(0, 0)
            .ack(1, 1)
            .ack(2, 2)
            .retention(ms=0)
            .replica(0, 0, 3)
            .batch(0, 0, 1)
            .batch(0, 2, 2)
            .replica(1, 2, 3)
            .batch(1, 2, 2)
        ),
        {Anomaly.DIVERGED: 1},
        ["replica 1 begins at offset 2, the log at 0, and nothing allows that", NOT_READ],
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
    for finding in partition.findings:
        assert all(event in events for event in finding.events)
