"""Goal: a stream that is written to Redis leaves of each key the row that the rules name, each
batch once, and what nobody could order is refused before anything of its batch is written.

Method: Spark itself and Redis itself. Random batches, those of many tables in one, held against the
few lines of Python that SQL's are held against; and queries on a real log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.pipelines.redis_writer import batch, markers, table
from tests.pipelines.test_pipeline_merging import NAMES, Model, Row, batches

from holdfast.lab.soak.redis_server import RedisServer
from holdfast.pipelines import write
from holdfast.pipelines.due import Rows, Work
from holdfast.pipelines.offsets import RECORD
from holdfast.pipelines.sinks.key_value.store import RedisStore
from holdfast.pipelines.sinks.store import StagingError
from holdfast.pipelines.sinks.target import COORDINATES, Mode, Target, TargetError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from redis import Redis
    from tests.pipelines.bench import Bench

pytestmark = [pytest.mark.turns, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

SEEDS = 25
SCHEMA = (
    "seed INT, topic STRING, partition INT, `offset` BIGINT, timestamp BIGINT, id INT, text STRING,"
    " revision INT, gone BOOLEAN"
)
ALL = Work(rows=Rows.ALL)


class Tables:
    """Tables of one query, told apart by a column of the key, whose batches come together."""

    def __init__(self, spark: SparkSession, url: str, **of: Any) -> None:
        self.spark = spark
        given = {"table": "kept", "mode": Mode.UPSERT, "keys": ("seed", "id"), **of}
        self.store = RedisStore(url, "q", Target(**given))
        self.store.open(self.frame([]).schema, "local")
        self.number = 0

    def frame(self, rows: Sequence[tuple[int, Row]]) -> DataFrame:
        frame = self.spark.createDataFrame([(seed, *row) for seed, row in rows], SCHEMA)
        for name in COORDINATES:
            frame = frame.withMetadata(name, {RECORD: name})
        return frame

    def write(self, rows: Sequence[tuple[int, Row]], *, stateful: bool = False) -> int:
        what = batch(self.number, {})
        if stateful:
            what = type(what)(
                number=what.number, checkpoint="c", plan=what.plan, stateful=True, ranges=()
            )
        staged = self.store.stage(self.frame(rows), what)
        try:
            self.store.commit(what, ALL, staged)
        finally:
            staged.close()
        self.number += 1
        return staged.count


def found_rows(redis: Redis, *, with_gone: bool) -> dict[str, dict[str, str]]:
    found = table(redis)
    if not with_gone:
        for fields in found.values():
            fields.pop("gone", None)
    return found


def as_stored(row: Row) -> dict[str, str]:
    told = {name: value for name, value in row._asdict().items() if name not in {"id", "gone"}}
    return {name: str(value) for name, value in told.items() if value is not None}


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
def test_of_each_key_the_row_that_the_rules_name(
    spark: SparkSession, redis_server: RedisServer, redis: Redis, *, versioned: bool, deletes: bool
) -> None:
    of = ({"version": "revision"} if versioned else {}) | ({"deleted": "gone"} if deletes else {})
    tables = Tables(spark, redis_server.url, **of)
    models = {seed: Model(versioned=versioned, deletes=deletes) for seed in range(SEEDS)}
    lives = [batches(random.Random(seed)) for seed in models]
    for together in zip(*lives, strict=True):
        rows = [(seed, row) for seed, of_seed in enumerate(together) for row in of_seed]
        assert tables.write(rows) == len(rows)
        expected = {}
        gone = set()
        for seed, of_seed in enumerate(together):
            models[seed].write(of_seed)
            for key, row in models[seed].last.items():
                if deletes and row.gone:
                    gone.add(f"holdfast_deleted:kept:{seed}:{key}")
                else:
                    expected[f"kept:{seed}:{key}"] = as_stored(row)
        assert found_rows(redis, with_gone=False) == expected
        assert markers(redis) == gone


def row(offset: int, **changed: Any) -> tuple[int, Row]:
    return 0, Row("a", 0, offset, 0, 0, "x", 0, None)._replace(**changed)


def test_what_nobody_could_order_is_refused_and_nothing_is_written(
    spark: SparkSession, redis_server: RedisServer, redis: Redis
) -> None:
    none: Any = None
    versioned = Tables(spark, redis_server.url, version="revision")
    with pytest.raises(TargetError, match=r'"id":7} has no version: its column .revision. is null'):
        versioned.write([row(0), row(1, id=7), row(2, id=7, revision=none)])
    redis.flushall()
    plain = Tables(spark, redis_server.url)
    with pytest.raises(TargetError, match=r'{"seed":0} has null in its key'):
        plain.write([row(0), row(1, id=none)])
    with pytest.raises(TargetError, match=r'"id":0} is twice in one batch'):
        plain.write([row(0), row(1), row(2, id=1)], stateful=True)
    assert table(redis) == {}
    assert plain.write([row(0), row(0, id=1)], stateful=True) == 2
    assert plain.write([row(0, text="later")], stateful=True) == 1
    assert {key: fields["text"] for key, fields in table(redis).items()} == {
        "kept:0:0": "later",
        "kept:0:1": "x",
    }


def test_rows_that_are_alike_in_all_that_counts_are_chosen_alike(
    spark: SparkSession, redis_server: RedisServer, redis: Redis
) -> None:
    """Two rows came of one record. Seen to fail: the first one that a task happened to have."""
    tables = Tables(spark, redis_server.url)
    rows = [row(0, id=key, text=f"{n}") for key in range(40) for n in range(2)]
    chosen = []
    for order in (1, -1):
        tables.write(rows[::order])
        chosen.append(table(redis))
    assert chosen[0] == chosen[1]


def test_a_batch_that_was_not_staged_as_it_is_computed_now_is_not_remembered(
    spark: SparkSession, redis_server: RedisServer, redis: Redis
) -> None:
    tables = Tables(spark, redis_server.url)
    staged = tables.store.stage(tables.frame([row(0), row(1, id=1)]), batch(0, {}))
    other = type(staged)(staged.frame, staged.keys + 1, staged.count)  # type: ignore[attr-defined, call-arg]
    with pytest.raises(StagingError, match="3 keys were to be written, and 2 were"):
        tables.store.commit(batch(0, {}), ALL, other)
    staged.close()
    assert redis.hget("holdfast_query:q", "commit") == b"0"


def test_what_tells_the_order_is_demanded(spark: SparkSession, redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url, "q2", Target(table="t", mode=Mode.UPSERT, keys=("id",)))
    frame = spark.createDataFrame([(1,)], "id INT")
    store.open(frame.schema, "local")
    with pytest.raises(TargetError, match="topic, partition, offset, timestamp"):
        store.stage(frame, batch(0, {}))


# -- through a query -------------------------------------------------------------------------------


class Scene:
    """A bench whose table is in Redis."""

    def __init__(self, bench: Bench, url: str) -> None:
        self.bench = bench
        self.url = url

    def run(self, frame: DataFrame, **options: Any) -> None:
        """Read all that is there now into the table `kept`."""
        given = {
            "table": "kept",
            "mode": "upsert",
            "keys": ["account"],
            "query": "q",
            "checkpoint": str(self.bench.checkpoint),
            **options,
        }
        query = write(frame, self.url, trigger={"availableNow": True}, **given)
        query.awaitTermination()


@pytest.fixture
def scene(bench: Bench, redis_server: RedisServer, redis: Redis) -> Scene:
    redis.ping()
    return Scene(bench, redis_server.url)


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


def balances(redis: Redis, field: str = "balance") -> dict[str, int]:
    return {key.removeprefix("kept:"): int(fields[field]) for key, fields in table(redis).items()}


def test_an_upsert_leaves_the_last_row_of_each_key(scene: Scene, redis: Redis) -> None:
    bench = scene.bench
    events(bench, 0, [("a", 1), ("b:1", 1), ("a", 2), ("c", 1), ("c", None)])
    events(bench, 1, [("d", 1), ("d", None), ("d", 3)])
    scene.run(accounts(bench, maxOffsetsPerTrigger=3), deleted="closed")
    assert balances(redis) == {"a": 2, "b%3A1": 1, "d": 3}
    commits = int(redis.hget("holdfast_query:q", "commit") or 0)
    bench.lose_last_commit()
    scene.run(accounts(bench), deleted="closed")
    assert int(redis.hget("holdfast_query:q", "commit") or 0) == commits, "a replay is known"
    events(bench, 0, [("b:1", None), ("c", 7)])
    scene.run(accounts(bench), deleted="closed")
    assert balances(redis) == {"a": 2, "c": 7, "d": 3}
    assert markers(redis) == {"holdfast_deleted:kept:b%3A1"}


def test_a_stateful_query_upserts_what_it_counts(scene: Scene, redis: Redis) -> None:
    bench = scene.bench
    events(bench, 0, [("a", 1), ("b", 1), ("a", 2)])

    def counted() -> DataFrame:
        return accounts(bench, maxOffsetsPerTrigger=2).groupBy("account").count()

    scene.run(counted(), output_mode="update")
    bench.lose_last_commit()
    events(bench, 1, [("a", 3)])
    scene.run(counted(), output_mode="update")
    assert balances(redis, "count") == {"a": 3, "b": 1}


def test_what_does_not_fit_ends_the_query_and_says_why(scene: Scene, redis: Redis) -> None:
    bench = scene.bench
    events(bench, 0, [("a", 1)])
    with pytest.raises(TargetError, match='use mode="upsert"'):
        scene.run(accounts(bench), mode="append", keys=[])
    redis.config_set("appendfsync", "everysec")
    try:
        with pytest.raises(StreamingQueryException, match="exactly once needs appendfsync always"):
            scene.run(accounts(bench))
    finally:
        redis.config_set("appendfsync", "always")
    assert not list(redis.scan_iter("*"))


def test_the_names_of_columns_are_what_the_model_has() -> None:
    assert [each.strip().split()[0].strip("`") for each in SCHEMA.split(",")][1:] == NAMES
