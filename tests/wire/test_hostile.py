"""Hostile bytes: every decoder raises WireError or returns a message, in bounded memory.

Goal: an unauthenticated peer can neither crash a node nor make it allocate. Method: every message
version is cut everywhere and changed at random; lengths of gigabytes are put where lengths
stand; memory is measured.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from holdfast.wire.codec import decode, encode
from holdfast.wire.decoder import ELEMENTS_MAX, STRING_BYTES_MAX
from holdfast.wire.errors import WireError
from holdfast.wire.frame import decode_request_header, encode_request
from holdfast.wire.hot import decode_fetch
from holdfast.wire.messages import API_NAMES, request_class, response_class
from holdfast.wire.messages.alter_partition import AlterPartitionRequest
from holdfast.wire.messages.create_topics import CreateTopicsRequest
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest
from holdfast.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from holdfast.wire.messages.produce import ProduceRequest
from holdfast.wire.primitives import TAGS_MAX, read_uvarint, uvarint
from holdfast.wire.records import RECORD_CLASSES, PartitionRecord
from holdfast.wire.schema import Message

Messages = Callable[[type[Message], int], Iterator[Any]]

CLASSES: list[type[Message]] = [
    *(request_class(key) for key in API_NAMES),
    *(response_class(key) for key in API_NAMES),
    *RECORD_CLASSES.values(),
]
GIANT = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x08")


def try_decode(cls: type[Message], version: int, data: bytes) -> None:
    """Decode and, if that succeeds, encode again: what was accepted can be said again."""
    try:
        message = decode(cls, version, data)
    except WireError:
        return
    again = encode(message, version)
    assert decode(cls, version, again) == message


@pytest.mark.parametrize("cls", CLASSES)
def test_cuts_and_changes(cls: type[Message], messages_of: Messages) -> None:
    random = Random(cls.__name__)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for index, message in enumerate(messages_of(cls, version)):
            data = encode(message, version)
            for cut in range(0, len(data), 1 + len(data) // 12):
                with pytest.raises(WireError):
                    decode(cls, version, data[:cut])
            with pytest.raises(WireError, match="behind the end"):
                decode(cls, version, data + b"\0")
            for _ in range(8):
                copy = bytearray(data)
                if not copy:
                    break
                at = random.randrange(len(copy))
                if random.random() < 0.3:
                    copy[at : at + 4] = random.choice(GIANT)
                else:
                    copy[at] = random.randrange(256)
                try_decode(cls, version, bytes(copy))
            if index > 5:
                break
        try_decode(cls, version, random.randbytes(random.randrange(60)))


@pytest.mark.parametrize("filler", [b"\xff", b"\x7f", b"\x80", b"\x01", b"\x02", b"\0"])
@pytest.mark.parametrize("cls", CLASSES)
def test_the_same_byte_for_ever(cls: type[Message], filler: bytes) -> None:
    for version in {cls.MIN_VERSION, cls.FLEXIBLE, cls.MAX_VERSION}:
        if cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            try_decode(cls, version, filler * 300)


@pytest.mark.parametrize(
    ("cls", "version", "text"),
    [
        (MetadataRequest, 0, "7fffffff"),
        (MetadataRequest, 8, "7fffffff 0000"),
        (MetadataRequest, 12, "ffffffff0f"),
        (MetadataRequest, 12, "02" + "00" * 16 + "ffffffff0f"),
        (MetadataRequest, 12, "80808080808001"),
        (CreateTopicsRequest, 4, "7fffffff"),
        (CreateTopicsRequest, 7, "ffffffff0f"),
        (ProduceRequest, 9, "00 ffff 00000000 ffffffff0f"),
        (ProduceRequest, 9, "00 ffff 00000000 02 0274 02 00000000 ffffffff0f"),
        (ProduceRequest, 3, "ffff ffff 00000000 7fffffff"),
        (ProduceRequest, 3, "ffff ffff 00000000 00000001 000174 00000001 00000000 7fffffff"),
        (AlterPartitionRequest, 3, "00000000 0000000000000000 ffffffff0f"),
        (DescribeTopicPartitionsRequest, 0, "ffffffff0f"),
        (MetadataResponse, 12, "00000000 ffffffff0f"),
        (MetadataRequest, 12, "01 00 00 ffffffff0f"),
        # a list of ids, which would be filled with empty ones
        (PartitionRecord, 1, "00000000" + "00" * 16 + "01010101" + "00" * 12 + "a08d06"),
        (MetadataRequest, 12, "01 00 00 01 05 ffffffff0f"),
    ],
)
def test_giant_lengths_allocate_nothing(cls: type[Message], version: int, text: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(WireError):
        decode(cls, version, data)  # once before measuring: the decoder itself takes memory
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(cls, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000


@pytest.mark.parametrize(
    ("cls", "version", "text", "why"),
    [
        (MetadataRequest, 0, "ffffffff", "topics is null"),
        (CreateTopicsRequest, 5, "00", "topics is null"),
        (CreateTopicsRequest, 2, "00000001 ffff" + "00" * 30, "name is null"),
        (MetadataRequest, 1, "00000001 0001 ff", "not UTF-8"),
        (MetadataRequest, 9, "02 02 ff 00 00 00 00 00", "not UTF-8"),
        (ProduceRequest, 9, "00 ffff 00000000 02 00" + "00" * 9, "name is null"),
        (MetadataRequest, 14, "", "version 14 is not known here"),
        (MetadataRequest, -1, "", "version -1 is not known here"),
    ],
)
def test_what_is_wrong_is_said(cls: type[Message], version: int, text: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode(cls, version, bytes.fromhex(text))


def test_unknown_tagged_fields_are_skipped() -> None:
    """Goal: KIP-482. Method: tags that nobody knows, in the request and in a nested struct."""
    plain = bytes.fromhex("02" + "00" * 16 + "0274 00 01 00 00")
    tagged = bytes.fromhex("02" + "00" * 16 + "0274 02 05 03 aabbcc 63 00 01 00 01 07 01 ff")
    assert decode(MetadataRequest, 12, tagged) == decode(MetadataRequest, 12, plain)


def test_known_tagged_fields_beside_unknown_ones() -> None:
    cls = FetchRequest
    message = FetchRequest(cluster_id="c")
    data = encode(message, 17)
    assert data.endswith(bytes.fromhex("01 00 02 0263"))
    more = data[:-5] + bytes.fromhex("02 00 02 0263 0a 02 ffff")
    assert decode(cls, 17, more) == message
    with pytest.raises(WireError, match="size is wrong"):
        decode(cls, 17, data[:-5] + bytes.fromhex("01 00 03 0263 00"))


def test_varints() -> None:
    for value in (0, 1, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, 2**28, 2**32 - 1):
        data = uvarint(value)
        assert read_uvarint(data, 0) == (value, len(data))
        for cut in range(len(data)):
            with pytest.raises(WireError, match="truncated"):
                read_uvarint(data[:cut], 0)
    for text, why in (("ffffffff1f", "32 bits"), ("808080808000", "5 bytes")):
        with pytest.raises(WireError, match=why):
            read_uvarint(bytes.fromhex(text), 0)


def named(*counts: int) -> FetchRequest:
    """A fetch of so many partitions of each topic."""
    one = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
    topics = [FetchTopic(topic=f"t{at}", partitions=one * n) for at, n in enumerate(counts)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)


TOO_MANY: list[tuple[Message, int]] = [
    (FindCoordinatorRequest(coordinator_keys=[""] * (ELEMENTS_MAX + 1)), 4),
    (DeleteTopicsRequest(topic_names=[""] * (ELEMENTS_MAX + 1), timeout_ms=0), 1),
    (OffsetFetchRequest(group_id="", topics=[
        OffsetFetchRequestTopic(name="", partition_indexes=[0] * (ELEMENTS_MAX // 2)),
    ] * 2), 6),
    (named(*[0] * (ELEMENTS_MAX + 1)), 11),
    (named(ELEMENTS_MAX // 2, ELEMENTS_MAX // 2), 4),
    (named(*[0] * (ELEMENTS_MAX + 1)), 12),
    (named(ELEMENTS_MAX // 2, ELEMENTS_MAX // 2), 12),
]  # fmt: skip


@pytest.mark.parametrize(("message", "version"), TOO_MANY)
def test_elements_are_counted_over_all_arrays_of_a_request(message: Message, version: int) -> None:
    """An empty text has one byte: without a count, 4 MB become gigabytes with their answer."""
    data = encode(message, version)
    read = decode_fetch if isinstance(message, FetchRequest) else partial(decode, type(message))
    with pytest.raises(WireError, match="ask for less at a time"):
        read(version, memoryview(data))


def tags(count: int) -> bytes:
    """A block of so many tagged fields, each unknown and empty."""
    return uvarint(count) + b"\x7f\0" * count


def test_a_header_has_few_tagged_fields() -> None:
    """Goal: 50 million of them, which 100 MB hold, are not walked one after the other."""
    head = encode_request(MetadataRequest(topics=[]), 12, 7, "c")[4:16]
    assert head[-2:] == b"c\0"
    header, offset = decode_request_header(head[:-1] + tags(TAGS_MAX))
    assert (header.client_id, offset) == ("c", len(head) - 1 + len(tags(TAGS_MAX)))
    for count in (TAGS_MAX + 1, 2_000_000):
        with pytest.raises(WireError, match="tagged fields"):
            decode_request_header(head[:-1] + tags(count))


def described(count: int, each: bytes) -> bytes:
    """DescribeTopicPartitions of so many topics, with this block of tagged fields in each."""
    topics = uvarint(count + 1) + (b"\x02t" + each) * count
    return topics + (1).to_bytes(4, "big") + b"\xff" + b"\0"


def test_tagged_fields_are_counted_over_a_whole_request() -> None:
    """Goal: unknown tags cost as what they stand beside. Method: many small blocks of them."""
    cls = DescribeTopicPartitionsRequest
    few = ELEMENTS_MAX // (TAGS_MAX + 1)
    assert len(decode(cls, 0, described(few, tags(TAGS_MAX))).topics) == few
    with pytest.raises(WireError, match="ask for less at a time"):
        decode(cls, 0, described(few + 1, tags(TAGS_MAX)))
    with pytest.raises(WireError, match="tagged fields"):
        decode(cls, 0, described(1, tags(TAGS_MAX + 1)))


def test_a_string_is_no_longer_than_older_versions_can_say() -> None:
    """Goal: no name of a hundred megabytes, which is hashed, looked up and told back."""
    for size in (127, 128, STRING_BYTES_MAX):
        data = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t" * size)]), 12)
        assert decode(MetadataRequest, 12, data).topics == [MetadataRequestTopic(name="t" * size)]
    for size in (STRING_BYTES_MAX + 1, 1_000_000):
        data = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t" * size)]), 12)
        with pytest.raises(WireError, match="name is longer than 32767 bytes"):
            decode(MetadataRequest, 12, data)


def test_known_tagged_fields_are_counted_too() -> None:
    """A block that has some of its own is read by other code: one tag may stand there again."""
    data = encode(FetchRequest(cluster_id="c"), 17)
    assert data.endswith(bytes.fromhex("01 00 02 0263"))
    known = bytes.fromhex("00 02 0263")
    for count in (1000, TAGS_MAX):
        assert decode(FetchRequest, 17, data[:-5] + uvarint(count) + known * count)
    with pytest.raises(WireError, match="tagged fields"):
        decode(FetchRequest, 17, data[:-5] + uvarint(TAGS_MAX + 1) + known * (TAGS_MAX + 1))


def test_a_request_of_a_hundred_thousand_partitions_is_read() -> None:
    request = named(100_000)
    assert len(decode_fetch(12, memoryview(encode(request, 12))).topics[0].partitions) == 100_000
