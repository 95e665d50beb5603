"""Goal: what Spark computed is what gets written, all of it and only when all is there.

Method: rows of every kind of value through a spool of many chunks, and one that breaks off; rows
that are large, held against what the interpreter has allocated.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row

from holdfast.pipelines.sinks.spool import Spool

CHUNK = 5


def rows(count: int) -> Iterator[Row]:
    for number in range(count):
        yield Row(
            offset=number,
            value=bytes([number % 256]),
            at=datetime(2026, 11, 22, tzinfo=UTC),
            amount=Decimal(number) / 3,
            nothing=None,
            nested=Row(day=date(2026, 11, 22), tags={"a": [1, 2]}),
        )


@pytest.mark.parametrize("count", [0, 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
def test_rows_come_out_as_they_went_in(count: int) -> None:
    with Spool(rows(count), CHUNK) as spool:
        assert spool.count == count
        chunks = list(spool.chunks())
    assert all(len(chunk) == CHUNK for chunk in chunks[:-1])
    assert [row for chunk in chunks for row in chunk] == [row.asDict() for row in rows(count)]


def test_no_chunk_is_given_out_while_rows_are_still_computed() -> None:
    count = 2 * CHUNK + 1
    source = rows(count)
    with Spool(source, CHUNK) as spool:
        assert next(source, None) is None
        assert spool.count == count


def test_what_breaks_while_rows_are_computed_is_raised() -> None:
    def broken() -> Iterator[Row]:
        yield from rows(CHUNK + 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Spool(broken(), CHUNK)


MIB = 1 << 20
LARGE: dict[str, Callable[[], Any]] = {
    "array": lambda: [bytearray(MIB), bytearray(MIB)],
    "bytes": lambda: bytearray(2 * MIB),
    "map": lambda: {"a": "x" * MIB, "b" * MIB: None},
    "structure": lambda: Row(a=Row(b=bytearray(2 * MIB))),
    "text": lambda: "\N{SNOWMAN}" * MIB,  # two bytes each, in memory
}


@pytest.mark.parametrize("kind", sorted(LARGE))
def test_large_rows_are_not_held_all_at_once(kind: str) -> None:
    """Seen to fail: 5,000 rows were held, whatever their size: of 2 MiB each, ten gigabytes."""
    most, count = 8 * MIB, 30
    tracemalloc.start()
    try:
        with Spool((Row(value=LARGE[kind]()) for _ in range(count)), chunk_bytes=most) as spool:
            sizes = [len(chunk) for chunk in spool.chunks()]
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (sum(sizes), max(sizes)) == (count, 3)
    assert held < 5 * most


def test_a_row_that_is_larger_than_the_bound_is_a_chunk_of_its_own() -> None:
    lengths = [1, 1, 900, 1, 2000, 1]
    with Spool((Row(value=bytes(n)) for n in lengths), chunk_bytes=1000) as spool:
        chunks = [[len(row["value"]) for row in chunk] for chunk in spool.chunks()]
    assert chunks == [[1, 1], [900, 1], [2000], [1]]
