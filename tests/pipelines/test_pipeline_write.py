"""Goal: one call brings a stream into a table of SQLite, PostgreSQL, Delta or Iceberg, each row
once, and upserts leave of each key the last. Method: Spark itself, a real log, and what the table
has then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlalchemy as sql
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import StreamingQueryException
from tests.pipelines.bench import values

from holdfast.pipelines import write
from holdfast.pipelines.sinks.target import TargetError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from tests.pipelines.bench import Bench

pytestmark = [pytest.mark.turns, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]


class Scene:
    """A bench whose table is written by `write`."""

    def __init__(self, bench: Bench, database: str) -> None:
        self.bench = bench
        self.url = database

    def run(self, frame: DataFrame, **options: Any) -> None:
        """Read all that is there now into the table `kept`."""
        given = {"table": "kept", "query": "q", "checkpoint": str(self.bench.checkpoint), **options}
        query = write(frame, self.url, trigger={"availableNow": True}, **given)
        query.awaitTermination()

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        engine = sql.create_engine(self.url)
        with engine.connect() as connection:
            found = connection.exec_driver_sql(f"SELECT {columns} FROM kept ORDER BY 1, 2").all()
        engine.dispose()
        return [tuple(row) for row in found]


@pytest.fixture
def scene(bench: Bench, database: str) -> Scene:
    return Scene(bench, database)


def plain(bench: Bench, **options: Any) -> DataFrame:
    return bench.stream(**options).selectExpr(
        "topic", "partition", "offset", "timestamp", "CAST(value AS STRING) AS text"
    )


def test_rows_are_appended_once_whatever_is_replayed(scene: Scene) -> None:
    bench = scene.bench
    for partition in range(2):
        bench.topics.write(bench.topic, partition, values("a", 5))
    scene.run(plain(bench, maxOffsetsPerTrigger=4), keys=["partition", "offset"])
    bench.lose_last_commit()
    bench.topics.write(bench.topic, 0, values("a", 3, 5))
    scene.run(plain(bench), keys=["partition", "offset"])
    expected = [(0, n, f"a{n}") for n in range(8)] + [(1, n, f"a{n}") for n in range(5)]
    assert scene.rows('"partition", "offset", text') == expected


def delta(folder: Path) -> pa.Table:
    return DeltaTable(folder / "tables" / "db.kept").to_pyarrow_table()


def iceberg(folder: Path) -> pa.Table:
    with closing(SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db")) as catalog:
        return catalog.load_table("db.kept").scan().to_arrow()


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("delta://{0}/tables", delta),
        ("iceberg+sqlite:///{0}/catalog.db?warehouse={0}/tables", iceberg),
    ],
    ids=["delta", "iceberg"],
)
def test_a_table_of_files_has_each_row_once_whatever_is_replayed(
    bench: Bench, tmp_path: Path, url: str, read: Callable[[Path], pa.Table]
) -> None:
    """Rows that no task has, too: a batch whose rows are filtered moves what is remembered."""
    scene = Scene(bench, url.format(tmp_path))

    def kept(**options: Any) -> DataFrame:
        frame = bench.stream(**options).where("value IS NOT NULL AND partition = 0 OR key = 'k'")
        return frame.selectExpr("*", "CAST(NULL AS DECIMAL(9, 2)) AS price")

    def found() -> list[dict[str, Any]]:
        rows = read(tmp_path).sort_by([("partition", "ascending"), ("offset", "ascending")])
        return list(rows.to_pylist())

    stamps = [1_700_000_000_123, 0, 1, 2, 3]
    for partition in range(2):
        bench.topics.write(bench.topic, partition, values("a", 5), timestamps_ms=stamps)
    scene.run(kept(maxOffsetsPerTrigger=4), table="db.kept")
    bench.lose_last_commit()
    bench.topics.write(bench.topic, 1, values("b", 2), b"other")
    bench.topics.write(bench.topic, 0, values("a", 3, 5))
    scene.run(kept(maxOffsetsPerTrigger=2), table="db.kept")
    rows = found()
    expected = [(0, n, b"a%d" % n) for n in range(8)] + [(1, n, b"a%d" % n) for n in range(5)]
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == expected
    assert rows[0]["timestamp"] == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert {(row["key"], row["topic"], row["price"]) for row in rows} == {(b"k", bench.topic, None)}
    assert rows[0] == bench.batch().where("partition = 0 AND offset = 0").toArrow().to_pylist()[
        0
    ] | {"price": None, "timestamp": rows[0]["timestamp"]}


def events(bench: Bench, partition: int, changes: Sequence[tuple[str, int | None]]) -> None:
    """Write what becomes of accounts: a balance, or that it is closed."""
    bench.topics.write(
        bench.topic,
        partition,
        [json.dumps({"account": name, "balance": balance}).encode() for name, balance in changes],
    )


def accounts(bench: Bench, **options: Any) -> DataFrame:
    body = "from_json(CAST(value AS STRING), 'account STRING, balance BIGINT') AS body"
    frame = bench.stream(**options).selectExpr("topic", "partition", "offset", "timestamp", body)
    return frame.selectExpr(
        "topic", "partition", "offset", "timestamp",
        "body.account", "body.balance", "body.balance IS NULL AS closed",
    )  # fmt: skip


def test_an_upsert_leaves_the_last_row_of_each_key(scene: Scene) -> None:
    bench = scene.bench
    events(bench, 0, [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("c", None)])
    events(bench, 1, [("d", 1), ("d", None), ("d", 3)])
    options = {"mode": "upsert", "keys": ["account"], "deleted": "closed"}
    scene.run(accounts(bench, maxOffsetsPerTrigger=3), **options)
    assert scene.rows("account, balance") == [("a", 2), ("b", 1), ("d", 3)]
    bench.lose_last_commit()
    events(bench, 0, [("b", None), ("c", 7)])
    scene.run(accounts(bench), **options)
    assert scene.rows("account, balance") == [("a", 2), ("c", 7), ("d", 3)]


def test_a_stateful_query_upserts_what_it_counts(scene: Scene) -> None:
    bench = scene.bench
    events(bench, 0, [("a", 1), ("b", 1), ("a", 2)])

    def counted() -> DataFrame:
        return accounts(bench, maxOffsetsPerTrigger=2).groupBy("account").count()

    options = {"mode": "upsert", "keys": ["account"], "output_mode": "update"}
    scene.run(counted(), **options)
    bench.lose_last_commit()
    events(bench, 1, [("a", 3)])
    scene.run(counted(), **options)
    assert scene.rows("account, count") == [("a", 3), ("b", 1)]


def test_what_does_not_fit_ends_the_query_and_says_why(scene: Scene) -> None:
    bench = scene.bench
    bench.topics.write(bench.topic, 0, values("a", 1))
    frame = bench.stream().selectExpr("array(value) AS list")
    with pytest.raises(StreamingQueryException, match=r"list.*has no counterpart"):
        scene.run(frame)
    with pytest.raises(TargetError, match="it is no stream"):
        scene.run(bench.batch())
    with pytest.raises(TargetError, match="mode: 'merge'"):
        scene.run(plain(bench), mode="merge")
    with pytest.raises(TargetError, match=r'output_mode: .* use mode="upsert"'):
        scene.run(plain(bench), output_mode="complete")
    with pytest.raises(TargetError, match=r"mysql:\.\.\. is none of"):
        Scene(bench, "mysql://host/database").run(plain(bench))
