"""A Delta table as a query's rows need it: its columns, and no rule that rows would have to obey.

Files are added to it as they are, and deltalake looks into none of them: whatever the table asks of
rows (constraints, generated columns, partitions, other names in the files) would not be kept. Such
a table is refused. Must never add a file, nor change a table but by a column that was asked for.

deltalake 1.6 syncs nothing, so what it commits is synced here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from holdfast.pipelines.sinks.target import TargetError, columns_of
from holdfast.pipelines.sinks.turns import ATTEMPTS
from holdfast.pipelines.sinks.written_files import make_folder, sync, unmarked

if TYPE_CHECKING:
    from deltalake import Field
    from pyspark.sql.types import StructType

LOG: Final = "_delta_log"
_TIDIES: Final = "delta.enableExpiredLogCleanup"

ONCE: Final = CommitProperties(max_commit_retries=0)
"""At the version after the one that was read, or not at all."""

CHECKPOINT_INTERVAL: Final = 100
"""Commits from one checkpoint to the next, where the table does not say: deltalake's own."""

_NOT_IN_A_NAME: Final = frozenset(" ,;{}()\n\t=")  # of a column, without a mapping of names
_RULES_OF_COLUMNS: Final = ("delta.invariants", "delta.generationExpression", "delta.identity.")
# What a writer may have to know of a table, and what a file of rows obeys as it is. Constraints and
# generated columns are among them: that there are none is seen elsewhere.
_FEATURES: Final = frozenset({
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
    "domainMetadata", "generatedColumns", "identityColumns", "invariants", "timestampNtz",
})  # fmt: skip


class Columns:
    """The query's columns, as Delta names their types. Nullable in a table that is made."""

    def __init__(self, schema: StructType) -> None:
        """TargetError: a column that no table, or no Delta table, can hold."""
        columns_of(schema)
        fields = unmarked(schema.jsonValue())["fields"]  # Delta's types are spelt as Spark's
        for field in fields:
            if _NOT_IN_A_NAME & set(field["name"]):
                raise TargetError(
                    f"column {field['name']!r}: a Delta table has no such name; give it one "
                    "without spaces and ,;{}()="
                )
        names = [field["name"].lower() for field in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TargetError(f"column {twice[0]!r} is there twice: to Delta, A and a are one name")
        self.may_be_null = {field["name"]: bool(field["nullable"]) for field in fields}
        plain = [{**field, "nullable": True, "metadata": {}} for field in fields]
        self.schema = Schema.from_json(json.dumps({"type": "struct", "fields": plain}))

    @property
    def arrow(self) -> pa.Schema:
        """The columns as they are in a file: moments in UTC."""
        return pa.schema(self.schema.to_arrow())


def made(folder: Path, columns: Columns) -> None:
    """Make the table if it is not there. TargetError: something else is."""
    make_folder(folder)
    others = [path.name for path in folder.iterdir() if not path.name.startswith("_")]
    if DeltaTable.is_deltatable(str(folder)):
        return
    if others:
        raise TargetError(
            f"{folder}: no Delta table, and not empty: it has {min(others)}; give the table "
            "another name"
        )
    try:
        DeltaTable.create(str(folder), columns.schema, mode="ignore", commit_properties=ONCE)
    except DeltaError:
        if not DeltaTable.is_deltatable(str(folder)):  # else somebody made it at this moment
            raise
    sync_log(folder, 0)


def loaded(folder: Path) -> DeltaTable:
    """Return the table as it is now. TargetError: it is there no more."""
    try:
        return DeltaTable(str(folder))
    except TableNotFoundError:
        raise TargetError(
            f"{folder}: there is no Delta table any more; somebody removed it, or the disk is "
            "away. Nothing was written"
        ) from None


class Latest:
    """A table as it is now, of which no more is read than what its log got since the last time.

    To read a table costs as much as it has files. That of before is taken as long as the entry of
    its version is the one that it was: a table that was restored from a copy has another history.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._table: DeltaTable | None = None
        self._entry: tuple[int, ...] | None = None

    def table(self) -> DeltaTable:
        """TargetError: it is there no more."""
        known = self._table
        if known is None or self._entry is None or self._entry != self._seen(known.version()):
            self._table = loaded(self._folder)
        elif self._seen(known.version() + 1) is not None:
            try:
                known.update_incremental()
            except DeltaError:
                self._table = loaded(self._folder)
        assert self._table is not None
        self._entry = self._seen(self._table.version())
        return self._table

    def _seen(self, version: int) -> tuple[int, ...] | None:
        """Return what tells one entry of the log from another one of its name; None: none is."""
        try:
            seen = _entry(self._folder, version).stat()
        except FileNotFoundError:
            return None
        return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _entry(folder: Path, version: int) -> Path:
    return folder / LOG / f"{version:020}.json"


def afterwards(table: DeltaTable) -> PostCommitHookProperties:
    """Return what deltalake does after the next commit: with most of them nothing.

    It would look at the whole log for what is to be removed, each time, and remove it before the
    checkpoint that takes its place is on disk: `tidy` does that.
    """
    is_due = has_checkpoint(table, table.version() + 1)
    return PostCommitHookProperties(create_checkpoint=is_due, cleanup_expired_logs=False)


def tidy(folder: Path) -> None:
    """Remove old entries of the log, by the table's own settings; for behind a checkpoint."""
    table = loaded(folder)
    if table.metadata().configuration.get(_TIDIES, "true").lower() != "false":
        table.cleanup_metadata()


def has_checkpoint(table: DeltaTable, version: int) -> bool:
    """Return whether one is due with this version."""
    interval = table.metadata().configuration.get("delta.checkpointInterval", "")
    every = int(interval) if interval.isdecimal() else CHECKPOINT_INTERVAL
    return (version + 1) % max(every, 1) == 0


def entries(folder: Path) -> list[int]:
    """Return the versions whose entries the log has."""
    names = (path.stem for path in (folder / LOG).glob("*.json"))
    return sorted(int(name) for name in names if name.isdecimal())


def sync_log(folder: Path, version: int, before: Iterable[int] = ()) -> None:
    """Have a commit on disk: with less a power cut could take back what counts as written.

    A checkpoint, too, and those that came `before`, which others have written and perhaps not
    synced: readers that find one torn find no table.
    """
    for number in before:
        with suppress(FileNotFoundError):  # a checkpoint has taken its place
            sync(_entry(folder, number))
    sync(_entry(folder, version))
    for name in (f"{version:020}.checkpoint.parquet", "_last_checkpoint"):
        with suppress(FileNotFoundError):  # without a checkpoint
            sync(folder / LOG / name)
    sync(folder / LOG)
    sync(folder)


def fit(folder: Path, columns: Columns, *, adds: bool) -> None:
    """See that the table holds the query's columns; add what it lacks, if that was asked for."""
    for _ in range(ATTEMPTS):
        table = loaded(folder)
        missing = refuse_misfit(table, columns, adds=adds)
        if not missing:
            return
        try:
            table.alter.add_columns(missing, commit_properties=ONCE)
        except CommitFailedError:
            continue  # another one's commit came first; it may have added them
        sync_log(folder, loaded(folder).version())
    raise TargetError(f"{folder}: {ATTEMPTS} others changed it at the same time")


def refuse_misfit(table: DeltaTable, columns: Columns, *, adds: bool = False) -> list[Field]:
    """Return the columns that the table lacks. TargetError: rows of the query don't fit into it."""
    _refuse_rules(table)
    name = Path(table.table_uri).name
    there = {field.name: field for field in table.schema().fields}
    by_lower = {field.lower(): field for field in there}
    missing = []
    for field in columns.schema.fields:
        found = there.get(field.name)
        if found is None and field.name.lower() in by_lower:
            raise TargetError(
                f"table {name}: its column {by_lower[field.name.lower()]!r} is spelt otherwise "
                f"than the query's {field.name!r}, and to Delta both are one name; spell them alike"
            )
        if found is None:
            missing.append(field)
        elif found.type != field.type:
            raise TargetError(
                f"table {name}: its column {field.name!r} is {_spelt(found)}, and the query's is "
                f"{_spelt(field)}; cast it in the query"
            )
        elif columns.may_be_null[field.name] and not found.nullable:
            raise TargetError(
                f"table {name}: its column {field.name!r} must not be null, and the query's may "
                "be; say so in the query (coalesce), or let the table have nulls"
            )
    if missing and not adds:
        raise TargetError(
            f"table {name} has no column {missing[0].name!r}, and the query has; add it to the "
            'table, leave it out of the query, or let it be added (schema_changes="add")'
        )
    for field in there.values():
        if field.name not in columns.may_be_null and not field.nullable:
            raise TargetError(
                f"table {name}: its column {field.name!r} must not be null, and the query has no "
                "such column; add it to the query, or let the table have nulls"
            )
    return missing


def _refuse_rules(table: DeltaTable) -> None:
    """Refuse a table that asks of its rows or files what nobody looks after here."""
    metadata, name = table.metadata(), Path(table.table_uri).name
    found = [f"it is partitioned by {column}" for column in metadata.partition_columns]
    found += [key for key in metadata.configuration if key.startswith("delta.constraints.")]
    for key, harmless in (
        ("delta.columnMapping.mode", "none"),
        ("delta.enableRowTracking", "false"),
        # The memory hangs on an app transaction: one that is forgotten would double rows.
        ("delta.setTransactionRetentionDuration", None),
    ):
        value = metadata.configuration.get(key)
        if value not in {None, harmless}:
            found.append(f"{key}={value}")
    text = table.schema().to_json()
    found += [rule for rule in _RULES_OF_COLUMNS if f'"{rule}' in text]
    found += sorted(set(table.protocol().writer_features or ()) - _FEATURES)
    if found:
        raise TargetError(
            f"table {name}: what it asks of a writer is not kept up here ({', '.join(found)}); "
            "write to a table without it"
        )


def _spelt(field: Field) -> str:
    return str(json.loads(field.type.to_json()))
