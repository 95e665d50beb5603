"""What a Fetch answer has of a partition: whole batches, and which of them give rows.

Owns the rules of control batches and of aborted transactions. Looks at headers alone.

Rules: batches.md#batch-header, batches.md#control-batches, fetch.md#size-of-an-answer,
fetch.md#aborted-transactions.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from holdfast.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    ControlType,
    decompress,
    read_control_type,
)
from holdfast.wire.batch_header import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CRC_START,
    HEADER,
    LENGTH_END,
    Buffer,
)
from holdfast.wire.batch_records import walk_records
from holdfast.wire.checksum import crc32c
from holdfast.wire.errors import WireError
from holdfast.wire.messages.fetch import AbortedTransaction

_MAGIC_AT: Final = 16  # in every format
_OFFSET_MAX: Final = 1 << 62


Batch = tuple[int, tuple[int, ...]]
"""Where a batch begins among the bytes that came, and its header's fields, as `BatchHeader` has
them. There may be one for each record, so it is no object of ours."""


class Scan(NamedTuple):
    """The whole batches of an answer, all of the current format."""

    data: memoryview
    batches: list[Batch]
    next_offset: int  # behind the last of them
    is_old: bool  # behind them is a message of an old format
    trouble: str  # with what is behind them


def scan(records: memoryview | bytes | None) -> Scan:
    """Cut an answer into its batches; one that is cut off at the end is left."""
    data = memoryview(records or b"")
    found: list[Batch] = []
    at, size, next_offset, is_old, trouble = 0, len(data), -1, False, ""
    while size - at >= HEADER_SIZE:
        fields = HEADER.unpack_from(data, at)
        base_offset, length, _, magic, _, _, last_delta = fields[:7]
        if magic != MAGIC:
            break
        if length < BATCH_LENGTH_MIN or not 0 <= base_offset <= _OFFSET_MAX or last_delta < 0:
            trouble = f"a batch of {length} bytes, from offset {base_offset} to +{last_delta}"
            break
        following = at + LENGTH_END + length
        if following > size:
            break
        found.append((at, fields))
        at, next_offset = following, base_offset + last_delta + 1
    if size - at > _MAGIC_AT and data[at + _MAGIC_AT] != MAGIC:
        is_old = data[at + _MAGIC_AT] < MAGIC
        if not is_old:
            trouble = f"a batch of the unknown format {data[at + _MAGIC_AT]}"
    return Scan(data, found, next_offset, is_old, trouble)


def checked_end(data: memoryview, batch: Batch) -> int:
    """Return where a batch ends. WireError: its bytes are not those that its checksum is of."""
    at, fields = batch
    end = at + LENGTH_END + fields[1]
    if crc32c(data[at + CRC_START : end]) != fields[4]:
        raise WireError("its checksum is wrong")
    return end


def body_of(data: memoryview, batch: Batch, size_max: int) -> Buffer:
    """Return a batch's records, inflated. WireError: it is damaged, or larger than that."""
    at, fields = batch
    packed = data[at + HEADER_SIZE : checked_end(data, batch)]
    codec = fields[5] & CODEC_MASK
    return decompress(codec, packed, size_max) if codec else packed


class AbortedTransactions:
    """Which batches belong to transactions that were aborted, as one answer tells them.

    `None` tells of none: they are asked for by who reads committed records alone.
    """

    def __init__(self, told: Iterable[AbortedTransaction] | None) -> None:
        self._coming = sorted(told or (), key=attrgetter("first_offset"), reverse=True)
        self._producers: set[int] = set()  # that have an aborted transaction here

    def covers(self, header: BatchHeader) -> bool:
        """Return whether the records of a transaction's batch were aborted.

        Asked for each batch of a transaction and each control batch, in their order.
        """
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        return header.producer_id in self._producers

    def end(self, header: BatchHeader, body: Buffer) -> None:
        """Take a control batch: an abort marker ends its producer's aborted transaction.

        WireError: it is none.
        """
        records = list(walk_records(header, bytes(body)))
        if records and read_control_type(records[0].key) == ControlType.ABORT:
            self._producers.discard(header.producer_id)
