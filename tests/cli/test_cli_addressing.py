"""How nodes are named on a command line: ids, roles, and what they do just now."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.exit_status import CommandError
from holdfast.cli.local.addressing import addressed
from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.processes import State


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """A cluster that was never started: all its nodes are dead."""
    return LocalCluster.create(tmp_path / "c", brokers=2, controllers=3, port=0)


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["1"], [1]),
        (["101", "0"], [101, 0]),
        (["brokers"], [0, 1]),
        (["controllers"], [100, 101, 102]),
        (["1", "all"], [1, 0, 100, 101, 102]),
    ],
)
def test_ids_and_roles(cluster: LocalCluster, words: list[str], ids: list[int]) -> None:
    """Goal: each node once, in the order of the words. Method: ids and groups of dead nodes."""
    assert addressed(cluster, words, (State.DEAD,)) == ids


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("first", "names no node.*controller:active"),
        ("controller:", "names no node"),
        ("-1", "names no node"),
        ("leader:payments", "leader:TOPIC-PARTITION"),
        ("leader:payments-x", "leader:TOPIC-PARTITION"),
        ("leader:payments-0", "no broker answers"),
        ("controller:active", "No controller is active"),
    ],
)
def test_what_names_nobody(cluster: LocalCluster, word: str, reason: str) -> None:
    """Goal: the error says what would. Method: words that are none, and nobody there."""
    with pytest.raises(CommandError, match=reason):
        addressed(cluster, [word], (State.RUNNING,))


def test_a_group_of_which_none_is_suited(cluster: LocalCluster) -> None:
    """Goal: killing the dead is said to be in vain. Method: brokers that run, of none."""
    with pytest.raises(CommandError, match=r"brokers: none of nodes 0, 1 is running"):
        addressed(cluster, ["brokers"], (State.RUNNING,))
    with pytest.raises(ClusterError, match="no node 7"):
        addressed(cluster, ["7"], (State.RUNNING,))
