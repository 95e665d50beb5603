"""Goal: Spark's Python workers start from compiled modules. Method: homes as they are made, and a
worker that says what it has imported.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import spark_classes
from holdfast.pipelines import spark_home as of_home
from holdfast.pipelines.spark_home import SparkHomeError, _link, spark_home

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


def named(home: Path, core: str) -> dict[str, str]:
    """Make what looks like an installation of Spark."""
    for name in ("bin/spark-submit", f"jars/{core}.jar"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    return {"SPARK_HOME": str(home)}


def test_a_home_that_the_user_names_is_taken(tmp_path: Path) -> None:
    home, cache = tmp_path / "spark", tmp_path / "cache"
    environment = named(home, f"spark-core_2.13-{pyspark.__version__.rpartition('.')[0]}.77")
    assert spark_home(environment, cache=cache) == home
    assert not cache.exists()


def test_a_home_of_another_version_is_refused(tmp_path: Path) -> None:
    """Seen to fail: Spark ended with "'JavaPackage' object is not callable"."""
    environment = named(tmp_path / "spark", "spark-core_2.12-3.5.1")
    with pytest.raises(SparkHomeError, match=r"SPARK_HOME: .* is Spark 3\.5, and PySpark is"):
        spark_home(environment, cache=tmp_path)
    with pytest.raises(SparkHomeError, match=r"SPARK_HOME: .* has no bin/spark-submit; unset it"):
        spark_home({"SPARK_HOME": str(tmp_path / "none")}, cache=tmp_path)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("4.1.0", r"PySpark 4\.1 is too old, 4\.2 is needed"),
        (None, r"pip install 'holdfast\[spark\]'"),
    ],
)
def test_a_pyspark_that_is_old_or_missing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, said: str
) -> None:
    """Seen to fail: it was an AssertionError, or Spark did not find the source."""
    found = None
    if version is not None:
        (tmp_path / "version.py").write_text(f'__version__: str = "{version}"')
        found = ModuleSpec("pyspark", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(of_home, "find_spec", lambda _name: found)
    with pytest.raises(SparkHomeError, match=said):
        spark_home({}, cache=tmp_path)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("lacking", "program", "said"),
    [
        ("sqlalchemy", "from holdfast.pipelines import write", "needs sqlalchemy, which is not"),
        (
            "confluent_kafka",
            "from pyspark_holdfast import DefaultSource as s; print(s.name()); s({}).schema()",
            r"with PySpark 4.* confluent_kafka.* 'holdfast\[executor\]'",
        ),
    ],
)
def test_a_library_that_is_missing_is_told_with_what_brings_it(
    lacking: str, program: str, said: str
) -> None:
    """Seen to fail: Spark said that there is no data source of this name."""
    without = f"import sys; sys.modules['{lacking}'] = None; {program}"
    done = subprocess.run(
        [sys.executable, "-c", without], capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert re.search(said, done.stderr.splitlines()[-1])


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
