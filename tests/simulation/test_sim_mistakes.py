"""A mistake of ours in one of a broker's loops ends the broker, and is seen.

Goal: no broker goes on that only looks alive: one that no longer learns who leads, or no longer
follows. Method: an unmodified cluster in which one method of one broker is made to fail.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.node.node import Node
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster


def broken(*_arguments: Any, **_keywords: Any) -> None:
    raise AssertionError("broken on purpose")


@pytest.mark.parametrize("loop", ["metadata", "heartbeats", "fetcher"])
def test_a_broker_without_one_of_its_loops_ends(loop: str) -> None:
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        broker = cluster.nodes[1].broker
        assert broker is not None
        if loop == "metadata":
            broker.partitions.apply = broken  # type: ignore[method-assign]
        elif loop == "heartbeats":
            broker.lifecycle._heartbeat = broken  # type: ignore[assignment,method-assign]
        else:
            for fetcher in broker.partitions._fetchers.values():
                fetcher.apply = broken  # type: ignore[assignment,method-assign]
        await client.create_topic("u", assignments=[[1, 0]])
        with pytest.raises(AssertionError, match="on purpose"):
            await asyncio.wait_for(cluster._serving[1], 60)

    world.run(main)


def test_a_broker_that_dies_while_it_joins_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for its registration to be applied by a loop that was gone."""
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=1)
        await cluster.start()
        cluster.crash(0)
        start = Node.start

        async def start_broken(node: Node) -> None:
            await start(node)
            assert node.broker is not None
            node.broker.observer._apply_batch = broken  # type: ignore[method-assign]

        monkeypatch.setattr(Node, "start", start_broken)
        cluster.start_node(0)
        with pytest.raises(AssertionError, match="on purpose"):
            await asyncio.wait_for(cluster._serving[0], 60)

    world.run(main)
