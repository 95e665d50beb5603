"""What a Fetch answer has of a partition: whole batches, and which of them give rows.

Owns the rules of control batches and of aborted transactions. Looks at headers alone.

Rules: batches.md#batch-header, batches.md#control-batches, fetch.md#size-of-an-answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from holdfast.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    ControlType,
    crc_matches,
    decompress,
    read_control_type,
    read_header,
    read_records,
)
from holdfast.wire.errors import WireError
from holdfast.wire.messages.fetch import AbortedTransaction

_MAGIC_AT: Final = 16  # in every format
_OFFSET_MAX: Final = 1 << 62


class Batch(NamedTuple):
    """One whole batch of the current format."""

    header: BatchHeader
    data: memoryview


class Scan(NamedTuple):
    """The batches of an answer."""

    batches: list[Batch]
    is_old: bool  # behind them is a message of an old format
    trouble: str  # with what is behind them


def scan(records: memoryview | bytes | None) -> Scan:
    """Cut an answer into its batches; one that is cut off at the end is left."""
    view, at = memoryview(records or b""), 0
    found: list[Batch] = []
    while len(view) - at > _MAGIC_AT:
        magic = view[at + _MAGIC_AT]
        if magic != MAGIC:
            is_old = magic < MAGIC
            return Scan(found, is_old, "" if is_old else f"a batch of the unknown format {magic}")
        if len(view) - at < HEADER_SIZE:
            break
        header = read_header(view, at)
        if trouble := _wrong(header):
            return Scan(found, False, trouble)
        if header.size > len(view) - at:
            break
        found.append(Batch(header, view[at : at + header.size]))
        at += header.size
    return Scan(found, False, "")


def _wrong(header: BatchHeader) -> str:
    if header.size < HEADER_SIZE:
        return f"a batch of {header.size} bytes"
    if not 0 <= header.base_offset <= _OFFSET_MAX or header.last_offset_delta < 0:
        return f"a batch from offset {header.base_offset} to {header.last_offset}"
    return ""


def body_of(batch: Batch, size_max: int) -> bytes | bytearray | memoryview:
    """Return a batch's records, inflated. WireError: it is damaged, or larger than that."""
    if not crc_matches(batch.data):
        raise WireError("its checksum is wrong")
    packed = batch.data[HEADER_SIZE:]
    codec = batch.header.codec
    return decompress(codec, packed, size_max) if codec else packed


class AbortedTransactions:
    """Which batches belong to transactions that were aborted, as one answer tells them.

    `None` tells of none: they are asked for by who reads committed records alone.
    """

    def __init__(self, told: Iterable[AbortedTransaction] | None) -> None:
        self._coming = sorted(told or (), key=attrgetter("first_offset"), reverse=True)
        self._producers: set[int] = set()  # that have an aborted transaction here

    def covers(self, header: BatchHeader) -> bool:
        """Return whether a batch's records were aborted. Asked for each batch, in their order."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        return (
            header.is_transactional
            and header.producer_id != NO_PRODUCER_ID
            and header.producer_id in self._producers
        )

    def end(self, batch: Batch, size_max: int) -> None:
        """Take a control batch: an abort marker ends its producer's aborted transaction.

        WireError: it is none.
        """
        if batch.header.producer_id not in self._producers:
            return
        if not crc_matches(batch.data):
            raise WireError("its checksum is wrong")
        records = read_records(batch.data, inflated_size_max=size_max)
        if records and read_control_type(records[0].key) == ControlType.ABORT:
            self._producers.discard(batch.header.producer_id)
