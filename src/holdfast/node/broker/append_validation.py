"""What a client wants appended, checked and made ready under the topic's settings.

Owns the rules that need settings. With `record.validation=header` they look at the batch's header
alone, unless `compression.type` asks for another codec, or the topic is compacted, which demands
keys; `record_validation` looks at the records.

Rules: batches.md#produced-batch, batches.md#timestamps, batches.md#recompression,
compaction.md#keys-are-demanded.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from holdfast.config.topic import TopicSettings
from holdfast.core.refusal import Refusal
from holdfast.wire.batch import (
    Codec,
    assign_log_append_time,
    assign_max_timestamp,
    validate_producer_batch,
)
from holdfast.wire.batch_header import CODEC_MASK, NO_TIMESTAMP, TRANSACTIONAL
from holdfast.wire.errors import ErrorCode

_FROM_ATTRIBUTES = Struct(">hiqq")  # attributes, last offset delta, timestamps: from byte 21 on

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
RECORDS_MAX = 1_000_000
"""In one batch. A few bytes may inflate to any number, and who looks for a timestamp walks them."""


class Unopened(NamedTuple):
    """A batch whose header is in order, and whose records are to be looked at."""

    batch: memoryview
    codec: Codec  # in which it is to be appended
    settings: TopicSettings
    now_ms: int


class RecordRefusal(NamedTuple):
    """Why a batch was refused for some of its records.

    One record of each kind of mistake is named, for they may be a million.
    """

    code: ErrorCode
    message: str
    records: tuple[tuple[int, str], ...]


def check_and_prepare(
    records: memoryview | bytes | None, settings: TopicSettings, version: int, now_ms: int
) -> memoryview | Refusal | Unopened:
    """Return the batch to append, writable, or why it is refused, or that it is to be opened."""
    batch = memoryview(records or b"")
    error = validate_producer_batch(
        batch,
        message_bytes_max=settings.max_message_bytes,
        segment_bytes=settings.segment_bytes,
        produce_version=version,
    )
    if error is not ErrorCode.NONE:
        return Refusal(error, _MESSAGES.get(error, error.name))
    attributes, last_delta, base_timestamp, max_timestamp = _FROM_ATTRIBUTES.unpack_from(batch, 21)
    if attributes & TRANSACTIONAL:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE, "Transactions are not served by this cluster yet."
        )
    if last_delta >= RECORDS_MAX:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"A batch of {last_delta + 1} records; {RECORDS_MAX} are taken: make smaller batches.",
        )
    codec = attributes & CODEC_MASK
    wanted = CODECS.get(settings.compression_type, codec)
    if (
        wanted != codec
        or settings.record_validation == "deep"
        or "compact" in settings.cleanup_policy  # each record must have a key
    ):
        return Unopened(batch, Codec(wanted), settings, now_ms)
    largest = largest_timestamp(base_timestamp, max_timestamp)
    problem = _check_timestamp(base_timestamp, largest, settings, now_ms)
    if problem is not None:
        return problem
    if largest != max_timestamp:
        assign_max_timestamp(batch, largest)
    if settings.message_timestamp_type == "LogAppendTime":
        assign_log_append_time(batch, now_ms)
    return batch


def largest_timestamp(base: int, claimed: int) -> int:
    """Return the largest timestamp of a batch's records, as far as its header tells.

    Apache Kafka computes it from the records and writes it into the header, and so must whoever
    walks them: this is the one place where a header's claim is believed. Retention, the time index
    and look-ups by timestamp, on this broker and on all that copy from it, count with the outcome.

    Two claims are seen to be wrong without a walk. Clients that send no timestamps (-1) leave 0
    there: taken for 1970, the records would be deleted at the next look. And the base timestamp is
    the first record's.
    """
    if base < 0 and claimed <= 0:
        return NO_TIMESTAMP
    return max(base, claimed)


def _check_timestamp(
    base_timestamp: int, max_timestamp: int, settings: TopicSettings, now_ms: int
) -> Refusal | None:
    """Hold the batch's timestamps against the bounds. Kafka looks at each record."""
    if settings.message_timestamp_type == "LogAppendTime":
        return None
    if base_timestamp < NO_TIMESTAMP:
        return Refusal(
            ErrorCode.INVALID_TIMESTAMP,
            f"The batch's base timestamp is {base_timestamp}; -1 says that there is none.",
        )
    if max_timestamp > now_ms + settings.message_timestamp_after_max_ms:
        bound = f"message.timestamp.after.max.ms={settings.message_timestamp_after_max_ms}"
    elif -1 < base_timestamp < now_ms - settings.message_timestamp_before_max_ms:
        bound = f"message.timestamp.before.max.ms={settings.message_timestamp_before_max_ms}"
    else:
        return None
    return Refusal(
        ErrorCode.INVALID_TIMESTAMP,
        f"Timestamps {base_timestamp} to {max_timestamp} are outside of what the "
        f"broker takes now ({now_ms}) with {bound}.",
    )


def too_large(size: int, settings: TopicSettings) -> Refusal | None:
    """Whether a batch that was built again may still be appended: it may be larger than it came."""
    for error, name, limit in (
        (ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes", settings.max_message_bytes),
        (ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes", settings.segment_bytes),
    ):
        if size > limit:
            return Refusal(
                error,
                f"With compression.type={settings.compression_type} the batch has {size} bytes,"
                f" more than {name}={limit}.",
            )
    return None


_MESSAGES = {
    ErrorCode.INVALID_RECORD: (
        "A partition takes exactly one record batch (magic 2) with at least one record, "
        "base offset 0, its counts in agreement, a sequence where there is a producer id, no "
        "control records and no attributes that Kafka does not define."
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: "A batch with a producer id has an epoch of 0 or more.",
    ErrorCode.INVALID_TIMESTAMP: (
        "The record batch claims LogAppendTime, which only a broker may stamp it with."
    ),
    ErrorCode.CORRUPT_MESSAGE: "The record batch is damaged: its length or its CRC is wrong.",
    ErrorCode.MESSAGE_TOO_LARGE: "The record batch is larger than max.message.bytes.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The record batch is larger than segment.bytes.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "zstd needs Produce version 7 or higher.",
}
