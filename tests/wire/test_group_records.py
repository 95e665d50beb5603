"""Records of `__consumer_offsets`, which no oracle knows.

Goal: the bytes are Apache Kafka's, and a reader tells what it may pass over from what is damaged.
Method: golden bytes of every type and version, spelt out field by field from Kafka's schemas; one
stood in a log of Kafka 4.1. Every record also goes round, is cut, and is changed at random.

Rules: group-records.md#frame, group-records.md#written-versions, group-records.md#unknown-types.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.records.group_records import (
    KEY_CLASSES,
    VALUE_CLASSES,
    UnknownRecordTypeError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    written_version,
)
from holdfast.wire.records.group_tables import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTopicMetadata,
    CurrentTopicPartitions,
    GroupKey,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    GroupValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRacks,
    TargetTopicPartitions,
)
from holdfast.wire.schema import Message

Messages = Callable[[type[Message], int], Iterator[Any]]

TOPIC = bytes.fromhex("00000000000040008000000000000091")
T = TOPIC.hex()

KEYS: list[tuple[GroupKey, str]] = [
    (LegacyOffsetCommitKey(group="g", topic="t", partition=1), "0000 000167 000174 00000001"),
    (OffsetCommitKey(group="g", topic="t", partition=1), "0001 000167 000174 00000001"),
    (GroupMetadataKey(group="g"), "0002 000167"),
    (ConsumerGroupMetadataKey(group_id="g"), "0003 000167"),
    (ConsumerGroupPartitionMetadataKey(group_id="g"), "0004 000167"),
    (ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), "0005 000167 00016d"),
    (ConsumerGroupTargetAssignmentMetadataKey(group_id="g"), "0006 000167"),
    (ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), "0007 000167 00016d"),
    (ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), "0008 000167 00016d"),
    (
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t."),
        "0010 000167 0002742e",
    ),
]


def classic(version: int) -> GroupMetadataValue:
    """A classic group of one member, with what a version has of it."""
    member = GroupMetadataMember(
        member_id="m",
        group_instance_id="s" if version >= 3 else None,
        client_id="i",
        client_host="/",
        rebalance_timeout=20 if version >= 1 else 0,
        session_timeout=10,
        subscription=b"\xaa",
        assignment=b"\xbb\xcc",
    )
    return GroupMetadataValue(
        protocol_type="c",
        generation=7,
        protocol="r",
        leader="m",
        current_state_timestamp=99 if version >= 2 else -1,
        members=[member],
    )


VALUES: list[tuple[GroupValue, int, str]] = [
    (
        LegacyOffsetCommitValue(offset=5, metadata="m", commit_timestamp=9),
        0,
        "0000 0000000000000005 00016d 0000000000000009",
    ),
    (
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9),
        0,
        "0000 0000000000000005 00016d 0000000000000009",
    ),
    (
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, expire_timestamp=11),
        1,
        "0001 0000000000000005 00016d 0000000000000009 000000000000000b",
    ),
    (
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9),
        2,
        "0002 0000000000000005 00016d 0000000000000009",
    ),
    (
        OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9),
        3,
        "0003 0000000000000005 00000002 00016d 0000000000000009",
    ),
    (
        OffsetCommitValue(
            offset=5, leader_epoch=2, metadata="m", commit_timestamp=9, topic_id=TOPIC
        ),
        4,
        f"0004 0000000000000005 00000002 026d 0000000000000009 01 00 10 {T}",
    ),
    (
        # Kafka 4.1 wrote this one, of a topic whose id it was not told.
        OffsetCommitValue(offset=2_217_128, commit_timestamp=1_758_335_260_726),
        4,
        "0004 000000000021d4a8 ffffffff 01 0000019964f2d836 00",
    ),
    (
        classic(0),
        0,
        (
            "0000 000163 00000007 000172 00016d 00000001"
            " 00016d 000169 00012f 0000000a 00000001aa 00000002bbcc"
        ),
    ),
    (
        classic(1),
        1,
        (
            "0001 000163 00000007 000172 00016d 00000001"
            " 00016d 000169 00012f 00000014 0000000a 00000001aa 00000002bbcc"
        ),
    ),
    (
        classic(2),
        2,
        (
            "0002 000163 00000007 000172 00016d 0000000000000063 00000001"
            " 00016d 000169 00012f 00000014 0000000a 00000001aa 00000002bbcc"
        ),
    ),
    (
        classic(3),
        3,
        (
            "0003 000163 00000007 000172 00016d 0000000000000063 00000001"
            " 00016d 000173 000169 00012f 00000014 0000000a 00000001aa 00000002bbcc"
        ),
    ),
    (
        classic(4),
        4,
        (
            "0004 0263 00000007 0272 026d 0000000000000063 02"
            " 026d 0273 0269 022f 00000014 0000000a 02aa 03bbcc 00 00"
        ),
    ),
    (
        GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=99),
        3,
        "0003 0000 00000000 ffff ffff 0000000000000063 00000000",
    ),
    (ConsumerGroupMetadataValue(epoch=3), 0, "0000 00000003 00"),
    (
        ConsumerGroupMetadataValue(epoch=3, metadata_hash=-2),
        0,
        "0000 00000003 01 00 08 fffffffffffffffe",
    ),
    (
        ConsumerGroupPartitionMetadataValue(
            topics=[
                ConsumerGroupTopicMetadata(
                    topic_id=TOPIC,
                    topic_name="t",
                    num_partitions=3,
                    partition_metadata=[PartitionRacks(partition=0, racks=["r"])],
                )
            ]
        ),
        0,
        f"0000 02 {T} 0274 00000003 02 00000000 02 0272 00 00 00",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id="s",
            rack_id=None,
            client_id="i",
            client_host="/",
            subscribed_topic_regex="x.*",
            server_assignor="uniform",
        ),
        0,
        "0000 0273 00 0269 022f 01 04782e2a ffffffff 08756e69666f726d 00",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="i",
            client_host="/",
            subscribed_topic_regex="",
            rebalance_timeout_ms=60_000,
            server_assignor=None,
            classic_member_metadata=None,  # Apache Kafka writes it so for any other member
        ),
        0,
        "0000 00 00 0269 022f 01 01 0000ea60 00 01 00 01 00",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="i",
            client_host="/",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=1000,
            server_assignor=None,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=10,
                supported_protocols=[ClassicProtocol(name="a", metadata=b"\xff")],
            ),
        ),
        0,
        "0000 00 0272 0269 022f 02 0274 00 000003e8 00 01 00 0c 01 0000000a 02 0261 02ff 00 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        0,
        "0000 00000004 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4, assignment_timestamp=9),
        0,
        "0000 00000004 01 00 08 0000000000000009",
    ),
    (
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TargetTopicPartitions(topic_id=TOPIC, partitions=[0, 2])]
        ),
        0,
        f"0000 02 {T} 03 00000000 00000002 00 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=1,
            assigned_partitions=[
                CurrentTopicPartitions(topic_id=TOPIC, partitions=[0], assignment_epochs=[5])
            ],
            partitions_pending_revocation=[CurrentTopicPartitions(topic_id=TOPIC, partitions=[1])],
        ),
        0,
        (
            f"0000 00000005 00000004 01 02 {T} 02 00000000 01 00 05 02 00000005"
            f" 02 {T} 02 00000001 00 00"
        ),
    ),
    (
        ConsumerGroupRegularExpressionValue(topics=["t"], version=7, timestamp=9),
        0,
        "0000 02 0274 0000000000000007 0000000000000009 00",
    ),
]


def key_of(value: GroupValue) -> GroupKey:
    return KEY_CLASSES[value.KEY]()


@pytest.mark.parametrize(("key", "text"), KEYS)
def test_golden_keys(key: GroupKey, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_key(key) == data
    found = decode_key(memoryview(data))
    assert found == key
    assert type(found) is type(key)


@pytest.mark.parametrize(("value", "version", "text"), VALUES)
def test_golden_values(value: GroupValue, version: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_value(value, version) == data
    found = decode_value(key_of(value), memoryview(data))
    assert found == value
    assert type(found) is type(value)


def test_every_record_has_golden_bytes() -> None:
    assert [type(key) for key, _ in KEYS] == [*KEY_CLASSES.values()]
    assert KEY_CLASSES.keys() == VALUE_CLASSES.keys() == {*range(9), 16}
    golden = {(type(value), version) for value, version, _ in VALUES}
    assert golden == {
        (cls, version)
        for cls in VALUE_CLASSES.values()
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
    }


@pytest.mark.parametrize("record_type", KEY_CLASSES)
def test_every_version_goes_round(record_type: int, messages_of: Messages) -> None:
    for key in messages_of(KEY_CLASSES[record_type], 0):
        assert decode_key(encode_key(key)) == key
    cls = VALUE_CLASSES[record_type]
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for value in messages_of(cls, version):
            assert decode_value(key_of(value), encode_value(value, version)) == value


# --- which version is written ---------------------------------------------------------------


def test_versions_that_are_written() -> None:
    written = {cls: written_version(cls()) for cls in VALUE_CLASSES.values()}
    others = {cls: version for cls, version in written.items() if version}
    assert others == {OffsetCommitValue: 4, GroupMetadataValue: 3}
    for cls, version in written.items():
        assert encode_value(cls()) == encode_value(cls(), version)


def test_an_offset_that_expires_is_written_in_version_1() -> None:
    """What that version lacks gets lost there, as in Kafka: leader epoch and topic id."""
    value = OffsetCommitValue(offset=5, leader_epoch=2, expire_timestamp=0, topic_id=TOPIC)
    data = encode_value(value)
    assert data == encode_value(OffsetCommitValue(offset=5, expire_timestamp=0), 1)
    assert encode_value(LegacyOffsetCommitValue(expire_timestamp=0))[:2] == b"\0\0"


def test_what_older_versions_leave_out() -> None:
    """Goal: fields that Kafka calls ignorable are. Method: a whole group in each version."""
    for version in range(5):
        data = encode_value(classic(4), version)
        assert data == encode_value(classic(version), version)
        assert decode_value(GroupMetadataKey(), data) == classic(version)


def test_versions_that_are_not_there() -> None:
    with pytest.raises(EncodeError, match="version 5 is not known here"):
        encode_value(OffsetCommitValue(), 5)
    with pytest.raises(EncodeError, match="version 1 is not known here"):
        encode_value(ConsumerGroupMetadataValue(), 1)


# --- what can't be read ---------------------------------------------------------------------


@pytest.mark.parametrize("record_type", [9, 11, 15, 17, 32767, -1, -32768])
def test_unknown_types_are_told_apart(record_type: int) -> None:
    """Types 9 to 15 and from 17 on are those of share groups and streams groups."""
    data = record_type.to_bytes(2, "big", signed=True)
    for rest in (b"", b"\x00\x01g", b"\xff" * 40):
        with pytest.raises(UnknownRecordTypeError, match=f"type {record_type} is not known"):
            decode_key(data + rest)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has 0 bytes"),
        ("00", "has 1 bytes"),
        ("0001", "OffsetCommitKey version 0: truncated"),
        ("0001 000167 000174 000000", "truncated"),
        ("0001 000167 ffff 00000001", "topic is null"),
        ("0002 000167 00", "bytes behind the end"),
        ("0002 7fff67", "group is longer than what remains"),
        ("0002 0001ff", "not UTF-8"),
    ],
)
def test_damaged_keys(text: str, why: str) -> None:
    with pytest.raises(WireError, match=why) as caught:
        decode_key(bytes.fromhex(text))
    assert not isinstance(caught.value, UnknownRecordTypeError)


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (OffsetCommitKey(), "", "OffsetCommitValue has 0 bytes"),
        (OffsetCommitKey(), "00", "OffsetCommitValue has 1 bytes"),
        (OffsetCommitKey(), "0005", "OffsetCommitValue version 5 is not known here"),
        (OffsetCommitKey(), "ffff", "OffsetCommitValue version -1 is not known here"),
        (OffsetCommitKey(), "0003 0000", "OffsetCommitValue version 3: truncated"),
        (LegacyOffsetCommitKey(), "0001", "LegacyOffsetCommitValue version 1 is not known here"),
        (GroupMetadataKey(), "0003 ffff", "protocol_type is null"),
        (GroupMetadataKey(), "0003 0000 00000000 ffff ffff 0000000000000063 ffffffff", "is null"),
        (ConsumerGroupMetadataKey(), "0001 00000003 00", "version 1 is not known here"),
        (ConsumerGroupMetadataKey(), "0000 00000003 00 00", "bytes behind the end"),
        (ConsumerGroupMetadataKey(), "0000 00000003 01 00 04 00000001", "truncated"),
    ],
)
def test_damaged_values(key: GroupKey, text: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode_value(key, bytes.fromhex(text))


def test_what_a_newer_kafka_adds_is_skipped() -> None:
    """Kafka 4.4 tells when a group was made, in a tagged field that is not known here."""
    data = bytes.fromhex("0000 00000003 02 00 08 fffffffffffffffe 01 08 0000000000000063")
    found = decode_value(ConsumerGroupMetadataKey(), data)
    assert found == ConsumerGroupMetadataValue(epoch=3, metadata_hash=-2)


def test_cuts_and_changes() -> None:
    """Goal: nothing but a WireError comes out. Method: all golden bytes, cut and changed."""
    random = Random("group records")
    for _, text in KEYS:
        data = bytes.fromhex(text)
        for cut in range(len(data)):
            with pytest.raises(WireError):
                decode_key(data[:cut])
        for changed in changes(random, data):
            reads_or_refuses(decode_key, changed)
    for value, _, text in VALUES:
        data, key = bytes.fromhex(text), key_of(value)
        for cut in range(len(data)):
            with pytest.raises(WireError):
                decode_value(key, data[:cut])
        for changed in changes(random, data):
            reads_or_refuses(lambda data, key=key: decode_value(key, data), changed)  # type: ignore[misc]


def changes(random: Random, data: bytes) -> Iterator[bytes]:
    for _ in range(40):
        copy = bytearray(data)
        at = random.randrange(len(copy))
        if random.random() < 0.3:
            copy[at : at + 4] = random.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"))
        else:
            copy[at] = random.randrange(256)
        yield bytes(copy)


def reads_or_refuses(read: Callable[[bytes], Message], data: bytes) -> None:
    try:
        found = read(data)
    except WireError:
        return
    assert isinstance(found, GroupKey | GroupValue)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (GroupMetadataKey(), "0003 0000 00000000 ffff ffff 0000000000000063 7fffffff"),
        (GroupMetadataKey(), "0004 01 00000000 00 00 0000000000000063 ffffffff0f"),
        (ConsumerGroupPartitionMetadataKey(), "0000 ffffffff0f"),
        (ConsumerGroupMemberMetadataKey(), "0000 00 00 01 01 ffffffff0f"),
        (ConsumerGroupTargetAssignmentMemberKey(), f"0000 02 {T} ffffffff0f"),
        (ConsumerGroupCurrentMemberAssignmentKey(), "0000 00000000 00000000 00 ffffffff0f"),
        (ConsumerGroupRegularExpressionKey(), "0000 ffffffff0f"),
    ],
)
def test_giant_lengths_allocate_nothing(key: GroupKey, text: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(WireError):
        decode_value(key, data)  # once before measuring: the decoder itself takes memory
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode_value(key, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000
