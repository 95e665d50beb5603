"""Brokers that give what they were given: one partition's log, over real sockets, in threads.

For what no broker of ours can hold yet (aborted transactions, old formats, damage), and for answers
that come once in a year (a leader that moves, a session that is lost). Any client can read it.
Whoever speaks another API than the four that reading needs is hung up on.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.wire.batch import BatchHeader, read_header
from holdfast.wire.errors import ErrorCode
from holdfast.wire.frame import decode_request, encode_response
from holdfast.wire.frame_buffer import FrameBuffer
from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.messages.produce import ProduceRequest
from holdfast.wire.schema import Request, Response
from holdfast.wire.well_known import EARLIEST

TOPIC = "canned"
NUMBER = 0


class Entry(NamedTuple):
    """A run of bytes in the log, and the offsets that it stands for."""

    first: int
    last: int
    data: bytes


class Aborted(NamedTuple):
    """A transaction that was aborted, up to its marker."""

    producer_id: int
    first: int
    last: int


class Fetched(NamedTuple):
    """What a broker was asked for."""

    node: int
    offset: int
    session_epoch: int
    named: int  # so many partitions the request named
    rack: str
    bytes_max: int


@dataclass
class _Session:
    epoch: int = 0
    offsets: dict[tuple[str, bytes, int], int] = field(default_factory=dict)


class CannedLog(AbstractContextManager["CannedLog"]):
    """The log and its brokers, whose ids count from 0."""

    def __init__(
        self, nodes: int = 1, *, fetch_version_max: int = FetchRequest.MAX_VERSION
    ) -> None:
        self.entries: list[Entry] = []
        self.aborted: list[Aborted] = []
        self.start = 0
        self.readable: int | None = None  # None: the log's end
        self.leader = 0
        self.follower: int | None = None  # that a leader sends readers of a rack to
        self.topic_id = bytes(range(16))
        self.refusals: deque[tuple[int, int]] = deque()  # by a node: with an error, once
        self.session_refusals: deque[int] = deque()
        self.hang_ups: deque[int] = deque()  # a node that hangs up at its next fetch, once
        self.fetched: list[Fetched] = []
        self.grants_sessions = True
        self.bytes_in_time: int | None = None  # who asks for more waits for ever
        self.lagging = 0  # so many fetches find a high watermark that has not come on
        self._fetch_version_max = fetch_version_max
        self._sessions: dict[tuple[int, int], _Session] = {}
        self._lock = threading.Lock()
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        for node, listener in enumerate(self._listeners):
            self._run(self._accept, node, listener)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._listeners[0].getsockname()[1]}"

    @property
    def end(self) -> int:
        return self.entries[-1].last + 1 if self.entries else self.start

    def add(self, *batches: bytes | bytearray) -> None:
        """Put batches behind the log, whose offsets they bear."""
        for batch in batches:
            header: BatchHeader = read_header(batch)
            self.entries.append(Entry(header.base_offset, header.last_offset, bytes(batch)))

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for one in self._open:
            one.close()

    # -- connections -------------------------------------------------------------------------------

    def _run(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, node: int, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with self._lock:
                    self._open.append(connection)
                self._run(self._serve, node, connection)

    def _serve(self, node: int, connection: socket.socket) -> None:
        frames = FrameBuffer(1 << 20)
        with suppress(OSError):
            while data := connection.recv(1 << 16):
                for frame in frames.feed(data):
                    header, request = decode_request(frame)
                    with self._lock:
                        response = self._answer(node, request)
                    if self._is_slow(request):
                        continue
                    if response is None:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    buffers = encode_response(header.correlation_id, response, header.version)
                    connection.sendall(b"".join(buffers))

    def _is_slow(self, request: Request) -> bool:
        bound = self.bytes_in_time
        return bound is not None and isinstance(request, FetchRequest) and request.max_bytes > bound

    def _answer(self, node: int, request: Request) -> Response | None:
        if isinstance(request, ApiVersionsRequest):
            return self._versions()
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        if isinstance(request, FetchRequest):
            return self._fetch(node, request)
        return None

    # -- answers -----------------------------------------------------------------------------------

    def _versions(self) -> ApiVersionsResponse:
        served = (ApiVersionsRequest, MetadataRequest, ListOffsetsRequest, FetchRequest)
        keys = [ApiVersion(api_key=c.KEY, min_version=0, max_version=c.MAX_VERSION) for c in served]
        keys[-1].max_version = self._fetch_version_max
        # librdkafka asks for what is new in Fetch only of who takes it in Produce, too.
        keys.append(ApiVersion(api_key=ProduceRequest.KEY, min_version=0, max_version=9))
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=one.getsockname()[1])
            for node, one in enumerate(self._listeners)
        ]
        nodes = list(range(len(brokers)))
        partition = MetadataResponsePartition(
            partition_index=NUMBER, leader_id=self.leader, leader_epoch=-1, replica_nodes=nodes,
            isr_nodes=nodes,
        )  # fmt: skip
        topic = MetadataResponseTopic(name=TOPIC, topic_id=self.topic_id, partitions=[partition])
        unknown = [
            MetadataResponseTopic(name=one.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for one in request.topics or ()
            if one.name != TOPIC
        ]
        return MetadataResponse(
            brokers=brokers, cluster_id="canned", controller_id=0, topics=[topic, *unknown]
        )

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            told = [
                ListOffsetsPartitionResponse(
                    partition_index=one.partition_index,
                    offset=self.start if one.timestamp == EARLIEST else self._readable(),
                )
                for one in topic.partitions
            ]
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=told))
        return ListOffsetsResponse(topics=topics)

    def _readable(self) -> int:
        return self.end if self.readable is None else self.readable

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse | None:
        if self.hang_ups and self.hang_ups[0] == node:
            self.hang_ups.popleft()
            return None
        if self.session_refusals:
            return FetchResponse(error_code=self.session_refusals.popleft())
        session_id, session = self._session(node, request)
        if session is None:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                del session.offsets[forgotten.topic, forgotten.topic_id, number]
        for topic in request.topics:
            for one in topic.partitions:
                session.offsets[topic.topic, topic.topic_id, one.partition] = one.fetch_offset
        named = sum(len(topic.partitions) for topic in request.topics)
        responses = []
        for (topic_name, topic_id, number), offset in session.offsets.items():
            self.fetched.append(
                Fetched(
                    node, offset, request.session_epoch, named, request.rack_id, request.max_bytes
                )
            )
            is_known = topic_name == TOPIC or topic_id == self.topic_id
            data = (
                self._read(node, offset, request)
                if is_known
                else PartitionData(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, aborted_transactions=None, records=None
                )
            )
            data.partition_index = number
            if data.records or data.error_code or data.preferred_read_replica >= 0 or named:
                responses.append(
                    FetchableTopicResponse(topic=topic_name, topic_id=topic_id, partitions=[data])
                )
        if not any(one.partitions[0].records for one in responses):
            time.sleep(min(request.max_wait_ms, 20) / 1000)  # as long polls do
        return FetchResponse(session_id=session_id, responses=responses)

    def _session(self, node: int, request: FetchRequest) -> tuple[int, _Session | None]:
        if request.session_epoch <= 0:
            self._sessions.pop((node, request.session_id), None)
            if request.session_epoch < 0 or not self.grants_sessions:
                return 0, _Session()
            session_id = len(self._sessions) + 100
            session = self._sessions[node, session_id] = _Session(1)
            return session_id, session
        found = self._sessions.get((node, request.session_id))
        if found is None or found.epoch != request.session_epoch:
            return 0, None
        found.epoch += 1
        return request.session_id, found

    def _read(self, node: int, offset: int, request: FetchRequest) -> PartitionData:
        readable = self._readable()
        data = PartitionData(
            high_watermark=readable, last_stable_offset=readable, log_start_offset=self.start,
            aborted_transactions=None, records=b"",
        )  # fmt: skip
        if self.refusals and self.refusals[0][0] == node:
            data.error_code = self.refusals.popleft()[1]
        elif node == self.leader and self.follower is not None and request.rack_id:
            data.preferred_read_replica = self.follower
        elif node not in {self.leader, self.follower}:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.start <= offset <= self.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif self.lagging:
            self.lagging -= 1
            data.high_watermark = data.last_stable_offset = offset
        else:
            self._put_records(data, offset, min(self._bounds_of(request)), request.isolation_level)
        return data

    @staticmethod
    def _bounds_of(request: FetchRequest) -> list[int]:
        of_partitions = [p.partition_max_bytes for t in request.topics for p in t.partitions]
        return [request.max_bytes, *of_partitions]

    def _put_records(
        self, data: PartitionData, offset: int, bytes_max: int, isolation: int
    ) -> None:
        taken: list[Entry] = []
        for entry in self.entries:
            if offset <= entry.last < self._readable():
                size = sum(len(one.data) for one in taken)
                if taken and size + len(entry.data) > bytes_max:
                    break
                taken.append(entry)
        data.records = b"".join(one.data for one in taken)
        if isolation and taken:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first)
                for one in self.aborted
                if one.last >= offset and one.first <= taken[-1].last
            ]
