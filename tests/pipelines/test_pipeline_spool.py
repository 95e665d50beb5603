"""Goal: what Spark computed is what gets written, all of it and only when all is there.

Method: rows of every kind of value through a spool of many chunks, and one that breaks off.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

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
