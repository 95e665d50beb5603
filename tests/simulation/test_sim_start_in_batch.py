"""DeleteRecords counts records, logs are made of batches: a log may start within one.

Goal: a replica that begins anew there takes the whole batch that the leader sends, and joins the
ISR. Method: a batch of four, two of them deleted, then a follower's disk is replaced. Seen to fail
without `Partition._make_room_for`: the follower asks for offset 2 for ever. Found by simulation.
"""

from __future__ import annotations

from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster


def test_a_replica_begins_anew_where_the_leaders_log_starts_within_a_batch() -> None:
    world = World(7)

    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        await client.produce("t", 0, [b"a", b"b", b"c", b"d"], acks=-1, node=0)
        assert await client.delete_records("t", 0, 2) == 2

        async def until_isr(*nodes: int) -> None:
            await cluster.until(
                lambda: sorted(cluster.image.partition("t", 0).isr) == list(nodes),  # type: ignore[union-attr]
                f"the ISR is {nodes}",
            )

        cluster.crash(2)
        cluster.machine(2).wipe_disk()
        await until_isr(0, 1)
        cluster.start_node(2)
        await cluster.until_ready(2)
        await until_isr(0, 1, 2)

        log = cluster.logs("t", 0)[2]
        assert log is not None
        assert (log.start, log.end) == (2, 4)
        assert cluster.bytes_of(2, "t", 0, 4) == cluster.bytes_of(0, "t", 0, 4)

    world.run(main)
