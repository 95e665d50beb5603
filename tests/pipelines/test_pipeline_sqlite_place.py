"""Goal: a file of one machine is written by queries of that machine alone.

Method: the store opened as the sink opens it, for each kind of master.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import types as spark

from holdfast.pipelines.sinks.sql_store import SqliteStore
from holdfast.pipelines.sinks.target import Target, TargetError

SCHEMA = spark.StructType([spark.StructField("text", spark.StringType())])


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://api:6443", ""])
def test_a_cluster_is_refused_before_there_is_a_file(master: str, tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/table.db", "q", Target(table="kept"))
    with pytest.raises(TargetError, match="Use postgresql"):
        store.open(SCHEMA, master)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,512]"]
)
def test_one_machine_is_written_on(master: str, tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/table.db", "q", Target(table="kept"))
    store.open(SCHEMA, master)
    store.close()
    assert (tmp_path / "table.db").exists()
