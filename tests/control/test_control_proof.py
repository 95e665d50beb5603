"""The proof that a broker stopped in good order outlives starts that come to nothing.

Goal: who has it stays eligible to lead, so a start that never reached a controller, or found its
port taken, must not use it up: nothing was written meanwhile. Seen to fail: with the
epoch of the registration alone in the mark, and with no mark after a port that was taken.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.control.control_world import play

from holdfast.core.metadata.image import RecoveryState
from holdfast.testing.simulated_cluster import BROKER_PORT, CONTROLLER, SimulatedCluster


@pytest.mark.parametrize("obstacle", ["controller", "port"])
def test_a_start_that_came_to_nothing_costs_no_eligibility(obstacle: str) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0]])
        node = await client.leader("t", 0)
        await client.produce("t", 0, [b"x"], acks=-1, node=node)
        await cluster.stop(0)
        before = cluster.image.brokers[0].epoch
        if obstacle == "controller":
            cluster.crash(CONTROLLER)
            cluster.start_node(0)
            await asyncio.sleep(2)
            await cluster.stop(0)
            cluster.start_node(CONTROLLER)
        else:
            host = cluster.world.fabric.host("broker-0")
            listener = await host.listen(asyncio.Protocol, "", BROKER_PORT)
            cluster.start_node(0)
            await cluster.until(lambda: bool(cluster.exits), "broker 0 has given up")
            listener.close()
        cluster.start_node(0)
        await cluster.until_ready(0)
        assert cluster.nodes[0].directories.previous_broker_epoch == before
        partition = cluster.image.partition("t", 0)
        assert partition is not None
        assert partition.recovery_state is RecoveryState.RECOVERED
        assert [one.value for one in await client.read("t", 0)] == [b"x"]

    play(story)
