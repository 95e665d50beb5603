"""Of each key the one row of a batch that is written, found by Spark in the tasks.

The rules are those of `merging`, which has them in SQL: within a partition the higher offset wins;
then, among partitions, the higher timestamp, and of equal ones the higher partition; with a version
the higher one first of all. All rows of a key come together for it, in one task: two tasks that
wrote rows of one key could not settle who wins, for a later offset may have an earlier timestamp.

Rows that the rules don't tell apart, two that came of one record, say, are told apart by their
values: the same one is chosen in every attempt and every replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.pipelines.sinks.merging import TIMESTAMP
from holdfast.pipelines.sinks.target import COORDINATES, Target, TargetError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROWS: Final = "holdfast_rows"
UNVERSIONED: Final = "holdfast_unversioned"
_RANK: Final = "holdfast_rank"


@dataclass(frozen=True, slots=True)
class Winners:
    """Rows that are written, each of another key: kept by Spark, and computed once."""

    frame: DataFrame
    keys: int  # how many rows it has
    count: int  # how many rows of the batch they stand for

    def close(self) -> None:
        self.frame.unpersist()


def chosen(frame: DataFrame, target: Target, *, stateful: bool) -> Winners:
    """Compute a batch's winners. TargetError: a row that nobody could order; nothing is written."""
    marked = _marked(frame, target, stateful=stateful).persist()
    try:
        keys, count = _checked(marked, target, stateful=stateful)
    except BaseException:
        marked.unpersist()
        raise
    return Winners(marked, keys, count)


def plain(winners: Winners) -> DataFrame:
    """Return the rows as they came, without what was noted beside them."""
    return winners.frame.drop(ROWS, UNVERSIONED)


def _column(name: str) -> Column:
    """Return a column by its whole name: a dot in it is no path."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - half a second, and stores need none

    return f.col("`" + name.replace("`", "``") + "`")


def _marked(frame: DataFrame, target: Target, *, stateful: bool) -> DataFrame:
    """Return the winners; beside each, how many rows its key has, and if one has no version."""
    from pyspark.sql import Window  # noqa: PLC0415 - as above
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    keys = [_column(name) for name in target.keys]
    version = [] if target.version is None else [_column(target.version).desc()]
    unversioned = f.lit(False) if target.version is None else _column(target.version).isNull()
    last = f.xxhash64(*map(_column, frame.columns))  # of those that are alike in all that counts

    def first(of: DataFrame, group: list[Any], order: list[Any]) -> DataFrame:
        rank = f.row_number().over(Window.partitionBy(*group).orderBy(*order))
        return of.withColumn(_RANK, rank).where(f.col(_RANK) == 1).drop(_RANK)

    in_key = Window.partitionBy(*keys)
    rows = frame.withColumn(ROWS, f.count(f.lit(1)).over(in_key)).withColumn(
        UNVERSIONED, f.max(unversioned).over(in_key)
    )
    if stateful or not {*COORDINATES, TIMESTAMP} <= set(frame.columns):
        return first(rows, keys, [*version, last])
    topic, partition, offset = map(_column, COORDINATES)
    latest = first(rows, [*keys, topic, partition], [*version, offset.desc(), last])
    order = [*version, _column(TIMESTAMP).desc(), partition.desc(), topic.desc(), last]
    return first(latest, keys, order)


def _checked(marked: DataFrame, target: Target, *, stateful: bool) -> tuple[int, int]:
    """Return how many winners there are, and of how many rows."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    keys = [_column(name) for name in target.keys]
    is_null = keys[0].isNull()
    for key in keys[1:]:
        is_null |= key.isNull()

    def one(where: Column) -> Column:
        """A key of which that is true, as text; null: of none."""
        return f.first(f.when(where, f.to_json(f.struct(*keys))), ignorenulls=True)

    found: Any = marked.agg(
        f.count(f.lit(1)).alias("keys"),
        f.coalesce(f.sum(f.col(ROWS)), f.lit(0)).alias("count"),
        one(is_null).alias("null"),
        one(f.col(UNVERSIONED)).alias("unversioned"),
        one(f.col(ROWS) > 1).alias("twice"),
    ).collect()[0]
    if found["null"] is not None:
        raise TargetError(
            f"a row of the key {found['null']} has null in its key ({', '.join(target.keys)}): "
            "leave such rows out of the query, or give them a value (coalesce)"
        )
    if found["unversioned"] is not None:
        raise TargetError(
            f"a row of the key {found['unversioned']} has no version: its column "
            f"{target.version!r} is null, so nothing tells whether it is the later one; "
            "leave such rows out of the query, or give them a version (coalesce)"
        )
    if stateful and target.version is None and found["twice"] is not None:
        raise TargetError(
            f"the key {found['twice']} is twice in one batch of a stateful query, and nothing "
            'tells which row is the later one: name a column that does (version="..."), or '
            "take more columns into the keys"
        )
    return int(found["keys"]), int(found["count"])
