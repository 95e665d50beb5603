"""Goal: what a broker does all along is bounded in each turn of its loop, however much it holds.

Method: a cluster in memory with more partitions than a turn may look at, and a count by turn; one
checkpoint, and where its text is made; a dynamic setting of work that is done once in a while.
Seen to fail: all leaders in one turn, in the sweep and when a broker comes or goes; the text made
on the loop; and producers that were kept for as long as the file said.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.control.control_world import play
from tests.log.log_kit import append, make_batch, new_log, virtual

from holdfast.log import directories as log_directories
from holdfast.log import directory as log_directory
from holdfast.log import start_keeper
from holdfast.log.checkpoints import HIGH_WATERMARK, encode_offsets
from holdfast.node.api import delete_records
from holdfast.node.broker import replicas
from holdfast.node.broker.leading_replica import LeadingReplica
from holdfast.runtime.ports import Disk, Runtime
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.testing.ground.worker import MemoryWorker
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.structs import ResourceType

PARTITIONS = 20
SLICE = 3


def by_turn(monkeypatch: pytest.MonkeyPatch, name: str) -> Counter[tuple[int, int]]:
    """Count calls of a method of leaders, by node and turn of the loop."""
    found: Counter[tuple[int, int]] = Counter()
    turns = 0
    whole: Callable[..., Any] = getattr(LeadingReplica, name)
    turn = VirtualLoop._run_once

    def counted(self: VirtualLoop) -> None:
        nonlocal turns
        turns += 1
        turn(self)

    def noted(self: LeadingReplica, *given: Any) -> Any:
        found[self.state.node, turns] += 1
        return whole(self, *given)

    monkeypatch.setattr(VirtualLoop, "_run_once", counted)
    monkeypatch.setattr(LeadingReplica, name, noted)
    return found


@pytest.mark.parametrize("method", ["shrink_if_lagging", "brokers_changed"])
def test_a_turn_looks_at_a_few_leaders(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "SLICE_TOLD", SLICE)

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]] * PARTITIONS)
        await cluster.until(lambda: leads(cluster) == PARTITIONS, "all are led")
        found = by_turn(monkeypatch, method)
        if method == "brokers_changed":
            cluster.crash(2)
        await cluster.until(lambda: found.total() >= PARTITIONS, "each was looked at")
        assert max(found.values()) <= SLICE

    play(story, replica_lag_time_max_ms="1000")


def test_a_turn_begins_few_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one job in the worker makes few names durable: a flush may wait behind it."""
    jobs: list[int] = []
    begun: list[int] = []  # in each callback
    whole, delete = delete_records._Deletion._go_on, LeadingReplica.delete_before

    def some(self: delete_records._Deletion) -> None:
        begun.append(0)
        whole(self)

    def one(self: LeadingReplica, offset: int) -> tuple[ErrorCode, int]:
        begun[-1] += 1
        return delete(self, offset)

    monkeypatch.setattr(delete_records._Deletion, "_go_on", some)
    monkeypatch.setattr(LeadingReplica, "delete_before", one)
    sync_names = start_keeper._sync_names

    def noted(disk: Disk, logs: Sequence[start_keeper.Log]) -> None:
        jobs.append(len(logs))
        sync_names(disk, logs)

    monkeypatch.setattr(start_keeper, "_sync_names", noted)
    for module in (delete_records, start_keeper):
        monkeypatch.setattr(module, "SLICE", SLICE)

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0]] * PARTITIONS)
        for index in range(PARTITIONS):
            await client.until(lambda i=index: client.produce("t", i, [b"x"], acks=1, node=0))  # type: ignore[misc]
        parts = [DeleteRecordsPartition(partition_index=i, offset=1) for i in range(PARTITIONS)]
        topic = DeleteRecordsTopic(name="t", partitions=parts)
        answer = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), node=0)
        assert {each.low_watermark for each in answer.topics[0].partitions} == {1}
        assert sum(begun) == PARTITIONS
        assert max(begun) <= SLICE
        assert sum(jobs) == PARTITIONS
        assert max(jobs) <= SLICE

    play(story, brokers=1, min_insync_replicas="1")


def leads(cluster: SimulatedCluster) -> int:
    broker = cluster.nodes[0].broker
    assert broker is not None
    return sum(each.leading is not None for each in broker.partitions)


def test_a_topic_s_settings_cost_no_other_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: which partitions are looked up or walked while one topic is configured.

    Seen to fail: each change of a topic's configuration walked all that a broker holds.
    """

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("many", assignments=[[0, 1, 2]] * PARTITIONS)
        await client.create_topic("t", assignments=[[0, 1, 2]] * 2)
        await cluster.until(lambda: leads(cluster) == PARTITIONS + 2, "all are led")
        broker = cluster.nodes[0].broker
        assert broker is not None
        ours = [each for each in broker.partitions if each.topic == "t"]
        held = Watched(broker.partitions.held)
        monkeypatch.setattr(broker.partitions, "held", held)
        retention = AlterableConfig(name="retention.ms", value="3000")
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name="t", configs=[retention]
        )
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        await cluster.until(
            lambda: [each.settings.retention_ms for each in ours] == [3000] * 2, "both have it"
        )
        assert {each.topic for each in held.looked_at} == {"t"}

    play(story)


class Watched(dict[Any, Any]):
    """What a broker holds, and what of it was looked at while it was configured."""

    def __init__(self, held: dict[Any, Any]) -> None:
        super().__init__(held)
        self.looked_at: list[Any] = []

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        self.looked_at.append(found)
        return found

    def values(self) -> Any:
        self.looked_at += super().values()
        return super().values()


def test_a_broker_that_comes_back_is_known_to_every_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "SLICE_TOLD", SLICE)

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]] * PARTITIONS)

        def whole(size: int) -> bool:
            return all(len(each.isr) == size for each in cluster.image.topics["t"].partitions)

        cluster.crash(2)
        await cluster.until(lambda: whole(2), "it is out")
        cluster.start_node(2)
        await cluster.until(lambda: whole(3), "it is in again")

    play(story)


def test_the_text_of_a_checkpoint_is_made_in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(runtime: Runtime) -> None:
        worker = runtime.worker
        assert isinstance(worker, MemoryWorker)
        where: list[bool] = []
        directories, log = new_log(runtime)
        monkeypatch.setattr(
            log_directory,
            "encode_offsets",
            lambda offsets: (where.append(worker.busy), encode_offsets(offsets))[1],  # type: ignore[func-returns-value]
        )
        append(log)
        log.high_watermark = log.end
        log.home.checkpoint(HIGH_WATERMARK)
        await asyncio.sleep(1)
        assert where == [True]
        log.home.checkpoint(HIGH_WATERMARK)
        await asyncio.sleep(1)
        assert where == [True], "nothing has changed"
        assert runtime.disk.read(f"{log.home.path}/{HIGH_WATERMARK}").endswith(b" 1\n")
        await directories.close()

    virtual(body)


def test_how_long_producers_are_kept_may_change_while_a_broker_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_directories, "PRODUCER_CHECK_INTERVAL_MS", 1000)

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]])
        batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=0)
        part = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name="t", partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        await client.until(lambda: client.ask(request, node=0, version=9))
        log = cluster.nodes[0].directories.get("t", 0)
        assert log is not None

        def is_known() -> bool:
            return log.check_producer(memoryview(batch)).duplicate_offset is not None

        await asyncio.sleep(5)
        assert is_known()
        kept = AlterableConfig(name="producer.id.expiration.ms", value="3000")
        resource = AlterConfigsResource(
            resource_type=ResourceType.BROKER, resource_name="", configs=[kept]
        )
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        await cluster.until(lambda: not is_known(), "it is forgotten", seconds=10)

    play(story)
