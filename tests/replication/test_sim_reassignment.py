"""Goal: partitions move under load, through kills, cancellations and restarts, and lose nothing.

Method: five brokers on virtual time, writers that check every acknowledgement, and a look at every
disk afterwards: whoever holds the partition has all of it, whoever left has nothing of it.
They were seen to fail with a leader epoch that does not end when a replica goes, with a move that
ends when any of the new replicas is in sync, and with a broker that keeps what has moved away.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from tests.simulation.promises import Promises

from holdfast.core.metadata.image import Partition
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import AnswerError, ClusterClient, RefusedError
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.administration import reassignments
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as fetching
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

Story = Callable[[SimulatedCluster, Promises], Coroutine[Any, Any, None]]


def play(story: Story, *, seed: int = 1, brokers: int = 5, **config: str) -> None:
    """Run a story under load; afterwards every promise must have been kept, on every replica."""
    world = World(seed)

    async def main() -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        cluster = SimulatedCluster(world, brokers=brokers, config=settings)
        await cluster.start()
        work = Promises(cluster, partitions=2)
        await work.start()
        await asyncio.sleep(1)
        await story(cluster, work)
        before = work.acknowledged
        await cluster.until(lambda: work.acknowledged > before + 10, "acknowledgements go on")
        await work.stop()
        await work.check()
        await until_no_leftovers(cluster, work)

    world.run(main)


def partition(cluster: SimulatedCluster, index: int = 0) -> Partition:
    found = cluster.image.partition("t", index)
    assert found is not None
    return found


async def begin(cluster: SimulatedCluster, target: Sequence[int] | None, index: int = 0) -> None:
    client = cluster.client("mover")
    await client.until(lambda: client.reassign("t", index, target))
    client.close()


async def until_moved(cluster: SimulatedCluster, target: Sequence[int], index: int = 0) -> None:
    await cluster.until(
        lambda: (
            partition(cluster, index).replicas == tuple(target)
            and set(partition(cluster, index).isr) == set(target)
        ),
        f"t-{index} is on {target}",
        seconds=120,
    )


async def until_no_leftovers(cluster: SimulatedCluster, work: Promises) -> None:
    """Nobody keeps, or serves, what has moved away."""

    def clean() -> bool:
        return all(
            cluster.nodes[broker].directories.get(work.topic, index) is None
            for index in work.partitions
            for broker in cluster.brokers
            if broker not in partition(cluster, index).replicas
        )

    await cluster.until(clean, "what moved away is deleted")


def elsewhere(cluster: SimulatedCluster, count: int = 3, index: int = 0) -> list[int]:
    """So many brokers, those first that do not hold the partition; not its leader."""
    held = partition(cluster, index).replicas
    others = [broker for broker in cluster.brokers if broker not in held]
    return (others + list(reversed(held)))[:count]


def test_a_partition_moves_to_other_brokers_leader_and_all() -> None:
    async def story(cluster: SimulatedCluster, _: Promises) -> None:
        target = elsewhere(cluster)
        epoch = partition(cluster).leader_epoch
        await begin(cluster, target)
        await until_moved(cluster, target)
        assert partition(cluster).leader == target[0]
        assert partition(cluster).leader_epoch == epoch + 1
        assert not partition(cluster).adding
        assert not partition(cluster).removing

    play(story)


def test_the_leader_stays_and_its_epoch_ends_when_another_replica_goes() -> None:
    async def story(cluster: SimulatedCluster, _: Promises) -> None:
        now = partition(cluster)
        stays = [now.leader]
        target = stays + [broker for broker in cluster.brokers if broker not in now.replicas]
        await begin(cluster, target)
        await until_moved(cluster, target)
        assert partition(cluster).leader == now.leader
        assert partition(cluster).leader_epoch == now.leader_epoch + 1

    play(story)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("victim", ["leader", "leaving", "coming"])
def test_a_kill_in_the_middle_only_delays_it(victim: str, seed: int) -> None:
    async def story(cluster: SimulatedCluster, _: Promises) -> None:
        now = partition(cluster)
        target = elsewhere(cluster)
        coming = next(broker for broker in target if broker not in now.replicas)
        leaving = next(b for b in now.replicas if b not in target and b != now.leader)
        killed = {"leader": now.leader, "leaving": leaving, "coming": coming}[victim]
        await begin(cluster, target)
        cluster.power_cut(killed, torn=seed == 2)
        await asyncio.sleep(5)
        cluster.start_node(killed)
        await cluster.until_ready(killed)
        await until_moved(cluster, target)

    play(story, seed=seed)


@pytest.mark.slow
def test_a_broker_that_was_down_when_its_replica_moved_away_does_not_bring_it_back() -> None:
    async def story(cluster: SimulatedCluster, _: Promises) -> None:
        now = partition(cluster)
        target = elsewhere(cluster)
        leaving = next(b for b in now.replicas if b not in target and b != now.leader)
        cluster.crash(leaving)
        await begin(cluster, target)
        await until_moved(cluster, target)
        cluster.start_node(leaving)
        await cluster.until_ready(leaving)

    play(story)


@pytest.mark.slow
def test_a_cancelled_move_leaves_everything_where_it_was() -> None:
    async def story(cluster: SimulatedCluster, _: Promises) -> None:
        now = partition(cluster)
        target = elsewhere(cluster)
        coming = [broker for broker in target if broker not in now.replicas]
        cluster.crash(coming[0])  # or it might be done before it is cancelled
        await begin(cluster, target)
        await cluster.until(lambda: coming[1] in partition(cluster).isr, "one of the new is there")
        await begin(cluster, None)
        await cluster.until(
            lambda: set(partition(cluster).replicas) == set(now.replicas), "it is back"
        )
        cluster.start_node(coming[0])
        await cluster.until_ready(coming[0])

    play(story)


@pytest.mark.slow
def test_a_second_cancellation_is_refused() -> None:
    async def story(cluster: SimulatedCluster, _: Promises) -> None:
        client = cluster.client("mover")
        with pytest.raises(RefusedError) as refusal:
            await client.reassign("t", 0, None)
        assert refusal.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        client.close()

    play(story)


@pytest.mark.slow
def test_a_topic_can_be_deleted_while_it_moves() -> None:
    async def story(cluster: SimulatedCluster, _: Promises) -> None:
        client = cluster.client("mover")
        await client.create_topic("gone", partitions=1)
        held = cluster.image.partition("gone", 0)
        assert held is not None
        target = [broker for broker in cluster.brokers if broker not in held.replicas]
        cluster.crash(target[0])
        await client.until(lambda: client.reassign("gone", 0, target))
        await client.until(lambda: client.perform(reassignments(), "what is being moved"))
        await _delete_topic(client, "gone")
        await cluster.until(
            lambda: all(
                cluster.nodes[broker].directories.get("gone", 0) is None
                for broker in cluster.brokers
                if broker != target[0]
            ),
            "nobody holds it",
        )
        assert await client.perform(reassignments(), "what is being moved") == {}
        client.close()
        cluster.start_node(target[0])
        await cluster.until_ready(target[0])

    play(story)


async def _delete_topic(client: ClusterClient, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    response = await client.ask(request)
    assert response.responses[0].error_code == ErrorCode.NONE


def test_one_replica_becomes_three_under_load_and_survives_the_first() -> None:
    """Goal: raise the replication factor from 1 to 3; then the first replica's broker dies."""
    world = World(3)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=3, config={"min.insync.replicas": "1"})
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0], [1]])
        work = Promises(cluster, partitions=2)
        await work.start()
        await cluster.until(lambda: work.acknowledged > 50, "a load")
        await begin(cluster, [0, 1, 2], 0)
        await begin(cluster, [1, 2, 0], 1)
        await until_moved(cluster, [0, 1, 2], 0)
        await until_moved(cluster, [1, 2, 0], 1)
        cluster.power_cut(0)
        before = work.acknowledged
        await cluster.until(lambda: work.acknowledged > before + 50, "it goes on without broker 0")
        cluster.start_node(0)
        await cluster.until_ready(0)
        await work.stop()
        await work.check()
        client.close()

    world.run(main)


@pytest.mark.slow
def test_a_broker_joins_takes_its_share_under_load_and_is_killed_in_the_middle() -> None:
    """Goal: everything is spread over one broker more, which loses its power on the way."""

    async def story(cluster: SimulatedCluster, work: Promises) -> None:
        new = cluster.brokers[-1]
        for index in work.partitions:
            kept = [b for b in partition(cluster, index).replicas if b != new][:2]
            await begin(cluster, [new, *kept], index)
        cluster.power_cut(new, torn=True)
        await asyncio.sleep(4)
        cluster.start_node(new)
        await cluster.until_ready(new)
        for index in work.partitions:
            await until_moved(cluster, partition(cluster, index).replicas[:3], index)
            await cluster.until(lambda at=index: not partition(cluster, at).adding, "it is there")  # type: ignore[misc]

    play(story, brokers=4)


def test_a_follower_is_taken_away_while_its_fetch_waits() -> None:
    """It asks without an epoch, so that no epoch that has ended answers it first."""
    world = World(5)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=3)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        epoch = cluster.image.brokers[2].epoch
        asked = fetching.FetchPartition(
            partition=0, fetch_offset=0, log_start_offset=0, partition_max_bytes=1000
        )
        request = fetching.FetchRequest(
            max_wait_ms=1900,
            min_bytes=1,
            max_bytes=1000,
            replica_state=fetching.ReplicaState(replica_id=2, replica_epoch=epoch),
            topics=[fetching.FetchTopic(topic_id=client.topic_ids["t"], partitions=[asked])],
        )
        waiting = asyncio.ensure_future(client.ask(request, node=0, version=17))
        await asyncio.sleep(0.1)
        await begin(cluster, [0, 1])
        response = await waiting
        code = response.responses[0].partitions[0].error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        client.close()

    world.run(main)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_moves_kills_and_cancellations_at_random(seed: int) -> None:
    """Targets of any size, one move after another, whatever has become of the last one."""
    draw = random.Random(f"moves/{seed}")

    async def story(cluster: SimulatedCluster, work: Promises) -> None:
        down: list[int] = []
        client = cluster.client("mover")
        for _ in range(12):
            index = draw.choice(work.partitions)
            target = draw.sample(cluster.brokers, draw.randint(1, 4))
            with contextlib.suppress(AnswerError, OSError):
                await client.reassign("t", index, None if draw.random() < 0.2 else target)
            await asyncio.sleep(draw.random() * 2)
            if down:
                cluster.start_node(down[-1])
                await cluster.until_ready(down.pop())
            elif draw.random() < 0.6:
                down.append(draw.choice(cluster.brokers))
                if draw.random() < 0.5:
                    cluster.crash(down[-1])
                else:
                    await cluster.stop(down[-1])
                await asyncio.sleep(draw.random() * 4)
        if down:
            cluster.start_node(down[-1])
            await cluster.until_ready(down[-1])
        for index in work.partitions:
            with contextlib.suppress(RefusedError):
                await client.until(lambda at=index: client.reassign("t", at, None))  # type: ignore[misc]
            await begin(cluster, [0, 1, 2], index)
            await until_moved(cluster, [0, 1, 2], index)
        client.close()

    play(story, seed=seed, min_insync_replicas="1")
