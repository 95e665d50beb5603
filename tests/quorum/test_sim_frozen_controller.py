"""The active controller stands still: brokers must reach the next one before it gives them up.

Goal: no broker is fenced because of a controller that was frozen. Method: with Kafka's time-outs
the active one is paused at several moments between two heartbeats; the next one's image is watched.
Seen to fail when a heartbeat waits for its answer as long as a whole session.
"""

from __future__ import annotations

import asyncio

import pytest

from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.slow
KAFKA = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.request.timeout.ms": "2000",
    "request.timeout.ms": "30000",
}
WATCHED_S = 20.0
LOOK_S = 0.05


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 1.5])
def test_brokers_outlive_a_controller_that_stands_still(after_s: float) -> None:
    world = World(7)

    async def main() -> None:
        cluster = SimulatedCluster(world, controllers=3, config=KAFKA)
        await cluster.start()
        await asyncio.sleep(5 + after_s)
        old = cluster.active_controller()
        assert old is not None
        cluster.machine(old).pause()
        await cluster.until(lambda: cluster.active_controller() != old, "another is active")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + WATCHED_S
        while loop.time() < until_s:
            assert fenced(cluster) == [], f"{WATCHED_S - until_s + loop.time():.2f} s later"
            await asyncio.sleep(LOOK_S)

    world.run(main)


def fenced(cluster: SimulatedCluster) -> list[int]:
    """Brokers that the active controller has given up."""
    node = cluster.active_controller()
    assert node is not None
    found = cluster.nodes[node].controller
    assert found is not None
    return [broker.broker_id for broker in found.state.image.brokers.values() if broker.fenced]
