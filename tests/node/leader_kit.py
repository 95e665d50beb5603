"""A leader at the other end of a connection, as a fetcher meets it, and fetchers with real logs.

It does with sessions what Apache Kafka's does: a request updates first and forgets then, and an
answer holds what has records, an error, or a high watermark other than the one it said last. What
is wrong with a partition is said by the test.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tests.log.log_kit import NOW_MS, TOPIC_ID, open_directories
from tests.node.replica_kit import following, replica

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.throttle import Quota
from holdfast.log.directories import LogDirectories
from holdfast.node.broker.fetch_lane import FetcherSurroundings
from holdfast.node.broker.leader_fetcher import LeaderFetcher
from holdfast.node.broker.registration import Registration
from holdfast.node.broker.replica import Partition
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.frame import RequestHeader, decode_request, encode_response
from holdfast.wire.frame_buffer import FrameBuffer
from holdfast.wire.messages import fetch as wire
from holdfast.wire.messages import list_offsets
from holdfast.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

EPOCH = 3
RANGES = {ApiVersionsRequest.KEY: (0, 4), wire.FetchRequest.KEY: (4, 17), 2: (1, 8)}


class Wrong(Enum):
    """What is the matter with one partition, whenever there is something to say of it."""

    UNREADABLE = auto()  # the answer does not parse
    FATAL = auto()  # the leader ends the connection
    DAMAGED = auto()  # its batches have another CRC


@dataclass
class Led:
    """One partition at its leader."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)  # each with its first offset
    end: int = 0
    wrong: Wrong | None = None
    error: int = 0
    start: int = 0  # what was before is deleted
    watermark: int = -1  # -1: its end

    @property
    def high_watermark(self) -> int:
        return self.end if self.watermark < 0 else self.watermark

    def append(self, size: int = 10) -> None:
        record = Record(value=bytes(size), timestamp=NOW_MS)
        batch = build_batch([record], base_offset=self.end, leader_epoch=EPOCH)
        self.batches.append((self.end, bytes(batch)))
        self.end += 1


@dataclass(eq=False)
class Parked:
    peer: Peer
    header: RequestHeader
    request: wire.FetchRequest
    members: dict[PartitionKey, wire.FetchPartition]
    session_id: int
    timer: asyncio.TimerHandle | None = None


class Leader:
    """Broker 0."""

    def __init__(self, *, gives_sessions: bool = True) -> None:
        self.led: dict[PartitionKey, Led] = {}
        self.requests: list[tuple[str, wire.FetchRequest]] = []  # with who asks
        self.connections: list[str] = []
        self.peers: list[Peer] = []
        self.answers_nobody = False
        self.refuses: ErrorCode | None = None  # the next request of a session
        self._gives_sessions = gives_sessions
        self.sessions: dict[int, tuple[dict[PartitionKey, wire.FetchPartition], Said]] = {}
        self._count = 0
        self._parked: list[Parked] = []

    async def listen(self, runtime: Runtime) -> int:
        listener = await runtime.network.listen(lambda: Peer(self), "127.0.0.1", 0)
        return listener.port

    def named(self, asker: str) -> list[int]:
        """Return how many partitions each request of one asker named."""
        return [
            sum(len(topic.partitions) for topic in request.topics)
            for name, request in self.requests
            if name == asker
        ]

    def waiting(self, asker: str) -> int:
        """Return how many requests of one asker wait here."""
        return sum(
            _asker(parked.header) == asker and not parked.peer.is_closed for parked in self._parked
        )

    def hang_up(self) -> None:
        """End all connections."""
        for peer in self.peers:
            peer.transport.abort()

    def changed(self) -> None:
        """Look whether what waits can be answered."""
        for parked in list(self._parked):
            self._answer(parked, is_last=False)

    def fetch(self, peer: Peer, header: RequestHeader, request: wire.FetchRequest) -> None:
        self.requests.append((_asker(header), request))
        if self.answers_nobody:
            peer.transport.abort()
            return
        named = {
            (bytes(topic.topic_id), each.partition): each
            for topic in request.topics
            for each in topic.partitions
        }
        if request.session_epoch > 0 and self.refuses is not None:
            peer.answer(header, wire.FetchResponse(error_code=self.refuses))
            self.refuses = None
            return
        session_id = 0
        if request.session_epoch > 0:
            session_id = request.session_id
            members, said = self.sessions[session_id]
            members |= named
            for forgotten in request.forgotten_topics_data:
                for index in forgotten.partitions:
                    members.pop((bytes(forgotten.topic_id), index), None)
                    said.pop((bytes(forgotten.topic_id), index), None)
        else:
            members = named
            if request.session_epoch == 0 and self._gives_sessions:
                self._count += 1
                session_id = self._count
                self.sessions[session_id] = members, {}
        parked = Parked(peer, header, request, members, session_id)
        self._parked.append(parked)
        if not self._answer(parked, is_last=request.max_wait_ms <= 0):
            parked.timer = asyncio.get_running_loop().call_later(
                request.max_wait_ms / 1000, self._answer, parked
            )

    def _answer(self, parked: Parked, *, is_last: bool = True) -> bool:
        """Answer if there is something to say; `is_last`: in any case."""
        if parked not in self._parked or parked.peer.is_closed:
            return True
        said = self.sessions[parked.session_id][1] if parked.session_id else {}
        found = {key: self._data(key, asked) for key, asked in parked.members.items()}
        if not is_last and not any(data.records or data.error_code for data in found.values()):
            return False
        if parked.timer is not None:
            parked.timer.cancel()
        self._parked.remove(parked)
        told: dict[bytes, list[wire.PartitionData]] = {}
        wrong = set()
        for key, data in found.items():
            if data.records or data.error_code or said.get(key) != data.high_watermark:
                said[key] = -1 if data.error_code else data.high_watermark
                told.setdefault(key[0], []).append(data)
                if data.records:
                    wrong.add(self.led[key].wrong)
        response = wire.FetchResponse(
            session_id=parked.session_id,
            responses=[
                wire.FetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in told.items()
            ],
        )
        if Wrong.FATAL in wrong:
            parked.peer.transport.abort()
        else:
            parked.peer.answer(parked.header, response, is_spoilt=Wrong.UNREADABLE in wrong)
        return True

    def _data(self, key: PartitionKey, asked: wire.FetchPartition) -> wire.PartitionData:
        led = self.led[key]
        error = led.error
        if not error and asked.fetch_offset < led.start:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b"".join(batch for first, batch in led.batches if first >= asked.fetch_offset)
        if led.wrong is Wrong.DAMAGED:
            records = records[:-1] + bytes(1 for _ in records[-1:])
        return wire.PartitionData(
            partition_index=key[1],
            error_code=error,
            high_watermark=led.high_watermark,
            last_stable_offset=led.high_watermark,
            log_start_offset=led.start,
            records=b"" if error else records,
        )


class Peer(asyncio.Protocol):
    """One connection to the leader."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._frames = FrameBuffer(1 << 24)
        self.is_closed = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._leader.peers.append(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_closed = True

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            header, request = decode_request(frame)
            if isinstance(request, ApiVersionsRequest):
                self._leader.connections.append(_asker(header))
                keys = [
                    ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, (low, high) in RANGES.items()
                ]
                self.answer(header, ApiVersionsResponse(api_keys=keys))
            elif isinstance(request, list_offsets.ListOffsetsRequest):
                self.answer(header, self._offsets(request))
            else:
                assert isinstance(request, wire.FetchRequest)
                self._leader.fetch(self, header, request)

    def _offsets(
        self, request: list_offsets.ListOffsetsRequest
    ) -> list_offsets.ListOffsetsResponse:
        topics = [
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        offset=self._leader.led[TOPIC_ID, each.partition_index].start
                        if each.timestamp == -2
                        else self._leader.led[TOPIC_ID, each.partition_index].end,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return list_offsets.ListOffsetsResponse(topics=topics)

    def answer(self, header: RequestHeader, response: Any, *, is_spoilt: bool = False) -> None:
        frame = b"".join(encode_response(header.correlation_id, response, header.version))
        # A length that goes beyond the end, where the number of topics is.
        self.transport.write(frame[:19] + b"\x7f" + frame[20:] if is_spoilt else frame)


Said = dict[PartitionKey, int]


def _asker(header: RequestHeader) -> str:
    return (header.client_id or "").removeprefix("broker-1-")


@dataclass
class Side:
    """A follower: a fetcher, and what it follows."""

    runtime: Runtime
    leader: Leader
    fetcher: LeaderFetcher
    directories: LogDirectories
    partitions: dict[int, Partition] = field(default_factory=dict)

    def follow(self, *indexes: int) -> None:
        """Follow these from now on; the leader has them, too."""
        for index in indexes:
            self.leader.led.setdefault((TOPIC_ID, index), Led())
            log = self.directories.create("t", index, TOPIC_ID, TopicSettings())
            partition = self.partitions[index] = replica(self.runtime, log, node=1)
            partition.settings = TopicSettings(max_message_bytes=1000)
            partition.follow(0, EPOCH)
            self.fetcher.assign(following(partition), in_sync=True)

    def led(self, index: int) -> Led:
        return self.leader.led[TOPIC_ID, index]

    def has_all(self, *indexes: int) -> bool:
        """Whether it holds what the leader has of these, or of all."""
        for index in indexes or self.partitions:
            log = self.partitions[index].log
            assert log is not None
            led = self.led(index)
            if (log.end, log.high_watermark) != (led.end, min(led.end, led.high_watermark)):
                return False
        return True

    async def until_followed(self) -> None:
        """Wait until a request waits at the leader who knows of all."""
        session = self.fetcher._session
        await self.until(
            lambda: (
                self.leader.waiting("fetcher")
                and len(session.members) == len(self.partitions)
                and not session.news
            )
        )

    async def until_all(self, *indexes: int, seconds: float = 60) -> None:
        await self.until(lambda: self.has_all(*indexes), seconds)

    async def until(self, condition: Any, seconds: float = 60) -> None:
        """Wait, in virtual time."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while not condition():
            assert loop.time() < give_up, "not in time"
            await asyncio.sleep(0.01)


async def side(runtime: Runtime, leader: Leader, **settings: str) -> Side:
    """Return broker 1, which follows nothing yet."""
    port = await leader.listen(runtime)
    values = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "100@127.0.0.1:9192",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/data",
        "replica.fetch.response.max.bytes": "1000",
    } | {name.replace("_", "."): value for name, value in settings.items()}
    made, _ = NodeSettings.from_properties(values)
    surroundings = FetcherSurroundings(
        runtime=runtime,
        settings=made,
        registration=Registration(1, epoch=1),
        endpoint=lambda _: ("127.0.0.1", port),
        quota=Quota(),
        ended=_ended,
    )
    return Side(runtime, leader, LeaderFetcher(surroundings, 0), open_directories(runtime))


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.result()
