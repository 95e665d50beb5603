"""Who may write to a query's tables, and how far they are: three small tables beside the data.

Owns `holdfast_query` (the owner's epoch, and the batch that was committed last), `holdfast_offset`
(the next offset of each partition, and its topic's id) and `holdfast_gap` (what the log lacked when
a batch was planned, which nobody reads back). Every change goes through
a transaction that first checks the epoch and so locks the query: of two drivers, the one that was
replaced commits nothing any more. It must never write data of its own.
"""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NoReturn

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine

from holdfast.pipelines.due import Due, Last, Memory, Stored, Work, gaps_of
from holdfast.pipelines.offsets import Partition, spelt
from holdfast.pipelines.planned import Batch, Reader

TAKE_ATTEMPTS = 10
EPOCH_STEP_MAX = 1 << 31  # a JSON number and a Lua one can have millions of such steps
LOCK_WAIT_S = 60
DECIMAL_ORDER = "holdfast_decimal"
"""How SQLite compares the texts of exact numbers: a collation of our connections alone."""

# A driver that stops inside its transaction holds the query's lock. PostgreSQL ends such a session
# after this; SQLite's locks are the stopped process's own, and its successor gives up instead.
IDLE_IN_TRANSACTION_S = 120

GAP_BATCHES_MAX = 10_000  # of a checkpoint

_MARK: Final = "holdfast_whole"  # a savepoint, which ends with its transaction and not before
_NO_SUCH_MARK: Final = "3B001"  # PostgreSQL's code of it
_ENDED: Final = (
    "the sink's transaction was to be ended by what writes the rows (a recipe's commit or "
    "rollback, or a script, which sqlite3 begins with a commit). Nothing was written; to take back "
    "a part, use connection.begin_nested()"
)

metadata = sql.MetaData()
queries = sql.Table(
    "holdfast_query",
    metadata,
    sql.Column("query", sql.String(255), primary_key=True),
    sql.Column("epoch", sql.BigInteger, nullable=False),
    sql.Column("owner", sql.String(255), nullable=False),
    # The batch that the tables had last: the checkpoint's own id, its number there, its plan.
    sql.Column("checkpoint", sql.String(255)),
    sql.Column("batch", sql.BigInteger),
    sql.Column("plan", sql.String(64)),
    sql.Column("stateful", sql.Boolean, nullable=False, server_default=sql.false()),
    # False in tables of before, whose `source` counts those that knew the partition.
    sql.Column("by_place", sql.Boolean, nullable=False, server_default=sql.false()),
    # Where the rows went, if `write` knows; null: a recipe's own tables, or a version before.
    sql.Column("target", sql.String(255)),
)
offsets = sql.Table(
    "holdfast_offset",
    metadata,
    sql.Column("query", sql.String(255), primary_key=True),
    sql.Column("topic", sql.String(249), primary_key=True),
    sql.Column("partition", sql.Integer, primary_key=True),
    # The source's place in Spark's offset log; negative: the query does not read it any more.
    sql.Column("source", sql.Integer, primary_key=True, server_default="0"),
    sql.Column("next_offset", sql.BigInteger, nullable=False),
    sql.Column("topic_id", sql.String(64)),  # null: the cluster tells none
)
gaps = sql.Table(
    "holdfast_gap",
    metadata,
    sql.Column("query", sql.String(255), primary_key=True),
    sql.Column("checkpoint", sql.String(255), primary_key=True),
    sql.Column("batch", sql.BigInteger, primary_key=True),
    sql.Column("topic", sql.String(249), primary_key=True),
    sql.Column("partition", sql.Integer, primary_key=True),
    sql.Column("source", sql.Integer, primary_key=True),
    sql.Column("first_offset", sql.BigInteger, primary_key=True),
    sql.Column("next_offset", sql.BigInteger, nullable=False),  # the first one that is there again
    sql.Column("topic_id", sql.String(64)),
)
_INSERTS: Final[Mapping[str, Callable[[sql.Table], Any]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
# A reader's row of the offsets, by values that are given beside a statement.
_PLACE: Final = ("query", "topic", "partition", "source")
_AT: Final = tuple(offsets.c[name] == sql.bindparam(f"of_{name}") for name in _PLACE)
# What older tables have of the offsets, and lack of the queries.
_KEPT = ("query", "topic", "partition", "next_offset")
_ADDED = ("checkpoint", "batch", "plan", "stateful", "by_place", "target")


class FencedError(RuntimeError):
    """Another driver has taken the query over; this one must stop."""


class TransactionError(RuntimeError):
    """Who may only write in the transaction has ended or broken it. Nothing was written."""


def epoch_after(epoch: int) -> int:
    """Return an epoch that nobody has had, nor would have had who began at this one.

    Tables may come back from a copy of before, and an owner of after it may still live: counting on
    by one would give its very epoch to another one, and it would write again.
    """
    return epoch + 1 + secrets.randbelow(EPOCH_STEP_MAX)


def open_engine(url: str | URL, *, pooled: bool = True) -> Engine:
    """Open a database for writing; a commit counts only when it is on disk.

    Without a pool a connection is as old as its transaction: nothing is left open by who never
    closes.
    """
    engine = sql.create_engine(url) if pooled else sql.create_engine(url, poolclass=sql.NullPool)
    if engine.dialect.name == "sqlite":
        sql.event.listen(engine, "connect", _prepare_sqlite)
        sql.event.listen(engine, "begin", _begin_immediate)
    elif engine.dialect.name == "postgresql":
        sql.event.listen(engine, "connect", _prepare_postgresql)
    return engine


def folder_of(url: str | URL) -> Path | None:
    """Return where SQLite's file is; None: it is in memory, or a server has the files."""
    parts = sql.make_url(url)
    if parts.get_backend_name() != "sqlite" or parts.database in {None, "", ":memory:"}:
        return None
    return Path(str(parts.database)).absolute().parent


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.create_collation(DECIMAL_ORDER, _compare_decimals)
    connection.isolation_level = None  # the driver's own BEGIN comes too late: see _begin_immediate
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    # With less, a power cut could take back a commit that Spark's checkpoint already counts on.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _compare_decimals(left: str, right: str) -> int:
    """Return less than, equal to or more than nothing, as the numbers stand to each other."""
    first, second = Decimal(left), Decimal(right)
    return (first > second) - (first < second)


def _begin_immediate(connection: Connection) -> None:
    """Take the write lock first: a transaction that reads and then writes could be refused."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_S}s'")
        cursor.execute(f"SET lock_timeout = '{IDLE_IN_TRANSACTION_S + LOCK_WAIT_S}s'")
        # A role or a database may have it off: a crash would take back what Spark counts on.
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()


def _create_tables(engine: Engine) -> sql.exc.DBAPIError | None:
    """Create the tables if need be. Return what was in the way: often somebody who does too."""
    try:
        with engine.begin() as connection:
            create_tables(connection)
    except (sql.exc.IntegrityError, sql.exc.ProgrammingError) as error:
        return error
    return None


def create_tables(connection: Connection) -> None:
    """Create the two tables, or bring those of an older version up to this one."""
    metadata.create_all(connection)
    _add_columns(connection)


def target_of(connection: Connection, query: str) -> tuple[bool, str | None]:
    """Return whether a query has had a batch, and where its rows went, as far as that is known."""
    asked = sql.select(queries.c.batch, queries.c.target).where(queries.c.query == query)
    row = connection.execute(asked).first()
    return (False, None) if row is None else (row.batch is not None, row.target)


def _add_columns(connection: Connection) -> None:
    """Give tables of an older version what they lack; what they count stays as it is.

    A primary key can't be changed everywhere, so the offsets move into a new table. All of it is
    one transaction: both databases take back what was created in it.
    """
    seen = sql.inspect(connection)
    there = {column["name"] for column in seen.get_columns(queries.name)}
    for name in _ADDED:
        if name not in there:
            made = sql.schema.CreateColumn(queries.c[name]).compile(connection)
            connection.exec_driver_sql(f"ALTER TABLE {queries.name} ADD COLUMN {made}")
    if "source" in {column["name"] for column in seen.get_columns(offsets.name)}:
        return
    before = f"{offsets.name}_before"
    connection.exec_driver_sql(f"ALTER TABLE {offsets.name} RENAME TO {before}")
    offsets.create(connection)
    old = sql.table(before, *(sql.column(name) for name in _KEPT))
    kept = sql.select(*(old.c[name] for name in _KEPT))
    connection.execute(offsets.insert().from_select(list(_KEPT), kept))
    connection.exec_driver_sql(f"DROP TABLE {before}")


@contextmanager
def _whole(connection: Connection) -> Iterator[None]:
    """Let what is done inside neither end the transaction nor leave it broken.

    A commit in the middle would keep offsets without the rows that come later. After a rollback the
    last commit keeps nothing; nor does PostgreSQL's after an error that was passed over. Neither
    would say so.
    """

    def refuse(_connection: Connection) -> None:
        connection.invalidate()  # closed, it can't be committed: what is refused may be tried again
        raise TransactionError(_ENDED)

    connection.exec_driver_sql(f"SAVEPOINT {_MARK}")
    for name in ("commit", "rollback"):
        sql.event.listen(connection, name, refuse)
    try:
        with _no_end_in_sql(connection):
            yield
    finally:
        for name in ("commit", "rollback"):
            sql.event.remove(connection, name, refuse)
    try:
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {_MARK}")
    except sql.exc.SQLAlchemyError as error:
        if isinstance(error, sql.exc.DBAPIError) and error.connection_invalidated:
            raise  # the server has gone: nobody who writes rows has done that
        if getattr(getattr(error, "orig", None), "sqlstate", None) == _NO_SUCH_MARK:
            raise TransactionError(
                "the sink's transaction was ended in SQL by what writes the rows. If that was a "
                "COMMIT, the batch counts as written, with the rows before it alone: bring the "
                "tables back as they were before this batch. To take back a part, use "
                "connection.begin_nested()"
            ) from error
        raise TransactionError(
            "the sink's transaction was ended or broken by what writes the rows: a statement "
            "failed and its error was passed over, say. Nothing was written; a statement that may "
            f"fail belongs into connection.begin_nested() ({error})"
        ) from error


@contextmanager
def _no_end_in_sql(connection: Connection) -> Iterator[None]:
    """Have SQLite refuse what would end the transaction and pass SQLAlchemy by.

    PostgreSQL has no such thing: there it is only noticed.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    opened: Any = connection.connection.dbapi_connection
    refused: list[int] = []

    def weigh(action: int, *_what: object) -> int:
        if action != sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_OK
        refused.append(action)
        return sqlite3.SQLITE_DENY

    opened.set_authorizer(weigh)
    try:
        yield
    except Exception as error:
        if refused:
            raise TransactionError(_ENDED) from error
        raise
    finally:
        with suppress(sqlite3.ProgrammingError):  # it is closed
            opened.set_authorizer(None)
    if refused:
        raise TransactionError(_ENDED)


class Ownership:
    """One driver's right to write for one query, from `take` until somebody else takes it."""

    def __init__(self, engine: Engine, query: str, epoch: int) -> None:
        self.engine = engine
        self.query = query
        self.epoch = epoch

    @classmethod
    def take(cls, engine: Engine, query: str) -> Ownership:
        """Become the owner: raise the epoch, whoever had it. The former owner is fenced."""
        owner = f"{socket.gethostname()}:{os.getpid()}"
        failure = None
        for _ in range(TAKE_ATTEMPTS):
            failure = _create_tables(engine)
            epoch = cls._try_to_take(engine, query, owner) if failure is None else None
            if epoch is not None:
                return cls(engine, query, epoch)
        if failure is not None:
            raise failure  # a race would be over: this is a right that is missing, say
        raise FencedError(f"query {query!r}: {TAKE_ATTEMPTS} others took it at the same time")

    @staticmethod
    def _try_to_take(engine: Engine, query: str, owner: str) -> int | None:
        """Compare and set. None: somebody else was faster."""
        with engine.begin() as connection:
            seen = connection.scalar(sql.select(queries.c.epoch).where(queries.c.query == query))
            if seen is None:
                epoch = epoch_after(0)
                fresh = {"query": query, "epoch": epoch, "owner": owner}
                try:
                    connection.execute(queries.insert().values(**fresh))
                except sql.exc.IntegrityError:
                    connection.rollback()
                    return None
                return epoch
            epoch = epoch_after(int(seen))
            changed = connection.execute(
                queries.update()
                .where(queries.c.query == query, queries.c.epoch == seen)
                .values(epoch=epoch, owner=owner)
            )
            return epoch if changed.rowcount == 1 else None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction that only this epoch may commit. FencedError: it is not ours now.

        The first statement touches the query's row, so the epoch can't change before the commit.
        """
        with self.engine.begin() as connection:
            ours = connection.execute(
                queries.update()
                .where(queries.c.query == self.query, queries.c.epoch == self.epoch)
                .values(epoch=self.epoch)
            )
            if ours.rowcount != 1:
                self._fenced(connection)
            with _whole(connection):
                yield connection

    def _fenced(self, connection: Connection) -> None:
        row = connection.execute(
            sql.select(queries.c.epoch, queries.c.owner).where(queries.c.query == self.query)
        ).first()
        now = "its entry is gone" if row is None else f"epoch {row.epoch} belongs to {row.owner}"
        raise FencedError(
            f"query {self.query!r} was taken over: this driver has epoch {self.epoch}, {now}. "
            "Nothing was written"
        )

    def memory(self) -> Memory:
        """Return what the tables remember. FencedError as in `transaction`."""
        with self.transaction() as connection:
            here = connection.execute(sql.select(queries).where(queries.c.query == self.query))
            row = here.one()
            rows = connection.execute(sql.select(offsets).where(offsets.c.query == self.query))
            known = {
                Reader(Partition(r.topic, r.partition), r.source): Stored(
                    r.next_offset, None if r.topic_id is None else spelt(r.topic_id)
                )
                for r in rows
            }
        # Offsets without a batch were written by an older version.
        used = row.batch is not None or bool(known)
        told = (row.checkpoint, row.batch, row.plan, row.stateful, row.by_place)
        last = Last(*told) if used else None
        return Memory(known, last)

    def commit_batch(
        self, connection: Connection, batch: Batch, work: Work, target: str | None = None
    ) -> None:
        """Write down, inside the transaction of its rows, that the tables have this batch.

        `target` is the table that has them, where one is known.
        """
        self._delete(connection, work.forget)
        self._rename(connection, work.renamed)
        for topic, topic_id in work.named.items():
            connection.execute(
                offsets.update()
                .where(
                    offsets.c.query == self.query,
                    offsets.c.topic == topic,
                    offsets.c.topic_id.is_(None),
                )
                .values(topic_id=topic_id)
            )
        self.advance(connection, work.moves)
        self._tell_gaps(connection, batch, work)
        connection.execute(
            queries.update()
            .where(queries.c.query == self.query)
            .values(
                checkpoint=batch.checkpoint,
                batch=batch.number,
                plan=batch.plan,
                stateful=batch.stateful,
                by_place=True,
                target=target,
            )
        )

    def _rename(self, connection: Connection, names: Mapping[Reader, Reader]) -> None:
        """Give what is remembered its sources' numbers of now: two of them may change places."""
        if not names:
            return
        there = connection.execute(sql.select(offsets).where(offsets.c.query == self.query))
        found = {Reader(Partition(row.topic, row.partition), row.source): row for row in there}
        rows = []
        for reader, now in names.items():
            if reader not in found:
                raise FencedError(
                    f"query {self.query!r}, {reader}: its next offset is not there any more; "
                    "somebody changed it. Nothing was written"
                )
            rows.append({**found[reader]._mapping, "source": now.source})  # noqa: SLF001 - SQLAlchemy's own
        self._delete(connection, names)
        connection.execute(offsets.insert(), rows)

    def _delete(self, connection: Connection, readers: Iterable[Reader]) -> None:
        places = [self._named(reader) for reader in readers]
        if places:
            connection.execute(offsets.delete().where(*_AT), places)

    def _tell_gaps(self, connection: Connection, batch: Batch, work: Work) -> None:
        """Write down what the log lacked of a batch: rows that this table can't have.

        What the table had before it was gone is none of it. And a batch that an older copy of the
        checkpoint plans anew may have told some of it already.
        """
        told = [
            {
                "query": self.query,
                "checkpoint": batch.checkpoint,
                "batch": batch.number,
                "topic": gap.reader.partition.topic,
                "partition": gap.reader.partition.number,
                "source": gap.reader.source,
                "first_offset": gap.first,
                "next_offset": gap.behind,
                "topic_id": gap.topic_id,
            }
            for gap in gaps_of(batch, work)
        ]
        if told:
            insert = _INSERTS[connection.dialect.name](gaps).on_conflict_do_nothing()
            connection.execute(insert, told)
            self._drop_old_gaps(connection, batch)

    def _drop_old_gaps(self, connection: Connection, batch: Batch) -> None:
        """Keep those of the last batches that had some: a query may always be behind retention."""
        here = gaps.c.query == self.query, gaps.c.checkpoint == batch.checkpoint
        had_some = sql.select(gaps.c.batch).where(*here).distinct().order_by(gaps.c.batch.desc())
        last_to_go = connection.scalar(had_some.offset(GAP_BATCHES_MAX).limit(1))
        if last_to_go is not None:
            connection.execute(gaps.delete().where(*here, gaps.c.batch <= last_to_go))

    def advance(self, connection: Connection, moves: Iterable[Due]) -> None:
        """Compare and set each reader's next offset, inside the transaction of its rows.

        All that are new go in one statement, and all others in another: a query may read thousands
        of partitions, and the transaction holds its lock meanwhile.
        """
        fresh, known = [], []
        for move in moves:
            if move.expected is None:
                values = {"next_offset": move.end, "topic_id": move.topic_id}
                fresh.append({**dict(zip(_PLACE, self._key(move.reader), strict=True)), **values})
            else:
                known.append(move)
        if fresh:
            connection.execute(offsets.insert(), fresh)
        if not known:
            return
        unchanged = offsets.c.next_offset == sql.bindparam("expected")
        statement = offsets.update().where(*_AT, unchanged)
        changed = connection.execute(
            statement.values(next_offset=sql.bindparam("end")),
            [{**self._named(m.reader), "expected": m.expected, "end": m.end} for m in known],
        )
        if changed.rowcount != len(known):
            self._changed(connection, known)

    def _changed(self, connection: Connection, moves: Sequence[Due]) -> NoReturn:
        """Name one that was not moved. FencedError."""
        asked = sql.select(offsets.c.next_offset).where(*_AT)
        odd = (m for m in moves if connection.scalar(asked, self._named(m.reader)) != m.end)
        move = next(odd, moves[0])
        raise FencedError(
            f"query {self.query!r}, {move.reader}: the next offset is no longer "
            f"{move.expected}; somebody changed it. Nothing was written"
        )

    def _key(self, reader: Reader) -> tuple[str, str, int, int]:
        """Return what stands in the columns of `_PLACE`."""
        return (self.query, *reader.partition, reader.source)

    def _named(self, reader: Reader) -> dict[str, Any]:
        """Return the values of `_AT`."""
        return {f"of_{n}": value for n, value in zip(_PLACE, self._key(reader), strict=True)}
