"""`write`: one call from a streaming DataFrame to a table that has each row once.

Owns the choice of the store by the target's URL, and Spark's trigger. What a batch is and how it is
committed stands in `sinks`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.pipelines.intake.option_values import nearest
from holdfast.pipelines.sinks.store import Store
from holdfast.pipelines.sinks.table_sink import TableSink
from holdfast.pipelines.sinks.target import Mode, Target, TargetError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

SCHEMES = ("sqlite", "postgresql", "parquet", "delta", "iceberg", "redis", "rediss", "unix")
EXTRAS = {
    "postgresql": "postgresql",
    "delta": "delta",
    "iceberg": "iceberg",
    **dict.fromkeys(("redis", "rediss", "unix"), "redis"),
}
_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*")
_OUTPUT_MODES: Final = ("append", "update", "complete")
_TRIGGERS: Final = ("processingTime", "availableNow", "once", "continuous", "realTime")


def write(
    frame: DataFrame,
    target: str,
    *,
    table: str,
    query: str,
    checkpoint: str | os.PathLike[str],
    mode: Literal["append", "upsert"] = "append",
    keys: Sequence[str] = (),
    version: str | None = None,
    deleted: str | None = None,
    schema_changes: Literal["error", "add"] = "error",
    output_mode: Literal["append", "update", "complete"] = "append",
    trigger: Mapping[str, Any] | None = None,
    begin_anew: Collection[str] = (),
) -> StreamingQuery:
    """Start a query that writes each row of a streaming frame into a table once, whatever dies.

    `target`: `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`, `parquet:///FOLDER`,
    `delta:///FOLDER`, `iceberg+sqlite:///FILE?warehouse=/FOLDER` (or iceberg+postgresql://...), or
    `redis://HOST:PORT/DATABASE` (rediss://, unix:///SOCKET?db=DATABASE). The table is made if it is
    not there; Parquet's and Delta's is a folder of FOLDER, Iceberg's `NAMESPACE.NAME`, and Redis's
    the keys `TABLE:KEY`, each a hash, which can be upserted only. `query` is the name under which
    the table remembers how far it is: keep it when the checkpoint is deleted or moved. `keys` are
    the columns of the primary key; with `mode="upsert"` a row replaces the one of its key, and
    where the column `deleted` is true it deletes that. Which of two rows is the later one, `topic`,
    `partition`, `offset` and `timestamp` say, or the column `version`. `schema_changes="add"` adds
    columns that a table lacks. `output_mode` and `trigger` are Spark's: {"processingTime":
    "5 seconds"}, {"availableNow": True}. `begin_anew` names topics and checkpoints that are over,
    by the ids that an error told.

    TargetError: the frame or the options make no sense. What a batch meets comes with the query's
    exception: FencedError, PlanError, TargetError.
    """
    if not getattr(frame, "isStreaming", False):
        raise TargetError("frame: it is no stream; use spark.readStream, or Spark's own writer")
    location = os.fspath(checkpoint) if isinstance(checkpoint, os.PathLike) else checkpoint
    _refuse_no_text(target=target, table=table, query=query, checkpoint=location)
    described = Target(
        table=table,
        mode=_mode(mode),
        keys=(keys,) if isinstance(keys, str) else tuple(keys or ()),
        version=version,
        deleted=deleted,
        adds_columns=_adds_columns(schema_changes),
    )
    _refuse_unknown_columns(described, dict(frame.dtypes))
    _refuse_modes_of_spark(output_mode, trigger)
    if output_mode == "complete" and described.mode is Mode.APPEND:
        raise TargetError(
            'output_mode: with "complete" each batch has all rows of the result again, which '
            'mode="append" would add each time; use mode="upsert" with keys'
        )
    store = _with_extra(target, query, described)
    sink = TableSink(store, checkpoint=location, begin_anew=begin_anew)
    writer = frame.writeStream.queryName(query).outputMode(output_mode)
    writer = writer.option("checkpointLocation", location)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.foreachBatch(sink).start()


def _refuse_no_text(**given: object) -> None:
    """TargetError, by name: what is no text at all, of which a password might be a part."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise TargetError(f"{name}: a text is wanted, and not {type(value).__name__}")
        if not value.strip():
            raise TargetError(f"{name}: is empty")


def _refuse_unknown_columns(target: Target, types: Mapping[str, str]) -> None:
    """TargetError: keys, version or deleted name what the query does not have, as it is spelt."""
    named: list[tuple[str, str | None]] = [("keys", key) for key in target.keys]
    named += [("version", target.version), ("deleted", target.deleted)]
    for option, name in named:
        if name is None or name in types:
            continue
        lower = {each.lower(): each for each in types}
        meant = nearest(name.lower(), lower) if isinstance(name, str) else None
        has = f"the nearest is {meant!r}" if meant else f"it has {', '.join(types)}"
        raise TargetError(f"{option}: {name!r} is no column of the query; {has}")
    if target.deleted is not None and types[target.deleted] != "boolean":
        raise TargetError(
            f"deleted: {target.deleted!r} is {types[target.deleted]}, and has to be a boolean"
        )


def _refuse_modes_of_spark(output_mode: str, trigger: Mapping[str, Any] | None) -> None:
    """TargetError: Spark would not know it; or would, in another case, and we would not."""
    if output_mode not in _OUTPUT_MODES:
        raise TargetError(f"output_mode: {output_mode!r}; use {', '.join(_OUTPUT_MODES)}")
    if trigger is not None and not (
        isinstance(trigger, Mapping) and len(trigger) == 1 and trigger.keys() <= {*_TRIGGERS}
    ):
        raise TargetError(
            f'trigger: {trigger!r}; use {{"processingTime": "5 seconds"}} or '
            '{"availableNow": True}'
        )


def _mode(mode: str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise TargetError(f'mode: {mode!r}; use "append" or "upsert"') from None


def _adds_columns(schema_changes: str) -> bool:
    if schema_changes not in {"error", "add"}:
        raise TargetError(f'schema_changes: {schema_changes!r}; use "error" or "add"')
    return schema_changes == "add"


def _with_extra(url: str, query: str, target: Target) -> Store:
    """Return the store of a target. TargetError: a library of its extra is not installed."""
    try:
        return _store(url, query, target)
    except ModuleNotFoundError as error:
        scheme = _scheme(url)
        extra, library = EXTRAS.get(scheme), (error.name or "").partition(".")[0]
        if extra is None or library == "holdfast":
            raise
        raise TargetError(
            f"target: {scheme}: needs {library}, which is not installed: "
            f"pip install 'holdfast[{extra}]' brings it"
        ) from error


def _scheme(url: str) -> str:
    return url.partition(":")[0].partition("+")[0]


def _store(url: str, query: str, target: Target) -> Store:
    scheme = _scheme(url)
    if scheme == "sqlite":
        from holdfast.pipelines.sinks.sql_store import SqliteStore  # noqa: PLC0415 - as all others

        return SqliteStore(url, query, target)
    if scheme == "postgresql":
        # psycopg is an extra: who writes to SQLite has none.
        from holdfast.pipelines.sinks.postgresql_store import PostgresqlStore  # noqa: PLC0415

        return PostgresqlStore(url, query, target)
    if scheme == "parquet":
        from holdfast.pipelines.sinks.parquet.store import ParquetStore  # noqa: PLC0415

        return ParquetStore(url, query, target)
    if scheme == "delta":
        # As psycopg, deltalake is an extra.
        from holdfast.pipelines.sinks.delta_store import DeltaStore  # noqa: PLC0415

        return DeltaStore(url, query, target)
    if scheme == "iceberg":
        # So is pyiceberg.
        from holdfast.pipelines.sinks.iceberg.store import IcebergStore  # noqa: PLC0415

        return IcebergStore(url, query, target)
    if scheme in {"redis", "rediss", "unix"}:
        # redis-py is an extra, too.
        from holdfast.pipelines.sinks.key_value.store import RedisStore  # noqa: PLC0415

        return RedisStore(url, query, target)
    # Of a text that is no URL ("host=db password=...") nothing is shown.
    shown = f"{scheme}:..." if _SCHEME.fullmatch(scheme) and ":" in url else "it"
    raise TargetError(f"target: {shown} is none of {', '.join(f'{s}://' for s in SCHEMES)}")
