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
from holdfast.cli.watch.samples import Sample, Sampler, latest_first, latest_of, told_by
from holdfast.cli.watch.screen import Memory, frame
from holdfast.cluster import LocalCluster
from holdfast.cluster.layout import ClusterError, NodeRecord
from holdfast.cluster.network.possible import NAMESPACES, Possibility
from holdfast.cluster.networked import ClusterNetwork, Part, Trouble
from holdfast.cluster.probe import PartitionState, Snapshot
from holdfast.cluster.processes import State
from holdfast.cluster.quorum import QuorumReplica, QuorumState
from holdfast.wire.uuids import uuid_text

OLD, NEW = b"A" * 16, b"B" * 16
NOW_MS = 1_795_184_623_940
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


def quorum(*caught_up: int, log_end: int = 9, **others: tuple[int, int]) -> QuorumState:
    """A quorum whose active controller knows these brokers' metadata to be the latest.

    Of `others`, such as `b2`, it knows where their log ends, and how many ms ago it was whole.
    """
    ends = dict.fromkeys((100, *caught_up), (log_end, 0))
    ends |= {int(name[1:]): told for name, told in others.items()}
    leader, *replicas = (
        QuorumReplica(
            id=node,
            directory_id=b"",
            log_end=end,
            last_fetch_ms=NOW_MS,
            last_caught_up_ms=NOW_MS - age_ms,
        )
        for node, (end, age_ms) in ends.items()
    )
    return QuorumState(
        leader=100, epoch=1, high_watermark=9, voters=(leader,), observers=tuple(replicas)
    )


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


LONG_CUT_OFF = {"b2": (100, 60_000)}  # which a controller remembers for minutes


def test_to_lack_less_than_others_is_not_to_know() -> None:
    """Goal: who is cut off, and alone answers, does not know which topics there are.

    Who was up to date a moment ago does: the log of a busy cluster is ahead of everybody.

    Seen to fail: it was believed that lacks 4,900 records.
    """
    nothing = {2: snapshot()}
    assert told_by(nothing, quorum(0, 1, log_end=5000, **LONG_CUT_OFF), []) == ({}, False)
    assert told_by(nothing, quorum(log_end=5000, b2=(4990, 500)), []) == ({}, True)
    assert told_by(nothing, quorum(log_end=5000, b2=(4990, NOW_MS + 1)), []) == ({}, False), "never"
    assert told_by(nothing, quorum(log_end=100, **LONG_CUT_OFF), []) == ({}, True), "lacks nothing"
    without = replace(quorum(log_end=5000, **LONG_CUT_OFF), voters=())
    assert told_by(nothing, without, []) == ({}, False), "it leads until its removal is committed"
    brokers = [
        NodeRecord(id=node, roles=("broker",), host="", port=9, log_file="", config_file="")
        for node in (0, 1)
    ]
    ordered = latest_first(brokers, quorum(log_end=5000, b0=(4995, 60_000), b1=(4990, 500)))
    assert [node.id for node in ordered] == [1, 0], "those who know come first"


def look(at_s: float, answers: dict[int, Snapshot], known: QuorumState | None) -> Sample:
    """A sample of what these brokers answer."""
    partitions, knows = told_by(answers, known, [])
    return Sample(
        at_s=at_s,
        monotonic_s=at_s,
        nodes={0: "running", 1: "running", 2: "running", 100: "running"},
        active=None if known is None else (100, 1),
        answered=tuple(answers),
        knows_topics=knows,
        partitions=partitions,
    )


@pytest.mark.parametrize("stale", [snapshot(), snapshot(OLD, t=7)], ids=["none", "a former one"])
@pytest.mark.parametrize("is_led", [True, False], ids=["a controller", "no controller"])
def test_who_was_cut_off_neither_ends_an_outage_nor_replaces_a_topic(
    stale: Snapshot, is_led: bool
) -> None:
    """Goal: a topic that is down stays so while the only broker that answers heard of it never.

    Method: two brokers that tell of it end; the third one knows of none, or a former one.

    Seen to fail: "there is no such topic"; the former one, led and well; its outage was forgotten.
    """
    now = quorum(0, 1, log_end=5000, **LONG_CUT_OFF)
    known = {0: snapshot(NEW, t=1), 1: snapshot(NEW, t=1), 2: stale}
    down = {0: snapshot(NEW, t=-2), 1: snapshot(NEW, t=-2), 2: stale}
    alone = [look(at_s, {2: stale}, now if is_led else None) for at_s in (5, 6)]
    memory = after(look(0, known, now), look(1, down, now), *alone)
    assert memory.leaderless_s == {("t", 0): 5.0}
    assert [each.split("  ")[1] for each in memory.elections] == ["t-0: 1 → none, epoch 2"]
    lines = frame(alone[-1], memory, topics=["t"])
    assert "; who answers may lack changes" in lines[0]
    assert lines[4].split() == ["t-0", "none", "2", "-", "-", "-", "5.0", "s"]
    assert not any("no such topic" in line for line in lines)


def test_of_a_topic_that_is_known_nothing_older_is_believed() -> None:
    """Method: who was cut off tells of a former leader, itself, of the very topic.

    Seen to fail: it led again, in its old epoch, by an election.
    """
    now = quorum(0, log_end=5000, **LONG_CUT_OFF)
    last = snapshot(NEW, t=-4)
    before = look(1, {2: snapshot(NEW, t=3)}, now)
    memory = after(look(0, {0: last}, now), before, look(2, {0: last}, now))
    assert memory.leaderless_s == {("t", 0): 2.0}
    assert not memory.elections
    assert memory.partitions["t", 0].epoch == 4


def test_nobody_replaces_a_topic_who_does_not_know() -> None:
    """Goal: of two brokers that tell of two topics of one name that one counts that is known.

    Method: the other one has the lower id, and no controller says who lacks what; then one does.
    """
    former, now = snapshot(OLD, t=7), snapshot(NEW, t=-1)
    ids = {"t": uuid_text(NEW)}
    partitions, knows = told_by({0: former, 1: now}, None, [], ids)
    assert not knows
    assert (partitions["t", 0].leader, partitions["t", 0].topic_id) == (-1, ids["t"])
    assert told_by({0: former}, None, [], ids) == ({}, False)
    anew, _ = told_by({0: former, 1: now}, quorum(0), [], ids)
    assert anew["t", 0].topic_id == uuid_text(OLD), "who knows replaces it"


def test_a_sampler_keeps_to_the_topics_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what `watch` looks at is one topic from look to look, until somebody knows better.

    Method: answers by hand; a cluster that does not run.

    Seen to fail: without a controller the former one was shown, of which the first broker tells.
    """
    cluster = LocalCluster.create(tmp_path, brokers=2, controllers=1, port=0)
    former, now = snapshot(OLD, t=7), snapshot(NEW, t=-1)
    both = {0: former, 1: now}
    looks = [({1: now}, quorum(1)), (both, None), ({}, None), (both, None), (both, quorum(0))]
    monkeypatch.setattr(Sampler, "_answers", in_turn(*(answers for answers, _ in looks)))
    monkeypatch.setattr(LocalCluster, "quorum", in_turn(*(known for _, known in looks)))
    sampler = Sampler(cluster, [])
    told = [sampler.look().partitions.get(("t", 0)) for _ in looks]
    assert [None if each is None else each.epoch for each in told] == [1, 1, None, 1, 7]


def test_that_it_is_not_known_which_topics_there_are_is_said() -> None:
    """Seen to fail: "there are no topics", of which nobody could know."""
    first = look(0, {0: snapshot()}, None)
    memory = after(first)
    unknown = "none: it is not known which topics there are"
    assert frame(first, memory)[-1] == unknown
    asked = frame(first, memory, topics=["t"])
    assert asked[-1] == "t: it is not known whether there is such a topic"
    assert asked[0].endswith("no controller is active; who answers may lack changes")


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
