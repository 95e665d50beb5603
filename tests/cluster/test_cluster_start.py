"""Goal: who may fail while a cluster starts, and who may not.

Method: a directory without processes; which of its nodes have died, and when brokers answer, is
made up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cluster import ClusterError, LocalCluster, nodes, probe
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.probe import Snapshot
from holdfast.cluster.processes import State

ALL = Snapshot(cluster_id=None, brokers=dict.fromkeys((0, 1, 2), ("127.0.0.1", 1)), topics={})


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Ids of nodes that have ended; the first question to a broker comes too early."""
    ended: set[int] = set()
    questions: list[tuple[str, int]] = []

    def ask(address: tuple[str, int], *_: object) -> Snapshot | None:
        questions.append(address)
        return ALL if len(questions) > 1 else None

    def state_of(node: NodeRecord) -> State:
        return State.DEAD if node.id in ended else State.RUNNING

    monkeypatch.setattr(probe, "ask", ask)
    monkeypatch.setattr(nodes, "state_of", state_of)
    return ended


def test_a_cluster_comes_to_serve_without_one_of_three_controllers(
    tmp_path: Path, dead: set[int]
) -> None:
    dead.add(101)
    LocalCluster.create(tmp_path, port=0).wait_ready()


@pytest.mark.parametrize(
    ("ended", "controllers"),
    [({1}, 3), ({100, 102}, 3), ({100}, 1), ({100, 101}, 4)],
    ids=["a broker", "two controllers of three", "the only one", "two of four"],
)
def test_a_cluster_that_can_not_serve_is_given_up_at_once(
    tmp_path: Path, dead: set[int], ended: set[int], controllers: int
) -> None:
    dead |= ended
    cluster = LocalCluster.create(tmp_path, controllers=controllers, port=0)
    file = Path(cluster.node(min(ended)).log_file)
    file.write_text("the file at offset 7 is damaged\n")
    with pytest.raises(ClusterError, match=f"Node {min(ended)} ended.*\n.*\n.*offset 7"):
        cluster.wait_ready()
