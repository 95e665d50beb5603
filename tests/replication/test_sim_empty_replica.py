"""Goal: whoever begins with nothing gets all that its leader's log holds, from its beginning on.

Method: a replica is added, or its disk is replaced, while the log is whole, and after its beginning
was deleted by name and offset; each replica's start and bytes are held against the leader's.
Seen to fail: with an empty replica that begins at the leader's high watermark.
"""

from __future__ import annotations

import pytest

from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.slow

RECORDS = 12


async def fill(client: ClusterClient) -> None:
    for number in range(RECORDS):
        leader = await client.leader("t", 0)
        await client.produce("t", 0, [b"%d" % number], acks=-1, node=leader)


@pytest.mark.parametrize("deleted", [0, 5])
@pytest.mark.parametrize("how", ["added", "replaced"])
def test_an_empty_replica_gets_the_log_from_its_beginning(how: str, deleted: int) -> None:
    world = World(7)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=2)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0] if how == "added" else [0, 1]])
        await fill(client)
        if deleted:
            assert await client.delete_records("t", 0, deleted) == deleted
        if how == "added":
            await client.reassign("t", 0, [0, 1])
        else:
            cluster.crash(1)
            cluster.machine(1).wipe_disk()
            cluster.start_node(1)
            await cluster.until_ready(1)

        def whole() -> bool:
            log = cluster.logs("t", 0).get(1)
            return log is not None and log.end == RECORDS

        await cluster.until(whole, "the new replica has the log's end")
        assert {node: log.start for node, log in cluster.logs("t", 0).items() if log} == {
            0: deleted,
            1: deleted,
        }
        leaders, news = (cluster.bytes_of(node, "t", 0, RECORDS) for node in (0, 1))
        assert news == leaders
        client.close()

    world.run(main)
