"""The hand-written codecs of Produce and Fetch against the compiled tables.

Goal: they differ in speed only. Method: the same messages through both, every version, ordinary
ones (which the hand takes) and odd ones (which it must leave to the table); then damaged bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from holdfast.wire import hot
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.frame import encode_response
from holdfast.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from holdfast.wire.schema import Message
from holdfast.wire.structs import LeaderIdAndEpoch, LeaderNode

Messages = Callable[[type[Message], int], Iterator[Any]]

# Around every length that takes one more byte.
SIZES = (0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152)


def versions(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


def ordinary_produce(version: int) -> Iterator[ProduceRequest]:
    by_id = version >= 13
    for count in (0, 1, 3, 200):
        yield ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            transactional_id="t" if count == 3 else None,
            topic_data=[
                TopicProduceData(
                    name="" if by_id else f"topic-{count}" * (count + 1),
                    topic_id=b"0123456789abcdef" if by_id else bytes(16),
                    partition_data=[
                        PartitionProduceData(index=index, records=b"r" * 300)
                        for index in range(count)
                    ],
                )
            ]
            * min(count, 3),
        )


@pytest.mark.parametrize("version", versions(ProduceRequest))
def test_produce_requests(version: int, messages_of: Messages) -> None:
    for message in (*messages_of(ProduceRequest, version), *ordinary_produce(version)):
        data = b"head" + encode(message, version)
        assert hot.decode_produce(version, memoryview(data), 4) == message


@pytest.mark.parametrize("size", SIZES)
def test_lengths_of_records(size: int) -> None:
    records = bytes(size)
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])
        ]
    )
    view = memoryview(encode(request, 9))
    read = hot.decode_produce(9, view).topic_data[0].partition_data[0].records
    assert read == records
    assert isinstance(read, memoryview)
    assert read.obj is view.obj, "records are a slice of the frame"
    response = FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])]
    )
    buffers = hot.encode_fetch_response(response, 16, 5)
    assert b"".join(buffers) == b"".join(encode_response(5, response, 16))
    assert size == 0 or any(buffer is records for buffer in buffers), "records are not copied"


def ordinary_fetch(version: int) -> Iterator[FetchRequest]:
    by_id = version >= 13
    for count in (0, 1, 3, 200):
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic="" if by_id else "topic",
                    topic_id=b"0123456789abcdef" if by_id else bytes(16),
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=index * 7)
                        for index in range(count)
                    ],
                )
            ]
            * min(count, 3),
        )
        if version >= 15 and count == 1:
            request.replica_state = ReplicaState(replica_id=2, replica_epoch=99)
        yield request


@pytest.mark.parametrize("version", versions(FetchRequest))
def test_fetch_requests(version: int, messages_of: Messages) -> None:
    for message in (*messages_of(FetchRequest, version), *ordinary_fetch(version)):
        data = b"head" + encode(message, version)
        assert hot.decode_fetch(version, memoryview(data), 4) == message


def test_who_fetches() -> None:
    assert hot.fetch_replica(FetchRequest()) == (-1, -1)
    assert hot.fetch_replica(FetchRequest(replica_id=3)) == (3, -1)
    state = ReplicaState(replica_id=3, replica_epoch=8)
    assert hot.fetch_replica(FetchRequest(replica_state=state)) == (3, 8)


def ordinary_produce_response(version: int) -> Iterator[ProduceResponse]:
    for count in (0, 1, 200):
        yield ProduceResponse(
            throttle_time_ms=count,
            responses=[
                TopicProduceResponse(
                    name="" if version >= 13 else "tøpic",
                    partition_responses=[
                        PartitionProduceResponse(index=index, base_offset=index * 2, error_code=6)
                        for index in range(count)
                    ],
                )
            ]
            * min(count, 3),
        )


@pytest.mark.parametrize("version", versions(ProduceResponse))
def test_produce_responses(version: int, messages_of: Messages) -> None:
    for message in (*messages_of(ProduceResponse, version), *ordinary_produce_response(version)):
        whole = b"".join(hot.encode_produce_response(message, version, -7))
        assert whole == b"".join(encode_response(-7, message, version))


def ordinary_fetch_response(version: int) -> Iterator[FetchResponse]:
    by_id = version >= 13
    for count in (0, 1, 3, 200):
        yield FetchResponse(
            session_id=count if version >= 7 else 0,
            responses=[
                FetchableTopicResponse(
                    topic="" if by_id else "topic",
                    topic_id=b"0123456789abcdef" if by_id else bytes(16),
                    partitions=[
                        PartitionData(
                            partition_index=index,
                            high_watermark=index,
                            aborted_transactions=[] if index % 2 else None,
                            records=None if index % 3 == 0 else b"r" * index,
                        )
                        for index in range(count)
                    ],
                )
            ]
            * min(count, 3),
        )


@pytest.mark.parametrize("version", versions(FetchResponse))
def test_fetch_responses(version: int, messages_of: Messages) -> None:
    for message in (*messages_of(FetchResponse, version), *ordinary_fetch_response(version)):
        whole = b"".join(hot.encode_fetch_response(message, version, 1))
        assert whole == b"".join(encode_response(1, message, version))


def test_an_answer_about_many_quiet_partitions_costs_what_each_of_them_costs() -> None:
    """Every fetch names all that its reader follows, and most of it is quiet.

    Seen to fail: the answer was copied whole for each partition without records, so 10,000 held the
    loop for a second and 100,000 for minutes.
    """

    def seconds(count: int) -> float:
        quiet = [PartitionData(partition_index=index, records=b"") for index in range(count)]
        answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=quiet)])
        begin = time.process_time()
        hot.encode_fetch_response(answer, 12, 1)
        return time.process_time() - begin

    # Sixteen times as much where it is right, and 256 times where each is paid for by all.
    few = min(seconds(1_000) for _ in range(5))
    assert min(seconds(16_000) for _ in range(2)) < 80 * few


@pytest.mark.parametrize(
    "odd",
    [
        PartitionData(aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=2)]),
        PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)),
        PartitionData(records=b"abc", diverging_epoch=EpochEndOffset()),
    ],
)
def test_odd_partitions_are_the_tables(odd: PartitionData) -> None:
    """Goal: one odd partition among plain ones changes nothing but speed."""
    plain = PartitionData(records=b"plain")
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[plain, odd, plain])])
    whole = b"".join(hot.encode_fetch_response(response, 17, 1))
    assert whole == b"".join(encode_response(1, response, 17))
    response.node_endpoints = [LeaderNode(node_id=1, host="h", port=2)]
    whole = b"".join(hot.encode_fetch_response(response, 17, 1))
    assert whole == b"".join(encode_response(1, response, 17))
    response.node_endpoints = []
    plain_whole = b"".join(hot.encode_fetch_response(response, 15, 1))
    response.node_endpoints = [LeaderNode(node_id=1, host="h", port=2)]
    assert b"".join(hot.encode_fetch_response(response, 15, 1)) == plain_whole, "a hint is dropped"
    response.session_id = 1
    with pytest.raises(EncodeError, match="not in version 4"):
        hot.encode_fetch_response(response, 4, 1)


@pytest.mark.parametrize("version", [3, 8, 9, 10, 12])
def test_where_the_leader_is_may_be_said_to_anyone(version: int) -> None:
    """Goal: KIP-951's hint never costs an older client its answer. Method: with and without it."""
    answer = PartitionProduceResponse(error_code=6, base_offset=-1)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[answer])]
    )
    without = b"".join(hot.encode_produce_response(response, version, 1))
    answer.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=3)
    response.node_endpoints = [LeaderNode(node_id=2, host="h", port=9)]
    whole = b"".join(hot.encode_produce_response(response, version, 1))
    assert (whole != without) == (version >= 10)
    offset = 9 if version >= 9 else 8
    read = decode(ProduceResponse, version, whole, offset)
    assert read.responses[0].partition_responses[0].error_code == 6


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_damaged_produce_requests(version: int) -> None:
    """Goal: hand and table refuse the same. Method: every cut, random changes, both decoders."""
    data = encode(next(m for m in ordinary_produce(version) if len(m.topic_data) == 3), version)
    _same_verdicts(ProduceRequest, hot.decode_produce, version, data)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 15, 17, 18])
def test_damaged_fetch_requests(version: int) -> None:
    """Goal: hand and table refuse the same. Method: every cut, random changes, both decoders."""
    for message in ordinary_fetch(version):
        data = encode(message, version)
        _same_verdicts(FetchRequest, hot.decode_fetch, version, data[:2000])


def _same_verdicts(
    cls: type[Message], by_hand: Callable[..., Message], version: int, data: bytes
) -> None:
    random = Random(version)
    damaged = [data + b"\0", data + b"\0\0"]
    damaged += [data[:cut] for cut in range(0, len(data), 1 + len(data) // 200)]
    for _ in range(400):
        copy = bytearray(data)
        for _ in range(random.randrange(1, 4)):
            copy[random.randrange(len(copy))] = random.choice((0, 1, 2, 127, 128, 255))
        damaged.append(bytes(copy))
    for one in damaged:
        view = memoryview(one)
        try:
            expected = decode(cls, version, view)
        except WireError:
            with pytest.raises(WireError):
                by_hand(version, view)
        else:
            assert by_hand(version, view) == expected, one.hex()


@pytest.mark.parametrize("version", [-1, 2, 14, 32767])
def test_versions_that_do_not_exist(version: int) -> None:
    with pytest.raises(WireError, match="not known here"):
        hot.decode_produce(version, memoryview(b"\0" * 40))
    with pytest.raises(EncodeError, match="not known here"):
        hot.encode_produce_response(ProduceResponse(), version, 1)
