"""How a row is spelt in Redis: names of keys, texts of values, versions that compare byte by byte.

Pure. No two keys of a table have one name, nor have those of two tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

VERSION: Final = "holdfast_version"
"""The field of a row's hash that is not the query's: `VERSION:COMMIT`, where VERSION may lack."""

_MIDDLE: Final = 1 << 63  # what is added to a number makes it one without a sign
_DECIMAL_MIDDLE: Final = 1 << 127
_MICROSECONDS: Final = pa.timestamp("us")


def name_of(*parts: bytes) -> bytes:
    """Return a name in which a colon separates and never is a part's own.

    >>> name_of(b"orders", b"a:b", b"50%")
    b'orders:a%3Ab:50%25'
    """
    return b":".join(part.replace(b"%", b"%25").replace(b":", b"%3A") for part in parts)


def query_name(query: str) -> bytes:
    return name_of(b"holdfast_query", query.encode())


def table_name(table: str) -> bytes:
    return name_of(b"holdfast_table", table.encode())


def marker_name(row: bytes) -> bytes:
    """Return where the version of a deleted row lies, of whose key this is the name."""
    return b"holdfast_deleted:" + row


# -- values --------------------------------------------------------------------------------------


def texts(column: pa.Array) -> list[bytes | None]:
    """Return a column's values as they are stored; None is null, which is not stored.

    Numbers are decimal digits, floating ones the shortest text that reads back as the same, times
    ISO 8601 in UTC (without the Z where a column has no time zone), booleans `true` and `false`,
    texts UTF-8, and bytes themselves.
    """
    spell = _spelling(column.type)
    if pa.types.is_floating(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=None if column.type.tz is None else "UTC"))
    return [None if value is None else spell(value) for value in column.to_pylist()]


def key_texts(column: pa.Array) -> list[bytes | None]:
    """Return a column's values as parts of a key: what Spark takes for equal has one text."""
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # of -0.0 it makes 0.0
    return texts(column)


def _spelling(kind: pa.DataType) -> Callable[[Any], bytes]:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes
    if pa.types.is_boolean(kind):
        return lambda value: b"true" if value else b"false"
    if pa.types.is_decimal(kind):
        return _plain
    if pa.types.is_timestamp(kind):
        return _moment
    return lambda value: str(value).encode()


def _plain(value: Decimal) -> bytes:
    return f"{value:f}".encode()


def _moment(value: datetime) -> bytes:
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z").encode()


# -- versions ------------------------------------------------------------------------------------


def versions(column: pa.Array) -> list[str]:
    """Return texts of which, byte by byte, one is higher when Spark orders its value higher.

    Null is not among the values: who has no version was refused. Empty stands for no version, so
    each begins with a `v`.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    encode = _ordering(kind)
    return [f"v{encode(value).hex()}" for value in column.to_pylist()]


def _ordering(kind: pa.DataType) -> Callable[[Any], bytes]:
    if pa.types.is_floating(kind):
        return _ordered_float
    if pa.types.is_decimal(kind):
        return lambda value: _ordered_decimal(value, kind.scale)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value: value.encode()
    return lambda value: (int(value) + _MIDDLE).to_bytes(8, "big")


def _ordered_decimal(value: Decimal, scale: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert exponent == -scale, "Arrow gives all places of a decimal"
    whole = int("".join(map(str, digits)))
    return ((-whole if sign else whole) + _DECIMAL_MIDDLE).to_bytes(16, "big")


def _ordered_float(value: float) -> bytes:
    """IEEE 754's own order: of negative ones all bits are turned, and NaN is above all."""
    if value != value:  # noqa: PLR0124 - which is what NaN does
        return b"\xff" * 8
    bits = int.from_bytes(struct.pack(">d", value + 0.0), "big")
    turned = bits ^ ((1 << 64) - 1) if bits >> 63 else bits | _MIDDLE
    return turned.to_bytes(8, "big")


def row_names(table: str, keys: Sequence[pa.Array]) -> list[bytes]:
    """Return the name of each row's key. A part that is null was refused before."""
    columns = [key_texts(column) for column in keys]
    found = []
    for parts in zip(*columns, strict=True):
        known = [part for part in parts if part is not None]
        assert len(known) == len(parts), "a key that is null was written"
        found.append(name_of(table.encode(), *known))
    return found
