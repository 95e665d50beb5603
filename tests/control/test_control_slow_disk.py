"""A controller whose disk is slow is slow, not dead: nobody is fenced for it.

Goal: while a sync of the metadata log takes many sessions, brokers stay unfenced and leadership
where it is; what was decided meanwhile is answered once it is durable. Method: unmodified nodes
in virtual time; the controller's worker takes 20 s for a job.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.control.control_world import controller, creation, play

from holdfast.testing.ground.worker import MemoryWorker
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.errors import ErrorCode

pytestmark = pytest.mark.slow
SYNC_US = 20_000_000


def test_nobody_is_fenced_while_the_controllers_disk_is_slow() -> None:
    """Seen on a machine that was busy writing: all brokers fenced at once, no leader left."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        assert (await client.ask(creation("before"))).topics[0].error_code == ErrorCode.NONE
        image = controller(cluster).image
        leader = image.topics["before"].partitions[0].leader_epoch
        runtime = cluster.machine(CONTROLLER).runtime
        assert runtime is not None
        assert isinstance(runtime.worker, MemoryWorker)
        runtime.worker.delay_us = (SYNC_US, SYNC_US)
        slow = asyncio.ensure_future(client.ask(creation("during")))
        for _ in range(int(SYNC_US / 1e6)):
            await asyncio.sleep(1)
            fenced = [one.broker_id for one in image.brokers.values() if one.fenced]
            assert not fenced, "a slow disk was taken for a dead broker"
        await asyncio.gather(slow, return_exceptions=True)  # this client is not that patient
        await cluster.until(lambda: "during" in cluster.image.topics, "what was decided is durable")
        assert image.topics["before"].partitions[0].leader_epoch == leader

    play(story, broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="500")
