"""What a client may append, rule by rule.

Goal: each bad batch gets its own error and nothing else does. Method: real batches, built and then
damaged in one place; the settings of the topic in a table.
Rules: batches.md#produced-batch, batches.md#timestamps, batches.md#recompression.
"""

from __future__ import annotations

from struct import pack_into
from typing import Any

import pytest
from crc32c import crc32c
from tests.log.log_kit import steps_of

from holdfast.config.topic import TopicSettings
from holdfast.core.refusal import Refusal
from holdfast.node.broker.append_validation import RecordRefusal, Unopened, check_and_prepare
from holdfast.node.broker.record_validation import opened
from holdfast.runtime import sliced_work
from holdfast.runtime.sliced_work import Effort
from holdfast.wire.batch import Codec, Record, build_batch, crc_matches, read_header, read_records
from holdfast.wire.compression import Buffer, decompress
from holdfast.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
HEADER = {"record_validation": "header"}
DEEP = {"record_validation": "deep"}
BOTH = pytest.mark.parametrize("how", [HEADER, DEEP], ids=["header", "deep"])


def batch(*, codec: Codec = Codec.NONE, timestamp: int = NOW_MS, keys: bool = True) -> bytearray:
    records = [
        Record(key=b"k" if keys else None, value=b"v%d" % n, timestamp=timestamp) for n in range(3)
    ]
    return build_batch(records, codec=codec)


def prepared(
    data: bytearray | None, settings: TopicSettings, version: int = 9
) -> memoryview | Refusal | RecordRefusal:
    """Check the batch to the end, records and all if that is wanted."""
    ready = check_and_prepare(None if data is None else memoryview(data), settings, version, NOW_MS)
    return steps_of(opened(ready, Effort()))[0] if isinstance(ready, Unopened) else ready


def copied(data: bytearray | None) -> bytearray | None:
    """What is checked is changed in place, and a table is used twice."""
    return None if data is None else bytearray(data)


def refused(data: bytearray | None, settings: TopicSettings, version: int = 9) -> ErrorCode:
    ready = prepared(data, settings, version)
    if isinstance(ready, memoryview):
        return ErrorCode.NONE
    assert ready.message
    return ready.code


def damaged(position: int, layout: str, value: int) -> bytearray:
    data = batch()
    pack_into(layout, data, position, value)
    return data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (batch(), ErrorCode.NONE),
        (None, ErrorCode.INVALID_RECORD),
        (bytearray(), ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (damaged(0, ">q", 5), ErrorCode.INVALID_RECORD),
        (damaged(16, ">b", 1), ErrorCode.INVALID_RECORD),
        (damaged(17, ">I", 1), ErrorCode.CORRUPT_MESSAGE),
        (damaged(8, ">i", 100_000), ErrorCode.INVALID_RECORD),
        (batch()[:40], ErrorCode.INVALID_RECORD),
        (batch(timestamp=NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
        (batch(timestamp=NOW_MS + HOUR_MS), ErrorCode.NONE),
        (batch(timestamp=0), ErrorCode.NONE),
        (batch(timestamp=-1), ErrorCode.NONE),
    ],
)
@BOTH
def test_each_fault_has_its_error(
    data: bytearray | None, expected: ErrorCode, how: dict[str, Any]
) -> None:
    assert refused(copied(data), TopicSettings(**how)) is expected


@BOTH
@pytest.mark.parametrize(
    ("settings", "data", "expected"),
    [
        ({"max_message_bytes": 70}, batch(), ErrorCode.MESSAGE_TOO_LARGE),
        ({"segment_bytes": 70}, batch(), ErrorCode.RECORD_LIST_TOO_LARGE),
        ({"message_timestamp_before_max_ms": 5}, batch(timestamp=NOW_MS - 6),
         ErrorCode.INVALID_TIMESTAMP),
        ({"message_timestamp_type": "LogAppendTime"}, batch(timestamp=NOW_MS * 2),
         ErrorCode.NONE),
    ],
)  # fmt: skip
def test_the_settings_of_the_topic_hold(
    settings: dict[str, Any], data: bytearray, expected: ErrorCode, how: dict[str, Any]
) -> None:
    assert refused(copied(data), TopicSettings(**settings, **how)) is expected


@BOTH
def test_zstd_needs_produce_version_7(how: dict[str, Any]) -> None:
    data = batch(codec=Codec.ZSTD)
    assert refused(data, TopicSettings(**how), 6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(data, TopicSettings(**how), 7) is ErrorCode.NONE


def test_a_transactional_batch_is_refused_while_there_are_no_transactions() -> None:
    data = build_batch(
        [Record(value=b"v", timestamp=NOW_MS)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    assert refused(data, TopicSettings()) is ErrorCode.INVALID_TXN_STATE


@BOTH
def test_every_codec_passes_through_untouched(how: dict[str, Any]) -> None:
    for codec in Codec:
        data = batch(codec=codec)
        before = bytes(data)
        ready = prepared(data, TopicSettings(**how))
        assert isinstance(ready, memoryview)
        assert bytes(ready) == before


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_compression_type_is_obeyed(name: str) -> None:
    data = batch(codec=Codec.GZIP if name != "gzip" else Codec.NONE)
    records = read_records(data)
    ready = prepared(data, TopicSettings(compression_type=name))
    assert isinstance(ready, memoryview)
    header = read_header(ready)
    assert header.codec == (0 if name == "uncompressed" else Codec[name.upper()])
    assert read_records(ready) == records
    assert crc_matches(ready)


def test_log_append_time_stamps_the_batch_and_corrects_its_crc() -> None:
    ready = prepared(
        batch(timestamp=5), TopicSettings(message_timestamp_type="LogAppendTime", **HEADER)
    )
    assert isinstance(ready, memoryview)
    header = read_header(ready)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW_MS
    assert header.base_timestamp == 5, "readers take the maximum; the deltas stay true"
    assert crc_matches(ready)


def test_a_batch_has_a_million_records_at_most() -> None:
    """Compressed, they may be a few bytes each; whoever looks inside makes objects of them."""
    for count, expected in ((1_000_000, None), (1_000_001, ErrorCode.INVALID_RECORD)):
        data = batch()
        pack_into(">i", data, 23, count - 1)
        pack_into(">i", data, 57, count)
        pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        ready = prepared(data, TopicSettings(**HEADER))
        assert (ready.code if isinstance(ready, Refusal) else None) is expected


def with_claim(stamps: list[int], claim: int, *, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch of records with these timestamps, whose header claims another largest one."""
    data = build_batch([Record(value=b"v", timestamp=stamp) for stamp in stamps], codec=codec)
    pack_into(">q", data, 35, claim)
    pack_into(">I", data, 17, crc32c(data[21:]))
    return data


@pytest.mark.parametrize(
    ("stamps", "claim", "largest"),
    [
        ([-1, -1], 0, -1),  # as librdkafka sends what has no timestamps
        ([-1, -1], -1, -1),
        ([NOW_MS, NOW_MS], 0, NOW_MS),
        ([NOW_MS, NOW_MS], -1, NOW_MS),
        ([0, 0], 0, 0),  # 1970, and said so
        ([-1, NOW_MS], NOW_MS, NOW_MS),
        ([5, NOW_MS], NOW_MS, NOW_MS),
        ([NOW_MS, NOW_MS - 9], NOW_MS, NOW_MS),
        ([NOW_MS - 9, NOW_MS - 9], NOW_MS, NOW_MS),  # only a walk of the records can tell
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@BOTH
def test_the_largest_timestamp_is_what_the_records_bear_out(
    stamps: list[int], claim: int, largest: int, codec: Codec, how: dict[str, Any]
) -> None:
    """Goal: no claim of a header makes records older than they are. Method: claims by hand."""
    if how == DEEP:
        largest = max(stamps)
    data = with_claim(stamps, claim, codec=codec)
    records = read_records(data)
    ready = prepared(data, TopicSettings(**how))
    assert isinstance(ready, memoryview)
    assert read_header(ready).max_timestamp == largest
    assert crc_matches(ready)
    assert read_records(ready) == records


@pytest.mark.parametrize("claim", [0, -1, NOW_MS])
def test_what_is_recompressed_has_the_largest_timestamp_of_its_records(claim: int) -> None:
    settings = TopicSettings(compression_type="zstd")
    stamps = [NOW_MS - 9, NOW_MS - 3, -1]
    ready = prepared(with_claim(stamps, claim), settings)
    assert isinstance(ready, memoryview)
    assert read_header(ready).max_timestamp == NOW_MS - 3


@BOTH
def test_a_claim_from_the_past_hides_no_timestamp_of_the_future(how: dict[str, Any]) -> None:
    """Method: the first record's timestamp is in the header, too."""
    future = NOW_MS + HOUR_MS + 1
    assert refused(with_claim([future], 5), TopicSettings(**how)) is ErrorCode.INVALID_TIMESTAMP


@BOTH
@pytest.mark.parametrize("stamp", [-2, -(2**63)])
def test_a_timestamp_below_none_is_wild(stamp: int, how: dict[str, Any]) -> None:
    """Seen to fail: such a base timestamp was taken for none."""
    data = with_claim([stamp], -1)
    assert refused(data, TopicSettings(**how)) is ErrorCode.INVALID_TIMESTAMP


BOMB = build_batch([Record(value=bytes(20_000_000), timestamp=NOW_MS)], codec=Codec.GZIP)


@pytest.mark.parametrize(
    ("compression", "value_bytes", "expected"),
    [
        ("uncompressed", 900, ErrorCode.NONE),
        ("uncompressed", 960, ErrorCode.MESSAGE_TOO_LARGE),  # with the batch's header
        ("uncompressed", 1000, ErrorCode.MESSAGE_TOO_LARGE),
        ("lz4", 1000, ErrorCode.NONE),  # small again
        ("uncompressed", 2_000_000, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_built_again_is_held_against_the_bounds_again(
    compression: str, value_bytes: int, expected: ErrorCode
) -> None:
    """Seen to fail: 122 KB became 126 MB in the log, which no follower could fetch any more."""
    settings = TopicSettings(max_message_bytes=1000, compression_type=compression)
    record = Record(value=bytes(value_bytes), timestamp=NOW_MS)
    small = build_batch([record], codec=Codec.ZSTD)
    assert len(small) < 1000
    assert refused(small, settings) == expected


def test_a_segment_s_size_bounds_it_too() -> None:
    settings = TopicSettings(
        max_message_bytes=100_000, segment_bytes=5_000, compression_type="uncompressed"
    )
    record = Record(value=bytes(10_000), timestamp=NOW_MS)
    packed = build_batch([record], codec=Codec.ZSTD)
    assert refused(packed, settings) == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_a_bomb_is_not_inflated_to_its_end(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would be after compressing it anew does not matter: it is never all in memory."""
    asked: list[int] = []

    def seen(codec: int, data: Any, size_max: int) -> Buffer:
        asked.append(size_max)
        return decompress(codec, data, size_max)

    monkeypatch.setattr(sliced_work, "decompress", seen)
    settings = TopicSettings(compression_type=compression)
    assert refused(bytearray(BOMB), settings) == ErrorCode.MESSAGE_TOO_LARGE
    assert max(asked) == (settings.max_message_bytes if compression == "uncompressed" else 16 << 20)


def sealed(
    attributes: int, *, epoch: int = -1, sequence: int = -1, producer: int = -1
) -> bytearray:
    """A batch that says so of itself, with the CRC right."""
    data = build_batch(
        [Record(value=b"v", timestamp=NOW_MS)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    pack_into(">h", data, 21, attributes)
    pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (sealed(0), ErrorCode.NONE),
        (sealed(0x08), ErrorCode.INVALID_TIMESTAMP),  # LogAppendTime
        (sealed(0x20), ErrorCode.INVALID_RECORD),  # control
        (sealed(0x28), ErrorCode.INVALID_RECORD),
        (sealed(0x40), ErrorCode.INVALID_RECORD),  # a delete horizon, which compaction writes
        *[(sealed(1 << bit), ErrorCode.INVALID_RECORD) for bit in range(7, 15)],
        (sealed(-0x8000), ErrorCode.INVALID_RECORD),
        (sealed(0, producer=1, epoch=0, sequence=0), ErrorCode.NONE),
        (sealed(0, producer=1, epoch=-1, sequence=0), ErrorCode.INVALID_PRODUCER_EPOCH),
        (sealed(0, producer=1, epoch=-5, sequence=0), ErrorCode.INVALID_PRODUCER_EPOCH),
        (sealed(0, producer=1, epoch=-1, sequence=-1), ErrorCode.INVALID_RECORD),
        (sealed(0, producer=1, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (sealed(0, epoch=0, sequence=0), ErrorCode.NONE),  # as some clients always send it
    ],
)
@BOTH
def test_a_batch_s_attributes_and_producer_are_a_producer_s(
    data: bytearray, expected: ErrorCode, how: dict[str, Any]
) -> None:
    """Seen to fail: what only a broker may say was taken, and read by all as if one had said it."""
    assert refused(copied(data), TopicSettings(**how)) is expected
