"""Goal: a client's requests reach a node in the order in which they were sent.

Method: requests that all need a connection which is not there yet. Seen to fail: each dialled its
own, and batches without an answer were in the log in another order.
"""

from __future__ import annotations

import asyncio

from tests.control.control_world import play

from holdfast.testing.simulated_cluster import SimulatedCluster


def test_all_who_need_a_connection_share_one() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", replication_factor=1)
        (first, *others) = await asyncio.gather(*(client.reach(0) for _ in range(3)))
        assert first.is_open
        assert all(other is first for other in others)
        first.close()
        assert await client.reach(0) is not first

    play(story, brokers=1)
