"""A table that a query writes, read by plain Python, and held against what the log makes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from holdfast.lab.parameters import refuse_if
from holdfast.lab.pipelines.plain_log import Row

NAME = "records"
GAPS = "holdfast_gap"
SHOWN_MAX = 3  # rows of each kind, in words
MISSING, TWICE, STRANGE = "missing", "more than once", "not in the log"


_LIBRARIES = ("pyspark", "pyarrow", "pandas", "sqlalchemy")


def refuse_without_spark() -> None:
    """LabError: what scenarios of queries need is not installed. They are listed all the same."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    refuse_if(
        bool(missing),
        f"a Spark query needs {', '.join(missing)}: pip install 'holdfast[spark]' brings that",
    )


class Table(Protocol):
    """What a driver is told of it, how far it is, and what it holds."""

    target: str

    def positions(self) -> dict[int, int]:
        """Return the next offset of each partition that has a row."""

    def rows(self) -> list[Row]:
        """Return all it holds."""


class SqlTable:
    """In SQLite or PostgreSQL. While it is not there, or its database is away, it tells nothing."""

    def __init__(self, target: str) -> None:
        refuse_without_spark()
        import sqlalchemy as sql  # noqa: PLC0415 - of an extra

        self.target = target
        self._engine = sql.create_engine(target, poolclass=sql.NullPool)

    def positions(self) -> dict[int, int]:
        from sqlalchemy.exc import OperationalError, ProgrammingError  # noqa: PLC0415 - as above

        text = f'SELECT "partition", MAX("offset") + 1 FROM {NAME} GROUP BY "partition"'  # noqa: S608
        try:
            return dict(self._all(text))
        except (OperationalError, ProgrammingError):
            return {}

    def rows(self) -> list[Row]:
        text = f'SELECT "partition", "offset", "key", "value" FROM {NAME}'  # noqa: S608 - ours
        return [Row(*row) for row in self._all(text)]

    def gaps(self) -> dict[int, set[int]]:
        """Return the offsets that the log lacked, as the sink has written them down."""
        import sqlalchemy as sql  # noqa: PLC0415 - as above

        found: dict[int, set[int]] = {}
        text = f'SELECT "partition", first_offset, next_offset FROM {GAPS}'  # noqa: S608 - ours
        with self._engine.connect() as connection:
            if not sql.inspect(connection).has_table(GAPS):
                return found
        for partition, first, behind in self._all(text):
            found.setdefault(partition, set()).update(range(first, behind))
        return found

    def _all(self, text: str) -> list[tuple[Any, ...]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(text)]


class FilesTable:
    """Files of JSON lines, which tasks write."""

    def __init__(self, folder: Path) -> None:
        self.target = str(folder)
        self._folder = folder

    def positions(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for row in self.rows():
            found[row.partition] = max(found.get(row.partition, 0), row.offset + 1)
        return found

    def rows(self) -> list[Row]:
        found = []
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):  # a task may be at its next one
                    row = json.loads(line)
                    found.append(Row(*(row[name] for name in Row._fields)))
        return found


def differences(table: Iterable[Row], log: Iterable[Row]) -> dict[str, list[Row]]:
    """Return rows that are wrong, by what is wrong with them: MISSING, TWICE, STRANGE."""
    there, wanted = Counter(table), Counter(log)
    twice = (row for row, count in there.items() if count > 1 and row in wanted)
    return {
        MISSING: sorted(wanted.keys() - there.keys(), key=_place),
        TWICE: sorted(twice, key=_place),
        STRANGE: sorted(there.keys() - wanted.keys(), key=_place),
    }


def compare(table: Iterable[Row], log: Iterable[Row]) -> str:
    """Return how a table differs from a log, in words; nothing: each record is in it, once."""
    return "; ".join(told(kind, rows) for kind, rows in differences(table, log).items() if rows)


def told(kind: str, rows: list[Row]) -> str:
    return f"{len(rows):,} {kind} ({_shown(rows)})"


def _place(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


def _shown(rows: list[Row]) -> str:
    shown = ", ".join(f"P{row.partition} offset {row.offset}" for row in rows[:SHOWN_MAX])
    return shown + (", ..." if len(rows) > SHOWN_MAX else "")
