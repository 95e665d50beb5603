"""Brokers that give what they were given: one partition's log, over real sockets, in threads.

For what no broker of ours can hold yet (aborted transactions, old formats, damage), and for answers
that come once in a year (a leader that moves, a session that is lost). Any client can read it.
Whoever speaks another API than those that reading needs is hung up on.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import repeat
from struct import Struct as Layout
from struct import pack
from typing import Any, NamedTuple
from zlib import crc32

from holdfast.wire.batch import BatchHeader, read_header
from holdfast.wire.batch_header import MAGIC
from holdfast.wire.errors import ErrorCode
from holdfast.wire.frame import decode_request, encode_response
from holdfast.wire.frame_buffer import FrameBuffer
from holdfast.wire.messages import fetch
from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
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
from holdfast.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from holdfast.wire.messages.produce import ProduceRequest
from holdfast.wire.schema import Request, Response
from holdfast.wire.well_known import EARLIEST

TOPIC = "canned"
NUMBER = 0
FIRST_SILENT = 100  # the id of a node that says nothing; others count from 0
_MAGIC_AT = 16  # in every format
FIRST_OF_OURS = FetchRequest.MIN_VERSION
_HEAD = Layout(">hhi")  # API, version, correlation id
_OLD_FETCH = Layout(f">iiiiih{len(TOPIC)}siiqi")


def is_of_old(frame: Any) -> bool:
    """Return whether a request is a Fetch of a version that our wire layer does not have."""
    key, version, _ = _HEAD.unpack_from(frame)
    return bool(key == FetchRequest.KEY and version < FIRST_OF_OURS)


def old_message(magic: int, offset: int) -> bytes:
    """Return a message as brokers of before 0.11 wrote them."""
    stamp = pack(">q", 7) if magic else b""
    checked = pack(">bb", magic, 0) + stamp + pack(">i1si3s", 1, b"k", 3, b"old")
    return pack(">qiI", offset, len(checked) + 4, crc32(checked)) + checked


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


class CutOff(NamedTuple):
    """What a node that was cut off from its cluster believes: that it leads, in an old epoch."""

    epoch: int
    readable: int


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
    wanted: dict[tuple[str, bytes, int], FetchPartition] = field(default_factory=dict)


class CannedLog(AbstractContextManager["CannedLog"]):
    """The log and its brokers, whose ids count from 0."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        fetch_version_max: int = FetchRequest.MAX_VERSION,
        epoch: int = -1,
    ) -> None:
        """Without an epoch the brokers are of before Kafka 2.1, and tell none."""
        self.entries: list[Entry] = []
        self.aborted: list[Aborted] = []
        self.start = 0
        self.readable: int | None = None  # None: the log's end
        self.leader = 0
        self.epoch = epoch
        self.cut_off: dict[int, CutOff] = {}
        self.lacks_epochs: dict[int, int] = {}  # by node: what it has heard nothing of, and later
        self.refusals_of_epochs = 0  # so many questions where an epoch ends come too early
        self.epoch_refusal = ErrorCode.UNKNOWN_LEADER_EPOCH  # what is said of those
        self.silent_ports: list[int] = []  # of brokers that metadata name first, and nobody hears
        self.epochs_asked: list[tuple[int, int]] = []  # by node: where this epoch ends
        self.ids_on: dict[int, bytes] = {}  # nodes that know another topic of the name
        self.controllers: Iterator[int] = repeat(0)  # that brokers name, one an answer
        self.deleted_on: set[int] = set()  # nodes that do not know the topic any more
        self.follower: int | None = None  # that a leader sends readers of a rack to
        self.topic_id = bytes(range(16))
        self.refusals: deque[tuple[int, int]] = deque()  # by a node: with an error, once
        self.session_refusals: deque[int] = deque()
        self.hang_ups: deque[int] = (
            deque()
        )  # a node that hangs up at its next fetch, once, behind refusals
        self.fetched: list[Fetched] = []
        self.grants_sessions = True
        self.bytes_in_time: int | None = None  # who asks for more waits for ever
        self.silent_metadata = 0  # so many questions who leads are not answered
        self.answers_after_s = 0.0  # each fetch waits so long
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

    def elect(self, leader: int, epoch: int, *, cut_at: int | None = None) -> None:
        """Have another node lead; its log may lack what is from an offset on."""
        self.leader, self.epoch = leader, epoch
        if cut_at is not None:
            self.entries = [entry for entry in self.entries if entry.last < cut_at]
            assert self.end == cut_at, "a batch lies across it"

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
                    if is_of_old(frame):
                        with self._lock:
                            answer = self._fetch_of_old(frame)
                        connection.sendall(answer)
                        continue
                    header, request = decode_request(frame)
                    if isinstance(request, FetchRequest):
                        time.sleep(self.answers_after_s)
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
        if isinstance(request, MetadataRequest) and self.silent_metadata:
            self.silent_metadata -= 1
            return True
        bound = self.bytes_in_time
        return bound is not None and isinstance(request, FetchRequest) and request.max_bytes > bound

    def _answer(self, node: int, request: Request) -> Response | None:
        if isinstance(request, ApiVersionsRequest):
            return self._versions()
        if isinstance(request, MetadataRequest):
            return self._metadata(node, request)
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(node, request)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._epoch_ends(node, request)
        if isinstance(request, FetchRequest):
            return self._fetch(node, request)
        return None

    # -- answers -----------------------------------------------------------------------------------

    def _versions(self) -> ApiVersionsResponse:
        served: list[type[Request]] = [
            ApiVersionsRequest,
            MetadataRequest,
            ListOffsetsRequest,
            FetchRequest,
        ]
        if self.epoch >= 0:
            served.append(OffsetForLeaderEpochRequest)
        keys = [ApiVersion(api_key=c.KEY, min_version=0, max_version=c.MAX_VERSION) for c in served]
        keys[3].max_version = self._fetch_version_max
        # librdkafka asks for what is new in Fetch only of who takes it in Produce, too.
        keys.append(ApiVersion(api_key=ProduceRequest.KEY, min_version=0, max_version=9))
        return ApiVersionsResponse(api_keys=keys)

    def _led(self, node: int) -> tuple[int, int]:
        """Return who leads, and in which epoch, as a node believes."""
        if node in self.cut_off:
            return node, self.cut_off[node].epoch
        return self.leader, self.epoch

    def _refusal(self, node: int, epoch: int) -> int:
        """Return why a node does not answer who believes in a leader's epoch; 0: it does."""
        leader, own = self._led(node)
        if epoch >= 0 and own >= 0 and epoch != own:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < own else ErrorCode.UNKNOWN_LEADER_EPOCH
        return 0 if node in {leader, self.follower} else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _metadata(self, node: int, request: MetadataRequest) -> MetadataResponse:
        ours = (one.getsockname()[1] for one in self._listeners)
        named = [*enumerate(self.silent_ports, FIRST_SILENT), *enumerate(ours)]
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port)
            for number, port in named
        ]
        leader, epoch = self._led(node)
        nodes = list(range(len(self._listeners)))
        partition = MetadataResponsePartition(
            partition_index=NUMBER, leader_id=leader, leader_epoch=epoch, replica_nodes=nodes,
            isr_nodes=nodes,
        )  # fmt: skip
        topic_id = self.ids_on.get(node, self.topic_id)
        topic = MetadataResponseTopic(name=TOPIC, topic_id=topic_id, partitions=[partition])
        unknown = [
            MetadataResponseTopic(name=one.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for one in request.topics or ()
            if one.name != TOPIC or node in self.deleted_on
        ]
        is_asked = not request.topics or any(one.name == TOPIC for one in request.topics)
        is_told = is_asked and node not in self.deleted_on
        topics = [topic, *unknown] if is_told else unknown
        return MetadataResponse(
            brokers=brokers,
            cluster_id="canned",
            controller_id=next(self.controllers),
            topics=topics,
        )

    def _offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            told = []
            for one in topic.partitions:
                offset, epoch = self._offset_at(node, one.timestamp)
                told.append(
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        error_code=self._refusal(node, one.current_leader_epoch),
                        offset=offset,
                        leader_epoch=epoch,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=told))
        return ListOffsetsResponse(topics=topics)

    def _offset_at(self, node: int, timestamp: int) -> tuple[int, int]:
        """Return an offset; and the leader's epoch, or of a time that of the batch, as Kafka."""
        if timestamp < 0:
            offset = self.start if timestamp == EARLIEST else self._readable(node)
            return offset, self._led(node)[1]
        for entry in self.entries:
            header = read_header(entry.data)
            if timestamp <= header.max_timestamp and entry.last < self._readable(node):
                return entry.first, header.leader_epoch
        return -1, -1

    def _readable(self, node: int) -> int:
        if node in self.cut_off:
            return self.cut_off[node].readable
        return self.end if self.readable is None else self.readable

    def _epoch_ends(
        self, node: int, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            told = []
            for one in topic.partitions:
                self.epochs_asked.append((node, one.leader_epoch))
                refusal = self._refusal(node, one.current_leader_epoch)
                if self.refusals_of_epochs:
                    self.refusals_of_epochs -= 1
                    refusal = self.epoch_refusal
                epoch, end = (-1, -1) if refusal else self._epoch_end(one.leader_epoch)
                told.append(
                    EpochEndOffset(
                        error_code=refusal, partition=one.partition, leader_epoch=epoch,
                        end_offset=end,
                    )
                )  # fmt: skip
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=told))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch up to this one, and where the next one begins."""
        begun = [
            (read_header(entry.data).leader_epoch, entry.first)
            for entry in self.entries
            if entry.data[_MAGIC_AT] >= MAGIC
        ]
        older = [one for one, _ in begun if one <= epoch]
        newer = [first for one, first in begun if one > epoch]
        return (max(older), min(newer, default=self.end)) if older else (-1, -1)

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse | None:
        if self.hang_ups and self.hang_ups[0] == node and not self.refusals:
            self.hang_ups.popleft()
            return None
        if self.session_refusals:
            return FetchResponse(error_code=self.session_refusals.popleft())
        session_id, session = self._session(node, request)
        if session is None:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        names = [topic.topic for topic in request.topics]
        names += [topic.topic for topic in request.forgotten_topics_data]
        names += [topic for topic, _, _ in session.wanted]
        if len({bool(name) for name in names}) > 1:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                del session.wanted[forgotten.topic, forgotten.topic_id, number]
        for topic in request.topics:
            for one in topic.partitions:
                session.wanted[topic.topic, topic.topic_id, one.partition] = one
        named = sum(len(topic.partitions) for topic in request.topics)
        responses = []
        for (topic_name, topic_id, number), one in session.wanted.items():
            offset = one.fetch_offset
            self.fetched.append(
                Fetched(
                    node, offset, request.session_epoch, named, request.rack_id, request.max_bytes
                )
            )
            is_known = topic_name == TOPIC or topic_id == self.topic_id
            is_known = is_known and node not in self.deleted_on
            data = (
                self._read(node, one, request)
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
        if not any(answer.partitions[0].records for answer in responses):
            time.sleep(min(request.max_wait_ms, 20) / 1000)  # as long polls do
        return FetchResponse(session_id=session_id, responses=responses)

    def _fetch_of_old(self, frame: Any) -> bytes:
        """Answer a Fetch of version 3, by hand: one partition, and no session or isolation."""
        _, version, correlation = _HEAD.unpack_from(frame)
        assert version == FIRST_OF_OURS - 1, f"Fetch {version}"
        asked = _OLD_FETCH.unpack(bytes(frame)[-_OLD_FETCH.size :])
        offset, bytes_max = asked[-2:]
        self.fetched.append(Fetched(0, offset, -1, 1, "", bytes_max))
        data = PartitionData(aborted_transactions=None)
        self._put_records(data, offset, bytes_max, self.end, 0)
        records = bytes(data.records or b"")
        name = TOPIC.encode()
        body = pack(">iii", correlation, 0, 1) + pack(">h", len(name)) + name
        body += pack(">iihqi", 1, NUMBER, 0, self.end, len(records)) + records
        return pack(">i", len(body)) + body

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

    def _read(self, node: int, wanted: FetchPartition, request: FetchRequest) -> PartitionData:
        offset = wanted.fetch_offset
        readable = self._readable(node)
        data = PartitionData(
            high_watermark=readable, last_stable_offset=readable, log_start_offset=self.start,
            aborted_transactions=None, records=b"",
        )  # fmt: skip
        if self.refusals and self.refusals[0][0] == node:
            data.error_code = self.refusals.popleft()[1]
        elif node == self.leader and self.follower is not None and request.rack_id:
            data.preferred_read_replica = self.follower
        elif refusal := self._refusal(node, wanted.current_leader_epoch):
            data.error_code = refusal
        elif cut := self._parting(node, wanted):
            data.diverging_epoch = cut
        elif not self.start <= offset <= self.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif self.lagging:
            self.lagging -= 1
            data.high_watermark = data.last_stable_offset = offset
        else:
            bytes_max = min(self._bounds_of(request))
            self._put_records(data, offset, bytes_max, readable, request.isolation_level)
        return data

    def _parting(self, node: int, wanted: FetchPartition) -> fetch.EpochEndOffset | None:
        """Return where the log is another one than what the reader has read. None: nowhere."""
        last = wanted.last_fetched_epoch
        if last < 0:
            return None
        epoch, end = self._epoch_end(min(last, self.lacks_epochs.get(node, last + 1) - 1))
        if epoch == last and wanted.fetch_offset <= end:
            return None
        return fetch.EpochEndOffset(epoch=epoch, end_offset=end)

    @staticmethod
    def _bounds_of(request: FetchRequest) -> list[int]:
        of_partitions = [p.partition_max_bytes for t in request.topics for p in t.partitions]
        return [request.max_bytes, *of_partitions]

    def _put_records(
        self, data: PartitionData, offset: int, bytes_max: int, readable: int, isolation: int
    ) -> None:
        taken: list[Entry] = []
        for entry in self.entries:
            if offset <= entry.last < readable:
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
