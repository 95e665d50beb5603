"""What no consumer can parse is in the log, and everybody who reads there passes over it.

Goal: a client that writes garbage under a right CRC hurts nobody who asks for something else: no
look-up by timestamp fails, no disk is blamed, no replica stops, on the leader, on its follower when
that leads, and after a start from what a crash left. Method: a cluster in memory with
`record.validation=header`, which believes headers; each kind of garbage claims to be later than all
that is asked for.
Seen to fail: with a batch that does not inflate taken for damage of the disk.
"""

from __future__ import annotations

import pytest
from tests.control.control_world import play
from tests.log.log_kit import make_batch
from tests.log.test_log_lying_headers import GARBAGE

from holdfast.testing.simulated_client import RefusedError
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.batch import read_header
from holdfast.wire.well_known import MAX_TIMESTAMP

HEADER = {
    "record.validation": "header",
    "message.timestamp.after.max.ms": str(1 << 50),
    "min.insync.replicas": "1",
}


@pytest.mark.slow
def test_everybody_passes_over_it() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1]], configs=HEADER)
        end = 0
        for kind, garbage in GARBAGE.items():
            if kind == "a bomb":  # one look takes long, and it is looked at again and again
                continue
            leader = await client.leader("t", 0)
            try:
                end = await client.produce_batch("t", 0, garbage, acks=-1, node=leader)
            except RefusedError:
                assert kind in {"no such codec", "negative count"}, "a header alone tells"
        latest = read_header(GARBAGE["noise"]).max_timestamp
        good = make_batch(timestamp=latest)
        wanted = await client.produce_batch("t", 0, good, acks=-1, node=leader)
        assert wanted > end > 0

        async def asked() -> None:
            assert await client.offset_at("t", 0, latest) == wanted
            assert await client.offset_at("t", 0, MAX_TIMESTAMP) == wanted

        await asked()
        cluster.crash(0)
        await cluster.until(lambda: cluster.image.topics["t"].partitions[0].leader == 1, "led by 1")
        client.forget()
        await client.until(asked)
        cluster.start_node(0)
        await cluster.until(lambda: cluster.image.topics["t"].partitions[0].isr != (1,), "whole")
        cluster.crash(1)
        await cluster.until(lambda: cluster.image.topics["t"].partitions[0].leader == 0, "led by 0")
        client.forget()
        await client.until(asked)
        assert all(log is None or not log.offline for log in cluster.logs("t", 0).values())

    play(story, brokers=2)
