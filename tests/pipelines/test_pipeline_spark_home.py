"""Goal: Spark's Python workers start from compiled modules. Method: homes as they are made, and a
worker that says what it has imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import spark_classes
from holdfast.pipelines.spark_home import _link, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALLED = Path(pyspark.__file__).parent


def test_a_home_has_all_of_spark_but_the_archive(tmp_path: Path) -> None:
    home = spark_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home.is_relative_to(tmp_path)
    assert (home / "bin" / "spark-submit").samefile(INSTALLED / "bin" / "spark-submit")
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    assert spark_home({}, cache=tmp_path / "holdfast") == home
    assert list((tmp_path / "holdfast").iterdir()) == [home]


def test_a_home_that_the_user_names_is_taken(tmp_path: Path) -> None:
    assert spark_home({"SPARK_HOME": "/opt/spark"}, cache=tmp_path) == Path("/opt/spark")
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_spark_is_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert spark_home({}, cache=tmp_path / "file" / "cache") == INSTALLED


def test_whoever_comes_second_keeps_what_the_first_has_made(tmp_path: Path) -> None:
    made = tmp_path / "spark-1" / "bin"
    made.mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        _link(INSTALLED, made.parent)
    assert list(tmp_path.iterdir()) == [made.parent]
    assert list(made.parent.iterdir()) == [made]


@pytest.mark.slow
@pytest.mark.spark
def test_workers_import_what_is_installed(spark: SparkSession) -> None:
    def imported(_batches: Iterator[object]) -> Iterator[object]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker
        import pyspark  # noqa: PLC0415 - in the worker

        yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(imported, "file string").collect()
    assert row.file == str(INSTALLED / "__init__.py")


@pytest.mark.spark
def test_classes_that_are_kept_are_taken(spark: SparkSession) -> None:
    """Goal: the archive of `make test` serves: Java says nothing when it doesn't take it.

    Method: what Java's process has mapped.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    process = Path("/proc", str(jvm.java.lang.ProcessHandle.current().pid()))
    taken = str(spark_classes.ARCHIVE) in (process / "maps").read_text()
    given = str(spark_classes.SETTINGS) in os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    assert taken == given, "it fits no longer: remove .venv/.classes"
