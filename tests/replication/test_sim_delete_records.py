"""Goal: what DeleteRecords has answered is gone everywhere, and stays gone.

Method: three brokers on virtual time; the leader is asked, then leaders change, machines lose their
power and followers are cut off, and each replica's log start is looked at.
Seen to fail: with a low watermark that looks at the leader alone, with a follower that does not
take over the leader's log start, and without the checkpoint that is written before the answer.
Rules: log.md#deleting-records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.log.directory import LogDirectory
from holdfast.node.broker.replica import Partition
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import ClusterClient, RefusedError, RetryError
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

Story = Callable[[SimulatedCluster, ClusterClient], Coroutine[Any, Any, None]]
RECORDS = 20
EARLIEST = -2


def play(story: Story, *, seed: int = 1, **configs: str) -> None:
    """A topic t-0 on 0, 1, 2 with some records, each in a batch of its own."""
    world = World(seed)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=3)
        await cluster.start()
        client = cluster.client()
        topic = {key.replace("_", "."): value for key, value in configs.items()}
        await client.create_topic("t", assignments=[[0, 1, 2]], configs=topic)
        await fill(client)
        await story(cluster, client)
        client.close()

    world.run(main)


async def fill(client: ClusterClient) -> None:
    for number in range(RECORDS):
        await client.until(lambda n=number: produced(client, n))  # type: ignore[misc]


async def produced(client: ClusterClient, number: int) -> int:
    leader = await client.leader("t", 0)
    return await client.produce("t", 0, [b"%d" % number], acks=-1, node=leader)


def isr(cluster: SimulatedCluster) -> tuple[int, ...]:
    found = cluster.image.partition("t", 0)
    assert found is not None
    return found.isr


def starts(cluster: SimulatedCluster) -> dict[int, int]:
    return {broker: log.start for broker, log in cluster.logs("t", 0).items() if log is not None}


def test_every_replica_lets_go_before_it_is_answered() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        assert await client.delete_records("t", 0, 7) == 7
        assert starts(cluster) == {0: 7, 1: 7, 2: 7}
        assert [one.value for one in await client.read("t", 0)] == [
            b"%d" % number for number in range(7, RECORDS)
        ]
        with pytest.raises(RefusedError) as refusal:
            await client.fetch("t", 0, 6)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    play(story)


def test_all_that_is_committed_can_be_deleted_and_the_log_goes_on() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        assert await client.delete_records("t", 0, -1) == RECORDS
        assert await client.read("t", 0) == []
        assert await produced(client, 99) == RECORDS
        assert set(starts(cluster).values()) == {RECORDS}

    play(story)


def test_the_log_starts_are_written_once_for_all_that_a_request_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen to fail: once for each partition, with all of them in it: a thousand took a minute."""
    written: list[str] = []
    write = LogDirectory.write_starts_now

    def noted(self: LogDirectory) -> None:
        written.append(self.path)
        write(self)

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.create_topic("many", assignments=[[0, 1, 2]] * 10)
        for index in range(10):
            await client.until(lambda i=index: client.produce("many", i, [b"x"], acks=-1, node=0))  # type: ignore[misc]
        monkeypatch.setattr(LogDirectory, "write_starts_now", noted)
        asked = [DeleteRecordsPartition(partition_index=i % 10, offset=1) for i in range(20)]
        topic = DeleteRecordsTopic(name="many", partitions=asked)
        answer = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), node=0)
        (told,) = answer.topics
        assert [each.partition_index for each in told.partitions] == list(range(10)), "each once"
        assert {(each.error_code, each.low_watermark) for each in told.partitions} == {(0, 1)}
        logs = cluster.logs("many", 0)
        assert logs[0] is not None
        assert written.count(logs[0].home.path) == 1

    play(story)


def test_it_is_answered_at_once_and_not_after_the_followers_patience() -> None:
    async def story(_: SimulatedCluster, client: ClusterClient) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await client.delete_records("t", 0, 5)
        assert loop.time() - before < 0.1  # replica.fetch.wait.max.ms is 500: virtual time

    play(story)


def test_what_lies_before_the_start_already_is_no_error() -> None:
    async def story(_: SimulatedCluster, client: ClusterClient) -> None:
        assert await client.delete_records("t", 0, 9) == 9
        assert await client.delete_records("t", 0, 4) == 9

    play(story)


@pytest.mark.parametrize("offset", [RECORDS + 1, -2])
def test_an_offset_that_is_not_committed_is_refused(offset: int) -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        with pytest.raises(RefusedError) as refusal:
            await client.delete_records("t", 0, offset)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert set(starts(cluster).values()) == {0}

    play(story)


def test_a_follower_that_hears_nothing_delays_it_until_it_is_fenced() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        cluster.crash(2)
        with pytest.raises(RetryError) as refusal:
            await client.delete_records("t", 0, 3)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert await client.until(lambda: client.delete_records("t", 0, 3)) == 3
        cluster.start_node(2)
        await cluster.until_ready(2)
        await cluster.until(lambda: starts(cluster) == {0: 3, 1: 3, 2: 3}, "it has followed")

    play(story)


@pytest.mark.parametrize("torn", [False, True])
def test_no_power_cut_brings_it_back(torn: bool) -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.delete_records("t", 0, 11)
        cluster.power_cut(0, torn=torn)
        await cluster.until(
            lambda: cluster.image.partition("t", 0).leader != 0,  # type: ignore[union-attr]
            "another one leads",
        )
        client.forget()
        assert await client.end("t", 0, timestamp=EARLIEST) == 11
        cluster.start_node(0)
        await cluster.until_ready(0)
        await cluster.until(lambda: starts(cluster)[0] == 11, "it starts where it did")

    play(story)


def test_the_leaders_own_part_survives_a_power_cut_of_everybody() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await client.delete_records("t", 0, 11)
        for broker in cluster.brokers:
            cluster.power_cut(broker)
        cluster.start_node(0)
        await cluster.until_ready(0)
        log = cluster.nodes[0].directories.get("t", 0)
        assert log is not None
        assert log.start == 11

    play(story)


def test_followers_write_it_soon_too_however_often_it_moves() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        cluster.machine(1).slow_disk((200_000, 300_000))  # one is under way when the next begins
        for offset in (3, 7, 11):
            await client.delete_records("t", 0, offset)
        await asyncio.sleep(5)
        text = cluster.machine(1).disk.read("/data/log-start-offset-checkpoint")
        assert text.endswith(b"t 0 11\n")

    play(story)


@pytest.mark.slow
def test_a_topic_whose_records_nothing_else_deletes_lets_them_be_deleted_by_name() -> None:
    """As in Apache Kafka: under an empty cleanup.policy nothing expires by itself."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        assert await client.delete_records("t", 0, 7) == 7
        assert starts(cluster) == {0: 7, 1: 7, 2: 7}

    play(story, cleanup_policy="")


def test_a_topic_that_is_only_compacted_refuses() -> None:
    """Set by hand: compaction itself is not built, so no topic can ask for it."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        broker = cluster.nodes[0].broker
        assert broker is not None
        held = broker.partitions.find("t", 0)
        assert isinstance(held, Partition)
        held.settings = held.settings.replace(cleanup_policy=("compact",))
        with pytest.raises(RefusedError) as refusal:
            await client.delete_records("t", 0, 3)
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION

    play(story)


def test_a_follower_whose_log_ends_before_the_leaders_start_begins_anew_there() -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        cluster.crash(2)
        await cluster.until(lambda: 2 not in isr(cluster), "it is out of the ISR")
        client.forget()
        await fill(client)
        assert await client.until(lambda: client.delete_records("t", 0, RECORDS + 5)) == RECORDS + 5
        cluster.start_node(2)
        await cluster.until_ready(2)
        await cluster.until(
            lambda: set(starts(cluster).values()) == {RECORDS + 5} and 2 in isr(cluster),
            "it follows again",
        )
        assert await produced(client, 99) == 2 * RECORDS

    play(story)
