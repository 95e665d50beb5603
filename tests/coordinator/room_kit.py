"""What the tests of the coordinator's room share: a shard that is led, over a real log.

Broker 0 leads `__consumer_offsets-0`; with a follower, nothing is committed until that has fetched
it. Clients are numbers of calls, and what came of each is kept in the order in which it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from tests.group.shard_kit import commit_request, subscription
from tests.log.log_kit import TOPIC_ID, open_directories, virtual
from tests.node.replica_kit import alive

from holdfast.config.topic import TopicSettings
from holdfast.core.group.any_group import Caller
from holdfast.core.group.consumer.consumer_core import ConsumerSurroundings
from holdfast.core.group.consumer.consumer_patterns import PatternRefresh
from holdfast.core.group.consumer.consumer_settings import ConsumerGroupSettings
from holdfast.core.group.consumer_shard import ConsumerShard
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.metadata import image
from holdfast.core.metadata.image import MetadataImage
from holdfast.log.log import Log
from holdfast.node.broker.leading_replica import LeadingReplica, Surroundings
from holdfast.node.broker.replica import Partition
from holdfast.node.coordinator.calls import Call, Calls
from holdfast.node.coordinator.known_topics import ImageTopics
from holdfast.node.coordinator.led_shard import Decide, LedShard, ShardSurroundings
from holdfast.node.coordinator.shard_loading import Load
from holdfast.node.coordinator.stalls import Stalls
from holdfast.node.door.waiting_room import WaitingRoom
from holdfast.runtime.ports import Runtime, never
from holdfast.testing.ground.runtime import VirtualClock
from holdfast.wire.batch import Codec, Record, batches, build_batch, read_records
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.messages.offset_commit import OffsetCommitRequest
from holdfast.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopic
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.records.group_records import decode_key, decode_value
from holdfast.wire.records.group_tables import GroupKey, GroupValue

COMMIT_TIMEOUT_MS = 5000
OFFSETS = "__consumer_offsets"


class Room:
    """The surroundings of shards, one partition, and what became of each call."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        replicas: tuple[int, ...] = (0,),
        min_insync: int = 1,
        max_message_bytes: int = 1 << 20,
        **group: Any,
    ) -> None:
        self.runtime = runtime
        loop = asyncio.get_running_loop()
        self.directories = open_directories(runtime, settings=TopicSettings())
        self.settings = TopicSettings(
            min_insync_replicas=min_insync, max_message_bytes=max_message_bytes
        )
        self.log: Log = self.directories.create(OFFSETS, 0, TOPIC_ID, self.settings)
        self.waiting = WaitingRoom(loop, runtime.clock)
        self.calls = Calls(loop)
        self.answers: dict[int, Any] = {}  # in the order in which they came
        self.refusals: dict[int, ErrorCode] = {}
        self.waited: list[int] = []  # those that could not be answered at once
        self.refreshes: list[PatternRefresh] = []
        self.wrong_clocks: list[LedShard] = []
        self.ends_with_clock = False
        self.epoch = -1
        self.broken: list[LedShard] = []
        self.stalls = Stalls(loop, runtime.clock)
        self._replicas = replicas
        self._group = GroupSettings(**{"initial_rebalance_delay_ms": 0, **group})
        self._ids = count(1)
        self.around = ShardSurroundings(
            loop=loop,
            clock=runtime.clock,
            waiting=self.waiting,
            calls=self.calls,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            codec=Codec.NONE,
            stalls=self.stalls,
            provoke=never,
            refresh=lambda _led, refresh: self.refreshes.append(refresh),
            clock_was_set=self._clock_was_set,
            broken=self._broken,
        )
        self.partition = Partition(
            Surroundings(
                node=0,
                lag_ms_max=10**9,
                clock=runtime.clock,
                waiting=self.waiting,
                propose=lambda _leading, _proposal: None,
            ),
            self._decided(),
            self.log,
            self.settings,
        )
        self.elect()
        self.led = self.load()

    # -- the partition ---------------------------------------------------------------------------

    def _decided(self, **values: Any) -> image.Partition:
        named: dict[str, Any] = {
            "replicas": self._replicas,
            "isr": self._replicas,
            "leader": 0,
            "leader_epoch": max(self.epoch, 0),
            "partition_epoch": max(self.epoch, 0),
        }
        return image.Partition(topic=OFFSETS, topic_id=TOPIC_ID, index=0, **named | values)

    def elect(self) -> None:
        """Have broker 0 lead in the next epoch."""
        self.epoch += 1
        self.partition.lead(self._decided(), alive(*self._replicas))

    def depose(self) -> None:
        """Have another broker lead in the next epoch."""
        self.epoch += 1
        self.partition.follow(1, self.epoch)

    def shrink(self, *isr: int) -> None:
        """Have the ISR be these."""
        decided = self._decided(isr=isr, partition_epoch=self.epoch + 100)
        self.partition.lead(decided, alive(*self._replicas))

    def follower_fetches(self, node: int = 1) -> None:
        """Have a follower say that it holds all that the log has."""
        self.leading.fetched_by(node, self.log.end, 0, 1)

    @property
    def leading(self) -> LeadingReplica:
        assert self.partition.leading is not None
        return self.partition.leading

    # -- the shard -------------------------------------------------------------------------------

    def make_shard(self) -> ConsumerShard:
        around = ConsumerSurroundings(
            ConsumerGroupSettings(), ImageTopics(MetadataImage()), self._new_id
        )
        return ConsumerShard(self._group, around, self._new_id)

    def _new_id(self) -> str:
        return str(next(self._ids))

    def _clock_was_set(self, led: LedShard) -> None:
        self.wrong_clocks.append(led)
        if self.ends_with_clock:  # as the coordinator does, who loads it anew
            led.resign()

    def _broken(self, led: LedShard) -> None:
        self.broken.append(led)
        led.resign()

    def unloaded(self) -> LedShard:
        return LedShard(self.around, self.partition, self.leading, self.make_shard())

    def load(self) -> LedShard:
        """Return a shard of this epoch that has read the log, in one go."""
        led = self.unloaded()
        load = Load(self.log, self.log.end, led.shard, lambda: led.is_current)
        for wanted in load.steps(led.time):
            assert not callable(wanted), "nothing here is worth a worker"
        led.loaded()
        return led

    # -- calls -----------------------------------------------------------------------------------

    def ask(self, decide: Decide, *, shares_batch: bool = False, version: int = 9) -> int:
        """Ask the shard, as the coordinator does; return the call's number."""
        number = self.calls.take_number()
        caller = Caller(number, version, "c", "/h")
        call = Call(
            lambda response: self._answered(number, response),
            lambda code: self._refused(number, code),
            lambda _topic: True,
        )
        if shares_batch:
            self.calls.wait(number, call)
            self.led.ask(decide, caller, shares_batch=True)
            return number
        told = self.led.ask_at_once(decide, caller, lambda: self._waits(number, call))
        if told is not None:
            assert number not in self.waited, "it waits, and is answered as well"
            self._answered(number, told)
        return number

    def _waits(self, number: int, call: Call) -> None:
        assert number not in self.waited, "it waits already"
        self.waited.append(number)
        self.calls.wait(number, call)

    def _answered(self, number: int, response: Any) -> None:
        assert number not in self.answers, "answered twice"
        assert number not in self.refusals, "answered and refused"
        self.answers[number] = response

    def _refused(self, number: int, code: ErrorCode) -> None:
        assert number not in self.answers, "refused and answered"
        assert number not in self.refusals, "refused twice"
        self.refusals[number] = code

    def commit(self, group: str, offset: int, topic: str = "t", **more: Any) -> int:
        """Commit one offset, as OffsetCommit does."""
        return self.commit_all(commit_request(group, {(topic, 0): offset}, **more))

    def commit_all(self, request: OffsetCommitRequest) -> int:
        return self.ask(
            lambda shard, caller, now_ms: shard.commit_offsets(caller, request, now_ms),
            shares_batch=True,
        )

    def fetch(self, group: str, topic: str = "t") -> int:
        request = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        )
        return self.ask(lambda shard, caller, now_ms: shard.fetch_offsets(caller, request, now_ms))

    def join(self, group: str, member: str = "", **more: Any) -> int:
        protocols = more.pop("protocols", {"range": subscription("t")})
        request = JoinGroupRequest(
            group_id=group,
            member_id=member,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
            **{"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, **more},
        )
        return self.ask(lambda shard, caller, now_ms: shard.join(caller, request, now_ms))

    def sync(self, group: str, member: str, generation: int, **assigned: bytes) -> int:
        request = SyncGroupRequest(
            group_id=group,
            member_id=member,
            generation_id=generation,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=part)
                for name, part in assigned.items()
            ],
        )
        return self.ask(
            lambda shard, caller, now_ms: shard.sync(caller, request, now_ms), version=5
        )

    def beat(self, group: str, member: str, generation: int) -> int:
        request = HeartbeatRequest(group_id=group, member_id=member, generation_id=generation)
        return self.ask(
            lambda shard, caller, now_ms: shard.heartbeat(caller, request, now_ms), version=4
        )

    def leave(self, group: str, member: str) -> int:
        request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
        return self.ask(
            lambda shard, caller, now_ms: shard.leave(caller, request, now_ms), version=5
        )

    # -- what came of them -----------------------------------------------------------------------

    def offset_of(self, call: int) -> int:
        """Return the offset that a fetch was answered."""
        (topic,) = self.answers[call].topics
        offset: int = topic.partitions[0].committed_offset
        return offset

    def code_of(self, call: int) -> ErrorCode:
        """Return the error of the first partition of an answered commit."""
        return ErrorCode(self.answers[call].topics[0].partitions[0].error_code)

    async def member(self, group: str, **more: Any) -> str:
        """Join as the only member, and get the whole of it; return its id."""
        first = self.join(group, **more)
        await self.turns()
        member_id: str = self.answers[first].member_id
        joined = self.join(group, member_id, **more)
        await self.until(lambda: joined in self.answers)
        generation = self.answers[joined].generation_id
        synced = self.sync(group, member_id, generation, **{member_id: b"all"})
        await self.turns()
        assert self.answers[synced].assignment == b"all"
        return member_id

    async def turns(self, number: int = 5) -> None:
        """Let the loop have some turns, without time."""
        for _ in range(number):
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while not condition():
            assert loop.time() < give_up, "not in time"
            await asyncio.sleep(0.01)

    def batches(self) -> list[list[Record]]:
        """Return the records of each batch in the log."""
        view = memoryview(self.log.read(self.log.start, 1 << 30, self.log.end).records)
        return [read_records(view[at : at + header.size]) for at, header in batches(view)]

    def append(self, *records: Record) -> None:
        """Append what another coordinator would have written."""
        batch = memoryview(build_batch(records))
        assert self.leading.append(batch, -1).error is ErrorCode.NONE

    def close(self) -> None:
        self.led.resign()
        self.stalls.close()

    def clock(self) -> VirtualClock:
        assert isinstance(self.runtime.clock, VirtualClock)
        return self.runtime.clock


def decoded(record: Record) -> tuple[GroupKey, GroupValue | None]:
    key = decode_key(record.key or b"")
    return key, None if record.value is None else decode_value(key, record.value)


def play(story: Callable[[Room], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a story in a room, in virtual time."""

    async def main(runtime: Runtime) -> None:
        room = Room(runtime, **settings)
        try:
            await story(room)
        finally:
            room.close()

    virtual(main)
