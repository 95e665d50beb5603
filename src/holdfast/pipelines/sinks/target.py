"""The table that a query's rows go into: its columns, its keys, and whether a database's fits.

Owns the types on both sides. It must never change what is there but by adding a column, and that
only when it was asked to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from holdfast.pipelines.offsets import RECORD
from holdfast.pipelines.sinks.column_fit import misfit, spelt

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

COORDINATES: Final = ("topic", "partition", "offset")
RESERVED: Final = "holdfast_"
"""What columns and tables of ours begin with."""


class TargetError(ValueError):
    """A table does not fit a query, or what was asked of it makes no sense; the text says what."""


class Mode(Enum):
    """What a row does to the table."""

    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, and what rows do to it. It is pickled: it holds configuration only.

    `keys`: the table's primary key; an upsert replaces the row of the same key. `version`: of two
    rows of one key the one with the higher value wins, whatever came later. `deleted`: a column of
    booleans; where it is true, the row of that key is deleted. It is no column of the table.
    """

    table: str
    mode: Mode = Mode.APPEND
    keys: tuple[str, ...] = ()
    version: str | None = None
    deleted: str | None = None
    adds_columns: bool = False

    def __post_init__(self) -> None:
        if self.mode is Mode.UPSERT and not self.keys:
            raise TargetError('keys: an upsert needs them; name the columns of the key, ["id"]')
        if self.mode is Mode.APPEND:
            for name, value in (("version", self.version), ("deleted", self.deleted)):
                if value is not None:
                    raise TargetError(f'{name}: only an upsert has one; use mode="upsert"')
        twice = [name for name in self.keys if self.keys.count(name) > 1]
        if twice:
            raise TargetError(f"keys: {twice[0]!r} is there twice")
        if self.deleted is not None and self.deleted in {*self.keys, self.version}:
            raise TargetError(
                f"deleted: {self.deleted!r} is a key or the version, too, and the table has no "
                "column of it; name a column of its own"
            )
        if not self.table or self.table.startswith(RESERVED):
            raise TargetError(f"table: {self.table!r} can't be one; {RESERVED}... are ours")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the query. `nullable`: it may be null, as far as Spark knows."""

    name: str
    type: sql.types.TypeEngine[Any]
    nullable: bool


def ordering(schema: StructType) -> tuple[str, ...]:
    """Return the columns that may tell which of two rows is the later one.

    A column that is called as a coordinate is, but is not the record's own, tells nothing.
    """
    return tuple(
        field.name
        for field in schema.fields
        if field.name not in COORDINATES or field.metadata.get(RECORD) == field.name
    )


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """Return the columns of a frame. TargetError: one of them no table can hold."""
    names = [field.name for field in schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TargetError(f"column {twice[0]!r} is there twice; give one of them another name")
    for name in names:
        if name.startswith(RESERVED):
            raise TargetError(f"column {name!r}: names that begin with {RESERVED} are ours")
    return tuple(
        Column(field.name, _type_of(field.name, field.dataType), field.nullable)
        for field in schema.fields
    )


class _DecimalText(sql.types.TypeDecorator[Decimal]):
    """An exact number as its text."""

    impl = sql.Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, _dialect: Any) -> str | None:
        return None if value is None else f"{value:f}"

    def process_result_value(self, value: Any, _dialect: Any) -> Decimal | None:
        return None if value is None else Decimal(value)


class _Number(sql.types.TypeDecorator[float]):
    """A floating number. SQLite makes a null of one that is none, and says nothing."""

    impl = sql.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, _dialect: Any) -> float | None:
        if value is not None and math.isnan(value):
            raise TargetError(
                "SQLite has no NaN, and would make a null of it: leave such rows out of the query, "
                "or give them a value (nanvl), a null perhaps"
            )
        return value


class _UtcText(sql.types.TypeDecorator[datetime]):
    """A moment, in UTC. Spark's rows have it in this process's time zone, and don't say so."""

    impl = sql.DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Any) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, _dialect: Any) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


def _type_of(name: str, kind: DataType) -> sql.types.TypeEngine[Any]:
    from pyspark.sql import types as spark  # noqa: PLC0415 - half a second, and stores need none

    if isinstance(kind, spark.DecimalType):
        # SQLite's own numbers would round it.
        return sql.Numeric(kind.precision, kind.scale).with_variant(_DecimalText(), "sqlite")
    simple: dict[type[Any], sql.types.TypeEngine[Any]] = {
        spark.BooleanType: sql.Boolean(),
        spark.ByteType: sql.SmallInteger(),
        spark.ShortType: sql.SmallInteger(),
        spark.IntegerType: sql.Integer(),
        spark.LongType: sql.BigInteger(),
        spark.FloatType: sql.REAL().with_variant(_Number(), "sqlite"),
        spark.DoubleType: sql.Double().with_variant(_Number(), "sqlite"),
        spark.StringType: sql.Text(),
        spark.BinaryType: sql.LargeBinary(),
        spark.DateType: sql.Date(),
        spark.TimestampType: sql.DateTime(timezone=True).with_variant(_UtcText(), "sqlite"),
        spark.TimestampNTZType: sql.DateTime(timezone=False),
    }
    for known, found in simple.items():
        if isinstance(kind, known):
            return found
    raise TargetError(
        f"column {name!r}: {kind.simpleString()} has no counterpart in a table; "
        f'make text of it (functions.to_json("{name}")) or leave it out'
    )


def table_of(target: Target, columns: Iterable[Column]) -> sql.Table:
    """Return the table as it has to be, with its key; nothing is asked of a database."""
    kept = [column for column in columns if column.name != target.deleted]
    present = {column.name for column in kept}
    for name in (*target.keys, *filter(None, (target.version,))):
        if name not in present:
            raise TargetError(
                f"column {name!r} is no column of the query: it has {sorted(present)}"
            )
    schema, _, name = target.table.rpartition(".")
    return sql.Table(
        name,
        sql.MetaData(),
        *(
            sql.Column(
                column.name,
                column.type,
                primary_key=column.name in target.keys,
                autoincrement=False,
                nullable=column.name not in target.keys,
            )
            for column in kept
        ),
        schema=schema or None,
    )


def prepare(connection: Connection, target: Target, columns: Iterable[Column]) -> sql.Table:
    """Make the table if it is not there, and else see whether it fits.

    Returns it as the query knows it. TargetError says which column does not fit, and why.
    """
    wanted = table_of(target, columns)
    if not is_there(connection, target):
        wanted.create(connection)
        return wanted
    seen = sql.inspect(connection)
    there = {column["name"]: column for column in seen.get_columns(wanted.name, wanted.schema)}
    for column in wanted.columns:
        if column.name not in there:
            _add(connection, target, wanted, column)
    compare(connection, wanted)
    for name, found in there.items():
        is_filled = found["nullable"] or found.get("default") is not None or "computed" in found
        if name not in wanted.columns and not is_filled and found.get("autoincrement") is not True:
            raise TargetError(
                f"table {target.table}: its column {name!r} must not be null, and the query has "
                "no such column; give it a default, or add it to the query"
            )
    if target.keys:
        _compare_keys(seen, target, wanted)
        _refuse_other_scale(connection, target, wanted)
    return wanted


def _add(connection: Connection, target: Target, table: sql.Table, column: sql.Column[Any]) -> None:
    if not target.adds_columns:
        raise TargetError(
            f"table {target.table} has no column {column.name!r}, and the query has; add it to the "
            'table, leave it out of the query, or let it be added (schema_changes="add")'
        )
    add_column(connection, table, column)


def add_column(connection: Connection, table: sql.Table, column: sql.Column[Any]) -> None:
    preparer = connection.dialect.identifier_preparer
    made = sql.schema.CreateColumn(column).compile(connection)
    connection.exec_driver_sql(f"ALTER TABLE {preparer.format_table(table)} ADD COLUMN {made}")


def is_there(connection: Connection, target: Target) -> bool:
    schema, _, name = target.table.rpartition(".")
    return bool(sql.inspect(connection).has_table(name, schema=schema or None))


def limits(connection: Connection, table: sql.Table) -> dict[str, int]:
    """Return how many characters a text may have, of columns that would be cut to that."""
    if connection.dialect.name == "sqlite":
        return {}  # what it calls VARCHAR(10) takes any text
    there = sql.inspect(connection).get_columns(table.name, table.schema)
    found = {column["name"]: getattr(column["type"], "length", None) for column in there}
    return {name: limit for name, limit in found.items() if limit and name in table.columns}


def compare(connection: Connection, table: sql.Table) -> None:
    """Refuse what the database would refuse in the middle of a batch, or change."""
    there = sql.inspect(connection).get_columns(table.name, table.schema)
    types = {column["name"]: column["type"] for column in there}
    dialect = connection.dialect
    for column in table.columns:
        found = types[column.name]
        why = misfit(column.type, found, dialect)
        if why is not None:
            raise TargetError(
                f"table {table.name}: its column {column.name!r} is {spelt(found, dialect)}, and "
                f"the query's is {spelt(column.type, dialect)}: {why}. Cast the query's column to "
                "what the table has, or change the table's (ALTER TABLE)"
            )


def _refuse_other_scale(connection: Connection, target: Target, table: sql.Table) -> None:
    """SQLite has decimals as texts: one key with two scales would be two keys."""
    if connection.dialect.name != "sqlite":
        return
    for name in target.keys:
        column = table.c[name]
        if not isinstance(column.type, sql.Numeric):
            continue
        found = connection.scalar(sql.select(column).where(column.is_not(None)).limit(1))
        if found is not None and -found.as_tuple().exponent != column.type.scale:
            raise TargetError(
                f"table {target.table}: the key {name!r} has values like {found}, and the query's "
                f"is {column.type}: SQLite compares texts, so a key would be there twice. Cast the "
                "query's column to the former scale"
            )


def _compare_keys(seen: sql.Inspector, target: Target, table: sql.Table) -> None:
    """An upsert needs a constraint that says that a key is there once: exactly these columns."""
    constraints: list[Collection[Any]] = [
        seen.get_pk_constraint(table.name, table.schema)["constrained_columns"],
        *(each["column_names"] for each in seen.get_unique_constraints(table.name, table.schema)),
        *(
            each["column_names"]
            for each in seen.get_indexes(table.name, table.schema)
            if each["unique"]
        ),
    ]
    if not any(set(names) == set(target.keys) for names in constraints):
        raise TargetError(
            f"table {target.table} has no primary key or unique constraint of exactly "
            f"({', '.join(target.keys)}): without one a key could be there twice"
        )
