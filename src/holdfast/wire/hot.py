"""Produce and Fetch by hand: the two APIs whose cost is the broker's.

Owns the fast paths of the flexible versions, as clients send them all day. Whatever is out of the
ordinary (an older version, tagged fields, aborted transactions, an error with its details) goes
to the tables in `messages`, whose compiled code is close behind. Same classes, same bytes: the
tests hold one against the other. Must never look inside record batches.

What the hand gains over the compiled tables: one `struct` call per partition, with what belongs
to its neighbours packed along; lengths of records without a call; whole frames at once.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 - an alias for a class
from typing import Any, Final, TypeAlias

from holdfast.wire.codec import decode
from holdfast.wire.decoder import ELEMENTS_MAX
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.frame import encode_response
from holdfast.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
    SnapshotId,
)
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast.wire.primitives import read_uvarint_rest, uvarint
from holdfast.wire.schema import Response, default_of
from holdfast.wire.structs import LeaderIdAndEpoch
from holdfast.wire.uuids import NULL_UUID

Buffers: TypeAlias = list[bytes | memoryview]

_PRODUCE_FLEXIBLE: Final = 9
_PRODUCE_BY_ID: Final = 13
_FETCH_FLEXIBLE: Final = 12
_FETCH_BY_ID: Final = 13
_FETCH_REPLICA_STATE: Final = 15
_WATERMARK_UNKNOWN: Final = 0x7FFFFFFFFFFFFFFF

_new = object.__new__
_no_state = default_of(ReplicaState)
_no_epoch = default_of(EpochEndOffset)
_no_snapshot = default_of(SnapshotId)
_no_leader = default_of(LeaderIdAndEpoch)

_acks_timeout_count = Layout(">hiB").unpack_from
_index_size = Layout(">iB").unpack_from
_fetch_limits = Layout(">iiibiiB").unpack_from
_old_fetch_limits = Layout(">iiiibiiB").unpack_from
_fetch_partition = Layout(">iiqiqiB")
_replica_state = Layout(">BBBiqB").unpack_from
_REPLICA_STATE_SIZE: Final = 16

_prefix = Layout(">ii").pack
_produce_partition = Layout(">ihqqqBBB").pack
_fetch_head = Layout(">Bihi").pack
# By the number of bytes that the length of the records takes.
_fetch_heads = [Layout(">ihqqqBi" + "B" * size).pack for size in range(6)]


def decode_produce(version: int, view: memoryview, offset: int = 0) -> ProduceRequest:
    """Return the request whose body begins at `offset`. Its records are slices of `view`.

    WireError: as `codec.decode`.
    """
    if _PRODUCE_FLEXIBLE <= version <= ProduceRequest.MAX_VERSION:
        try:
            request = _decode_produce(view, offset, version >= _PRODUCE_BY_ID)
        except (LayoutError, IndexError, UnicodeDecodeError) as error:
            raise WireError(f"ProduceRequest version {version}: {error}") from error
        if request is not None:
            return request
    return decode(ProduceRequest, version, view, offset)


def decode_fetch(version: int, view: memoryview, offset: int = 0) -> FetchRequest:
    """Return the request whose body begins at `offset`. WireError: as `codec.decode`."""
    if _FETCH_FLEXIBLE <= version <= FetchRequest.MAX_VERSION:
        try:
            request = _decode_fetch(version, view, offset)
        except (LayoutError, IndexError, UnicodeDecodeError) as error:
            raise WireError(f"FetchRequest version {version}: {error}") from error
        if request is not None:
            return request
    return decode(FetchRequest, version, view, offset)


def encode_answer(response: object, version: int, correlation_id: int) -> Buffers:
    """Return a whole frame, by hand where the API has a hand; records are not copied."""
    by_hand = _BY_HAND.get(type(response))
    if by_hand is not None:
        return by_hand(response, version, correlation_id)
    assert isinstance(response, Response), f"a handler answered with {type(response).__name__}"
    return encode_response(correlation_id, response, version)


def encode_produce_response(
    response: ProduceResponse, version: int, correlation_id: int
) -> Buffers:
    """Return a whole frame, its length prefix and header included."""
    if _PRODUCE_FLEXIBLE <= version <= ProduceResponse.MAX_VERSION:
        try:
            body = _encode_produce_response(response, version >= _PRODUCE_BY_ID)
        except (LayoutError, TypeError, AttributeError, ValueError) as error:
            raise EncodeError(f"ProduceResponse version {version}: {error}") from error
        if body is not None:
            return [b"".join((_prefix(len(body) + 5, correlation_id), b"\0", body))]
    return encode_response(correlation_id, response, version)


def encode_fetch_response(response: FetchResponse, version: int, correlation_id: int) -> Buffers:
    """Return a whole frame, its length prefix and header included; records are not copied."""
    if _FETCH_FLEXIBLE <= version <= FetchResponse.MAX_VERSION:
        try:
            buffers = _encode_fetch_response(response, version >= _FETCH_BY_ID)
        except (LayoutError, TypeError, AttributeError, ValueError) as error:
            raise EncodeError(f"FetchResponse version {version}: {error}") from error
        if buffers is not None:
            size = sum(map(len, buffers)) + 4
            buffers[0] = _prefix(size, correlation_id) + buffers[0]
            return buffers
    return encode_response(correlation_id, response, version)


# By class: isinstance costs several times as much where the class has a metaclass.
_BY_HAND: Final[dict[type, Callable[[Any, int, int], Buffers]]] = {
    ProduceResponse: encode_produce_response,
    FetchResponse: encode_fetch_response,
}


def fetch_replica(request: FetchRequest) -> tuple[int, int]:
    """Return (replica id, broker epoch) of who fetches: (-1, -1) for a consumer.

    From version 15 on both stand in a tagged struct; before it there was no epoch.
    """
    state = request.replica_state
    if state.replica_id >= 0:
        return state.replica_id, state.replica_epoch
    return request.replica_id, -1


def _text(view: memoryview, offset: int) -> tuple[str | None, int]:
    """Return a compact string and the offset behind it."""
    size = view[offset]
    offset += 1
    if size > 127:
        size, offset = read_uvarint_rest(view, offset, size)
    if size == 0:
        return None, offset
    end = offset + size - 1
    if end > len(view):
        raise WireError("a string is longer than what remains")
    return str(view[offset:end], "utf-8"), end


def _count(view: memoryview, offset: int, first: int, width: int) -> tuple[int, int]:
    """Return an array's length, whose first byte is read already, and the offset behind it.

    `width` is the fewest bytes that an element takes.
    """
    if first > 127:
        first, offset = read_uvarint_rest(view, offset, first)
    count = first - 1
    if count < 0:
        raise WireError("an array is null")
    if count * width > len(view) - offset:
        raise WireError("an array has more elements than bytes remain for")
    return count, offset


def _topic_name(view: memoryview, offset: int, by_id: bool) -> tuple[str, bytes, int]:
    """Return name, id and the offset behind them; versions have the one or the other."""
    if not by_id and 0 < view[offset] < 128:
        end = offset + view[offset]
        if end > len(view) - 1:
            raise WireError("a string is longer than what remains")
        return str(view[offset + 1 : end], "utf-8"), NULL_UUID, end
    if by_id:
        end = offset + 16
        if end > len(view):
            raise WireError("truncated in a topic id")
        return "", bytes(view[offset:end]), end
    name, end = _text(view, offset)
    if name is None:
        raise WireError("a topic's name is null")
    return name, NULL_UUID, end


def _decode_produce(view: memoryview, offset: int, by_id: bool) -> ProduceRequest | None:
    """None: there are tagged fields, which the table reads."""
    request: ProduceRequest = _new(ProduceRequest)
    if view[offset]:
        request.transactional_id, offset = _text(view, offset)
    else:
        request.transactional_id = None
        offset += 1
    request.acks, request.timeout_ms, count = _acks_timeout_count(view, offset)
    offset += 7
    # A count of one byte needs no look at what remains: it can't make us allocate much.
    if 0 < count < 128:
        count -= 1
    else:
        count, offset = _count(view, offset, count, 3)
    topics: list[TopicProduceData] = []
    request.topic_data = topics
    for _ in range(count):
        topic: TopicProduceData = _new(TopicProduceData)
        topic.name, topic.topic_id, offset = _topic_name(view, offset, by_id)
        inner = view[offset] - 1
        offset += 1
        if not 0 <= inner < 127:
            inner, offset = _count(view, offset, inner + 1, 6)
        partitions: list[PartitionProduceData] = []
        topic.partition_data = partitions
        offset = _produce_partitions(view, offset, inner, partitions)
        if offset < 0 or view[offset]:
            return None
        offset += 1
        topics.append(topic)
    if view[offset]:
        return None
    if offset + 1 != len(view):
        raise WireError("bytes behind the end")
    return request


def _produce_partitions(
    view: memoryview, offset: int, count: int, partitions: list[PartitionProduceData]
) -> int:
    """Read partitions into a list and return the offset behind them; -1: one has tagged fields."""
    end = len(view)
    for _ in range(count):
        partition: PartitionProduceData = _new(PartitionProduceData)
        partition.index, size = _index_size(view, offset)
        offset += 5
        if size > 127:
            # Two and three bytes of length, 128 bytes to 2 MiB, without a call.
            byte = view[offset]
            if byte < 128:
                size = size & 127 | byte << 7
                offset += 1
            elif view[offset + 1] < 128:
                size = size & 127 | (byte & 127) << 7 | view[offset + 1] << 14
                offset += 2
            else:
                size, offset = read_uvarint_rest(view, offset, size)
        if size:
            stop = offset + size - 1
            if stop >= end:
                raise WireError("record batches are longer than what remains")
            partition.records = view[offset:stop]
            offset = stop
        else:
            partition.records = None
        if view[offset]:
            return -1
        offset += 1
        partitions.append(partition)
    return offset


def _decode_fetch(version: int, view: memoryview, offset: int) -> FetchRequest | None:
    """None: there are tagged fields other than a replica's state, which the table reads."""
    request: FetchRequest = _new(FetchRequest)
    request.cluster_id = None
    request.replica_state = _no_state  # type: ignore[assignment]
    if version >= _FETCH_REPLICA_STATE:
        request.replica_id = -1
        (request.max_wait_ms, request.min_bytes, request.max_bytes,
         request.isolation_level, request.session_id, request.session_epoch,
         first) = _fetch_limits(view, offset)  # fmt: skip
        offset += 22
    else:
        (request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes,
         request.isolation_level, request.session_id, request.session_epoch,
         first) = _old_fetch_limits(view, offset)  # fmt: skip
        offset += 26
    by_id = version >= _FETCH_BY_ID
    count = first - 1
    if not 0 < first < 128:
        count, offset = _count(view, offset, first, 3)
    left = ELEMENTS_MAX - count
    request.topics = topics = []
    for _ in range(count if left >= 0 else 0):
        topic: FetchTopic = _new(FetchTopic)
        topic.topic, topic.topic_id, offset = _topic_name(view, offset, by_id)
        inner, offset = _count(view, offset + 1, view[offset], _fetch_partition.size)
        left -= inner
        if left < 0:
            break
        stop = offset + inner * _fetch_partition.size
        partitions = _fetch_partitions(view[offset:stop])
        if partitions is None or view[stop]:
            return None
        topic.partitions = partitions
        offset = stop + 1
        topics.append(topic)
    if left < 0 or view[offset] != 1:
        return None  # too many, or topics to forget: sessions are the table's
    request.forgotten_topics_data = []
    rack, offset = _text(view, offset + 1)
    if rack is None:
        raise WireError("the rack is null")
    request.rack_id = rack
    if view[offset]:
        state = _read_replica_state(version, view, offset)
        if state is None:
            return None
        request.replica_state = state
        offset += _REPLICA_STATE_SIZE
    else:
        offset += 1
    if offset != len(view):
        raise WireError("bytes behind the end")
    return request


def _fetch_partitions(block: memoryview) -> list[FetchPartition] | None:
    """Read a run of partitions that have no tagged fields. None: one has some."""
    partitions: list[FetchPartition] = []
    for values in _fetch_partition.iter_unpack(block):
        partition: FetchPartition = _new(FetchPartition)
        (partition.partition, partition.current_leader_epoch, partition.fetch_offset,
         partition.last_fetched_epoch, partition.log_start_offset,
         partition.partition_max_bytes, tags) = values  # fmt: skip
        if tags:
            return None
        partition.replica_directory_id = NULL_UUID
        partition.high_watermark = _WATERMARK_UNKNOWN
        partitions.append(partition)
    return partitions


def _read_replica_state(version: int, view: memoryview, offset: int) -> ReplicaState | None:
    """Read the one tagged field that every follower sends. None: it is not that alone."""
    if version < _FETCH_REPLICA_STATE or len(view) - offset < _REPLICA_STATE_SIZE:
        return None
    count, tag, size, replica_id, epoch, tags = _replica_state(view, offset)
    if (count, tag, size, tags) != (1, 1, 13, 0):
        return None
    state: ReplicaState = _new(ReplicaState)
    state.replica_id = replica_id
    state.replica_epoch = epoch
    return state


def _topic_head(name: str, topic_id: bytes, by_id: bool, count: int) -> bytes:
    if by_id:
        if len(topic_id) != 16:
            raise ValueError("a UUID has 16 bytes")
        return topic_id + uvarint(count + 1)
    encoded = name.encode()
    return b"".join((uvarint(len(encoded) + 1), encoded, uvarint(count + 1)))


def _encode_produce_response(response: ProduceResponse, by_id: bool) -> bytes | None:
    """None: there are details of errors or tagged fields, which the table writes."""
    if response.node_endpoints:
        return None
    out = [uvarint(len(response.responses) + 1)]
    for topic in response.responses:
        partitions = topic.partition_responses
        out.append(_topic_head(topic.name, topic.topic_id, by_id, len(partitions)))
        for partition in partitions:
            if (
                partition.record_errors
                or partition.error_message is not None
                or partition.current_leader is not _no_leader
            ):
                return None
            out.append(
                _produce_partition(
                    partition.index,
                    partition.error_code,
                    partition.base_offset,
                    partition.log_append_time_ms,
                    partition.log_start_offset,
                    1,  # no record errors
                    0,  # no error message
                    0,  # no tagged fields
                )
            )
        out.append(b"\0")
    out.append(response.throttle_time_ms.to_bytes(4, "big", signed=True) + b"\0")
    return b"".join(out)


def _encode_fetch_response(response: FetchResponse, by_id: bool) -> Buffers | None:
    """None: there are aborted transactions or tagged fields, which the table writes."""
    if response.node_endpoints:
        return None
    head = _fetch_head(0, response.throttle_time_ms, response.error_code, response.session_id)
    out: Buffers = []
    # What stands in front of the next record batches, in pieces: most partitions have no records,
    # and to grow one string by each of ten thousand copies it ten thousand times.
    pending = [head, uvarint(len(response.responses) + 1)]
    add = pending.append
    for topic in response.responses:
        partitions = topic.partitions
        add(_topic_head(topic.topic, topic.topic_id, by_id, len(partitions)))
        for partition in partitions:
            aborted = partition.aborted_transactions
            if (
                aborted
                or partition.diverging_epoch is not _no_epoch
                or partition.current_leader is not _no_leader
                or partition.snapshot_id is not _no_snapshot
            ):
                return None
            records = partition.records
            size = 0 if records is None else len(records) + 1
            if size < 128:
                sizes: tuple[int, ...] = (size,)
            elif size < 16384:
                sizes = (size & 127 | 128, size >> 7)
            elif size < 2097152:
                sizes = (size & 127 | 128, size >> 7 & 127 | 128, size >> 14)
            else:
                sizes = tuple(uvarint(size))
            add(
                _fetch_heads[len(sizes)](
                    partition.partition_index,
                    partition.error_code,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    0 if aborted is None else 1,
                    partition.preferred_read_replica,
                    *sizes,
                )
            )
            if records:
                out.append(b"".join(pending))
                out.append(records)
                pending.clear()
            add(b"\0")
        add(b"\0")
    add(b"\0")
    out.append(b"".join(pending))
    return out
