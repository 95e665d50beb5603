"""PostgreSQL: tasks copy their rows into a staging table, and one transaction takes them in.

No row passes through the driver. The staging table is logged: after a crash of the server it has
what the tasks' transactions had committed. Each owner of a query has a staging table of its own,
named after query and epoch: tasks of a driver that was replaced may still write to theirs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine

from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.catalogs import Catalog
from holdfast.pipelines.sinks.merging import DELETED, PLACE
from holdfast.pipelines.sinks.postgresql_copy import ATTEMPT_SETTING, SCHEMA, CopyTask
from holdfast.pipelines.sinks.sql_store import MergeFrom, SqlStore
from holdfast.pipelines.sinks.store import Staged
from holdfast.pipelines.sinks.target import Mode, TargetError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

ATTEMPT: Final = "holdfast_attempt"
STAGING: Final = "holdfast_staging_"
EMPTIED_ANEW_BYTES: Final = 1 << 20
"""From here on a staging table is given a new file. Below, to delete its rows is cheaper."""

# Before a table's number, in the key of its lock: an application may have such locks, too.
_TURNS: Final = int.from_bytes(b"hold") << 32

# As many bytes as a name has in the database's own encoding.
_TOO_LONG: Final = sql.text("""
    SELECT n.name, current_setting('max_identifier_length') AS "limit"
    FROM unnest(CAST(:names AS text[])) n (name)
    WHERE octet_length(n.name) > CAST(current_setting('max_identifier_length') AS int)
""")

metadata = sql.MetaData()
attempts = sql.Table(
    "holdfast_attempt",
    metadata,
    sql.Column("id", sql.BigInteger, sql.Identity(), primary_key=True),
    sql.Column("query", sql.String(255), nullable=False, index=True),
    sql.Column("checkpoint", sql.String(255), nullable=False),
    sql.Column("batch", sql.BigInteger, nullable=False),
    sql.Column("task", sql.String(64), nullable=False),
    sql.Column("at", sql.DateTime(timezone=True), server_default=sql.func.now()),
)


@dataclass(frozen=True, slots=True)
class Copied:
    """What the tasks that Spark chose have staged: their attempts' numbers, and how many rows."""

    attempts: tuple[int, ...]
    count: int

    def close(self) -> None:
        """The rows stay until a commit takes them or sweeps them."""


class PostgresqlStore(SqlStore):
    """A table of a PostgreSQL server, which every executor has to reach."""

    def _prepare_table(self, engine: Engine) -> None:
        with engine.begin() as connection:
            self._refuse_long_names(connection)
        super()._prepare_table(engine)

    def _refuse_long_names(self, connection: Connection) -> None:
        """TargetError: PostgreSQL cuts names, and whoever asks for them afterwards finds none."""
        tables = self._target.table.split(".")
        if self._target.deleted is not None:
            tables.append(f"{DELETED}{tables[-1]}")
        for kind, names in (("table", tables), ("column", [each.name for each in self._columns])):
            found = connection.execute(_TOO_LONG, {"names": names}).first()
            if found is not None:
                raise TargetError(
                    f"{kind} {found.name!r}: PostgreSQL cuts names that have more than "
                    f"{found.limit} bytes; give it a shorter one"
                )

    def refuse_where(self, master: str) -> None:
        """Every process of a cluster can reach a server."""

    def prepare_shared(self, connection: Connection) -> None:
        metadata.create_all(connection)

    def prepare(self, connection: Connection) -> None:
        """Make this owner's staging table, and sweep those of the owners before."""
        for name in sql.inspect(connection).get_table_names():
            if name.startswith(self._staging_prefix):
                _drop_if_free(connection, name)
        self._staging().create(connection)
        self._forget_attempts(connection)

    def task(self, batch: Batch) -> CopyTask:
        """Return what each task of a batch does with its rows."""
        return CopyTask(
            self._url,
            staging=[self._staging().name],
            attempts=[attempts.name],
            columns=[column.name for column in self._columns],
            batch=(self._query, batch.checkpoint, batch.number),
        )

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        done = frame.mapInArrow(self.task(batch), SCHEMA).collect()
        return Copied(tuple(row.attempt for row in done), sum(row.rows for row in done))

    def wait_for_turn(self, connection: Connection, catalog: Catalog) -> None:
        """Wait for a lock that has no table: VACUUM would wait for a table's, and give up."""
        turn = sql.func.pg_advisory_xact_lock(_TURNS | catalog.identity)
        connection.execute(sql.select(turn))

    def take_in(self, connection: Connection, staged: Staged, merge_from: MergeFrom) -> None:
        assert isinstance(staged, Copied)
        staging = self._staging()
        chosen = staging.c[ATTEMPT].in_(staged.attempts)
        merge_from(connection, staging, chosen, staged.count)
        # All of it: what others have left there is asked for by nobody.
        _empty(connection, staging)
        self._forget_attempts(connection)

    def _forget_attempts(self, connection: Connection) -> None:
        connection.execute(attempts.delete().where(attempts.c.query == self._query))

    @property
    def _staging_prefix(self) -> str:
        return f"{STAGING}{blake2b(self._query.encode(), digest_size=6).hexdigest()}_"

    def _staging(self) -> sql.Table:
        columns = [sql.Column(column.name, column.type) for column in self._columns]
        whose = sql.text(f"current_setting('{ATTEMPT_SETTING}')::bigint")
        columns.append(sql.Column(ATTEMPT, sql.BigInteger, server_default=whose, nullable=False))
        if self._target.mode is Mode.UPSERT:
            identity = sql.Identity(cache=1_000)
            columns.append(sql.Column(PLACE, sql.BigInteger, identity))
        name = f"{self._staging_prefix}{self.ownership.epoch}"
        return sql.Table(name, sql.MetaData(), *columns)


def _empty(connection: Connection, table: sql.Table) -> None:
    """Remove all rows of a staging table.

    Rows that are deleted stay in the file, and are read with each batch, until somebody vacuums;
    and where somebody else's transaction is open for hours nobody can. An attempt that still writes
    would be waited for: then they are deleted, and the next batch tries again.
    """
    quoted = connection.dialect.identifier_preparer.format_table(table)
    size = sql.select(sql.func.pg_table_size(sql.func.to_regclass(quoted)))
    if (connection.scalar(size) or 0) >= EMPTIED_ANEW_BYTES:
        try:
            with connection.begin_nested():
                _lock_if_free(connection, table)
                connection.exec_driver_sql(f"TRUNCATE {quoted}")
        except sql.exc.OperationalError as error:
            logger.info("%s is not emptied into a new file: %s", table.name, error.orig)
        else:
            return
    connection.execute(table.delete())


def _lock_if_free(connection: Connection, table: sql.Table) -> None:
    """Lock a table, or raise OperationalError at once: somebody writes to it."""
    quoted = connection.dialect.identifier_preparer.format_table(table)
    connection.exec_driver_sql(f"LOCK TABLE {quoted} IN ACCESS EXCLUSIVE MODE NOWAIT")


def _drop_if_free(connection: Connection, name: str) -> None:
    """Drop a table, unless somebody still writes to it: the next owner will."""
    table = sql.Table(name, sql.MetaData())
    try:
        with connection.begin_nested():
            _lock_if_free(connection, table)
            table.drop(connection)
    except sql.exc.OperationalError as error:
        logger.warning("%s stays for now: %s", name, error.orig)
