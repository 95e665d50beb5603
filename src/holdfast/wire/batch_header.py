"""The 61 bytes in front of every record batch: reading, checking, rewriting.

Owns all that a broker does with a batch on its hot path. Must never look at a record.

Rules: batches.md#batch-header, batches.md#rewriting.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct as Layout
from typing import Final, NamedTuple, TypeAlias

from holdfast.wire.checksum import crc32c
from holdfast.wire.errors import ErrorCode, WireError

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER: Final = Layout(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LENGTH_END: Final = 12
"""Bytes in front of what the batch's length counts."""
BATCH_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_END
CRC_START: Final = 21
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_PRODUCED: Final = CODEC_MASK | TRANSACTIONAL
"""All attributes that a client may set; the others are a broker's, or nobody's yet."""

SEQUENCE_MAX: Final = 0x7FFFFFFF
_PRODUCE_VERSION_OF_ZSTD: Final = 7
BASE_OFFSET: Final = Layout(">q")
LEADER_EPOCH: Final = Layout(">i")
_CRC: Final = Layout(">I")
_ATTRIBUTES: Final = Layout(">h")
_MAX_TIMESTAMP: Final = Layout(">q")
_OFFSET_AND_LENGTH: Final = Layout(">qi")


class Codec(IntEnum):
    """How a batch's records are compressed: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """One batch's header, as it stands in the log."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, wrapped at 31 bits; -1 without a sequence."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> int:
        """The codec's number; `Codec` names those that exist."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def read_header(view: Buffer, offset: int = 0) -> BatchHeader:
    """Return the header at `offset`. WireError: fewer than 61 bytes remain. Nothing is checked."""
    if len(view) - offset < HEADER_SIZE:
        raise WireError("truncated in a batch header")
    return BatchHeader._make(HEADER.unpack_from(view, offset))


def batches(view: Buffer, offset: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch; stop before one that is cut at the end.

    WireError: a length or magic that no batch has. CRCs are not checked, see `crc_matches`.
    """
    end = len(view)
    while end - offset >= HEADER_SIZE:
        header = BatchHeader._make(HEADER.unpack_from(view, offset))
        if header.batch_length < BATCH_LENGTH_MIN or header.magic != MAGIC:
            raise WireError(
                f"no record batch at byte {offset}:"
                f" length {header.batch_length}, magic {header.magic}"
            )
        following = offset + LENGTH_END + header.batch_length
        if following > end:
            return
        yield offset, header
        offset = following


def crc_matches(view: Buffer, offset: int = 0) -> bool:
    """Return whether the CRC-32C of the batch at `offset` is right; all of it must be in `view`.

    Rules: batches.md#where-the-crc-is-checked.
    """
    _base, length = _OFFSET_AND_LENGTH.unpack_from(view, offset)
    end = offset + LENGTH_END + length
    if length < BATCH_LENGTH_MIN or end > len(view):
        return False
    (crc,) = _CRC.unpack_from(view, offset + CRC_START - 4)
    return bool(crc32c(memoryview(view)[offset + CRC_START : end]) == crc)


def validate_producer_batch(
    view: Buffer | None,
    *,
    message_bytes_max: int,
    segment_bytes: int = SEQUENCE_MAX,
    produce_version: int = 12,
) -> ErrorCode:
    """Check what a client wants appended, without looking at a record.

    Exactly one batch of magic 2, at offset 0, its CRC right, its counts in agreement, no attributes
    but a producer's, an epoch and a sequence where there is a producer id. NONE: it may be
    appended.

    Rules: batches.md#produced-batch.
    """
    if view is None or len(view) < HEADER_SIZE:
        return ErrorCode.INVALID_RECORD
    size = len(view)
    (base_offset, batch_length, _, magic, crc, attributes, last_offset_delta,
     _, _, producer_id, epoch, base_sequence, count) = HEADER.unpack_from(view)  # fmt: skip
    if not 0 <= magic <= MAGIC or batch_length < BATCH_LENGTH_MIN:
        return ErrorCode.CORRUPT_MESSAGE
    # A batch that is cut counts as none, as in Kafka; a second one behind it is one too many.
    if magic != MAGIC or batch_length + LENGTH_END != size or base_offset != 0:
        return ErrorCode.INVALID_RECORD
    if size > message_bytes_max:
        return ErrorCode.MESSAGE_TOO_LARGE
    if size > segment_bytes:
        return ErrorCode.RECORD_LIST_TOO_LARGE
    if crc32c(memoryview(view)[CRC_START:]) != crc:
        return ErrorCode.CORRUPT_MESSAGE
    if count <= 0 or last_offset_delta != count - 1:
        return ErrorCode.INVALID_RECORD
    if attributes & ~_PRODUCED:
        # Kafka has an error of its own for who claims to know when the broker appends.
        is_stamp = attributes & ~_PRODUCED == LOG_APPEND_TIME
        return ErrorCode.INVALID_TIMESTAMP if is_stamp else ErrorCode.INVALID_RECORD
    # The reverse, an epoch and a sequence without an id, is what some clients always send.
    if producer_id >= 0 and base_sequence < 0:
        return ErrorCode.INVALID_RECORD
    if producer_id >= 0 and epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    codec = attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        return ErrorCode.INVALID_RECORD
    if codec == Codec.ZSTD and produce_version < _PRODUCE_VERSION_OF_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE


def assign(view: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the batch's offset and leader epoch in place. Both lie outside its CRC on purpose."""
    BASE_OFFSET.pack_into(view, 0, base_offset)
    LEADER_EPOCH.pack_into(view, 12, leader_epoch)


def assign_log_append_time(view: bytearray | memoryview, now_ms: int) -> None:
    """Stamp the batch with the broker's time, in place, and correct its CRC.

    The base timestamp and the records' deltas stay: readers take the maximum for every record.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(view, 21)
    _ATTRIBUTES.pack_into(view, 21, attributes | LOG_APPEND_TIME)
    assign_max_timestamp(view, now_ms)


def assign_max_timestamp(view: bytearray | memoryview, timestamp: int) -> None:
    """Write the largest timestamp of the batch's records in place, and correct its CRC."""
    _MAX_TIMESTAMP.pack_into(view, 35, timestamp)
    _base, length = _OFFSET_AND_LENGTH.unpack_from(view, 0)
    _CRC.pack_into(view, 17, crc32c(memoryview(view)[CRC_START : LENGTH_END + length]))
