"""KRaft's metadata records, which no oracle knows.

Goal: the bytes are Apache Kafka's. Method: golden bytes, spelt out field by field from Kafka's
schemas; three of them stood in a log that Apache Kafka wrote. Every record also goes round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.records import (
    RECORD_CLASSES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from holdfast.wire.schema import Message
from holdfast.wire.structs import RegisteredEndpoint, RegisteredFeature
from holdfast.wire.uuids import parse_uuid

Messages = Callable[[type[Message], int], Iterator[Any]]

TOPIC = bytes.fromhex("00000000000040008000000000000091")
DIRECTORY = bytes.fromhex("10000000000040008000000000000001")
T = TOPIC.hex()
D = DIRECTORY.hex()

# (record, version, frame and message in hexadecimal)
GOLDEN: list[tuple[Record, int, str]] = [
    # These three stood in a metadata log of Apache Kafka.
    (
        FeatureLevelRecord(name="metadata.version", feature_level=20),
        0,
        "010c00 11 6d657461646174612e76657273696f6e 0014 00",
    ),
    (TopicRecord(name="saz", topic_id=TOPIC), 0, f"010200 04 73617a {T} 00"),
    (
        PartitionRecord(
            partition_id=1,
            topic_id=TOPIC,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        ),
        1,
        f"010301 00000001 {T} 02 00000001 02 00000001 01 01 00000001 00000000 00000000 02 {D} 00",
    ),
    # The rest is spelt out from the schemas.
    (
        RegisterBrokerRecord(
            broker_id=2,
            incarnation_id=DIRECTORY,
            broker_epoch=7,
            end_points=[
                RegisteredEndpoint(name="P", host="h", port=65535, security_protocol=1),
            ],
            features=[
                RegisteredFeature(name="f", min_supported_version=1, max_supported_version=20),
            ],
            rack="r",
            log_dirs=[DIRECTORY],
        ),
        3,
        (
            f"010003 00000002 00 {D} 0000000000000007 02 0250 0268 ffff 0001 00"
            f" 02 0266 0001 0014 00 0272 01 00 01 00 11 02 {D}"
        ),
    ),
    (
        RegisterBrokerRecord(broker_id=2, incarnation_id=DIRECTORY, rack=None, fenced=False),
        0,
        f"010000 00000002 {D} 0000000000000000 01 01 00 00 00",
    ),
    (
        UnregisterBrokerRecord(broker_id=2, broker_epoch=9),
        0,
        "010100 00000002 0000000000000009 00",
    ),
    (
        ConfigRecord(resource_type=2, resource_name="t", name="k", value=None),
        0,
        "010400 02 0274 026b 00 00",
    ),
    (
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1, 2], leader=1),
        2,
        f"010502 00000000 {T} 02 00 09 03 00000001 00000002 01 04 00000001",
    ),
    (
        PartitionChangeRecord(
            partition_id=0,
            topic_id=TOPIC,
            leader=-1,
            replicas=[3],
            removing_replicas=[],
            adding_replicas=[4],
            leader_recovery_state=1,
            eligible_leader_replicas=[5],
            last_known_elr=[6],
            directories=[DIRECTORY],
        ),
        2,
        (
            f"010502 00000000 {T} 08 01 04 ffffffff 02 05 02 00000003 03 01 01 04 05 02 00000004"
            f" 05 01 01 06 05 02 00000005 07 05 02 00000006 08 11 02 {D}"
        ),
    ),
    (PartitionChangeRecord(partition_id=3, topic_id=TOPIC), 0, f"010500 00000003 {T} 00"),
    (
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_recovery_state=1,
            leader_epoch=4,
            partition_epoch=5,
            eligible_leader_replicas=[2],
            last_known_elr=[],
        ),
        2,
        (
            f"010302 00000000 {T} 03 00000001 00000002 02 00000001 01 01 00000001 00000004 00000005"
            " 01 03 00 01 01 01 05 02 00000002 02 01 01"
        ),
    ),
    (FenceBrokerRecord(id=1, epoch=2), 0, "010700 00000001 0000000000000002 00"),
    (UnfenceBrokerRecord(id=1, epoch=2), 0, "010800 00000001 0000000000000002 00"),
    (RemoveTopicRecord(topic_id=TOPIC), 0, f"010900 {T} 00"),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=3000),
        0,
        "010f00 00000001 0000000000000002 0000000000000bb8 00",
    ),
    (
        BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=2, fenced=-1, in_controlled_shutdown=1
        ),
        2,
        "011102 00000001 0000000000000002 02 00 01 ff 01 01 01",
    ),
    (NoOpRecord(), 0, "011400 00"),
    (BeginTransactionRecord(name="n"), 0, "011700 01 00 02 026e"),
    (EndTransactionRecord(), 0, "011800 00"),
    (AbortTransactionRecord(), 0, "011900 00"),
    (
        RegisterControllerRecord(
            controller_id=100,
            incarnation_id=DIRECTORY,
            end_points=[
                RegisteredEndpoint(name="C", host="h", port=9, security_protocol=0),
            ],
            features=[
                RegisteredFeature(name="f", min_supported_version=0, max_supported_version=1),
            ],
        ),
        0,
        f"011b00 00000064 {D} 00 02 0243 0268 0009 0000 00 02 0266 0000 0001 00 00",
    ),
    (ClearElrRecord(topic_name="t"), 0, "011c00 0274 00"),
]


@pytest.mark.parametrize(("record", "version", "text"), GOLDEN)
def test_golden_bytes(record: Record, version: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_record(record, version) == data
    assert decode_record(memoryview(data)) == record


def test_every_record_has_golden_bytes() -> None:
    assert {type(record) for record, _, _ in GOLDEN} == set(RECORD_CLASSES.values())


@pytest.mark.parametrize("cls", RECORD_CLASSES.values())
def test_every_version_goes_round(cls: type[Record], messages_of: Messages) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for record in messages_of(cls, version):
            data = encode_record(record, version)
            assert decode_record(data) == record
            assert decode(cls, version, data, 3) == record
            assert encode(record, version) == data[3:]
    assert encode_record(cls()) == encode_record(cls(), cls.MAX_VERSION)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "truncated"),
        ("000200", "frame version 0"),
        ("020200", "frame version 2"),
        ("01ff7f00", "key 16383 is not known"),
        ("010209", "version 9 is not known"),
        ("01028080808000", "version"),
        ("010200", "truncated"),
        (f"010200 04 73617a {T} 00 00", "behind the end"),
    ],
)
def test_bad_records(text: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode_record(bytes.fromhex(text))


def test_what_a_version_can_not_carry() -> None:
    """Goal: nothing is lost without a word. Method: fields that Kafka does not call ignorable."""
    change = PartitionChangeRecord(topic_id=TOPIC, directories=[DIRECTORY])
    with pytest.raises(EncodeError, match="directories is not in version 0"):
        encode_record(change, 0)
    moved = BrokerRegistrationChangeRecord(in_controlled_shutdown=1)
    with pytest.raises(EncodeError, match="in_controlled_shutdown is not in version 0"):
        encode_record(moved, 0)


def test_the_metadata_topic_has_its_id() -> None:
    assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\1"
