"""Goal: a client of the simulator that meets a broken connection says so, and its task lives on.

Method: a connection that ends between its making and the turn of whoever waited for it. Seen to
fail: an assertion ended a producer's task, and nobody was told but by its silence.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.control.control_world import play
from tests.log.log_kit import make_batch

from holdfast.runtime.dial import Connection
from holdfast.testing.simulated_cluster import SimulatedCluster


def test_what_nobody_answers_is_not_sent_on_a_connection_that_has_ended() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1]])
        assert await client.produce_batch("t", 0, bytes(make_batch()), acks=0, node=0) == -1
        client._connections.clear()
        sending = asyncio.ensure_future(
            client.produce_batch("t", 0, bytes(make_batch()), acks=0, node=0)
        )
        while not client._dialled:
            await asyncio.sleep(0)

        def end(dialled: asyncio.Future[Connection]) -> None:
            dialled.result().close()

        (dialled,) = client._dialled.values()
        dialled.add_done_callback(end)
        with pytest.raises(ConnectionError, match="node 0 has ended"):
            await sending

    play(story)
