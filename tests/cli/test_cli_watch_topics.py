"""Goal: what `holdfast watch` shows of a topic is that topic's, and nothing of one of its name.

What it was told amid a look counts only where somebody could tell it until the look's end.

Method: answers of brokers and samples by hand; a cluster that is laid out and does not run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.local.looking import asked_by_door
from holdfast.cli.watch.recording import as_json
from holdfast.cli.watch.samples import Sample, Sampler, latest_of, told_by
from holdfast.cli.watch.screen import Memory
from holdfast.cluster import LocalCluster
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.network.possible import NAMESPACES, Possibility
from holdfast.cluster.networked import ClusterNetwork, Part, Trouble
from holdfast.cluster.probe import PartitionState, Snapshot
from holdfast.cluster.processes import State
from holdfast.cluster.quorum import QuorumReplica, QuorumState

OLD, NEW = b"A" * 16, b"B" * 16
DOOR = Trouble(part=Part.WATCH_DOOR, pid=7, state=State.DEAD)


def snapshot(topic_id: bytes | None = None, **epochs: int) -> Snapshot:
    """An answer with these topics of one partition each, which node 1 leads; none below 0."""
    return Snapshot(
        cluster_id="c",
        brokers={},
        topics={
            name: {
                0: PartitionState(
                    leader=1 if epoch >= 0 else -1,
                    leader_epoch=abs(epoch),
                    replicas=(1,),
                    isr=(1,),
                    offline=(),
                    error=0,
                )
            }
            for name, epoch in epochs.items()
        },
        topic_ids={} if topic_id is None else dict.fromkeys(epochs, topic_id),
    )


def seen(at_s: float, told: Snapshot, end: int | None, **changes: Any) -> Sample:
    partitions = latest_of([told], [], first_knows=True)
    values: dict[str, Any] = {"active": (100, 1), "answered": (1,), **changes}
    return Sample(
        at_s=at_s,
        monotonic_s=at_s,
        nodes={1: "running", 100: "running"},
        partitions={place: replace(found, end=end) for place, found in partitions.items()},
        **values,
    )


def after(*samples: Sample) -> Memory:
    memory = Memory()
    for sample in samples:
        memory.take(sample)
    return memory


@pytest.mark.parametrize("topic_id", [NEW, None])
def test_a_topic_made_anew_inherits_nothing_of_one_that_was_deleted(topic_id: bytes | None) -> None:
    """Seen to fail: it had been without a leader for the 4 s of the old one, and its epoch of 0
    came behind 8 by an election.
    """
    old = None if topic_id is None else OLD
    memory = after(
        seen(0, snapshot(old, t=-7), None),
        seen(4, snapshot(old, t=8), 5000),
        seen(5, snapshot(old, other=1), None),
        seen(6, snapshot(topic_id, t=0), 0),
        seen(6.5, snapshot(topic_id, t=0), 100),
    )
    assert memory.leaderless_s == {}
    assert [each.split("  ")[1] for each in memory.elections] == ["t-0: none → 1, epoch 8"]


def test_a_topic_deleted_and_made_anew_within_a_look_begins_anew() -> None:
    """Seen to fail: its rate was reckoned from the old one's end, its leader was an election, and
    its first half second without a leader came on top of the old one's.
    """
    memory = after(
        seen(0, snapshot(OLD, t=-3), 5000),
        seen(0.5, snapshot(OLD, t=4), 5000),
        seen(1, snapshot(NEW, t=0), 100),
    )
    assert memory.rate(("t", 0)) is None, "nothing is known of what it was before"
    assert memory.leaderless_s == {}
    assert len(memory.elections) == 1
    memory.take(seen(1.5, snapshot(NEW, t=0), 200))
    assert memory.rate(("t", 0)) == 200.0
    memory.take(seen(2, snapshot(NEW, t=-1), None))
    memory.take(seen(2.5, snapshot(NEW, t=2), 200))
    assert memory.leaderless_s == {("t", 0): 0.5}
    assert len(memory.elections) == 3


def test_what_can_not_be_deleted_is_not_forgotten() -> None:
    """Method: nobody answers; then a broker that knows of no topic, without a controller, and
    before that one has heard of it.

    Seen to fail: the time without a leader was forgotten as all brokers began anew.
    """
    nothing = snapshot()
    memory = after(
        seen(0, snapshot(OLD, t=-1), None),
        seen(1, nothing, None, answered=()),
        seen(2, nothing, None, active=None),
        seen(3, nothing, None, answered=(0,), knows_topics=False),
        seen(4, snapshot(OLD, t=2), 0),
    )
    assert memory.leaderless_s == {("t", 0): 4.0}


def test_a_recording_has_the_id_as_kafka_writes_it() -> None:
    recorded = as_json(seen(0, snapshot(OLD, t=0), 1))["partitions"]["t-0"]
    assert recorded["topic_id"] == "QUFBQUFBQUFBQUFBQUFBQQ"
    without = json.loads(json.dumps(as_json(seen(0, snapshot(t=0), 1))))
    assert without["partitions"]["t-0"]["topic_id"] is None


def quorum(*caught_up: int) -> QuorumState:
    """A quorum whose active controller knows these brokers' metadata to be the latest."""
    replicas = tuple(
        QuorumReplica(id=node, directory_id=b"", log_end=9, last_fetch_ms=0, last_caught_up_ms=0)
        for node in caught_up
    )
    return QuorumState(leader=100, epoch=1, high_watermark=9, voters=(), observers=replicas)


def test_which_topics_there_are_is_said_by_one_who_is_known_to_know() -> None:
    """Goal: a broker that has just started and knows of nothing hides no topic of others.

    Method: it answers first, with and without a controller that says who lacks what.
    """
    answers = {0: snapshot(), 1: snapshot(OLD, t=3)}
    for who, known in (("nobody", None), ("not the first", quorum(1))):
        partitions, knows = told_by(answers, known, [])
        assert (set(partitions), knows) == ({("t", 0)}, False), f"{who} is known to know"
    assert told_by(answers, quorum(0, 1), []) == ({}, True)
    assert told_by({}, quorum(0), []) == ({}, False)


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """A cluster with a network that was never made: nobody is asked."""
    return LocalCluster.create(
        tmp_path, brokers=1, combined=True, port=0, network=Possibility(NAMESPACES)
    )


def in_turn(*values: Any) -> Callable[..., Any]:
    """Return what answers with these, one after another; those that are errors are raised."""
    left: Iterator[Any] = iter(values)

    def answer(*_: object) -> Any:
        value = next(left)
        if isinstance(value, Exception):
            raise value
        return value

    return answer


def test_what_was_heard_by_a_door_that_stopped_meanwhile_is_no_answer(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterNetwork, "troubles", in_turn((), (DOOR,)))
    assert asked_by_door(cluster, lambda: "silence") == (None, (DOOR,))
    monkeypatch.setattr(ClusterNetwork, "troubles", in_turn((), ()))
    assert asked_by_door(cluster, lambda: "said") == ("said", ())
    monkeypatch.setattr(ClusterNetwork, "troubles", in_turn((DOOR,)))
    assert asked_by_door(cluster, lambda: pytest.fail("nobody is asked")) == (None, (DOOR,))


def test_a_network_that_goes_amid_a_look_is_not_an_outage(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: it is there before nodes are asked, and gone behind that, as doors end with it."""
    monkeypatch.setattr(ClusterNetwork, "troubles", lambda _: ())
    gone = ClusterError("The network has gone.")
    monkeypatch.setattr(ClusterNetwork, "refuse_if_gone", in_turn(None, gone, gone))
    sample = Sampler(cluster, []).look()
    assert sample.is_blind
    assert sample.troubles == ["The network has gone."]
