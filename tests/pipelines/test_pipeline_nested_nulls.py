"""Goal: of nested values a null stays a null, and what is empty stays empty, from Spark's rows to
what readers of the file find; whatever Spark knows of fields that are never null.

Method: values that Spark computes, through a task into a file; read by Arrow and by Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from holdfast.pipelines.sinks.parquet.task import SCHEMA, ParquetTask, optional

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Their fields are never null to Spark, but for the last one's.
S = "named_struct('a', 1, 'b', 'x')"
MAYBE = "named_struct('a', n, 'b', CAST(n AS STRING))"
COLUMNS = {
    "struct": f"IF(n = 0, {S}, NULL)",
    "struct of null": f"IF(n = 0, {MAYBE}, NULL)",
    "struct in struct": f"IF(n = 0, named_struct('s', {S}), NULL)",
    "null in struct": f"named_struct('s', IF(n = 0, {S}, NULL))",
    "struct in array": f"CASE n WHEN 0 THEN array({S}, NULL) WHEN 1 THEN array() END",
    "struct in map": f"CASE n WHEN 0 THEN map('k', {S}, 'l', NULL) WHEN 1 THEN map() END",
    "key of map": f"IF(n = 0, map({S}, {S}), NULL)",
    "array in struct": f"IF(n = 0, named_struct('l', array({S})), NULL)",
    "array in map": f"map('k', IF(n = 0, array({S}, NULL), NULL), 'e', array(), 'n', array(NULL))",
    "array in array": f"IF(n = 0, array(array({S}), NULL, array()), IF(n = 1, array(), NULL))",
    "text": "CASE n WHEN 0 THEN '' WHEN 1 THEN 'null' END",
    "bytes": "IF(n = 0, CAST('' AS BINARY), NULL)",
}


def plain(value: Any) -> Any:
    """Return a value as Python has it, whoever read it: structures and maps as sorted pairs."""
    if isinstance(value, dict):
        return sorted((repr(plain(key)), plain(part)) for key, part in value.items())
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return plain(value.asDict())
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_nulls_stay_where_they_are(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Seen to fail: Arrow refused the row, `declared non-nullable but contains nulls`."""
    numbers = spark.createDataFrame([(0,), (1,), (None,)], "n int").coalesce(1)
    frame = numbers.selectExpr("n", f"{COLUMNS[name]} AS v")
    rows = frame.collect()
    frame.mapInArrow(ParquetTask(tmp_path), SCHEMA).collect()
    (file,) = tmp_path.glob("*.parquet")
    by_spark = spark.read.parquet(str(file)).collect()
    assert [plain(row) for row in by_spark] == [plain(row) for row in rows]
    found = parquet.read_table(file)["v"]  # which has maps as lists of pairs
    assert found.is_null().to_pylist() == [row["v"] is None for row in rows]


def test_each_part_of_a_file_may_be_null_but_the_key_of_a_map() -> None:
    whole = pa.field("a", pa.int64(), nullable=False)
    told = pa.schema([
        pa.field("s", pa.struct([pa.field("t", pa.struct([whole]), nullable=False)])),
        pa.field("l", pa.list_(pa.field("element", pa.struct([whole]), nullable=False))),
        pa.field("g", pa.large_list(whole), nullable=False),
        pa.field("m", pa.map_(pa.struct([whole]), whole)),
    ])  # fmt: skip
    part = whole.with_nullable(True)
    assert optional(told) == pa.schema([
        pa.field("s", pa.struct([pa.field("t", pa.struct([part]))])),
        pa.field("l", pa.list_(pa.field("element", pa.struct([part])))),
        pa.field("g", pa.large_list(part)),
        pa.field("m", pa.map_(pa.struct([part]), part)),
    ])  # fmt: skip
