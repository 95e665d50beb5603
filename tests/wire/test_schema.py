"""Message classes: constructors, defaults, equality, what a version can't carry."""

from __future__ import annotations

import pytest

from holdfast.wire.codec import decode, encode, encode_buffers
from holdfast.wire.errors import (
    INDEFINITE,
    RETRIABLE,
    EncodeError,
    ErrorCode,
    error_code,
    error_name,
)
from holdfast.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from holdfast.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.structs import LeaderIdAndEpoch
from holdfast.wire.uuids import METADATA_TOPIC_ID, NULL_UUID, parse_uuid, uuid_text


def test_defaults_are_kafkas() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (-1, 2**31 - 1, -1)
    assert request.replica_state.replica_epoch == -1
    assert MetadataResponse().cluster_authorized_operations == -(2**31)
    assert MetadataRequest().allow_auto_topic_creation is True


def test_lists_are_not_shared() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(None)  # type: ignore[arg-type]
    assert other.topics == []
    read = decode(FetchRequest, 17, encode(other, 17))
    read.forgotten_topics_data.append(None)  # type: ignore[arg-type]
    assert decode(FetchRequest, 17, encode(other, 17)).forgotten_topics_data == []


def test_default_structs_are_shared_and_can_not_be_changed() -> None:
    partition = PartitionData()
    assert partition.current_leader is PartitionData().current_leader
    with pytest.raises(AttributeError, match="assign a new struct"):
        partition.current_leader.leader_id = 5
    partition.current_leader = LeaderIdAndEpoch(leader_id=5)
    assert PartitionData().current_leader == LeaderIdAndEpoch()


def test_constructors_take_known_keywords_only() -> None:
    with pytest.raises(TypeError):
        FetchRequest(no_such_field=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchRequest(None)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchRequest().no_such_field = 1  # type: ignore[attr-defined]


def test_equality_and_text() -> None:
    assert FetchRequest(min_bytes=1) == FetchRequest(min_bytes=1)
    assert FetchRequest(min_bytes=1) != FetchRequest(min_bytes=2)
    assert EpochEndOffset() != LeaderIdAndEpoch()
    assert FetchRequest() != 1
    assert repr(Cursor(topic_name="t")) == "Cursor(topic_name='t', partition_index=0)"
    assert "<70 bytes>" in repr(PartitionData(records=b"x" * 70))
    with pytest.raises(TypeError):
        hash(FetchRequest())


def test_what_a_version_can_not_carry() -> None:
    partition = FetchPartition(last_fetched_epoch=4)
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[partition])])
    assert decode(FetchRequest, 12, encode(request, 12)) == request
    with pytest.raises(EncodeError, match="last_fetched_epoch is not in version 11"):
        encode(request, 11)
    state = FetchRequest(replica_id=3)
    with pytest.raises(EncodeError, match="replica_id is not in version 17"):
        encode(state, 17)
    with pytest.raises(EncodeError, match="session_id is not in version 4"):
        encode(FetchResponse(session_id=4), 4)
    # Kafka calls a rack ignorable: an old version loses it without a word.
    assert decode(FetchRequest, 4, encode(FetchRequest(rack_id="r"), 4)).rack_id == ""


@pytest.mark.parametrize(
    ("message", "version", "why"),
    [
        (MetadataRequest(topics=None), 0, "topics can't be null in version 0"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, "name can't be null"),
        (MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"abc", name="t")]), 12, "16 bytes"),
        (FetchRequest(min_bytes=2**31), 12, "can't hold that"),
        (CreateTopicsRequest(topics=[CreatableTopic(name="x" * 40_000)]), 4, "can't hold that"),
        (CreateTopicsRequest(topics=[CreatableTopic(name="\ud800")]), 7, "can't hold that"),
        (CreateTopicsRequest(topics=[CreatableTopic(name=5)]), 7, "can't hold that"),  # type: ignore[arg-type]
        (CreateTopicsRequest(), 8, "version 8 is not known here"),
        (CreateTopicsRequest(), 1, "version 1 is not known here"),
    ],
)
def test_our_own_mistakes_are_named(message: FetchRequest, version: int, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        encode(message, version)


def test_a_nullable_struct() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=4)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request


def test_records_are_neither_copied_in_nor_out() -> None:
    records = b"r" * 1000
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=i, records=records)] * 2
            )
            for i in range(2)
        ]
    )
    for version in (3, 9):
        buffers = encode_buffers(request, version)
        assert [buffer is records for buffer in buffers].count(True) == 4
        frame = bytearray(b"".join(buffers))
        assert b"".join(buffers) == encode(request, version)
        read = decode(ProduceRequest, version, frame)
        view = read.topic_data[0].partition_data[0].records
        assert isinstance(view, memoryview)
        assert view == records
        assert view.obj is frame
        assert not view.readonly, "offsets are assigned in place"


def test_responses_without_records_are_one_buffer() -> None:
    assert len(encode_buffers(MetadataResponse(), 12)) == 1
    empty = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
    assert len(encode_buffers(empty, 12)) == 1


def test_uuids() -> None:
    assert uuid_text(NULL_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == METADATA_TOPIC_ID
    some = bytes(range(240, 256))
    assert parse_uuid(uuid_text(some)) == some
    for bad in ("", "A" * 21, "A" * 23, "A" * 21 + "!", "A" * 21 + "B", "é" * 22, "A" * 20 + "=="):
        with pytest.raises(ValueError, match="UUID"):
            parse_uuid(bad)


def test_error_codes() -> None:
    from kio.schema.errors import ErrorCode as KioErrorCode  # noqa: PLC0415

    assert {code.name.lower(): int(code) for code in ErrorCode} == {
        code.name: int(code) for code in KioErrorCode
    }
    assert {int(code) for code in RETRIABLE} == {int(c) for c in KioErrorCode if c.retriable}
    assert error_code(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_code(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (error_name(3), error_name(9999)) == ("UNKNOWN_TOPIC_OR_PARTITION", "error 9999")
    assert {int(code) for code in INDEFINITE} == {-1, 6, 7, 13, 20, 56}
