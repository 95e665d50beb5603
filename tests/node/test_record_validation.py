"""What `record.validation=deep` refuses of a client's records, as Apache Kafka does.

Goal: no batch gets into the log that no consumer can parse, or whose header says other things than
its records. Method: batches that were damaged inside under a right CRC, in every codec, with both
record walkers; the outcome is compared whole, so that both say the same in the same words.
Seen to fail: each with `header` in place of `deep`, where all but what it says are taken.
Rules: batches.md#validation-of-records.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.log.log_kit import many_headers, steps_of, with_body

from holdfast.config.topic import TopicSettings
from holdfast.core.refusal import Refusal
from holdfast.node.broker.append_validation import RecordRefusal, Unopened, check_and_prepare
from holdfast.node.broker.record_validation import opened
from holdfast.runtime.sliced_work import HOLD, Effort
from holdfast.wire.batch import (
    HEADER_SIZE,
    Codec,
    Record,
    build_batch,
    compress,
    crc_matches,
    read_header,
    read_records,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.walker import python_walker, record_walker

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
THREE = [Record(b"k%d" % n, b"v", NOW_MS + n) for n in range(3)]


@pytest.fixture(params=["as installed", "python"], autouse=True)
def _walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(record_walker, "_walk", python_walker.walk)


def body_of(records: list[Record]) -> bytes:
    return bytes(build_batch(records)[HEADER_SIZE:])


def batch_of(body: bytes, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """Return a batch of three records with another body, and a right CRC."""
    packed = bytes(compress(codec, body))
    return with_body(bytes(build_batch(THREE)), packed, attributes=codec, **fields)


def outcome(batch: bytes, **settings: Any) -> memoryview | Refusal | RecordRefusal:
    chosen = TopicSettings(**{"record_validation": "deep", **settings})
    ready = check_and_prepare(memoryview(bytearray(batch)), chosen, 9, NOW_MS)
    return steps_of(opened(ready, Effort()))[0] if isinstance(ready, Unopened) else ready


SKIPPING = bytearray(body_of(THREE))
SKIPPING[SKIPPING.index(b"k1") - 2] = 8  # its offset delta, 4


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "The batch has 0 records, and its header counts 3."),
        (body_of(THREE[:2]), "The batch has 2 records, and its header counts 3."),
        (
            body_of(THREE) + b"\0\0",
            "Behind the 3 records that the header counts there are 2 bytes.",
        ),
        (body_of([*THREE, THREE[0]]), "Behind the 3 records that the header counts there are"),
        (body_of(THREE)[:-1], "Record 2 of the batch can't be read: a record's length is negative"),
        (body_of(THREE[:1]) + b"\xff", "Record 1 of the batch can't be read: the body ends in"),
        (bytes(SKIPPING), "The offsets of the records do not count up, from record 1."),
    ],
)
def test_records_that_are_not_what_the_header_says(body: bytes, text: str, codec: Codec) -> None:
    refused = outcome(batch_of(body, codec))
    assert isinstance(refused, Refusal)
    assert refused.code is ErrorCode.INVALID_RECORD
    assert refused.message.startswith(text)
    taken = outcome(batch_of(body, codec), record_validation="header")
    assert isinstance(taken, memoryview), "header believes it"


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_what_does_not_inflate(codec: Codec) -> None:
    noise = with_body(bytes(build_batch(THREE)), b"no such thing", attributes=codec)
    refused = outcome(noise)
    assert isinstance(refused, Refusal)
    assert refused.code is ErrorCode.INVALID_RECORD
    assert refused.message.startswith("The records do not inflate: ")


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claim", [-1, 0, NOW_MS - 5, NOW_MS + 2, NOW_MS + 2 * HOUR_MS])
def test_the_largest_timestamp_is_the_records(claim: int, codec: Codec) -> None:
    """Whatever the header claims, too much or too little, the records decide."""
    ready = outcome(batch_of(body_of(THREE), codec, max_timestamp=claim))
    assert isinstance(ready, memoryview)
    assert read_header(ready).max_timestamp == NOW_MS + 2
    assert crc_matches(ready)
    assert read_records(ready) == [r._replace(offset=n) for n, r in enumerate(THREE)]


def stamped(*stamps: int) -> bytes:
    return bytes(build_batch([Record(b"k", b"v", stamp) for stamp in stamps]))


AFTER = NOW_MS + HOUR_MS
TOO_LATE = (
    f"Timestamp {AFTER + 1} is out of range. It should be within [0, {AFTER}]:"
    " message.timestamp.after.max.ms."
)
TOO_EARLY = (
    f"Timestamp 5 is out of range. It should be within [{NOW_MS - 9}, {AFTER}]:"
    " message.timestamp.before.max.ms."
)
KEYLESS = "A compacted topic takes no record without a key."


@pytest.mark.parametrize(
    ("batch", "settings", "code", "records"),
    [
        (stamped(NOW_MS, AFTER + 1, NOW_MS), {}, ErrorCode.INVALID_TIMESTAMP, {1: TOO_LATE}),
        (stamped(NOW_MS, NOW_MS, 5), {"message_timestamp_before_max_ms": 9},
         ErrorCode.INVALID_TIMESTAMP, {2: TOO_EARLY}),
        (stamped(NOW_MS, -1, NOW_MS), {"message_timestamp_before_max_ms": 9}, None, {}),
        (stamped(AFTER, -1), {}, None, {}),
        (stamped(5, AFTER + 1), {"message_timestamp_type": "LogAppendTime"}, None, {}),
        (bytes(build_batch([THREE[0], Record(None, b"v", NOW_MS)])),
         {"cleanup_policy": ("compact",)}, ErrorCode.INVALID_RECORD, {1: KEYLESS}),
        (bytes(build_batch([THREE[0], Record(None, b"v", NOW_MS)], codec=Codec.ZSTD)),
         {"cleanup_policy": ("compact",), "record_validation": "header"},
         ErrorCode.INVALID_RECORD, {1: KEYLESS}),
        (bytes(build_batch([THREE[0], Record(None, b"v", AFTER + 1)])),
         {"cleanup_policy": ("delete", "compact")}, ErrorCode.INVALID_TIMESTAMP, {1: TOO_LATE}),
        (bytes(build_batch([THREE[0], Record(None, b"v", NOW_MS)])), {}, None, {}),
    ],
)  # fmt: skip
def test_records_that_the_topic_does_not_take(
    batch: bytes, settings: dict[str, Any], code: ErrorCode | None, records: dict[int, str]
) -> None:
    """Each kind names one record, as Kafka's record errors do."""
    refused = outcome(batch, **settings)
    if code is None:
        assert isinstance(refused, memoryview)
    else:
        assert isinstance(refused, RecordRefusal)
        assert (refused.code, dict(refused.records)) == (code, records)
        assert all(text in refused.message for text in records.values())


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_another_codec_changes_no_byte_of_the_records(codec: Codec, wanted: str) -> None:
    """Also where the batch says more than records do: its producer, and its base timestamp."""
    batch = bytes(build_batch(THREE, codec=codec, producer_id=7, producer_epoch=2, base_sequence=9))
    ready = outcome(batch, compression_type=wanted, record_validation="header")
    assert isinstance(ready, memoryview)
    header, before = read_header(ready), read_header(batch)
    assert header.codec == (0 if wanted == "uncompressed" else Codec[wanted.upper()])
    same = {"batch_length": 0, "attributes": 0, "crc": 0}
    assert header._replace(**same) == before._replace(**same)
    assert crc_matches(ready)
    assert read_records(ready) == read_records(batch)


def test_a_record_with_very_many_headers_is_walked_in_turns() -> None:
    batch = with_body(
        bytes(build_batch(THREE[:1])), many_headers(5 * record_walker.STEPS_A_SLICE // 2)
    )
    settings = TopicSettings(record_validation="deep", max_message_bytes=1 << 30)
    ready = check_and_prepare(memoryview(bytearray(batch)), settings, 9, NOW_MS)
    assert isinstance(ready, Unopened)
    done, turns = steps_of(opened(ready, Effort()))
    assert isinstance(done, memoryview)
    assert turns.count(HOLD) >= 2


def test_no_more_is_done_in_one_go_than_a_slice() -> None:
    """Many records in turns, much to inflate in the worker, much to compress there too."""
    count = 5 * record_walker.RECORDS_A_SLICE // 2
    tiny = b"".join(map(_tiny, range(count)))
    fields = {"record_count": count, "last_offset_delta": count - 1}
    batch = with_body(bytes(build_batch(THREE)), tiny, **fields)
    settings = TopicSettings(
        record_validation="deep", max_message_bytes=1 << 30, segment_bytes=1 << 30
    )
    ready = check_and_prepare(memoryview(bytearray(batch)), settings, 9, NOW_MS)
    assert isinstance(ready, Unopened)
    done, turns = steps_of(opened(ready, Effort()))
    assert isinstance(done, memoryview)
    assert turns.count(HOLD) >= 2
    large = build_batch([Record(None, bytes(3_000_000), NOW_MS)], codec=Codec.GZIP)
    ready = check_and_prepare(
        memoryview(large),
        TopicSettings(compression_type="zstd", max_message_bytes=4_000_000),
        9,
        NOW_MS,
    )
    assert isinstance(ready, Unopened)
    done, turns = steps_of(opened(ready, Effort()))
    assert isinstance(done, memoryview)
    assert sum(map(callable, turns)) == 2
    spent = Effort()
    spent.spent = 1
    ready = check_and_prepare(memoryview(bytearray(stamped(NOW_MS))), settings, 9, NOW_MS)
    assert isinstance(ready, Unopened)
    assert next(opened(ready, spent)) == HOLD, "what came before it has used the slice up"


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, bytes(compress(Codec.GZIP, b"")) * 800),
        (Codec.SNAPPY, bytes(compress(Codec.SNAPPY, b"")) + b"\0\0\0\1\0" * 3200),
    ],
    ids=["members", "blocks"],
)
def test_what_inflates_to_nothing_takes_its_part_of_a_slice(codec: Codec, packed: bytes) -> None:
    """Hundreds of members, or thousands of blocks, with nothing in them take milliseconds.

    Seen to fail: a request of two hundred such batches held the loop for a second.
    """
    batch = with_body(bytes(build_batch(THREE)), packed, attributes=codec)
    settings = TopicSettings(record_validation="deep")
    effort, turns = Effort(), list[object]()
    for _ in range(20):
        ready = check_and_prepare(memoryview(bytearray(batch)), settings, 9, NOW_MS)
        assert isinstance(ready, Unopened)
        refused, seen = steps_of(opened(ready, effort))
        assert refused == Refusal(
            ErrorCode.INVALID_RECORD, "The batch has 0 records, and its header counts 3."
        )
        turns += seen
    assert turns, "others had a turn in between"


def _tiny(number: int) -> bytes:
    """Return a record without a key or a value, whose offset delta is its number."""
    zigzag, delta = number << 1, bytearray()
    while zigzag >= 0x80:
        delta.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    delta.append(zigzag)
    rest = b"\0\0" + delta + b"\1\1\0"
    return bytes([len(rest) << 1]) + rest
