"""Goal: what a later record of its key has replaced may be gone, and nothing else may be.

Method: short histories of a compacted partition, each beside the nearest one that is broken; as in
test_judge_edges.py what is counted and all that is told are compared. Seen to fail: each condition
of `judge.compaction` and of `judge.compacted_replicas` taken out turns one of these red.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import anomalies

from holdfast.judge.checker import judge
from holdfast.judge.verdict import Anomaly

COMPACTED = "cleanup.policy=compact"


def told(keys: str = "aab") -> Story:
    """A compacted partition, and a record of each of these keys, acknowledged one by one."""
    story = Story().compact()
    for number, key in enumerate(keys):
        story.send(number, key=key).ack(number, number)
    return story


def found(story: Story, *stands: int, key_of: str = "aab", end: int | None = None) -> Story:
    """The last whole read is given these records, each at its own offset."""
    for number in stands:
        story.read(number, number, by="final", key=key_of[number])
    return story.end(0, len(key_of) if end is None else end)


def holds(story: Story, node: int, *numbers: int, keys: str = "aab", begin: int = 0) -> Story:
    """A replica holds these records, in one batch each."""
    story.replica(node, begin, len(keys))
    for number in numbers:
        story.batch(node, number, number, digest=f"{node}")
        story.record(node, number, number, key=keys[number])
    return story


CASES: list[tuple[str, Callable[[], Story], dict[Anomaly, int], int]] = [
    ("nothing was compacted yet", lambda: found(told(), 0, 1, 2), {}, 0),
    ("the first of two is gone", lambda: found(told(), 1, 2), {}, 1),
    ("two of three, one after the other", lambda: found(told("aaab"), 2, 3, key_of="aaab"), {}, 2),
    (
        "one of three, with one before it left",
        lambda: found(told("aaab"), 0, 2, 3, key_of="aaab"),
        {},
        1,
    ),
    (
        "what was acknowledged where something in doubt stands is lost, whatever comes later",
        lambda: (
            Story().compact().send(0, 1, 2, key="a").ack(0, 0).doubt(1).ack(2, 2)
            .read(0, 1, by="final", key="a").read(2, 2, by="final", key="a").end(0, 3)
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "a reader was given something else where a record stands, and a later one comes",
        lambda: found(told("aaab").read(1, 0, key="a", epoch=1), 1, 2, 3, key_of="aaab"),
        {Anomaly.VANISHED: 1},
        1,
    ),
    (
        "a reader was given what nobody sent, and it is gone",
        lambda: found(told("aba").read(0, 9, key="a"), 1, 2, key_of="aba"),
        {Anomaly.PHANTOM: 1, Anomaly.VANISHED: 1},
        1,
    ),
    ("the last one of its key is gone", lambda: found(told(), 0, 2), {Anomaly.LOST: 1}, 0),
    ("all of a key is gone", lambda: found(told(), 2), {Anomaly.LOST: 2}, 0),
    (
        "the same, and nobody has said that the topic is compacted",
        lambda: found(
            Story().send(0, 1, key="a").send(2, key="b").ack(0, 0).ack(1, 1).ack(2, 2), 1, 2
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "it was said when the log had been read",
        lambda: found(
            Story().send(0, 1, key="a").send(2, key="b").ack(0, 0).ack(1, 1).ack(2, 2), 1, 2
        ).compact(),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "records without keys are not each other's successors",
        lambda: (
            Story().compact().send(0, 1).ack(0, 0).ack(1, 1).read(1, 1, by="final").end(0, 2)
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "compaction was switched off before the next one of the key was sent",
        lambda: found(
            Story().compact().send(0, key="a").ack(0, 0).compact(is_on=False)
            .send(1, key="a").send(2, key="b").ack(1, 1).ack(2, 2),
            1, 2,
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "compaction was switched off after it",
        lambda: found(told().compact(is_on=False), 1, 2),
        {},
        1,
    ),
    (
        "what was acknowledged where another stands is lost, whatever comes later",
        lambda: (
            Story().compact().send(0, key="a").ack(0, 0).send(1, 2, key="a").ack(1, 0).ack(2, 2)
            .read(0, 1, by="final", key="a").read(2, 2, by="final", key="a").end(0, 3)
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "a log that gave out a lower offset later was cut, so what is gone is lost",
        lambda: (
            Story().compact().send(0, key="a").ack(0, 5).send(1, 2, key="a").ack(1, 4).ack(2, 6)
            .read(4, 1, by="final", key="a").read(6, 2, by="final", key="a").end(0, 7)
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "no offset was told, so nobody knows that a later one stands behind it",
        lambda: (
            Story().compact().send(0, 1, key="a").ack(0, None).ack(1, 1)
            .read(1, 1, by="final", key="a").end(0, 2)
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "what nobody sent replaces nothing",
        lambda: (
            Story().compact().send(0, key="a").ack(0, 0)
            .read(1, 9, by="final", key="a").end(0, 2)
        ),
        {Anomaly.LOST: 1, Anomaly.PHANTOM: 1},
        0,
    ),
    (
        "the log begins behind it, which compaction does not do",
        lambda: (
            told().read(1, 1, by="final", key="a").read(2, 2, by="final", key="b").end(1, 3)
        ),
        {Anomaly.LOST: 1},
        0,
    ),
    (
        "a reader was given what is gone now",
        lambda: found(told().read(0, 0, key="a").read(1, 1, key="a"), 1, 2),
        {},
        1,
    ),
    (
        "a reader was given the last one of a key, which is gone",
        lambda: found(told().read(1, 1, key="a"), 0, 2),
        {Anomaly.LOST: 1, Anomaly.VANISHED: 1},
        0,
    ),
    (
        "a reader was given something else where a record stands",
        lambda: (
            told().read(1, 0, key="a", epoch=1)
            .read(1, 1, by="final", key="a", epoch=2).read(2, 2, by="final", key="b", epoch=2)
            .end(0, 3)
        ),
        {Anomaly.VANISHED: 1},
        1,
    ),
    (
        "a reader went over holes, and what made them is gone as well",
        lambda: found(told("aaab").read(1, 1, key="a").read(3, 3, key="b"), 3, key_of="aaab"),
        {Anomaly.LOST: 3, Anomaly.VANISHED: 1},
        0,
    ),
    (
        "a reader passes over what stands",
        lambda: found(told().read(0, 0, key="a").read(2, 2, key="b"), 1, 2),
        {Anomaly.SKIPPED: 1},
        1,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "anomalies_found", "replaced"),
    [each[1:] for each in CASES],
    ids=[each[0] for each in CASES],
)
def test_what_may_be_gone(
    make: Callable[[], Story], anomalies_found: dict[Anomaly, int], replaced: int
) -> None:
    story = make()
    judgement = judge(story.events).judgement
    assert anomalies(story) == anomalies_found
    assert judgement.expired == ({COMPACTED: replaced} if replaced else {})
    assert judgement.undecided == ()


REPLICAS: list[tuple[str, Callable[[], Story], list[str]]] = [
    (
        "each has compacted as far as it likes",
        lambda: holds(holds(holds(found(told(), 1, 2), 0, 0, 1, 2), 1, 1, 2), 2, 1, 2),
        [],
    ),
    (
        "the leader has compacted, and a follower has not",
        lambda: holds(holds(found(told(), 1, 2), 0, 1, 2), 1, 0, 1, 2),
        [],
    ),
    (
        "all have compacted what the last read was given",
        lambda: holds(
            holds(found(told("caab"), 0, 1, 2, 3, key_of="caab"), 0, 0, 2, 3, keys="caab"),
            1, 0, 2, 3, keys="caab",
        ),
        [],
    ),
    (
        "one lacks the last record of a key",
        lambda: holds(holds(found(told(), 1, 2), 0, 0, 1, 2), 1, 0, 2),
        ["offset 1: replica 1 lacks p:1, which replica 0 has, and no later record of a"],
    ),
    (
        "all lack what was read",
        lambda: holds(holds(found(told(), 1, 2), 0, 2), 1, 2),
        [
            f"offset 1: replica {node} lacks p:1, which the last whole read has, and no later "
            "record of a"
            for node in (0, 1)
        ],
    ),
    (
        "one has what nobody else has, and nothing replaces it",
        lambda: holds(
            found(told().send(3, key="c").doubt(3), 1, 2)
            .replica(0, 0, 3).batch(0, 0, 2)
            .record(0, 0, 3, key="c").record(0, 1, 1, key="a").record(0, 2, 2, key="b"),
            1, 1, 2,
        ),
        [
            f"offset 0: {who} lacks p:3, which replica 0 has, and no later record of c"
            for who in ("replica 1", "the last whole read")
        ],
    ),
    (
        "one ends early",
        lambda: (
            found(told(), 0, 1, 2).then(holds(Story(), 0, 0, 1, 2))
            .replica(1, 0, 2).batch(1, 0, 1).record(1, 0, 0, key="a").record(1, 1, 1, key="a")
        ),
        ["replica 1 ends at 2, 0 at 3"],
    ),
    (
        "a copy of a compacted leader begins where that one's first record is",
        lambda: holds(holds(found(told(), 1, 2), 0, 0, 1, 2), 1, 1, 2, begin=1),
        [],
    ),
    (
        "a copy begins behind the last record of a key",
        lambda: holds(holds(found(told(), 1, 2), 0, 0, 1, 2), 1, 2, begin=2),
        ["replica 1 begins at offset 2, the log at 0, and nothing allows that"],
    ),
    (
        "two hold different records at one offset",
        lambda: holds(
            holds(found(told(), 1, 2), 0, 1, 2).replica(1, 0, 3).batch(1, 1, 2)
            .record(1, 1, 0, key="a").record(1, 2, 2, key="b"),
            2, 1, 2,
        ),
        [
            "offset 1: replica 0 and replica 1 hold different records",
        ],
    ),
    (
        "two hold one record in different epochs",
        lambda: holds(
            found(told(), 1, 2).replica(1, 0, 3).batch(1, 1, 2)
            .record(1, 1, 1, key="a", epoch=1).record(1, 2, 2, key="b", epoch=1),
            2, 1, 2,
        ),
        [
            "offset 1: replica 1 and replica 2 hold different records",
            "offset 2: replica 1 and replica 2 hold different records",
        ],
    ),
    (
        "a record stands in no batch",
        lambda: (
            found(told(), 1, 2).replica(0, 0, 3).batch(0, 2, 2)
            .record(0, 1, 1, key="a").record(0, 2, 2, key="b")
        ),
        ["replica 0 holds offset 1, and no batch that has it"],
    ),
    (
        "records stand in the wrong order",
        lambda: (
            found(told(), 1, 2).replica(0, 0, 3).batch(0, 1, 2)
            .record(0, 2, 2, key="b").record(0, 1, 1, key="a")
        ),
        ["replica 0 holds offset 1 behind 2"],
    ),
    (
        "nobody has looked into its batches",
        lambda: found(told(), 1, 2).replica(0, 0, 3).batch(0, 1, 2),
        [
            f"offset {offset}: replica 0 lacks p:{offset}, which the last whole read has, and no "
            f"later record of {key}"
            for offset, key in ((1, "a"), (2, "b"))
        ],
    ),
    (
        "an epoch falls along one of them",
        lambda: (
            found(told(), 1, 2).replica(0, 0, 3).batch(0, 1, 1, epoch=1).batch(0, 2, 2)
            .record(0, 1, 1, key="a").record(0, 2, 2, key="b")
        ),
        ["replica 0: the leader epoch falls from 1 at offset 1 to 0 at 2"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "texts"), [each[1:] for each in REPLICAS], ids=[each[0] for each in REPLICAS]
)
def test_replicas_that_compact_each_on_its_own(make: Callable[[], Story], texts: list[str]) -> None:
    judgement = judge(make().events).judgement
    assert [finding.text for finding in judgement.findings] == texts
    assert judgement.count(Anomaly.DIVERGED) == len(texts)


def test_a_lost_record_says_that_nothing_replaces_it() -> None:
    judgement = judge(found(told(), 0, 2).events).judgement
    assert [finding.text for finding in judgement.findings] == [
        "p:1 was acknowledged at offset 1; it is not in the log, nor is a later record of a"
    ]


def test_without_the_event_replicas_hold_the_same_bytes() -> None:
    story = Story().send(0, 1, key="a").ack(0, 0).ack(1, 1)
    story.read(0, 0, by="final", key="a").read(1, 1, by="final", key="a").end(0, 2)
    story.replica(0, 0, 2).batch(0, 0, 1).replica(1, 0, 2).batch(1, 1, 1)
    assert judge(story.events).judgement.count(Anomaly.DIVERGED) > 0
