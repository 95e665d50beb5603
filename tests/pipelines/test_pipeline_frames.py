"""Goal: what Spark makes of records is what the recipes expect. Method: records of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.pipelines import ledger, lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE = b'{"line":17,"text":"a","id":"x","source":"s","target":"t","amount":5}'
PART = b'{"id":"y","text":"b","amount":"z"}'  # some of it, and an amount that is no number
VALUES = (WHOLE, PART, b"no json", None)
SCHEMA = "topic string, partition int, offset bigint, value binary, key binary"
PLACE = "struct<topic:string,partition:int,offset:bigint,value:binary,"


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    rows = [
        ("t", 3, offset, None if value is None else bytearray(value), bytearray(b"k%d" % offset))
        for offset, value in enumerate(VALUES)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def seen(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the columns that a frame adds, once the others are what they were."""
    found = [tuple(row) for row in frame.orderBy("offset").collect()]
    values = [None if value is None else bytearray(value) for value in VALUES]
    assert [row[:4] for row in found] == [("t", 3, n, value) for n, value in enumerate(values)]
    return [row[4:] for row in found]


@pytest.mark.slow
@pytest.mark.spark
def test_payments_are_taken_out_of_records(records: DataFrame) -> None:
    frame = ledger.frame(records)
    assert frame.schema.simpleString() == (
        f"{PLACE}id:string,source:string,target:string,amount:bigint>"
    )
    nothing = (None, None, None, None)
    assert seen(frame) == [("x", "s", "t", 5), ("y", None, None, None), nothing, nothing]


@pytest.mark.slow
@pytest.mark.spark
def test_lines_are_taken_out_of_records(records: DataFrame) -> None:
    frame = lines.frame(records)
    assert frame.schema.simpleString() == f"{PLACE}key:string,line_number:bigint,text:string>"
    assert seen(frame) == [
        ("k0", 17, "a"),
        ("k1", None, "b"),
        ("k2", None, None),
        ("k3", None, None),
    ]
