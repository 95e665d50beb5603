"""Sinks as they are often written, each with the fault that a control of the lab has to show.

Owns three of them, for SQL through the driver and for files through the tasks. None remembers which
batch it has written. Nobody should use one.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)
HOLD_S_MAX = 600.0
LOOK_S = 0.05


class PlainAppend:
    """Append each batch in a transaction. One that comes again is appended again."""

    def __init__(self, url: str, table: str) -> None:
        self._engine = sql.create_engine(url, poolclass=sql.NullPool)
        self._table = sql.Table(
            table,
            sql.MetaData(),
            sql.Column("topic", sql.Text),
            sql.Column("partition", sql.Integer),
            sql.Column("offset", sql.BigInteger),
            sql.Column("key", sql.Text),
            sql.Column("value", sql.Text),
        )
        self._table.create(self._engine, checkfirst=True)

    def __call__(self, batch: DataFrame, _number: int) -> None:
        names = self._table.c.keys()
        rows = [{name: row[name] for name in names} for row in batch.collect()]
        if rows:
            self.insert(rows)

    def insert(self, rows: list[dict[str, Any]]) -> None:
        with self._engine.begin() as connection:
            connection.execute(self._table.insert(), rows)


class SwallowsErrors(PlainAppend):
    """As above; when the database is away, a line in the log, and on to the next batch."""

    def insert(self, rows: list[dict[str, Any]]) -> None:
        try:
            super().insert(rows)
        except sql.exc.SQLAlchemyError as error:
            log.warning("%d rows could not be written: %s", len(rows), error)


class FromTasks:
    """Have each task append its rows to a file as it reads them. One that is tried again does too.

    While the file `hold` is there a task waits behind `after` rows, so that it can be killed there.
    """

    def __init__(self, folder: Path, hold: Path, after: int = 1) -> None:
        self._folder, self._hold, self._after = folder, hold, after
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, batch: DataFrame, _number: int) -> None:
        folder, hold, after = self._folder, self._hold, self._after

        def append(rows: Iterable[Any]) -> None:
            until_s = time.monotonic() + HOLD_S_MAX
            with (folder / f"{uuid.uuid4()}.jsonl").open("a", encoding="utf-8") as file:
                for number, row in enumerate(rows, 1):
                    file.write(json.dumps(row.asDict(), default=str) + "\n")
                    file.flush()
                    while number == after and hold.exists() and time.monotonic() < until_s:
                        time.sleep(LOOK_S)

        batch.foreachPartition(append)
