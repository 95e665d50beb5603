"""Goal: topics made one after the other cost their followers what they have, not what there is.

Method: a cluster in memory, the real leaders and followers; every partition that a fetch names is
counted. Seen to fail: with the connection dropped whenever a partition comes, as it once was (each
new topic had every partition named again).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.core.metadata.image import PartitionKey
from holdfast.node.broker import fetch_lane, leader_fetcher
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster

TOPICS = 30
PARTITIONS = 10


@pytest.mark.slow
def test_what_is_followed_already_is_not_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    named = 0
    build = fetch_lane.fetch_request

    def count(shared: Any, asked: Mapping[PartitionKey, Any], wait_ms: int = 0) -> Any:
        nonlocal named
        named += len(asked)
        return build(shared, asked, wait_ms)

    monkeypatch.setattr(leader_fetcher, "fetch_request", count)
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        client = cluster.client()
        for number in range(TOPICS):
            name = f"t{number}"
            await client.create_topic(name, assignments=[[0, 1, 2]] * PARTITIONS)
            await client.produce(name, 0, [b"x"], acks=-1, node=0)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        followed = 2 * TOPICS * PARTITIONS
        assert followed <= named <= 10 * followed, "what is new, a few times"
        before = named
        await asyncio.sleep(20)
        assert named == before
        client.close()

    world.run(main)
