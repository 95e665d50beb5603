"""Goal: a scenario that expects what a cluster of Kafka's can't look like fails its steps.

Method: one partition on brokers 0, 1 and 2 of a cluster that is played, to which something happens;
then it is asked whether it can come to look like this.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.played_clients import HONEST
from tests.lab.played_cluster import PlayedCluster
from tests.lab.played_rules import why_not

from holdfast.lab.parameters import Parameters
from holdfast.lab.steps.wants import Want, want


def killed(*nodes: int) -> Callable[[PlayedCluster], None]:
    def happens(cluster: PlayedCluster) -> None:
        for node in nodes:
            cluster.signal(node, "KILL")
            cluster.time_passes()

    return happens


def leaderless(cluster: PlayedCluster) -> None:
    killed(2, 1, 0)(cluster)
    cluster.start_node(1, 2)


def unclean(cluster: PlayedCluster) -> None:
    leaderless(cluster)
    cluster.is_unclean = True


def empty(cluster: PlayedCluster) -> None:
    killed(2, 1, 0)(cluster)
    cluster.doubted.add(0)
    cluster.start_node(0)


def unled(cluster: PlayedCluster) -> None:
    cluster.mute.add(100)


def full(cluster: PlayedCluster) -> None:
    cluster.hindrances["a full disk of 2"] = frozenset({2})


def slow(cluster: PlayedCluster) -> None:
    cluster.hindrances["slow 0 to 2"] = frozenset({0, 2})


def silent(cluster: PlayedCluster) -> None:
    cluster.signal(0, "KILL")  # and no time passes


def nothing(_cluster: PlayedCluster) -> None: ...


CAN = [
    (nothing, want(0, {0, 1, 2})),
    (killed(0), want(1, {1, 2})),
    (killed(2, 1, 0), want(-1, {0})),
    (leaderless, want(-1)),
    (unclean, want(1, {1})),
    (empty, want(-1)),
    (unled, want(0, {0, 1, 2})),
    (full, want(None, {0, 1})),
]
CANNOT = [
    (nothing, want(None, {0, 1, 7}), "who has no replica is in sync"),
    (nothing, want(2, {0, 1}), "who leads is not in sync"),
    (nothing, want(None, {0, 1}), "who lives and follows falls out of sync"),
    (nothing, want(1), "who leads lives, is heard and in sync"),
    (nothing, want(-1), "nobody leads, and somebody in sync could"),
    (killed(0), want(None, {0, 1, 2}), "who is silent comes to be in sync"),
    (killed(0), want(0), "who is silent leads"),
    (killed(0), want(2), "who leads lives, is heard and in sync"),
    (leaderless, want(1), "the first in sync leads: []"),
    (unclean, want(-1), "nobody leads, and anybody may"),
    (unclean, want(2, {2}), "the first alive leads: [1]"),
    (unclean, want(7), "who has no replica leads"),
    (full, want(None, {0, 2}), "who lives and follows falls out of sync"),
    (slow, want(None, {0, 2}), "who lives and follows falls out of sync"),
    (unled, want(1, {1, 2}), "there is no controller that could change it"),
]


def played(directory: Path, happens: Callable[[PlayedCluster], None]) -> PlayedCluster:
    cluster = PlayedCluster(Parameters(), directory, HONEST)
    cluster.make_topic({0: (0, 1, 2)})
    happens(cluster)
    return cluster


@pytest.mark.parametrize(("happens", "wanted"), CAN)
def test_what_can_come(
    tmp_path: Path, happens: Callable[[PlayedCluster], None], wanted: Want
) -> None:
    assert why_not(played(tmp_path, happens), 0, wanted) is None


@pytest.mark.parametrize(("happens", "wanted", "why"), CANNOT)
def test_what_can_not_come(
    tmp_path: Path, happens: Callable[[PlayedCluster], None], wanted: Want, why: str
) -> None:
    assert why_not(played(tmp_path, happens), 0, wanted) == why


@pytest.mark.parametrize(
    ("happens", "wanted", "bound", "why"),
    [
        (silent, want(1, {1, 2}), "session_s", "its session is not over by then"),
        (silent, want(1), "session_s", "its session is not over by then"),
        (slow, want(None, {0, 1}), "lag_s", "its lag is not over by then"),
    ],
)
def test_nobody_is_missed_at_once(
    tmp_path: Path,
    happens: Callable[[PlayedCluster], None],
    wanted: Want,
    bound: str,
    why: str,
) -> None:
    """Seen to pass: a scenario that left a tenth of a second, for which every cluster is broken."""
    cluster = played(tmp_path, happens)
    least_s = getattr(cluster.parameters, bound)
    assert why_not(cluster, 0, wanted, least_s) == why
    assert why_not(cluster, 0, wanted, least_s + 1) is None


def test_with_eligible_replicas_the_first_in_sync_leads_as_well(tmp_path: Path) -> None:
    cluster = PlayedCluster(Parameters(elr=True), tmp_path, HONEST)
    cluster.make_topic({0: (0, 1, 2)})
    silent(cluster)
    assert why_not(cluster, 0, want(2, {1, 2})) == "the first in sync leads: [1]"
    assert why_not(cluster, 0, want(1, {1, 2})) is None


def test_who_is_killed_is_missed_only_once_time_has_passed(tmp_path: Path) -> None:
    cluster = played(tmp_path, nothing)
    cluster.signal(0, "KILL")
    assert (cluster.leader_of(0), 0 in cluster.view.brokers) == (0, True)
    cluster.time_passes()
    assert (cluster.leader_of(0), 0 in cluster.view.brokers) == (1, False)


def test_without_a_controller_nobody_comes_to_be_in_sync(tmp_path: Path) -> None:
    cluster = played(tmp_path, killed(0))
    unled(cluster)
    cluster.start_node(0)
    cluster.time_passes()
    assert cluster.state_of(0).isr == (1, 2)
    cluster.mute.clear()
    cluster.time_passes()
    assert cluster.state_of(0).isr == (0, 1, 2)
