"""What consumers of classic groups embed: subscriptions and assignments.

Goal: the bytes are those of other clients, whichever version they speak. Method: kio and
kafka-python encode and decode the same; golden bytes stand for versions that nobody knows yet.

Rules: group-records.md#embedded-consumer-protocol.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from random import Random
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer
from tests.wire.test_messages_oracles import _Sink, kafka_python_class, to_kafka_python, to_kio

from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.schema import Message

Messages = Callable[[type[Message], int], Iterator[Any]]
Encode = Callable[..., bytes]
Decode = Callable[[bytes], Message]

FORMATS: list[tuple[type[Message], str, Encode, Decode]] = [
    (
        ConsumerProtocolSubscription,
        "consumer_protocol_subscription",
        encode_subscription,
        decode_subscription,
    ),
    (
        ConsumerProtocolAssignment,
        "consumer_protocol_assignment",
        encode_assignment,
        decode_assignment,
    ),
]
WANTS = ConsumerProtocolSubscription(
    topics=["t"],
    user_data=b"\xaa",
    owned_partitions=[ConsumerTopicPartitions(topic="o", partitions=[1, 2])],
    generation_id=7,
    rack_id="r",
)
WANTS_BYTES = (
    "0003 00000001 000174 00000001aa 00000001 00016f 00000002 00000001 00000002 00000007 000172"
)
GETS = ConsumerProtocolAssignment(
    assigned_partitions=[ConsumerTopicPartitions(topic="t", partitions=[0])]
)
GETS_BYTES = "0003 00000001 000174 00000001 00000000 ffffffff"


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(("cls", "folder", "encode", "decode"), FORMATS)
def test_same_bytes_as_both_oracles(
    cls: type[Message],
    folder: str,
    encode: Encode,
    decode: Decode,
    version: int,
    messages_of: Messages,
) -> None:
    kio_class = getattr(import_module(f"kio.schema.{folder}.v{version}.data"), cls.__name__)
    write, read = entity_writer(kio_class), entity_reader(kio_class)
    theirs = kafka_python_class(cls)
    for message in messages_of(cls, version):
        data = encode(message, version)
        other = to_kio(message, kio_class)
        written = bytearray()
        write(_Sink(written), other)
        assert data == version.to_bytes(2, "big") + written
        assert read(data, 2) == (other, len(data) - 2)
        another = to_kafka_python(message, theirs, version)
        assert data == bytes(another.encode(version=version))
        assert theirs.decode(data) == another
        assert decode(data) == message


def test_golden_bytes() -> None:
    assert encode_subscription(WANTS) == bytes.fromhex(WANTS_BYTES)
    assert encode_assignment(GETS) == bytes.fromhex(GETS_BYTES)
    assert decode_subscription(memoryview(bytes.fromhex(WANTS_BYTES))) == WANTS
    assert decode_assignment(memoryview(bytes.fromhex(GETS_BYTES))) == GETS


def test_older_versions_leave_out_what_they_lack() -> None:
    kept = decode_subscription(encode_subscription(WANTS, 0))
    assert kept == ConsumerProtocolSubscription(topics=["t"], user_data=b"\xaa")
    assert decode_subscription(encode_subscription(WANTS, 1)).generation_id == -1
    assert decode_subscription(encode_subscription(WANTS, 2)).rack_id is None


@pytest.mark.parametrize("version", ["0004", "0007", "7fff"])
def test_a_newer_version_is_read_as_the_last_known(version: str) -> None:
    """Goal: new consumers and old ones share a group. Method: fields that are not known, behind."""
    for more in ("", "00", "0001aa ffffffff"):
        assert decode_subscription(bytes.fromhex(version + WANTS_BYTES[4:] + more)) == WANTS
        assert decode_assignment(bytes.fromhex(version + GETS_BYTES[4:] + more)) == GETS


@pytest.mark.parametrize("version", range(4))
def test_bytes_behind_a_known_version_are_left(version: int) -> None:
    data = encode_subscription(WANTS, version)
    assert decode_subscription(data + b"\0\1") == decode_subscription(data)
    data = encode_assignment(GETS, version)
    assert decode_assignment(data + b"\0\1") == GETS


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (decode_subscription, "", "has 0 bytes"),
        (decode_subscription, "00", "has 1 bytes"),
        (decode_subscription, "ffff 00000000 ffffffff", "version -1 is negative"),
        (decode_subscription, "0000 ffffffff ffffffff", "topics is null"),
        (decode_subscription, "0000 00000001 ffff ffffffff", "null"),
        (decode_subscription, "0000 00000001 0001ff ffffffff", "not UTF-8"),
        (decode_subscription, "0001 00000000 ffffffff 00000001 0000 ffffffff", "is null"),
        (decode_subscription, "0000 00000000 7fffffff", "longer than what remains"),
        (decode_assignment, "", "has 0 bytes"),
        (decode_assignment, "8000 00000000 ffffffff", "version -32768 is negative"),
        (decode_assignment, "0000 ffffffff ffffffff", "assigned_partitions is null"),
        (decode_assignment, "0000 00000000 7fffffff", "longer than what remains"),
    ],
)
def test_what_is_damaged(read: Decode, text: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        read(bytes.fromhex(text))


@pytest.mark.parametrize(("read", "text"), [
    (decode_subscription, WANTS_BYTES), (decode_assignment, GETS_BYTES),
])  # fmt: skip
def test_cuts_and_changes(read: Decode, text: str) -> None:
    random = Random(text)
    whole = bytes.fromhex(text)
    for cut in range(len(whole)):
        with pytest.raises(WireError):
            read(whole[:cut])
    for _ in range(400):
        data = bytearray(whole)
        at = random.randrange(len(data))
        if random.random() < 0.3:
            data[at : at + 4] = b"\x7f\xff\xff\xff"
        else:
            data[at] = random.randrange(256)
        try:
            read(bytes(data))
        except WireError:
            continue


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (decode_subscription, "0000 7fffffff"),
        (decode_subscription, "0000 7fffffff 0000 0000 0000"),
        (decode_subscription, "0001 00000000 ffffffff 7fffffff"),
        (decode_subscription, "0001 00000000 ffffffff 00000001 0000 7fffffff"),
        (decode_assignment, "0000 7fffffff"),
        (decode_assignment, "0000 00000001 0000 7fffffff"),
    ],
)
def test_giant_lengths_allocate_nothing(read: Decode, text: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(WireError):
        read(data)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000


def test_a_version_that_is_not_there_is_not_written() -> None:
    with pytest.raises(EncodeError, match="version 4 is not known here"):
        encode_subscription(WANTS, 4)
    with pytest.raises(EncodeError, match="version -1 is not known here"):
        encode_assignment(GETS, -1)
