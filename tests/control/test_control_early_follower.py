"""What happens in the first moments after an election, and what an idle controller keeps.

Goal: a follower that hears of an election before the leader does is soon in step; a controller's
timers do not multiply. Method: unmodified nodes in virtual time, one link cut for a moment; a
back-off so long that waiting for it would fail the request.
"""

from __future__ import annotations

import asyncio

from tests.control.control_world import controller, creation, play

from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest


def test_a_follower_that_was_too_early_asks_again_soon() -> None:
    """It waited for replica.fetch.backoff.ms, and acks=all and the high watermark with it."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", partitions=1)
        first = await client.leader("t", 0)
        cluster.crash(first)
        await cluster.until(
            lambda: cluster.image.topics["t"].partitions[0].leader != first, "moved"
        )
        cluster.start_node(first)
        await cluster.until_ready(first)
        await cluster.until(
            lambda: len(cluster.image.topics["t"].partitions[0].isr) == 3, "in sync again"
        )
        cluster.world.fabric.cut("controller", f"broker-{first}")
        other = next(node for node in (0, 1, 2) if node != first)
        await client.ask(ElectLeadersRequest(topic_partitions=None), node=other)
        follower = cluster.nodes[other].broker
        assert follower is not None
        await cluster.until(
            lambda: follower.image.topics["t"].partitions[0].leader == first, "followers know"
        )
        await asyncio.sleep(0.3)
        cluster.world.fabric.heal_all()
        leader = cluster.nodes[first].broker
        assert leader is not None
        await cluster.until(
            lambda: leader.image.topics["t"].partitions[0].leader == first, "the leader knows"
        )
        await client.produce("t", 0, [b"at once"], acks=-1, node=first)

    play(story, replica_fetch_backoff_ms="60000", replica_lag_time_max_ms="300000")


def test_a_new_topic_is_replicated_although_its_leader_hears_of_it_last() -> None:
    """Seen as a second without an answer at the start of every topic, in one run of three."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("before")
        for late in (0, 1, 2):
            name = f"t{late}"
            cluster.world.fabric.cut("controller", f"broker-{late}")
            asker = (late + 1) % 3
            await client.ask(creation(name, partitions=3), node=asker)
            hearing = cluster.nodes[asker].broker
            assert hearing is not None
            await cluster.until(lambda n=name, b=hearing: n in b.image.topics, "two know")  # type: ignore[misc]
            await asyncio.sleep(0.3)
            cluster.world.fabric.heal_all()
            leader = cluster.nodes[late].broker
            assert leader is not None
            await cluster.until(lambda n=name, b=leader: n in b.image.topics, "all know")  # type: ignore[misc]
            led = [one.index for one in leader.image.topics[name].partitions if one.leader == late]
            assert led, "of three partitions each broker leads one"
            await client.produce(name, led[0], [b"at once"], acks=-1, node=late)

    play(story, replica_fetch_backoff_ms="60000", replica_lag_time_max_ms="300000")


def test_a_controller_keeps_one_session_timer() -> None:
    """Each sweep left twice as many behind; after forty seconds it did nothing else any more."""

    async def story(cluster: SimulatedCluster) -> None:
        def sweeps() -> int:
            return sum("_sweep_sessions" in repr(one) for one in cluster.world.loop.timers())

        assert sweeps() == 1
        for _ in range(3):
            await asyncio.sleep(8)
            assert sweeps() == 1
        assert controller(cluster).active

    play(story)
