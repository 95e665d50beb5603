"""Goal: what brokers tell alike counts, where nobody can say who has the latest metadata.

What is put aside, since it may have been once, is not known, and no outage.

Method: answers of brokers by hand; a cluster that does not run, of which it is said that it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cli.watch.recording import as_json
from holdfast.cli.watch.samples import Sample, Sampler
from holdfast.cli.watch.screen import Memory, frame
from holdfast.cluster import LocalCluster
from holdfast.cluster.probe import PartitionState, Snapshot
from holdfast.cluster.processes import State
from holdfast.cluster.quorum import QuorumReplica, QuorumState

OLD, NEW = b"A" * 16, b"B" * 16
PLACE = ("t", 0)
DOUBT = "who answers may lack changes"
HERE = dict.fromkeys(range(3), ("127.0.0.1", 9))
# A controller that is active, and has heard of no broker of late, as where links take long.
UNSURE = QuorumState(
    leader=100,
    epoch=1,
    high_watermark=9,
    voters=(
        QuorumReplica(
            id=100, directory_id=b"", log_end=9, last_fetch_ms=9000, last_caught_up_ms=9000
        ),
    ),
    observers=(),
)


def tells(topic_id: bytes, epoch: int = 0, leader: int = 1) -> Snapshot:
    """What a broker answers that knows of one topic, and of all brokers."""
    state = PartitionState(
        leader=leader,
        leader_epoch=epoch,
        replicas=(0, 1, 2),
        isr=(0, 1, 2),
        offline=(),
        error=0,
    )
    return Snapshot(
        cluster_id="c", brokers=HERE, topics={"t": {0: state}}, topic_ids={"t": topic_id}
    )


NOTHING = Snapshot(cluster_id="c", brokers=HERE, topics={})
NOT_HEARD = replace(NOTHING, brokers={})  # it has started, and nobody has told it anything
Answers = dict[int, Snapshot]


def all_tell(told: Snapshot, brokers: Sequence[int] = (0, 1, 2)) -> Answers:
    return dict.fromkeys(brokers, told)


class Scene:
    """A cluster of three brokers, looked at once a second."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, zookeeper: bool) -> None:
        self._patch = monkeypatch
        cluster = LocalCluster.create(root, brokers=3, controllers=1, port=0)
        record = replace(cluster.record, zookeeper=zookeeper)
        monkeypatch.setattr(LocalCluster, "record", property(lambda _: record))
        self._known = None if zookeeper else UNSURE
        self._sampler = Sampler(cluster, [])
        self._looks = 0
        self.memory = Memory()
        self.lines: list[str] = []
        monkeypatch.setattr(Sampler, "_ends", lambda *_: {})

    def look(self, answers: Answers, dead: Sequence[int] = ()) -> Sample:
        states = dict.fromkeys(dead, State.DEAD)
        self._patch.setattr(LocalCluster, "state", lambda _, node: states.get(node, State.RUNNING))
        self._patch.setattr(LocalCluster, "quorum", lambda _: self._known)
        self._patch.setattr(Sampler, "_answers", lambda *_: answers)
        sample = replace(self._sampler.look(), monotonic_s=float(self._looks))
        self._looks += 1
        self.memory.take(sample)
        self.lines = frame(sample, self.memory)
        return sample

    @property
    def row(self) -> list[str]:
        return self.lines[4].split()


@pytest.fixture(params=[True, False], ids=["ZooKeeper", "a slow controller"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch, zookeeper=request.param)


def test_a_topic_made_anew_of_which_all_brokers_tell_is_that_one(scene: Scene) -> None:
    """Seen to fail: it had no leader for good, "none" and counting, though all served it."""
    for told in (tells(OLD, 3), tells(OLD, 3), tells(NEW), tells(NEW), tells(NEW)):
        scene.look(all_tell(told))
    assert scene.memory.leaderless_s == {}
    assert scene.row[:4] == ["t-0", "1", "0", "0,1,2"]
    assert not scene.memory.elections, "it is another topic"


def test_a_dead_broker_holds_up_nothing(scene: Scene) -> None:
    """Seen to fail: as the one before."""
    scene.look(all_tell(tells(OLD, 3)))
    for _ in range(3):
        scene.look(all_tell(tells(NEW), (1, 2)), dead=[0])
    assert scene.memory.leaderless_s == {}
    assert scene.row[:4] == ["t-0", "1", "0", "0,1,2"]


def test_a_topic_of_which_no_broker_tells_any_more_is_deleted(scene: Scene) -> None:
    """Seen to fail: it stayed, without a leader."""
    scene.look(all_tell(tells(OLD)))
    scene.look(all_tell(NOTHING))
    scene.look(all_tell(NOTHING))
    assert scene.memory.partitions == {}
    assert scene.memory.leaderless_s == {}


def test_brokers_that_have_heard_of_nothing_agree_of_nothing(scene: Scene) -> None:
    """Goal: where all start anew the time without a leader goes on."""
    scene.look(all_tell(tells(OLD, 3, leader=-1)))
    sample = scene.look(all_tell(NOT_HEARD))
    scene.look(all_tell(tells(OLD, 4)))
    assert not sample.knows_topics
    assert scene.memory.leaderless_s == {PLACE: 2.0}


def test_what_brokers_disagree_of_is_not_known_and_no_outage(scene: Scene) -> None:
    """Method: one broker that runs does not answer; it may know better.

    Seen to fail: "none", and 3 s without a leader.
    """
    scene.look(all_tell(tells(OLD, 3)))
    for _ in range(4):
        sample = scene.look(all_tell(tells(NEW), (1, 2)))
    assert as_json(sample)["put_aside"] == ["t-0"]
    assert scene.memory.leaderless_s == {}
    assert scene.row == ["t-0", "unknown", "3", "-", "-", "-", "-"]
    assert DOUBT in scene.lines[0]
    scene.look(all_tell(tells(NEW)))
    assert scene.row[:4] == ["t-0", "1", "0", "0,1,2"]


@pytest.mark.parametrize("stale", [tells(OLD, 7), NOTHING, tells(NEW, 2, leader=2)])
def test_who_alone_is_left_and_was_cut_off_is_not_all_that_there_are(
    stale: Snapshot, scene: Scene
) -> None:
    """Goal: that only one broker runs makes it know nothing: who told of what is known is dead.

    Method: the leader is one of the dead, so the outage counts.
    """
    known = {0: tells(NEW, 3), 1: tells(NEW, 3), 2: stale}
    scene.look(known)
    for _ in range(3):
        sample = scene.look({2: stale}, dead=[0, 1])
    assert not sample.knows_topics
    assert scene.memory.leaderless_s == {PLACE: 2.0}
    assert scene.memory.partitions[PLACE].epoch == 3
    assert not scene.memory.elections


def test_an_outage_does_not_end_by_what_is_put_aside(scene: Scene) -> None:
    scene.look(all_tell(tells(NEW, 3)))
    scene.look(all_tell(tells(NEW, 4, leader=-1)))
    for _ in range(2):
        scene.look(all_tell(tells(OLD, 9), (2,)))
    assert scene.memory.leaderless_s == {PLACE: 2.0}
    assert scene.row[:3] == ["t-0", "none", "4"]


def test_with_zookeeper_what_all_tell_alike_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: it was in doubt for ever."""
    scene = Scene(tmp_path, monkeypatch, zookeeper=True)
    assert scene.look(all_tell(tells(OLD))).knows_topics
    assert scene.lines[0].endswith("  ZooKeeper: no controller is asked")
    assert not scene.look({**all_tell(tells(OLD)), 2: NOTHING}).knows_topics
    assert scene.lines[0].endswith(DOUBT)
    assert not scene.look(all_tell(tells(OLD), (0, 1))).knows_topics, "one that runs is silent"
    assert scene.look(all_tell(tells(OLD), (0, 1)), dead=[2]).knows_topics


def test_brokers_that_agree_behind_a_slow_controller_may_lack_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: all of them may be cut off from controllers, which is said."""
    scene = Scene(tmp_path, monkeypatch, zookeeper=False)
    assert not scene.look(all_tell(tells(OLD))).knows_topics
    assert scene.lines[0].endswith(DOUBT)


def test_what_is_not_known_stands_before_what_is_well(scene: Scene) -> None:
    """Goal: where there is room for few partitions those are shown of which something is wrong."""
    well = replace(tells(OLD), topics=dict.fromkeys(("a", "t"), tells(OLD).topics["t"]))
    both = replace(well, topic_ids={"a": OLD, "t": OLD})
    scene.look(all_tell(both))
    anew = replace(both, topic_ids={"a": OLD, "t": NEW})
    scene.look(all_tell(anew, (1, 2)))
    assert [line.split()[:2] for line in scene.lines[4:6]] == [["t-0", "unknown"], ["a-0", "1"]]


def test_what_was_before_of_the_very_topic_is_not_known_and_no_outage(scene: Scene) -> None:
    """Method: of three brokers that run the one that answers tells of an earlier epoch.

    Seen to fail: "none", and 2 s without a leader.
    """
    scene.look({**all_tell(tells(NEW, 4)), 2: tells(NEW, 3, leader=2)})
    for _ in range(3):
        scene.look({2: tells(NEW, 3, leader=2)})
    assert scene.memory.leaderless_s == {}
    assert scene.row == ["t-0", "unknown", "4", "-", "-", "-", "-"]
    assert not scene.memory.elections
