"""Goal: who reads a table's files with a filter finds the rows with NaN that the filter is for.

Method: a file as a task writes it, read by Spark and by Arrow with filters that they push down to
it, held against the same filters over the rows themselves; an Iceberg table, read by pyiceberg.
"""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import compute as pc
from pyarrow import dataset, parquet
from pyspark.sql import types as spark_types
from tests.pipelines.iceberg_tables import table
from tests.pipelines.iceberg_writer import begun
from tests.pipelines.parquet_writer import batch, staged

from holdfast.pipelines.due import decide
from holdfast.pipelines.sinks.parquet.task import SCHEMA, ParquetTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILTERS = (
    "f <= 1", "f > 5", "isnan(x)", "s.y > 5", "x != 1.0", "x < 2", "x = -0.0", "x > 5",
    "x >= double('NaN')",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("others", [(), (-inf,), (0.0,), (1.0,), (inf,)], ids=str)
def test_spark_finds_nan_in_a_file(
    spark: SparkSession, tmp_path: Path, others: tuple[float, ...]
) -> None:
    """Seen to fail: of `x > 5` and `x != 1.0` no row, where files of Spark's own have one."""
    numbers = spark.createDataFrame([(nan,), *((x,) for x in others)], "x double").coalesce(1)
    frame = numbers.selectExpr("x", "CAST(x AS FLOAT) AS f", "named_struct('y', x) AS s")
    frame.mapInArrow(ParquetTask(tmp_path), SCHEMA).collect()
    back = spark.read.parquet(str(tmp_path))
    found = {each: back.where(each).count() for each in FILTERS}
    assert found == {each: frame.where(each).count() for each in FILTERS}


def test_arrow_finds_nan_in_a_file(tmp_path: Path) -> None:
    rows = pa.record_batch({"x": [1.0, nan], "n": [1, 2]})
    list(ParquetTask(tmp_path)(iter([rows])))
    found = dataset.dataset(tmp_path, format="parquet")
    assert found.to_table(filter=pc.is_nan(pc.field("x")))["n"].to_pylist() == [2]
    assert found.to_table(filter=pc.field("x") != 1.0)["n"].to_pylist() == [2]
    assert found.to_table(filter=pc.field("n") > 1)["n"].to_pylist() == [2]
    (group,) = (fragment.row_groups[0] for fragment in found.get_fragments())
    assert group.statistics == {"n": {"min": 1, "max": 2}}


def test_a_column_with_a_dot_in_its_name_brings_back_no_limits_of_a_part(tmp_path: Path) -> None:
    """Arrow names parts by a dot, too. Seen to fail: a.b of the structure had limits of 1.0."""
    rows = pa.record_batch({"a": [{"b": 1.0}, {"b": nan}], "a.b": [1, 2]})
    list(ParquetTask(tmp_path)(iter([rows])))
    (file,) = tmp_path.glob("*.parquet")
    group = parquet.read_metadata(file).row_group(0)
    assert not any(group.column(number).is_stats_set for number in range(group.num_columns))


def test_pyiceberg_finds_nan_in_a_table(tmp_path: Path) -> None:
    kinds = [
        spark_types.StructField("x", spark_types.DoubleType()),
        spark_types.StructField("n", spark_types.LongType()),
    ]
    store = begun(tmp_path, schema=spark_types.StructType(kinds))
    what = batch(1)
    tasks = [[pa.record_batch({"x": [x, nan], "n": [1, 2]})] for x in (1.0, inf)]
    work = decide(what, store.memory(), (), store.query)
    store.commit(what, work, staged(store, what, *tasks))
    there = table(tmp_path)

    def numbers(row_filter: str) -> list[int]:
        return sorted(there.scan(row_filter=row_filter).to_arrow()["n"].to_pylist())

    assert numbers("x is nan") == [2, 2]
    assert numbers("x is not nan") == [1, 1]
    assert numbers("x != 1.0") == [1, 2, 2]
