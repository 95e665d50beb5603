"""Goal: what DeleteRecords has answered is gone everywhere, and stays gone.

Method: three brokers on virtual time; the leader is asked, then leaders change, machines lose their
power and followers are cut off, and each replica's log start is looked at.
Seen to fail: with a low watermark that looks at the leader alone, with a follower that does not
take over the leader's log start, without the checkpoint that is written before the answer, and
without that of the topic's id.
Rules: log.md#deleting-records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.log import start_keeper
from holdfast.log.directory import LogDirectory
from holdfast.node.api import delete_records
from holdfast.testing.ground.disk import MemoryDisk, MemoryFile
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import ClusterClient, RefusedError, RetryError
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

Story = Callable[[SimulatedCluster, ClusterClient], Coroutine[Any, Any, None]]
RECORDS = 20
EARLIEST = -2
E = ErrorCode


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


def asked_for(
    topic: str, *offsets: tuple[int, int], timeout_ms: int = 1000
) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=i, offset=offset) for i, offset in offsets]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=timeout_ms
    )


async def filled(client: ClusterClient, topic: str, partitions: int) -> None:
    """Make a topic on 0, 1, 2 that has a record in each of its partitions."""
    await client.create_topic(topic, assignments=[[0, 1, 2]] * partitions)
    for index in range(partitions):
        await client.until(lambda i=index: client.produce(topic, i, [b"x"], acks=-1, node=0))  # type: ignore[misc]


def home(cluster: SimulatedCluster) -> LogDirectory:
    log = cluster.nodes[0].directories.get("t", 0)
    assert log is not None
    return log.home


def test_the_log_starts_are_written_together_for_all_that_a_request_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen to fail: once for each partition, with all of them in it: a thousand took a minute."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await filled(client, "many", 10)
        written: list[object] = []
        write = LogDirectory.write_starts

        def noted(self: LogDirectory, done: Callable[[bool], None]) -> None:
            if self is home(cluster):
                written.append(done)
            write(self, done)

        monkeypatch.setattr(LogDirectory, "write_starts", noted)
        request = asked_for("many", *((i % 10, 1) for i in range(20)))
        (told,) = (await client.ask(request, node=0)).topics
        assert [each.partition_index for each in told.partitions] == list(range(10)), "each once"
        assert {(each.error_code, each.low_watermark) for each in told.partitions} == {(0, 1)}
        assert len(written) == 1

    play(story)


def test_nothing_of_it_is_synced_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: with the syncs that were there, three for each partition never flushed."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await filled(client, "many", 30)
        machine, where = cluster.machine(0), []
        for owner, name in (
            (MemoryDisk, "sync_directory"), (MemoryDisk, "write_atomic"), (MemoryFile, "sync"),
        ):  # fmt: skip
            method = getattr(owner, name)

            def noted(self: Any, *given: Any, _method: Any = method, **named: Any) -> Any:
                if getattr(self, "_disk", self) is machine.disk and named.get("sync", True):
                    where.append(machine.worker_is_busy)
                return _method(self, *given, **named)

            monkeypatch.setattr(owner, name, noted)
        await client.ask(asked_for("many", *((i, 1) for i in range(30))), node=0)
        assert where.count(True) >= 30 * 2, "each one's name, and what the directory says"
        assert where.count(False) == 0

    play(story)


def test_more_than_a_slice_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        await filled(client, "many", 10)
        wanted = [(index, 2 if index == 8 else 1) for index in range(10)]
        (told,) = (await client.ask(asked_for("many", *wanted), node=0)).topics
        assert [each.error_code for each in told.partitions] == [
            E.OFFSET_OUT_OF_RANGE if index == 8 else E.NONE for index in range(10)
        ]
        cluster.crash(2)
        (late,) = (await client.ask(asked_for("many", (8, 1), timeout_ms=50), node=0)).topics
        assert [each.error_code for each in late.partitions] == [E.REQUEST_TIMED_OUT]
        timed_out = [(index, 1) for index in range(20)]
        (late,) = (await client.ask(asked_for("many", *timed_out, timeout_ms=0), node=0)).topics
        assert [each.partition_index for each in late.partitions] == list(range(20)), "all told of"

    for module in (delete_records, start_keeper):
        monkeypatch.setattr(module, "SLICE", 3)
    play(story)


def test_who_asks_again_is_not_answered_before_it_is_durable() -> None:
    """Seen to fail: with an answer as soon as the start is there, whoever has moved it."""

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        cluster.machine(0).slow_disk((300_000, 300_000))
        other = cluster.client("another")
        answers = [
            asyncio.ensure_future(each.delete_records("t", 0, 9)) for each in (client, other)
        ]
        await cluster.until(lambda: set(starts(cluster).values()) == {9}, "it is gone everywhere")
        await asyncio.sleep(0.05)
        log = cluster.nodes[0].directories.get("t", 0)
        assert log is not None
        assert log.kept_start == 0
        assert [answer.done() for answer in answers] == [False, False]
        assert [await answer for answer in answers] == [9, 9]
        assert log.kept_start == 9
        other.close()

    play(story)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_log_that_is_cut_meanwhile_is_written_anew(left: int) -> None:
    """Goal: what was written before a cut is no proof of what is so after it. Method: a cut of
    another log in the directory at each point of the writing.
    """

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        directory = home(cluster)
        cluster.machine(0).slow_disk((50_000, 50_000))
        answer = asyncio.ensure_future(client.delete_records("t", 0, 9))
        await cluster.until(lambda: starts(cluster)[0] == 9, "the leader has begun")
        await asyncio.sleep(0.05 * left + 0.025)
        directory.write_now()
        assert not answer.done()
        assert await answer == 9
        disk = cluster.machine(0).disk.power_cut()
        assert disk.read("/data/log-start-offset-checkpoint").endswith(b"t 0 9\n")

    play(story)


def test_a_namesake_gets_nothing_of_it() -> None:
    """Goal: a topic deleted, and made anew, while its deletion waits for the disk. Method: all
    jobs are slow; the new one's log begins at 0, and keeps what it has after a power cut.
    """

    async def story(cluster: SimulatedCluster, client: ClusterClient) -> None:
        cluster.machine(0).slow_disk((200_000, 200_000))
        answer = asyncio.ensure_future(client.ask(asked_for("t", (0, 9)), node=0))
        await cluster.until(lambda: starts(cluster)[0] == 9, "the leader has begun")
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000))
        await client.create_topic("t", assignments=[[0, 1, 2]])
        client.forget()
        await fill(client)
        result = (await answer).topics[0].partitions[0]
        assert result.error_code == E.NOT_LEADER_OR_FOLLOWER
        await asyncio.sleep(5)
        log = cluster.nodes[0].directories.get("t", 0)
        assert log is not None
        assert (log.start, log.kept_start) == (0, 0)
        cluster.power_cut(0)
        cluster.start_node(0)
        await cluster.until_ready(0)
        assert starts(cluster)[0] == 0

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
    async def story(_cluster: SimulatedCluster, client: ClusterClient) -> None:
        compacted = {"cleanup.policy": "compact"}
        await client.create_topic("compacted", assignments=[[0, 1, 2]], configs=compacted)
        codes = set()
        for _ in range(50):
            with pytest.raises(RefusedError) as refusal:
                await client.delete_records("compacted", 0, 0)
            codes.add(refusal.value.code)
            if ErrorCode.POLICY_VIOLATION in codes:
                return
            await asyncio.sleep(0.1)  # the broker does not know of it yet
        raise AssertionError(codes)

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
