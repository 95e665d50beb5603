"""Record batches, held against kafka-python's, aiokafka's and kio's readers and writers.

Goal: what we build, clients read, and the reverse; what a broker checks and rewrites in place is
what Kafka says. Method: the same records through both sides, with every codec; each way of being
wrong once.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch as kio_read_batch

from holdfast.wire.batch import (
    HEADER_SIZE,
    Codec,
    ControlType,
    Record,
    assign,
    assign_log_append_time,
    batches,
    build_batch,
    control_key,
    crc_matches,
    read_control_type,
    read_header,
    read_records,
    transaction_marker,
    validate_producer_batch,
)
from holdfast.wire.batch_header import NO_TIMESTAMP
from holdfast.wire.compression import decompress
from holdfast.wire.errors import ErrorCode, WireError

NOW = 1_700_000_000_000
RECORDS = [
    Record(b"key", b"value", NOW),
    Record(None, b"x" * 3000, NOW + 5),
    Record(b"", None, NOW - 7, (("name", b"data"), ("null", None), ("", b""))),
    Record(None, None, NOW + 2**33),
]
SMALL = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=4), SMALL), max_size=3).map(tuple)
MANY = st.lists(
    st.builds(Record, key=SMALL, value=SMALL, timestamp=st.integers(0, 2**45), headers=HEADERS),
    min_size=1,
    max_size=6,
)
REPEATABLE = settings(derandomize=True, database=None, deadline=None, max_examples=30)


def at_offsets(records: list[Record], base: int) -> list[Record]:
    return [record._replace(offset=base + index) for index, record in enumerate(records)]


def as_seen(batch: Any) -> list[Record]:
    """Read another's batch object into our records."""
    return [
        Record(
            record.key,
            record.value,
            record.timestamp,
            tuple(map(tuple, record.headers)),
            record.offset,
        )
        for record in batch
    ]


@REPEATABLE
@given(MANY, st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_kafka_python_reads_ours(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, codec=codec, base_offset=42, leader_epoch=3)
    theirs = KafkaPythonBatch(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.leader_epoch) == (42, 3)
    assert as_seen(theirs) == at_offsets(records, 42) == read_records(batch)


@pytest.mark.parametrize("codec", Codec)
@REPEATABLE
@given(MANY)
def test_aiokafka_reads_ours(codec: Codec, records: list[Record]) -> None:
    batch = build_batch(records, codec=codec, base_offset=7)
    theirs = AioBatch(bytes(batch))
    assert theirs.validate_crc()
    assert as_seen(theirs) == at_offsets(records, 7) == read_records(batch)


@pytest.mark.parametrize("codec", Codec)
@REPEATABLE
@given(MANY)
def test_we_read_aiokafkas(codec: Codec, records: list[Record]) -> None:
    builder = AioBuilder(2, codec, 1, 9000, 5, 11, 10_000_000)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    assert crc_matches(batch)
    assert read_records(batch) == at_offsets(records, 0)
    header = read_header(batch)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9000, 5, 11)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert validate_producer_batch(batch, message_bytes_max=len(batch)) == ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_we_build_what_kafka_python_builds(codec: Codec) -> None:
    builder = KafkaPythonBuilder(2, codec, False, 12, 1, 100, 10_000_000)
    for index, record in enumerate(RECORDS):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    ours = build_batch(
        RECORDS, codec=codec, producer_id=12, producer_epoch=1, base_sequence=100, leader_epoch=0
    )
    assert read_records(theirs) == at_offsets(RECORDS, 0)
    if codec == Codec.NONE:
        assign(ours, 0, read_header(theirs).leader_epoch)
        assert theirs == ours


def test_kio_reads_ours() -> None:
    batch = build_batch(RECORDS, base_offset=3, leader_epoch=9, producer_id=1, producer_epoch=2)
    theirs, size = kio_read_batch(bytes(batch), 0)
    assert size == len(batch)
    assert (theirs.base_offset, theirs.partition_leader_epoch) == (3, 9)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (1, 2, -1)
    assert [record.value for record in theirs.records] == [record.value for record in RECORDS]


def test_snappy_is_read_raw_too() -> None:
    """Goal: some clients leave xerial's framing out. Method: swap the body of a batch."""
    import cramjam  # noqa: PLC0415

    plain = build_batch(RECORDS)
    raw = bytes(cramjam.snappy.compress_raw(bytes(plain[HEADER_SIZE:])))
    batch = bytearray(plain[:HEADER_SIZE] + raw)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = Codec.SNAPPY
    assert read_records(batch) == at_offsets(RECORDS, 0)


def test_assigning_keeps_the_crc() -> None:
    batch = build_batch(RECORDS)
    assign(memoryview(batch), 10_000, 12)
    assert crc_matches(batch)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (10_000, 12)
    assert (header.last_offset, header.next_offset) == (10_003, 10_004)
    assert read_records(batch)[3].offset == 10_003


def test_log_append_time_is_every_records() -> None:
    batch = build_batch(RECORDS)
    base = read_header(batch).base_timestamp
    assign_log_append_time(memoryview(batch), NOW + 1)
    assert crc_matches(batch)
    assert read_header(batch).base_timestamp == base, "deltas stay right for who ignores the bit"
    assert [record.timestamp for record in read_records(batch)] == [NOW + 1] * 4
    assert as_seen(AioBatch(bytes(batch))) == read_records(batch)
    assert batch == build_batch(RECORDS, log_append_time_ms=NOW + 1)


def test_batches_are_walked_without_their_records() -> None:
    one = build_batch(RECORDS, base_offset=0)
    two = build_batch(RECORDS[:2], base_offset=4, codec=Codec.ZSTD)
    log = bytes(one + two)
    assert [(at, header.base_offset) for at, header in batches(log)] == [(0, 0), (len(one), 4)]
    for cut in (len(log) - 1, len(one) + HEADER_SIZE, len(one) + 3):
        assert [at for at, _ in batches(log[:cut])] == [0], "a batch cut at the end is not whole"
    assert list(batches(b"")) == []
    assert [at for at, _ in batches(memoryview(log), len(one))] == [len(one)]


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_that_no_batch_has_ends_the_walk(length: int) -> None:
    batch = build_batch(RECORDS)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(WireError):
        list(batches(batch))
    assert not crc_matches(batch)


def changed(change: Callable[[bytearray], object]) -> bytes:
    """Return a good batch after a change, its CRC corrected."""
    batch = build_batch(RECORDS[:2])
    change(batch)
    if len(batch) >= HEADER_SIZE:
        from holdfast.wire.checksum import crc32c  # noqa: PLC0415

        batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def put(batch: bytearray, at: int, data: bytes) -> None:
    batch[at : at + len(data)] = data


GOOD = bytes(build_batch(RECORDS[:2]))
REFUSED = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "half a header": (GOOD[:40], ErrorCode.INVALID_RECORD),
    "cut": (GOOD[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "wrong crc": (GOOD[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    "magic 3": (changed(lambda b: put(b, 16, b"\3")), ErrorCode.CORRUPT_MESSAGE),
    "length 48": (changed(lambda b: put(b, 8, b"\0\0\0\x30")), ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (changed(lambda b: put(b, 16, b"\1")), ErrorCode.INVALID_RECORD),
    "base offset": (changed(lambda b: put(b, 7, b"\1")), ErrorCode.INVALID_RECORD),
    "no records": (changed(lambda b: put(b, 57, bytes(4))), ErrorCode.INVALID_RECORD),
    "negative count": (changed(lambda b: put(b, 57, b"\xff" * 4)), ErrorCode.INVALID_RECORD),
    "count against offsets": (changed(lambda b: put(b, 60, b"\3")), ErrorCode.INVALID_RECORD),
    "control batch": (changed(lambda b: put(b, 22, b"\x20")), ErrorCode.INVALID_RECORD),
    "no such codec": (changed(lambda b: put(b, 22, b"\5")), ErrorCode.INVALID_RECORD),
    "producer without sequence": (
        changed(lambda b: put(b, 43, bytes(8))),
        ErrorCode.INVALID_RECORD,
    ),
    "producer without epoch": (
        changed(lambda b: put(b, 43, bytes(8) + b"\xff\xff" + bytes(4))),
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ),
}


@pytest.mark.parametrize(("data", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_producer_may_not_send(data: bytes, code: ErrorCode) -> None:
    assert validate_producer_batch(memoryview(data), message_bytes_max=1_000_000) == code


def test_what_a_producer_may_send() -> None:
    assert validate_producer_batch(None, message_bytes_max=1) == ErrorCode.INVALID_RECORD
    limit = len(GOOD)
    assert validate_producer_batch(GOOD, message_bytes_max=limit) == ErrorCode.NONE
    assert validate_producer_batch(GOOD, message_bytes_max=limit - 1) == ErrorCode.MESSAGE_TOO_LARGE
    assert (
        validate_producer_batch(GOOD, message_bytes_max=limit, segment_bytes=limit - 1)
        == ErrorCode.RECORD_LIST_TOO_LARGE
    )
    packed = build_batch(RECORDS, codec=Codec.ZSTD)
    assert (
        validate_producer_batch(packed, message_bytes_max=10**6, produce_version=6)
        == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


def test_sequences_wrap() -> None:
    header = read_header(build_batch(RECORDS, producer_id=1, base_sequence=2**31 - 2))
    assert header.last_sequence == 1
    assert read_header(build_batch(RECORDS)).last_sequence == -1


def test_a_transaction_marker_is_what_clients_expect() -> None:
    marker = transaction_marker(commit=True, coordinator_epoch=4, timestamp=NOW)
    batch = build_batch(
        [marker],
        base_offset=9,
        producer_id=77,
        producer_epoch=2,
        transactional=True,
        control=True,
    )
    theirs = AioBatch(bytes(batch))
    assert theirs.is_control_batch
    assert theirs.is_transactional
    [record] = read_records(batch)
    assert read_control_type(record.key) == ControlType.COMMIT
    assert record.value == b"\0\0\0\0\0\4"
    assert read_control_type(control_key(ControlType.KRAFT_VOTERS)) == 6
    with pytest.raises(WireError):
        read_control_type(b"\0\0\0")


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_inflating_is_bounded(codec: Codec) -> None:
    """Goal: a small batch can't make us allocate much. Method: a megabyte of zeros, and memory."""
    batch = build_batch([Record(None, bytes(1_000_000))], codec=codec)
    assert len(batch) < 60_000
    assert len(read_records(batch, inflated_size_max=1_100_000)[0].value or b"") == 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="inflates to more than"):
            read_records(batch, inflated_size_max=100_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 700_000, "it is refused before all of it is there"


def test_a_snappy_block_s_word_for_its_size_is_enough_to_refuse_it() -> None:
    """One raw block, as some clients send: it comes whole or not at all."""
    block = bytes(cramjam.snappy.compress_raw(bytes(1_000_000)))
    assert len(decompress(Codec.SNAPPY, block, 1_000_000)) == 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="inflates to more than"):
            decompress(Codec.SNAPPY, block, 100_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 700_000


@pytest.mark.parametrize("codec", Codec)
def test_damaged_records_are_refused(codec: Codec) -> None:
    """Goal: only WireError. Method: every byte of a batch's body changed, every cut."""
    batch = build_batch(RECORDS[:1] + RECORDS[2:3], codec=codec)
    for at in range(HEADER_SIZE, len(batch)):
        for damaged in (batch[:at], batch[:at] + bytes([batch[at] ^ 0xFF]) + batch[at + 1 :]):
            damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
            try:
                records = read_records(damaged, inflated_size_max=100_000)
            except WireError:
                continue
            assert len(records) == 2


def test_a_count_beyond_the_bytes_is_refused() -> None:
    batch = build_batch(RECORDS)
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(WireError, match="can't be in"):
        read_records(batch)


def test_what_is_older_than_no_timestamp_is_told_as_none() -> None:
    """As Apache Kafka's builder has it: what a batch says of its age begins with -1."""
    batch = build_batch([Record(value=b"a", timestamp=-2), Record(value=b"b", timestamp=-9)])
    assert read_header(batch).max_timestamp == NO_TIMESTAMP
    assert [record.timestamp for record in read_records(batch)] == [-2, -9]
