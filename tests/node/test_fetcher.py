"""Following, where what happens meanwhile matters.

Goal: a question whose partition is gone, or is another one, when the answer comes harms nobody.
Method: the real fetcher with real partitions over real logs on a disk in memory; the leader's
answers are made by hand.
Rules: replication.md#stale-answers, replication.md#refused-fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.log.log_kit import NOW_MS, TOPIC_ID, open_directories, virtual
from tests.node.replica_kit import following, replica

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.core.replica.throttle import Quota
from holdfast.log.directories import LogDirectories
from holdfast.node.broker.fetch_lane import FetcherSurroundings
from holdfast.node.broker.following import Following, State
from holdfast.node.broker.leader_fetcher import LeaderFetcher
from holdfast.node.broker.registration import Registration
from holdfast.node.broker.replica import Partition
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages import list_offsets
from holdfast.wire.messages.fetch import PartitionData

SETTINGS, _ = NodeSettings.from_properties(
    {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "100@127.0.0.1:9192",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/data",
    }
)
EPOCH = 3


def fetcher(runtime: Runtime) -> LeaderFetcher:
    surroundings = FetcherSurroundings(
        runtime=runtime,
        settings=SETTINGS,
        registration=Registration(1, epoch=1),
        endpoint=lambda _: None,
        quota=Quota(),
        ended=lambda _: None,
    )
    return LeaderFetcher(surroundings, source=0)


def follower(runtime: Runtime, directories: LogDirectories, index: int) -> Partition:
    partition = replica(runtime, directories.create("t", index, TOPIC_ID, TopicSettings()), node=1)
    partition.follow(0, EPOCH)
    return partition


class Leader:
    """Answers ListOffsets with one offset; `meanwhile` happens before each answer."""

    def __init__(self, offset: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.offset = offset
        self.meanwhile = meanwhile

    async def connect(self) -> bool:
        return False

    async def ask(self, request: Any) -> list_offsets.ListOffsetsResponse:
        await asyncio.sleep(0)
        self.meanwhile()
        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(
                            partition_index=asked.partition_index, offset=self.offset
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def looking(fetching: LeaderFetcher, partition: Partition, leader: Leader) -> Following:
    made = Following(following(partition), State.LOOKING)
    fetching._following[partition.key] = made
    fetching._apart._lane = leader  # type: ignore[assignment]
    return made


def test_a_topic_deleted_while_its_leader_is_asked_harms_nobody() -> None:
    """The answer was applied to the closed log, and an assertion ended all following."""

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        fetching, partition = fetcher(runtime), follower(runtime, directories, 0)

        def delete() -> None:
            if directories.get("t", 0) is not None:
                fetching.remove(partition.key)
                partition.stop()
                directories.delete("t", 0)

        entry = looking(fetching, partition, Leader(7, delete))
        await fetching._apart._look_up([entry])
        assert entry.state is State.LOOKING

    virtual(body)


def test_a_follower_that_is_told_nothing_new_waits_before_it_asks_again() -> None:
    """Out of range, but within the leader's log: asked at once, it would ask without end."""

    async def body(runtime: Runtime) -> None:
        fetching = fetcher(runtime)
        partition = follower(runtime, open_directories(runtime), 0)
        entry = looking(fetching, partition, Leader(0))
        await fetching._apart._look_up([entry])
        assert entry.state is State.FETCHING
        assert entry.retry_at > asyncio.get_running_loop().time()

    virtual(body)


def test_an_answer_to_another_offset_is_not_applied() -> None:
    """What it says was true of a log that was cut or has grown since."""

    async def body(runtime: Runtime) -> None:
        fetching = fetcher(runtime)
        partition = follower(runtime, open_directories(runtime), 0)
        entry = Following(following(partition))
        fetching._following[partition.key] = entry
        assert partition.log is not None
        data = PartitionData(partition_index=0, records=batch(0), high_watermark=1)
        assert fetching.apply(entry, 0, data)
        assert (partition.log.end, partition.log.high_watermark) == (1, 1)
        late = PartitionData(partition_index=0, records=batch(1), high_watermark=2)
        for asked_at in (0, 2):
            assert not fetching.apply(entry, asked_at, late)
            assert (partition.log.end, partition.log.high_watermark) == (1, 1)
            assert partition.key in fetching._session.news
        fetching.remove(partition.key)
        assert not fetching.apply(entry, 1, late)
        assert partition.log.end == 1

    virtual(body)


def batch(offset: int) -> bytes:
    record = Record(value=b"x", timestamp=NOW_MS)
    return bytes(build_batch([record], base_offset=offset, leader_epoch=EPOCH))
