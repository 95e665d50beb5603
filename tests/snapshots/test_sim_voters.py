"""Goal: voters come and go one at a time while the cluster works, and nothing committed is lost.

Method: simulated clusters whose first controller begins as the only voter (KIP-853).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.promises import Promises

from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.node.controller.controller import Controller
from holdfast.runtime.dial import ConnectionLostError, dial
from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import (
    BROKER_PORT,
    CONTROLLER,
    CONTROLLER_PORT,
    SimulatedCluster,
)
from holdfast.wire.administration import create_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.add_raft_voter import AddRaftVoterRequest
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from holdfast.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from holdfast.wire.structs import QuorumEndpoint

FIRST, SECOND, THIRD = CONTROLLER, CONTROLLER + 1, CONTROLLER + 2
Story = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def play(
    story: Story, *, seed: int = 1, controllers: int = 3, combined: bool = False, **config: str
) -> None:
    world = World(seed)

    async def main() -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        cluster = SimulatedCluster(
            world, controllers=controllers, combined=combined, config=settings, dynamic=True
        )
        await cluster.start()
        await story(cluster)

    world.run(main)


def controller(cluster: SimulatedCluster, node: int) -> Controller:
    found = cluster.nodes[node].controller
    assert found is not None
    return found


def key_of(cluster: SimulatedCluster, node: int) -> ReplicaKey:
    quorum = controller(cluster, node).quorum
    assert quorum is not None
    return quorum.key


def voters_of(cluster: SimulatedCluster, node: int) -> tuple[int, ...]:
    quorum = controller(cluster, node).quorum
    assert quorum is not None
    return quorum.voters.ids


async def ask(cluster: SimulatedCluster, request: Any, *, timeout_ms: int = 5000) -> ErrorCode:
    """Ask the active controller; REQUEST_TIMED_OUT when there is none, or it does not answer."""
    active = cluster.active_controller()
    if active is None:
        return ErrorCode.REQUEST_TIMED_OUT
    client = cluster.client()
    try:
        connection = await dial(
            client.runtime, cluster.machine(active).name, CONTROLLER_PORT, "test", timeout_ms=2000
        )
    except OSError:
        return ErrorCode.REQUEST_TIMED_OUT
    try:
        answer = await connection.send(request, timeout_ms=timeout_ms)
    except (ConnectionLostError, OSError):
        return ErrorCode.REQUEST_TIMED_OUT
    finally:
        connection.close()
    return ErrorCode(getattr(answer, "error_code", 0))


async def add(cluster: SimulatedCluster, node: int) -> ErrorCode:
    listener = QuorumEndpoint(
        name="CONTROLLER", host=cluster.machine(node).name, port=CONTROLLER_PORT
    )
    key = key_of(cluster, node)
    return await ask(
        cluster,
        AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=5000,
            voter_id=node,
            voter_directory_id=key.directory_id,
            listeners=[listener],
        ),
    )


async def remove(cluster: SimulatedCluster, node: int, key: ReplicaKey | None = None) -> ErrorCode:
    key = key or key_of(cluster, node)
    return await ask(
        cluster,
        RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=key.directory_id),
    )


async def until(attempt: Callable[[], Coroutine[Any, Any, ErrorCode]]) -> None:
    """Repeat a change until it is done, as an administrator would."""
    for _ in range(100):
        code = await attempt()
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND):
            return
        await asyncio.sleep(0.1)  # virtual
    raise AssertionError(f"the voters can't be changed: {code.name}")


async def grow(cluster: SimulatedCluster) -> None:
    await until(lambda: add(cluster, SECOND))
    await until(lambda: add(cluster, THIRD))


def test_a_cluster_grows_to_three_voters_and_survives_any_one_of_them() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic("before")
        await grow(cluster)
        await cluster.until(
            lambda: all(
                voters_of(cluster, n) == (FIRST, SECOND, THIRD) for n in (FIRST, SECOND, THIRD)
            ),
            "everybody knows the three",
        )
        for node in (FIRST, SECOND, THIRD):
            cluster.crash(node)
            client = cluster.client()
            await cluster.until(
                lambda node=node: cluster.active_controller() not in (None, node),  # type: ignore[misc]
                "another one is active",
            )
            await client.create_topic(f"without-{node}")
            cluster.start_node(node)
            await cluster.until(
                lambda node=node: (
                    cluster.nodes.get(node) is not None  # type: ignore[misc]
                    and cluster.nodes[node].controller is not None
                    and voters_of(cluster, node) == (FIRST, SECOND, THIRD)
                ),
                "it is back",
            )
        assert "before" in cluster.image.topics

    play(story)


def test_the_leader_can_be_removed_and_resigns() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await grow(cluster)
        active = cluster.active_controller()
        assert active is not None
        await until(lambda: remove(cluster, active))
        await cluster.until(
            lambda: cluster.active_controller() not in (None, active), "another one leads"
        )
        now = cluster.active_controller()
        assert now is not None
        assert active not in voters_of(cluster, now)
        await cluster.client().create_topic("t")
        epoch = controller(cluster, now).epoch
        await cluster.until(
            lambda: voters_of(cluster, active) == voters_of(cluster, now),
            "it follows as an observer",
        )
        assert controller(cluster, now).epoch == epoch, "it disturbs nobody"
        await until(lambda: add(cluster, active))
        assert active in voters_of(cluster, now)

    play(story)


def test_a_voter_can_say_where_it_listens_now() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await until(lambda: add(cluster, SECOND))
        leader = cluster.active_controller()
        assert leader is not None
        for epoch, expected in (
            (controller(cluster, leader).epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (controller(cluster, leader).epoch, ErrorCode.NONE),
        ):
            request = UpdateRaftVoterRequest(
                cluster_id=None,
                current_leader_epoch=epoch,
                voter_id=SECOND,
                voter_directory_id=key_of(cluster, SECOND).directory_id,
                listeners=[QuorumEndpoint(name="CONTROLLER", host="elsewhere", port=9)],
            )
            assert await ask(cluster, request) is expected
        quorum = controller(cluster, leader).quorum
        assert quorum is not None
        moved = quorum.voters.find(SECOND)
        assert moved is not None
        assert (moved.host, moved.port) == ("elsewhere", 9)

    play(story)


@pytest.mark.parametrize("dynamic", [True, False])
def test_clients_are_told_whether_voters_can_change(dynamic: bool) -> None:
    """A broker reads the level from the log or, where that is cut, from a snapshot.

    Seen failing when ApiVersions names the features of the image only.
    """
    world = World(1)

    async def level_at(cluster: SimulatedCluster, host: str, port: int) -> int:
        connection = await dial(cluster.client().runtime, host, port, "test", timeout_ms=2000)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await connection.send(request)
        connection.close()
        supported = {each.name: each.max_version for each in answer.supported_features}
        assert supported["kraft.version"] == 1
        finalized: dict[str, int] = {
            each.name: each.max_version_level for each in answer.finalized_features
        }
        assert finalized["metadata.version"] == 25
        return finalized.get("kraft.version", 0)

    async def main() -> None:
        settings = {
            "metadata.log.max.record.bytes.between.snapshots": "1000",
            "metadata.max.retention.bytes": "0",
        }
        cluster = SimulatedCluster(world, config=settings, dynamic=dynamic)
        await cluster.start()
        expected = 1 if dynamic else 0
        assert await level_at(cluster, "controller", CONTROLLER_PORT) == expected
        assert await level_at(cluster, "broker-0", BROKER_PORT) == expected
        for number in range(6):
            await cluster.client().create_topic(f"t{number}", partitions=3)
        cluster.crash(0)
        cluster.start_node(0)
        await cluster.until_ready(0)
        broker = cluster.nodes[0].broker
        assert broker is not None
        # A second one when the log was cut again while the first was on its way.
        assert broker.observer.snapshots_loaded >= 1
        assert await level_at(cluster, "broker-0", BROKER_PORT) == expected

    world.run(main)


def test_who_has_not_caught_up_can_not_be_added() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        key = key_of(cluster, SECOND)
        cluster.crash(SECOND)
        await restart(cluster, FIRST)  # forgets whom it has seen
        listener = QuorumEndpoint(name="CONTROLLER", host="controller-101", port=CONTROLLER_PORT)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=5000,
            voter_id=SECOND,
            voter_directory_id=key.directory_id,
            listeners=[listener],
        )
        assert await ask(cluster, request) is ErrorCode.REQUEST_TIMED_OUT
        assert voters_of(cluster, FIRST) == (FIRST,)

    play(story, controllers=2)


async def restart(cluster: SimulatedCluster, node: int) -> None:
    cluster.crash(node)
    cluster.start_node(node)
    await cluster.until(lambda: cluster.active_controller() is not None, "somebody leads")


def test_a_set_that_was_not_committed_is_rolled_back() -> None:
    """A leader that is cut off appends a change; the others elect, and its record is truncated."""

    async def story(cluster: SimulatedCluster) -> None:
        await grow(cluster)
        leader = cluster.active_controller()
        assert leader is not None
        others = [node for node in (FIRST, SECOND, THIRD) if node != leader]
        for other in others:
            for one, two in ((leader, other), (other, leader)):
                cluster.world.fabric.cut(cluster.machine(one).name, cluster.machine(two).name)
        assert await remove(cluster, others[0]) is ErrorCode.REQUEST_TIMED_OUT
        assert others[0] not in voters_of(cluster, leader), "in force when appended"
        await cluster.until(
            lambda: cluster.active_controller() in others, "the others elect one of them"
        )
        cluster.world.fabric.heal_all()
        await cluster.until(
            lambda: voters_of(cluster, leader) == (FIRST, SECOND, THIRD), "rolled back"
        )
        await cluster.client().create_topic("t")

    play(story)


@pytest.mark.slow
def test_a_leader_whose_own_removal_nobody_else_has_yet_leads_once_more() -> None:
    """Of two voters one is dead while the other one is removed: neither can be elected without it.

    Seen to fail: with only the voters of the latest set standing, nobody ever led again.
    """

    async def story(cluster: SimulatedCluster) -> None:
        await until(lambda: add(cluster, SECOND))
        leader = cluster.active_controller()
        assert leader is not None
        other = SECOND if leader == FIRST else FIRST
        cluster.crash(other)
        assert await remove(cluster, leader) is not ErrorCode.NONE
        await cluster.until(lambda: cluster.active_controller() is None, "a majority is not there")
        cluster.crash(leader)
        cluster.start_node(leader)
        cluster.start_node(other)
        await cluster.until(
            lambda: cluster.active_controller() == other and voters_of(cluster, leader) == (other,),
            "the removal is committed, and the one that is left leads",
        )
        await cluster.client().create_topic("t")

    play(story)


def test_a_leader_that_can_not_read_the_change_it_made_ends_and_says_so() -> None:
    """Seen to fail: with the disk's error going up into the connection, where nobody waits."""

    async def story(cluster: SimulatedCluster) -> None:
        await grow(cluster)
        leader = cluster.active_controller()
        assert leader is not None
        other = SECOND if leader == FIRST else FIRST
        fault = DiskFault(operations={"read"}, prefix="/data/__cluster_metadata-0")
        cluster.machine(leader).disk.inject(fault)
        assert await remove(cluster, other) is not ErrorCode.NONE
        await cluster.until(lambda: bool(cluster.exits), "the process ends")
        assert "is offline" in cluster.exits[0]
        await cluster.until(
            lambda: cluster.active_controller() not in (None, leader), "another one leads"
        )

    play(story)


@pytest.mark.slow
def test_brokers_that_are_controllers_too_change_their_voters() -> None:
    """Both roles share a process and an id, and one of them only acknowledges."""

    async def story(cluster: SimulatedCluster) -> None:
        work = Promises(cluster)
        await work.start()
        await until(lambda: add(cluster, 1))
        await until(lambda: add(cluster, 2))
        for power in (False, True):
            old = cluster.active_controller()
            assert old is not None
            if power:
                cluster.power_cut(old, torn=False)
            else:
                cluster.crash(old)
            await cluster.until(
                lambda old=old: cluster.active_controller() not in (None, old),  # type: ignore[misc]
                "another one is active",
            )
            cluster.start_node(old)
            await cluster.until_ready(old)
        old = cluster.active_controller()
        assert old is not None
        await until(lambda: remove(cluster, old))
        await cluster.until(
            lambda: cluster.active_controller() not in (None, old), "another one leads"
        )
        await until(lambda: add(cluster, old))
        await work.stop()
        await work.check()
        assert not cluster.exits

    play(story, combined=True)


def test_one_that_knows_only_voters_that_are_gone_finds_the_others() -> None:
    """It takes itself for a voter still, and nobody that it knows of can tell it otherwise.

    Seen failing when only those that have no vote ask the bootstrap servers.
    """

    async def story(cluster: SimulatedCluster) -> None:
        await until(lambda: add(cluster, SECOND))
        await cluster.until(
            lambda: voters_of(cluster, SECOND) == (FIRST, SECOND), "it knows of its vote"
        )
        key = key_of(cluster, SECOND)
        cluster.crash(SECOND)
        if cluster.active_controller() != FIRST:
            cluster.start_node(SECOND)
            await cluster.until(lambda: cluster.active_controller() == FIRST, "the first leads")
            cluster.crash(SECOND)
        await until(lambda: remove(cluster, SECOND, key))
        await until(lambda: add(cluster, THIRD))
        await until(lambda: remove(cluster, FIRST))
        await cluster.until(lambda: cluster.active_controller() == THIRD, "the third leads")
        cluster.crash(FIRST)
        cluster.start_node(SECOND)
        await cluster.until(
            lambda: (
                SECOND in cluster.nodes
                and cluster.nodes[SECOND].controller is not None
                and controller(cluster, SECOND).quorum is not None
                and voters_of(cluster, SECOND) == (THIRD,)
            ),
            "it has read who votes",
        )

    play(story)


@pytest.mark.slow
def test_voters_survive_snapshots_and_restarts() -> None:
    """The log's beginning, with the records of the voters, is gone."""

    async def story(cluster: SimulatedCluster) -> None:
        await grow(cluster)
        for number in range(6):
            await cluster.client().create_topic(f"t{number}", partitions=3)
        await cluster.until(
            lambda: all(
                found is not None and found.start > 20
                for found in (controller(cluster, n).log for n in (FIRST, SECOND, THIRD))
            ),
            "the beginning is gone",
        )
        for node in (FIRST, SECOND, THIRD):
            cluster.power_cut(node)
        for node in (FIRST, SECOND, THIRD):
            cluster.start_node(node)
        await cluster.until(lambda: cluster.active_controller() is not None, "somebody leads")
        for node in (FIRST, SECOND, THIRD):
            assert voters_of(cluster, node) == (FIRST, SECOND, THIRD)
        await cluster.client().create_topic("after")

    play(
        story,
        metadata_log_max_record_bytes_between_snapshots="1000",
        metadata_max_retention_bytes="0",
    )


def test_what_is_not_committed_is_in_no_snapshot() -> None:
    """A leader that is cut off goes on deciding for a moment, and a snapshot is due with each.

    Seen failing when `SnapshotMaker` does not wait for the commit.
    """

    async def story(cluster: SimulatedCluster) -> None:
        await grow(cluster)
        leader = cluster.active_controller()
        assert leader is not None
        for other in (FIRST, SECOND, THIRD):
            if other != leader:
                for one, two in ((leader, other), (other, leader)):
                    cluster.world.fabric.cut(cluster.machine(one).name, cluster.machine(two).name)
        held = controller(cluster, leader)
        assert held.log is not None
        assert held.snapshots is not None
        committed = held.log.committed
        for number in range(5):
            asked = create_topic(f"lost{number}", partitions=9, replication_factor=1, timeout_ms=1)
            assert await ask(cluster, asked.message, timeout_ms=50) is ErrorCode.REQUEST_TIMED_OUT
            held._consider_snapshot()  # as the timer does, should it come now
            await asyncio.sleep(0.05)
        assert all(file.identity.end_offset <= committed for file in held.snapshots.files.values())
        await cluster.until(
            lambda: cluster.active_controller() not in (None, leader), "the others elect"
        )
        cluster.world.fabric.heal_all()
        await cluster.client().create_topic("kept")
        await restart(cluster, leader)
        await cluster.until(
            lambda: (
                cluster.nodes.get(leader) is not None
                and "kept" in controller(cluster, leader).image.topics
            ),
            "it knows what the others know",
        )
        assert "lost0" not in controller(cluster, leader).image.topics

    play(story, metadata_log_max_record_bytes_between_snapshots="300")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_changes_among_crashes_lose_nothing(seed: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        draw = cluster.world.machine("dice").boot().random
        names: list[str] = []
        keys = {node: key_of(cluster, node) for node in (FIRST, SECOND, THIRD)}
        for number in range(12):
            node = (FIRST, SECOND, THIRD)[draw.below(3)]
            if draw.below(2):
                await add(cluster, node)
            else:
                await remove(cluster, node, keys[node])
            if draw.below(2):
                victim = (FIRST, SECOND, THIRD)[draw.below(3)]
                cluster.power_cut(victim)
                cluster.start_node(victim)
            await cluster.until(lambda: cluster.active_controller() is not None, "somebody leads")
            await cluster.until(
                lambda: all(cluster.nodes.get(n) is not None for n in keys), "all are up"
            )
            await cluster.client().create_topic(f"t{number}")
            names.append(f"t{number}")
            assert set(names) <= cluster.image.topics.keys()

    play(story, seed=seed)
