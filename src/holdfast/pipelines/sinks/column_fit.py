"""Whether a column that a table has holds what a query's column gives it, each value as it is.

Owns what databases do to values on their way into another type: round, cut, pad, shift, refuse.
What is refused here is refused before a batch. It asks nothing of a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect

Type = sql.types.TypeEngine[Any]

_MICROSECONDS: Final = 6  # digits of a second, which Spark has
_SINGLE, _DOUBLE = 24, 53  # bits of a floating number's digits

_FAMILIES: Final[Mapping[str, Callable[[Type], bool]]] = {
    "boolean": lambda kind: isinstance(kind, sql.Boolean),
    "number": lambda kind: isinstance(kind, sql.Numeric | sql.Float | sql.Integer),
    "text": lambda kind: isinstance(kind, sql.String) and not isinstance(kind, sql.Enum),
    "bytes": lambda kind: isinstance(kind, sql.LargeBinary | postgresql.BYTEA),
    "date": lambda kind: isinstance(kind, sql.Date),
    "time": lambda kind: isinstance(kind, sql.DateTime),
}


def misfit(wanted: Type, there: Type, dialect: Dialect) -> str | None:
    """Return what would become of values of the type `wanted` in a column of the type `there`.

    None: they stay what they are.
    """
    ours = in_database(wanted, dialect)
    is_sqlite = dialect.name == "sqlite"
    families = [name for name, holds in _FAMILIES.items() if holds(ours)]
    if not families or not _FAMILIES[families[0]](there):
        return "what does not fit would be refused, or changed, in the middle of a batch"
    if families[0] == "number":
        return _number_in_sqlite(ours, there) if is_sqlite else _number(ours, there)
    if is_sqlite:
        return None  # it knows no lengths, digits or time zones
    if families[0] == "text":
        return _text(there)
    if families[0] == "time":
        return _time(ours, there)
    return None


def in_database(kind: Type, dialect: Dialect) -> Type:
    """Return the type that a database's own column has for one of ours.

    >>> from sqlalchemy.dialects import sqlite
    >>> in_database(sql.Text(), sqlite.dialect())
    Text()
    """
    found = kind.dialect_impl(dialect)
    return found.impl_instance if isinstance(found, sql.types.TypeDecorator) else kind


def spelt(kind: Type, dialect: Dialect) -> str:
    """Return a type as the database's own statements spell it."""
    try:
        return in_database(kind, dialect).compile(dialect=dialect)
    except sql.exc.CompileError:
        return repr(kind)


def is_decimal(kind: Type) -> bool:
    return isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float)


def _number(ours: Type, there: Type) -> str | None:
    """Say what PostgreSQL does to a number."""
    if isinstance(there, sql.Integer):
        if isinstance(ours, sql.Integer):
            too_large = _whole_bits(ours) > _whole_bits(there)
            return "a number that is too large would end a batch" if too_large else None
        return "it would round what is behind the point"
    if isinstance(there, sql.Float):
        needed = _whole_bits(ours) if isinstance(ours, sql.Integer) else _fraction_bits(ours)
        return None if needed <= _fraction_bits(there) else "it would round numbers"
    if isinstance(ours, sql.Float):
        return "it would round numbers to 15 digits, or fewer"
    precision, scale = getattr(there, "precision", None), getattr(there, "scale", None) or 0
    if precision is None:
        return None
    whole, fraction = _digits(ours)
    if fraction > scale:
        return "it would round numbers"
    return None if whole <= precision - scale else "a number that is too large would end a batch"


def _number_in_sqlite(ours: Type, there: Type) -> str | None:
    """Say what SQLite, whose INTEGER has 64 bits and whose REAL has 53, does to a number."""
    if isinstance(there, sql.SmallInteger) and isinstance(ours, sql.Integer):
        too_large = _whole_bits(ours) > _whole_bits(there)
        return "who reads it expects small numbers there" if too_large else None
    if isinstance(there, sql.Float) and isinstance(ours, sql.Integer):
        return "it would round large numbers" if _whole_bits(ours) > _DOUBLE else None
    return None


def _text(there: Type) -> str | None:
    """Say what PostgreSQL does to a text."""
    if isinstance(there, sql.CHAR):
        return "it would fill texts up with spaces"
    if type(there) is sql.String:  # its own NAME and "char": texts of 63 bytes, and of one
        return "it would cut texts"
    return None


def _time(ours: Type, there: Type) -> str | None:
    """Say what PostgreSQL does to a moment, or to what a clock shows."""
    if getattr(ours, "timezone", False) != getattr(there, "timezone", False):
        return "it would shift times by the time zone of whoever connects"
    digits = getattr(there, "precision", None)
    if digits is not None and digits < _MICROSECONDS:
        return f"it would round times to {digits} digits of a second"
    return None


def _whole_bits(kind: Type) -> int:
    if isinstance(kind, sql.SmallInteger):
        return 16
    return 64 if isinstance(kind, sql.BigInteger) else 32


def _fraction_bits(kind: Type) -> int:
    """Return how many bits a number's digits have. A decimal is in no such number what it is."""
    if is_decimal(kind):
        return _DOUBLE + 1
    return _SINGLE if isinstance(kind, sql.REAL) else _DOUBLE


def _digits(kind: Type) -> tuple[int, int]:
    """Return how many digits a number has before the point at most, and behind it."""
    if isinstance(kind, sql.Integer):
        return len(str(1 << (_whole_bits(kind) - 1))), 0
    precision, scale = getattr(kind, "precision", None), getattr(kind, "scale", None)
    assert precision is not None, "Spark's decimals have a precision"
    assert scale is not None, "and a scale"
    return precision - scale, scale
