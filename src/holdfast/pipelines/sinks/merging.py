"""Rows that are staged become a table's rows, in SQL that PostgreSQL and SQLite both know.

Of two rows of one key the winner is found in two steps: within a partition the higher offset wins;
then, among partitions, the higher timestamp, and of equal ones the higher partition. In one step
these rules would not order three rows: a later offset may have an earlier timestamp. A later batch
wins over an earlier one, since it is written later. With a version the higher one wins, whatever
batch it came in; of equal ones the row that these rules choose. A deleted key leaves its version
behind, so that an older row that comes later does not bring it back. A row without a version is
refused: nobody could say what it is older than. A table may have such rows, and any other is newer.

Others may write to the table at the same moment. A row is judged by the statement that changes it,
as it is when its lock is had: what a statement before has seen may be over.

Must never write a row that the staging table does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from holdfast.pipelines.fence import DECIMAL_ORDER
from holdfast.pipelines.sinks.column_fit import is_decimal
from holdfast.pipelines.sinks.target import COORDINATES, Mode, Target, TargetError

TIMESTAMP: Final = "timestamp"
PLACE: Final = "holdfast_place"
"""A column of the staging table that tells its rows apart."""

DELETED: Final = "holdfast_deleted_"
"""What a table of deleted keys begins with; the table's name follows."""

_RANK: Final = "holdfast_rank"


def tombstones_of(target: Target, table: sql.Table) -> sql.Table:
    """Return the table of deleted keys: the key, and the version that deleted it, if any."""
    columns = [
        sql.Column(name, table.c[name].type, primary_key=True, autoincrement=False)
        for name in target.keys
    ]
    if target.version is not None:
        columns.append(sql.Column(target.version, table.c[target.version].type))
    return sql.Table(f"{DELETED}{table.name}", sql.MetaData(), *columns, schema=table.schema)


def check_order(target: Target, names: Sequence[str], *, stateful: bool) -> None:
    """TargetError if nothing tells which of two rows of a key comes later."""
    if target.mode is Mode.APPEND or target.version is not None or stateful:
        return
    missing = [name for name in (*COORDINATES, TIMESTAMP) if name not in names]
    if missing:
        raise TargetError(
            f"an upsert needs the record's {', '.join(missing)} to tell which row of a key is the "
            "later one, and the query lacks it or has computed it: keep it as the source gives it, "
            'or name a column that tells which is later (version="...")'
        )


class Merge:
    """The statements of one batch, for one table."""

    def __init__(
        self,
        target: Target,
        table: sql.Table,
        staging: sql.Table,
        *,
        counted: bool = False,
    ) -> None:
        """`counted`: whether to see that no row was left out, by a trigger that says nothing."""
        self._target = target
        self._table = table
        self._staging = staging
        self._names = [column.name for column in table.columns]
        self._counted = counted
        self._in_sqlite = False

    def append(self, connection: Connection, chosen: sql.ColumnElement[bool]) -> int:
        """Add the chosen rows of the staging table; return how many."""
        rows = sql.select(*(self._staging.c[name] for name in self._names)).where(chosen)
        insert = self._table.insert().from_select(self._names, rows)
        # SQLAlchemy counts no rows of an INSERT unless it is told to.
        done = connection.execute(insert, execution_options={"preserve_rowcount": True})
        return done.rowcount

    def upsert(
        self, connection: Connection, chosen: sql.ColumnElement[bool], *, stateful: bool
    ) -> None:
        """Let each key's winner among the chosen rows replace the row of that key, or delete it."""
        self._in_sqlite = connection.dialect.name == "sqlite"
        winners = self._winners(chosen, stateful=stateful)
        self._refuse_without_key(connection, chosen)
        self._refuse_unversioned(connection, chosen)
        if stateful and self._target.version is None:
            self._refuse_twice(connection, chosen)
        if self._target.deleted is None:
            self._put(connection, winners)
            return
        gone = sql.func.coalesce(self._staging.c[self._target.deleted], sql.false())
        tombstones = tombstones_of(self._target, self._table)
        # What is older than what deleted its key is no winner; found out before that changes.
        if self._target.version is not None:
            winners &= ~self._is_older(tombstones)
        self._delete(connection, winners & gone)
        if self._target.version is not None:
            winners &= ~self._is_older(self._table)
        self._put_into(connection, tombstones, winners & gone)
        connection.execute(
            sql.delete(tombstones).where(
                self._keys(tombstones).in_(self._keys_of(winners, sql.not_(gone)))
            )
        )
        self._put(connection, winners & sql.not_(gone))

    # -- which row of a key ----------------------------------------------------------------------

    def _winners(
        self, chosen: sql.ColumnElement[bool], *, stateful: bool
    ) -> sql.ColumnElement[bool]:
        """Return what holds of the winners' rows in the staging table."""
        staging, target = self._staging, self._target
        keys = [staging.c[name] for name in target.keys]
        version = []
        if target.version is not None:
            version.append(self._ordered(staging.c[target.version]).desc())
        if stateful or not {*COORDINATES, TIMESTAMP} <= set(staging.c.keys()):
            return staging.c[PLACE].in_(self._first(chosen, keys, [*version, staging.c[PLACE]]))
        in_partition = [*keys, staging.c["topic"], staging.c["partition"]]
        latest = self._first(chosen, in_partition, [*version, staging.c["offset"].desc()])
        order = [
            *version,
            staging.c[TIMESTAMP].desc(),
            staging.c["partition"].desc(),
            self._ordered(staging.c["topic"]).desc(),
        ]
        return staging.c[PLACE].in_(self._first(staging.c[PLACE].in_(latest), keys, order))

    def _first(
        self, chosen: sql.ColumnElement[bool], of: Sequence[Any], order: Sequence[Any]
    ) -> sql.Select[Any]:
        """Return the places of those that come first, one of each group."""
        rank = sql.func.row_number().over(partition_by=list(of), order_by=list(order))
        ranked = (
            sql.select(self._staging.c[PLACE].label(PLACE), rank.label(_RANK))
            .where(chosen)
            .subquery()
        )
        return sql.select(ranked.c[PLACE]).where(ranked.c[_RANK] == 1)

    def _is_older(self, other: sql.Table) -> sql.ColumnElement[bool]:
        """Whether a staged row's key has a higher version in another table."""
        assert self._target.version is not None
        version = self._ordered(other.c[self._target.version])
        newer = version > self._ordered(self._staging.c[self._target.version])
        return sql.exists().where(*self._same_key(other), newer)

    def _same_key(self, other: sql.Table) -> list[sql.ColumnElement[bool]]:
        return [other.c[name] == self._staging.c[name] for name in self._target.keys]

    def _ordered(self, version: sql.ColumnElement[Any]) -> sql.ColumnElement[Any]:
        """Return a version as the database has to compare it.

        SQLite has exact numbers as texts. Texts are compared byte by byte: a language's order
        stands beside a database or a column, and takes different texts for one.
        """
        if self._in_sqlite and is_decimal(version.type):
            return sql.collate(sql.type_coerce(version, sql.Text), DECIMAL_ORDER)
        if isinstance(version.type, sql.String):
            # A text to begin with: CITEXT has operators of its own, whatever its collation.
            return sql.collate(sql.cast(version, sql.Text), "BINARY" if self._in_sqlite else "C")
        return version

    def _refuse_without_key(self, connection: Connection, chosen: sql.ColumnElement[bool]) -> None:
        """A null is unlike any other, for a constraint too: each would be another row."""
        keys = [self._staging.c[name] for name in self._target.keys]
        missing = sql.or_(*(key.is_(None) for key in keys))
        found = connection.execute(sql.select(*keys).where(chosen, missing).limit(1)).first()
        if found is not None:
            raise TargetError(
                f"a row of the key {tuple(found)!r} has null in its key "
                f"({', '.join(self._target.keys)}): leave such rows out of the query, or give them "
                "a value (coalesce)"
            )

    def _refuse_unversioned(self, connection: Connection, chosen: sql.ColumnElement[bool]) -> None:
        if self._target.version is None:
            return
        keys = [self._staging.c[name] for name in self._target.keys]
        missing = self._staging.c[self._target.version].is_(None)
        found = connection.execute(sql.select(*keys).where(chosen, missing).limit(1)).first()
        if found is not None:
            raise TargetError(
                f"a row of the key {tuple(found)!r} has no version: its column "
                f"{self._target.version!r} is null, so nothing tells whether it is the later one; "
                "leave such rows out of the query, or give them a version (coalesce)"
            )

    def _refuse_twice(self, connection: Connection, chosen: sql.ColumnElement[bool]) -> None:
        """A stateful query's rows have no order: of two for one key nobody knows the later one."""
        keys = [self._staging.c[name] for name in self._target.keys]
        twice = sql.select(*keys).where(chosen).group_by(*keys).having(sql.func.count() > 1)
        found = connection.execute(twice.limit(1)).first()
        if found is not None:
            raise TargetError(
                f"the key {tuple(found)!r} is twice in one batch of a stateful query, and nothing "
                'tells which row is the later one: name a column that does (version="..."), or '
                "take more columns into the keys"
            )

    # -- what is done with them ------------------------------------------------------------------

    def _keys(self, table: sql.Table) -> sql.ColumnElement[Any]:
        return sql.tuple_(*(table.c[name] for name in self._target.keys))

    def _keys_of(self, *where: sql.ColumnElement[bool]) -> sql.Select[Any]:
        return sql.select(*(self._staging.c[name] for name in self._target.keys)).where(*where)

    def refuse_left_out(self, wanted: int, done: int) -> NoReturn:
        """TargetError: the table has taken fewer rows than it was given, or more."""
        raise TargetError(
            f"table {self._target.table}: {wanted} rows were to be written or deleted, and {done} "
            "were: a trigger or a rule of the table leaves rows out. Nothing was written. Drop it, "
            "or have the query leave these rows out"
        )

    def _delete(self, connection: Connection, chosen: sql.ColumnElement[bool]) -> None:
        """Delete the rows of the chosen ones' keys, unless they have a higher version.

        Whoever holds a row's lock may be giving it one. PostgreSQL waits, and then asks what is
        said here of the row itself once more; what another part of the statement has seen of the
        table stays as it was.
        """
        due = [*self._same_key(self._table), chosen]
        if self._target.version is not None:
            before = self._ordered(self._table.c[self._target.version])
            version = self._ordered(self._staging.c[self._target.version])
            due.append(before.is_(None) | (version >= before))
        found = sql.select(sql.literal(1)).select_from(self._staging).where(*due)
        which = found.correlate(self._table).exists()
        wanted = self._count(connection, self._table, which)
        done = connection.execute(sql.delete(self._table).where(which)).rowcount
        if wanted is not None and done != wanted:
            left = self._count(connection, self._table, which) or 0
            self._refuse_what_is_left(done + left, left)

    def _put(self, connection: Connection, chosen: sql.ColumnElement[bool]) -> None:
        due = chosen
        if self._target.version is not None:
            due &= ~self._is_older(self._table)
        wanted = self._count(connection, self._staging, due)
        done = self._put_into(connection, self._table, chosen)
        if wanted is None or done == wanted:
            return
        left = self._count(connection, self._staging, chosen & ~self._is_there()) or 0
        given = self._count(connection, self._staging, chosen) or 0
        self._refuse_what_is_left(given, left)

    def _refuse_what_is_left(self, given: int, left: int) -> None:
        """TargetError: rows that were not changed are not as they should be.

        That fewer were changed than were due is no fault alone: somebody else changed them
        meanwhile, or a trigger leaves out what would change nothing.
        """
        if left:
            self.refuse_left_out(given, given - left)

    def _is_there(self) -> sql.ColumnElement[bool]:
        """Whether the table has a staged row as it is, or one of its key and a higher version."""
        others = [name for name in self._names if name not in self._target.keys]
        alike = sql.and_(
            sql.true(),
            *(
                self._ordered(self._table.c[name]).is_not_distinct_from(
                    self._ordered(self._staging.c[name])
                )
                for name in others
            ),
        )
        if self._target.version is not None:
            before = self._ordered(self._table.c[self._target.version])
            alike |= before > self._ordered(self._staging.c[self._target.version])
        return sql.exists().where(*self._same_key(self._table), alike)

    def _count(
        self, connection: Connection, table: sql.Table, which: sql.ColumnElement[bool]
    ) -> int | None:
        """Count rows, if that is asked for."""
        if not self._counted:
            return None
        counted = sql.select(sql.func.count()).select_from(table).where(which)
        return int(connection.scalar(counted) or 0)

    def _put_into(
        self, connection: Connection, table: sql.Table, chosen: sql.ColumnElement[bool]
    ) -> int | None:
        """Insert rows, or replace what has their keys, unless that has a higher version.

        Returns how many. None: that is not told, since those that are there already count for none.
        """
        dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
        names = [column.name for column in table.columns]
        rows = sql.select(*(self._staging.c[name] for name in names)).where(chosen)
        insert = dialect.insert(table).from_select(names, rows)
        others = [name for name in names if name not in self._target.keys]
        if not others:
            connection.execute(insert.on_conflict_do_nothing(index_elements=self._target.keys))
            return None
        is_newer = None
        if self._target.version is not None:
            before = table.c[self._target.version]
            version = self._ordered(insert.excluded[self._target.version])
            is_newer = before.is_(None) | (version >= self._ordered(before))
        done = connection.execute(
            insert.on_conflict_do_update(
                index_elements=self._target.keys,
                set_={name: insert.excluded[name] for name in others},
                where=is_newer,
            ),
            execution_options={"preserve_rowcount": True},
        )
        return done.rowcount
