"""The table that a query's rows go into: its columns, its keys, and whether a database's fits.

Owns the types on both sides. It must never change what is there but by adding a column, and that
only when it was asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

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
        if not self.table or self.table.startswith(RESERVED):
            raise TargetError(f"table: {self.table!r} can't be one; {RESERVED}... are ours")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the query. `nullable`: it may be null, as far as Spark knows."""

    name: str
    type: sql.types.TypeEngine[Any]
    nullable: bool


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
        spark.FloatType: sql.REAL(),
        spark.DoubleType: sql.Double(),
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
    seen = sql.inspect(connection)
    if not seen.has_table(wanted.name, schema=wanted.schema):
        wanted.create(connection)
        return wanted
    there = {column["name"]: column for column in seen.get_columns(wanted.name, wanted.schema)}
    for column in wanted.columns:
        if column.name not in there:
            _add(connection, target, wanted, column)
        else:
            _compare(target, column, there[column.name]["type"])
    for name, found in there.items():
        is_filled = found["nullable"] or found.get("default") is not None
        if name not in wanted.columns and not is_filled and found.get("autoincrement") is not True:
            raise TargetError(
                f"table {target.table}: its column {name!r} must not be null, and the query has "
                "no such column; give it a default, or add it to the query"
            )
    if target.keys:
        _compare_keys(seen, target, wanted)
    return wanted


def _add(connection: Connection, target: Target, table: sql.Table, column: sql.Column[Any]) -> None:
    if not target.adds_columns:
        raise TargetError(
            f"table {target.table} has no column {column.name!r}, and the query has; add it to the "
            'table, leave it out of the query, or let it be added (schema_changes="add")'
        )
    preparer = connection.dialect.identifier_preparer
    made = sql.schema.CreateColumn(column).compile(connection)
    connection.exec_driver_sql(f"ALTER TABLE {preparer.format_table(table)} ADD COLUMN {made}")


_FAMILIES: Final[Mapping[str, Callable[[sql.types.TypeEngine[Any]], bool]]] = {
    "boolean": lambda kind: isinstance(kind, sql.Boolean),
    "number": lambda kind: isinstance(kind, sql.Numeric | sql.Integer),
    "text": lambda kind: isinstance(kind, sql.String),
    "bytes": lambda kind: isinstance(kind, sql.LargeBinary | postgresql.BYTEA),
    "date": lambda kind: isinstance(kind, sql.Date),
    "time": lambda kind: isinstance(kind, sql.DateTime),
}


def _compare(target: Target, column: sql.Column[Any], there: sql.types.TypeEngine[Any]) -> None:
    """Refuse what the database would refuse in the middle of a batch, or cut short."""
    families = [name for name, holds in _FAMILIES.items() if holds(column.type)]
    matches = not families or _FAMILIES[families[0]](there)
    if matches and _is_larger(column.type, there):
        matches = False
    if not matches:
        raise TargetError(
            f"table {target.table}: its column {column.name!r} is {there}, and the query's is "
            f"{column.type}: what does not fit would be refused or cut in the middle of a batch"
        )


def _is_larger(ours: sql.types.TypeEngine[Any], there: sql.types.TypeEngine[Any]) -> bool:
    """Whether whole numbers of the query may not fit. SQLite's hold all, whatever their name."""
    if isinstance(there, sqlite.INTEGER) or not isinstance(ours, sql.Integer):
        return False
    return isinstance(there, sql.Integer) and _size(ours) > _size(there)


def _size(kind: sql.types.TypeEngine[Any]) -> int:
    if isinstance(kind, sql.SmallInteger):
        return 0
    return 2 if isinstance(kind, sql.BigInteger) else 1


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
