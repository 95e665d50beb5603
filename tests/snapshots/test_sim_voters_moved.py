"""Goal: a voter that listens elsewhere after a restart can still be reached by others (KIP-853).

Method: simulated clusters with voters in the log; the configuration of one is changed while it is
down. Nobody tells the others: they must find out.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.snapshots.test_sim_voters import (
    FIRST,
    SECOND,
    THIRD,
    add,
    controller,
    grow,
    until,
    voters_of,
)

from holdfast.node.quorum.quorum_member import QuorumMember
from holdfast.node.quorum.quorum_state import read_state
from holdfast.node.quorum.voter_fetcher import VoterFetcher
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster

MOVED_PORT = 7777


class Configs:
    """What the next start of each node is configured with beside the usual."""

    def __init__(self) -> None:
        self.of: dict[int, dict[str, str]] = {}

    def move(self, cluster: SimulatedCluster, node: int) -> None:
        name = cluster.machine(node).name
        self.of[node] = {"listeners": f"CONTROLLER://{name}:{MOVED_PORT}"}

    def __call__(self, node: int) -> dict[str, str]:
        return self.of.get(node, {})


Story = Callable[[SimulatedCluster, Configs], Coroutine[Any, Any, None]]


def play(story: Story, *, seed: int = 1, controllers: int = 3) -> None:
    world, configs = World(seed), Configs()

    async def main() -> None:
        cluster = SimulatedCluster(world, controllers=controllers, config_of=configs, dynamic=True)
        await cluster.start()
        await story(cluster, configs)

    world.run(main)


def member(cluster: SimulatedCluster, node: int) -> QuorumMember:
    found = controller(cluster, node).quorum
    assert found is not None
    return found


def recorded_port(cluster: SimulatedCluster, where: int, node: int) -> int | None:
    """Where a node listens, as another one's voters' record says."""
    held = cluster.nodes.get(where)
    if held is None or held.controller is None or held.controller.quorum is None:
        return None
    found = held.controller.quorum.voters.find(node)
    return found.port if found is not None else None


async def restart(cluster: SimulatedCluster, node: int) -> None:
    await cluster.stop(node)
    cluster.start_node(node)
    await cluster.until(
        lambda: node in cluster.nodes and cluster.nodes[node].controller is not None, "it is up"
    )


def test_a_voter_that_has_moved_says_so_and_can_lead() -> None:
    """Seen failing when a follower does not send UpdateRaftVoter."""

    async def story(cluster: SimulatedCluster, configs: Configs) -> None:
        await grow(cluster)
        leader = cluster.active_controller()
        assert leader is not None
        moved, other = (node for node in (FIRST, SECOND, THIRD) if node != leader)
        configs.move(cluster, moved)
        await restart(cluster, moved)
        for where in (FIRST, SECOND, THIRD):
            await cluster.until(
                lambda where=where: recorded_port(cluster, where, moved) == MOVED_PORT,  # type: ignore[misc]
                f"{where} knows where it listens",
            )
        assert voters_of(cluster, leader) == (FIRST, SECOND, THIRD)
        cluster.crash(other)  # now it takes the one that has moved
        await cluster.client().create_topic("t")
        cluster.crash(leader)
        cluster.start_node(other)
        await cluster.until(
            lambda: cluster.active_controller() in (moved, other), "these two are a majority"
        )
        await cluster.client().create_topic("u")

    play(story)


@pytest.mark.slow
def test_a_voter_that_has_moved_and_leads_says_where_to_follow() -> None:
    """Of two voters only this one can be elected: the other one can't reach it to ask.

    Seen failing when who hears of a leader goes where the voters' record says.
    """

    async def story(cluster: SimulatedCluster, configs: Configs) -> None:
        await until(lambda: add(cluster, SECOND))
        await cluster.until(
            lambda: voters_of(cluster, SECOND) == (FIRST, SECOND), "it knows of its vote"
        )
        cluster.crash(FIRST)
        cluster.crash(SECOND)
        configs.move(cluster, SECOND)
        cluster.start_node(FIRST)
        cluster.start_node(SECOND)
        await cluster.until(lambda: cluster.active_controller() == SECOND, "it leads")
        await cluster.client().create_topic("t")
        await cluster.until(
            lambda: "t" in controller(cluster, FIRST).image.topics, "the other one follows"
        )

    play(story, controllers=2)


def test_who_has_not_moved_writes_nothing() -> None:
    """Each change of the voters costs a record, and holds up others."""

    async def story(cluster: SimulatedCluster, _: Configs) -> None:
        await grow(cluster)
        leader = cluster.active_controller()
        assert leader is not None
        before = member(cluster, leader).replica.voter_log.history.latest_offset
        for node in (FIRST, SECOND, THIRD):
            if node != leader:
                await restart(cluster, node)
        await cluster.client().create_topic("t")
        assert member(cluster, leader).replica.voter_log.history.latest_offset == before

    play(story)


def test_nobody_is_followed_before_the_epoch_is_on_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when it is somebody's answer that names the leader, and where it is.

    Seen failing when an address that was learnt is followed at once.
    """
    followed: list[tuple[int, int]] = []
    start = VoterFetcher.start

    def watched(self: VoterFetcher, leader: Any, epoch: int) -> None:
        replica = self._replica
        saved = read_state(replica.runtime.disk, replica.log.replica.directory)
        followed.append((epoch, saved.epoch if saved is not None else -1))
        start(self, leader, epoch)

    monkeypatch.setattr(VoterFetcher, "start", watched)

    async def story(cluster: SimulatedCluster, _: Configs) -> None:
        await grow(cluster)  # until then they know of no voters, and ask around

    play(story)
    assert followed
    assert all(saved >= epoch for epoch, saved in followed), followed
