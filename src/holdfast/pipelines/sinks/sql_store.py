"""A table in SQLite or PostgreSQL: rows staged beside it, and one transaction that takes them in.

Owns the engine and the query's ownership from `open` on. SQLite's rows pass through the driver, the
file's one writer; PostgreSQL's are copied by the tasks that compute them (`postgresql_copy`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine

from holdfast.pipelines.due import Memory, Work
from holdfast.pipelines.fence import (
    Ownership,
    create_tables,
    folder_of,
    queries,
    target_of,
)
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks import catalogs
from holdfast.pipelines.sinks.catalogs import Catalog
from holdfast.pipelines.sinks.database_url import checked, open_database, refuse_no_file
from holdfast.pipelines.sinks.merging import PLACE, Merge, check_order, tombstones_of
from holdfast.pipelines.sinks.spool import Spool, spooled
from holdfast.pipelines.sinks.store import Staged, StagingError, is_one_machine
from holdfast.pipelines.sinks.target import (
    Column,
    Mode,
    Target,
    TargetError,
    add_column,
    columns_of,
    compare,
    is_there,
    limits,
    ordering,
    prepare,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)


class SqlStore(ABC):
    """What both databases have in common. `url` is SQLAlchemy's; its password is a reference."""

    def __init__(self, url: str, query: str, target: Target) -> None:
        self._url = checked(url)
        self._query = query
        self._target = target
        self._columns: tuple[Column, ...] = ()
        self._ordering: tuple[str, ...] = ()
        self._limits: Mapping[str, int] = {}
        self._catalog: Catalog | None = None
        self._stamp: str | None = None
        self._engine: Engine | None = None
        self._ownership: Ownership | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None, "_ownership": None}

    @property
    def query(self) -> str:
        return self._query

    @property
    def folder(self) -> Path | None:
        """Where SQLite's file is; None for a server."""
        return folder_of(self._url)

    @property
    def ownership(self) -> Ownership:
        assert self._ownership is not None, "open() comes first"
        return self._ownership

    def open(self, schema: StructType, master: str) -> None:
        self._columns, self._ordering = columns_of(schema), ordering(schema)
        table_of(self._target, self._columns)  # refuses what can't be before anything is taken
        self.refuse_where(master)
        self._engine = open_database(self._url)
        self._prepare_table(self._engine)
        self._ownership = Ownership.take(self._engine, self._query)
        with self.ownership.transaction() as connection:
            self.prepare(connection)

    def _prepare_table(self, engine: Engine) -> None:
        """Make the table, or see that it fits: before the query is taken over.

        Whoever writes to it goes on when this one turns out to be wrong. Another one may make the
        same tables at the same moment; after that they are there.
        """
        try:
            self._try_to_prepare(engine)
        except (sql.exc.IntegrityError, sql.exc.ProgrammingError, sql.exc.OperationalError):
            self._try_to_prepare(engine)

    def _try_to_prepare(self, engine: Engine) -> None:
        with engine.begin() as connection:
            create_tables(connection)
            self._refuse_without_rows(connection)
            table = self._fit(connection, self._target)
            if self._target.deleted is not None:
                prepare_tombstones(connection, self._target, tombstones_of(self._target, table))
            self.prepare_shared(connection)

    def _fit(self, connection: Connection, target: Target) -> sql.Table:
        """Make the table, or see that it fits. TargetError: it does not.

        Nothing is locked, so nobody is waited for: whoever alters it meanwhile alters its stamp.
        """
        stamp = catalogs.stamp(connection, table_of(target, self._columns))
        table = prepare(connection, target, self._columns)
        catalog = catalogs.read(connection, table, target.keys)
        if catalog is None:
            raise TargetError(f"table {target.table} is not there: somebody has just dropped it")
        catalogs.refuse_odd(catalog, target, table)
        compare(connection, table)
        self._limits = limits(connection, table)
        self._catalog, self._stamp = catalog, stamp
        return table

    def _look_again(self, connection: Connection) -> Catalog:
        """See that the table is still the one that rows were computed for. TargetError: it is not.

        Somebody may alter it at any time. What still fits is taken; nothing is made or added here.
        """
        name, before = self._target.table, self._catalog
        assert before is not None, "open() comes first"
        table = table_of(self._target, self._columns)
        catalogs.lock(connection, table)
        stamp = catalogs.stamp(connection, table)
        if stamp is not None and stamp == self._stamp:
            return before
        now = catalogs.read(connection, table, self._target.keys)
        if now is None or now.identity != before.identity:
            gone = "is not there any more" if now is None else "is another one"
            raise TargetError(
                f"table {name}: it {gone}: it was dropped or renamed while the query ran. Nothing "
                "was written. Bring the former one back; or give the query another name and a "
                "fresh checkpoint, and all of its rows come again"
            )
        if now == before:
            self._stamp = stamp
            return now
        changed = catalogs.changes(before.parts(), now.parts())
        try:
            self._fit(connection, replace(self._target, adds_columns=False))
        except TargetError as error:
            raise TargetError(
                f"table {name}: it was altered while the query ran ({changed}), and the query's "
                f"rows don't fit into it any more. Nothing was written. {error}"
            ) from error
        logger.warning("table %s was altered while its query ran, and fits: %s", name, changed)
        return now

    def _refuse_without_rows(self, connection: Connection) -> None:
        """TargetError: the query would go on where it was, in a table without its rows before."""
        used, former = target_of(connection, self._query)
        if not used:
            return
        table = self._target.table
        anew = "give the query another name and a fresh checkpoint, and all of its rows come again"
        if former not in {None, table}:
            raise TargetError(
                f"table: query {self._query!r} has written to {former!r}, and would go on in "
                f"{table!r} without those rows. Name the former table; or {anew}; or, if you have "
                f"renamed it in the database, do so in {queries.name}, too (target)"
            )
        if not is_there(connection, self._target):
            raise TargetError(
                f"table {table} is not there, and query {self._query!r} has written to it: it "
                f"would go on without those rows. Bring the table back; or {anew}"
            )

    @abstractmethod
    def refuse_where(self, master: str) -> None:
        """TargetError where this database can't be written from where the query runs."""

    @abstractmethod
    def prepare_shared(self, connection: Connection) -> None:
        """Make what all queries' staging needs, if it is not there."""

    @abstractmethod
    def prepare(self, connection: Connection) -> None:
        """Make what this owner's staging needs, and sweep what others left there."""

    @abstractmethod
    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        """Compute all rows and put them where `take_in` finds them."""

    @abstractmethod
    def wait_for_turn(self, connection: Connection, catalog: Catalog) -> None:
        """Let no other query upsert into the table from here to the end of the transaction.

        What one has deleted is seen by another one when it is committed: an older row that came
        in between would be there again.
        """

    @abstractmethod
    def take_in(self, connection: Connection, staged: Staged, merge_from: MergeFrom) -> None:
        """Have the staged rows merged, and nothing of them left in the staging table."""

    def memory(self) -> Memory:
        return self.ownership.memory()

    def commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        with self.ownership.transaction() as connection:
            self.ownership.commit_batch(connection, batch, work, self._target.table)
            if staged is not None and staged.count:
                check_order(self._target, self._ordering, stateful=batch.stateful)
                catalog = self._look_again(connection)
                if self._target.mode is Mode.UPSERT:
                    self.wait_for_turn(connection, catalog)
                merge_from = MergeFrom(
                    self._target,
                    self._columns,
                    self._limits,
                    catalog,
                    stateful=batch.stateful,
                )
                self.take_in(connection, staged, merge_from)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()


def prepare_tombstones(connection: Connection, target: Target, tombstones: sql.Table) -> None:
    """Make the table of deleted keys, or see that it fits. TargetError: it has other keys.

    A query may have got its version later: what was deleted before has none, so any row is newer.
    """
    tombstones.create(connection, checkfirst=True)
    seen = sql.inspect(connection)
    place = tombstones.name, tombstones.schema
    keys = seen.get_pk_constraint(*place)["constrained_columns"]
    if set(keys) != set(target.keys):
        raise TargetError(
            f"table {tombstones.name}: it has the deleted keys of ({', '.join(keys)}), and the "
            f"query's key is ({', '.join(target.keys)}). Name the former key; or drop that table, "
            "and older rows of deleted keys may come back"
        )
    there = {column["name"] for column in seen.get_columns(*place)}
    for column in tombstones.columns:
        if column.name not in there:
            add_column(connection, tombstones, column)
    compare(connection, tombstones)


class MergeFrom:
    """How one batch's rows get from a staging table into the target."""

    def __init__(
        self,
        target: Target,
        columns: Sequence[Column],
        limits: Mapping[str, int],
        catalog: Catalog,
        *,
        stateful: bool,
    ) -> None:
        """`limits`: how many characters a column's texts may have, where the database cuts them."""
        self._target = target
        self._limits = limits
        self._table = table_of(target, columns)
        self._stateful = stateful
        self._catalog = catalog

    def __call__(
        self, connection: Connection, staging: sql.Table, chosen: sql.ColumnElement[bool], rows: int
    ) -> None:
        """Merge the chosen rows, of which there have to be as many as were computed."""
        merge = Merge(
            self._target,
            self._table,
            staging,
            counted=self._catalog.leaves_out,
        )
        self._refuse_too_long(connection, staging, chosen)
        added = merge.append(connection, chosen) if self._target.mode is Mode.APPEND else None
        if added == rows:
            return
        counted = sql.select(sql.func.count()).select_from(staging).where(chosen)
        found = connection.scalar(counted) or 0
        if found != rows:
            raise StagingError(
                f"{rows} rows were computed, and {found} of them are staged: somebody else changed "
                f"{staging.name}. Nothing was written; the batch comes again at the next start"
            )
        if added is not None:
            merge.refuse_left_out(rows, added)
        merge.upsert(connection, chosen, stateful=self._stateful)

    def _refuse_too_long(
        self, connection: Connection, staging: sql.Table, chosen: sql.ColumnElement[bool]
    ) -> None:
        """PostgreSQL cuts spaces off without a word, and ends the batch at anything else."""
        for name, limit in self._limits.items():
            too_long = sql.func.length(staging.c[name]) > limit
            if connection.scalar(sql.select(sql.exists().where(chosen, too_long))):
                raise TargetError(
                    f"table {self._target.table}: a text has more than the {limit} characters of "
                    f"its column {name!r}. Make that one TEXT (ALTER TABLE), or cut the texts in "
                    "the query"
                )


class SqliteStore(SqlStore):
    """A file of this machine, with one writer: the driver."""

    def __init__(self, url: str, query: str, target: Target) -> None:
        super().__init__(url, query, target)
        refuse_no_file(url)

    def refuse_where(self, master: str) -> None:
        if not is_one_machine(master):
            where = master or "a cluster, for all that is known"
            raise TargetError(
                f"SQLite has one file on one machine, and this query runs on {where}: a driver "
                "that starts elsewhere would begin another one. Use postgresql://..."
            )

    def prepare_shared(self, connection: Connection) -> None:
        """Nothing outlives a transaction."""

    def prepare(self, connection: Connection) -> None:
        """A temporary table is made for each batch: there is nothing to sweep."""

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        del batch  # its rows are nowhere but in this process
        return spooled(frame)

    def wait_for_turn(self, connection: Connection, catalog: Catalog) -> None:
        """A file has one writer at a time."""

    def take_in(self, connection: Connection, staged: Staged, merge_from: MergeFrom) -> None:
        assert isinstance(staged, Spool)
        staging = self._staging()
        staging.create(connection)
        for chunk in staged.chunks():
            connection.execute(staging.insert(), chunk)
        merge_from(connection, staging, sql.true(), staged.count)
        staging.drop(connection)

    def _staging(self) -> sql.Table:
        columns = [sql.Column(column.name, column.type) for column in self._columns]
        place = sql.Column(PLACE, sql.Integer, primary_key=True)
        return sql.Table(
            "holdfast_staging", sql.MetaData(), place, *columns, prefixes=["TEMPORARY"]
        )
