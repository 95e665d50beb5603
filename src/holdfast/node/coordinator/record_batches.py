"""Records of a state machine over a log, as one batch and back.

Rules: group-records.md#frame, group-records.md#unknown-types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.log_machine import KeyedRecord
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.batch_header import HEADER_SIZE
from holdfast.wire.records.group_records import encode_key, encode_value
from holdfast.wire.records.group_tables import GroupKey, GroupValue
from holdfast.wire.schema import Struct

RECORD_OVERHEAD: Final = 24  # bytes of a record beside its key and value, at most


def encoded(records: Iterable[KeyedRecord], now_ms: int) -> list[Record]:
    """Return records as they go into a batch, stamped with this time."""
    return [_encoded(key, value, now_ms) for key, value in records]


def _encoded(key: Struct, value: Struct | None, now_ms: int) -> Record:
    assert isinstance(key, GroupKey), "a record of groups"
    if value is None:
        return Record(encode_key(key), None, now_ms)
    assert isinstance(value, GroupValue), "a record of groups"
    return Record(encode_key(key), encode_value(value), now_ms)


def size_of(records: Iterable[Record]) -> int:
    """Return the bytes that records take in a batch that is not compressed, or a few more."""
    return sum(
        RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") for record in records
    )


def batch_of(records: list[Record], codec: Codec) -> memoryview:
    """Return one batch, writable."""
    return memoryview(build_batch(records, codec=codec))


BATCH_OVERHEAD: Final = HEADER_SIZE
