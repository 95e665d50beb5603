"""Where a member puts its results: a table, and how it keeps a record from being there twice.

Four ways. `transaction`: results and the offset behind them go in together, and the next owner
begins there: what the group has committed is asked by nobody. A member that has lost its partition
is stopped by the offset itself, which is no longer the one that it began with; and where the table
names the group that may write, every other group is refused. `unfenced`: the same, and nobody is
refused. `key`: what is there already under a record's own key is not put in again. `plain`: as it
comes.
"""

from __future__ import annotations

import fcntl
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TextIO

MODES: Final = ("transaction", "unfenced", "key", "plain")
BUSY_S: Final = 60.0
_BUSY_PAUSE_S: Final = 0.02
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS results(
    name TEXT, partition INTEGER, offset INTEGER, by TEXT, at_ms REAL);
CREATE TABLE IF NOT EXISTS positions(partition INTEGER PRIMARY KEY, next INTEGER);
CREATE TABLE IF NOT EXISTS writer(name TEXT);
"""


class Result(NamedTuple):
    """What came of one record."""

    name: str
    partition: int
    offset: int
    by: str
    at_ms: float


class GoneOnError(Exception):
    """Somebody else has gone on with a partition."""


class OtherWriterError(Exception):
    """Another group may write."""


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Keep other processes from opening the file meanwhile; the end of this one lets them, too.

    Who changes the journal's mode while another does is refused at once, however long it may wait.
    """
    with path.with_name(f"{path.name}.opening").open("a") as lock:
        _take(lock)
        yield


def _take(lock: TextIO) -> None:
    """Lock the file. TimeoutError: another has kept it, as one does that is stopped in there."""
    by_s = time.monotonic() + BUSY_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= by_s:
                raise TimeoutError(
                    f"{lock.name} has been locked for {BUSY_S:g} s: a process that opens the table "
                    "beside it has not come to an end"
                ) from None
            time.sleep(_BUSY_PAUSE_S)
        else:
            return


class Sink(AbstractContextManager["Sink"]):
    """One file, which several processes write to."""

    def __init__(self, path: Path, mode: str = "transaction") -> None:
        assert mode in MODES, mode
        self._mode = mode
        with _one_at_a_time(path):
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.executescript(_TABLES)
            if mode == "key":
                self._connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS keys ON results(name)")
        self._connection.execute("PRAGMA synchronous=OFF")  # processes are killed here, no machine

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def keeps_positions(self) -> bool:
        return self._mode in {"transaction", "unfenced"}

    def position(self, partition: int) -> int:
        """Return where whoever owns a partition has to go on."""
        row = self._connection.execute(
            "SELECT next FROM positions WHERE partition = ?", (partition,)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def put(self, group: str, results: Sequence[Result], begin: Mapping[int, int]) -> None:
        """Put the results of a batch in, all or none of them.

        `begin`: at which offset its part of each partition began. GoneOnError, OtherWriterError:
        nothing was put in.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if self._mode == "transaction":
                self._refuse_late(group, begin)
            if self.keeps_positions:
                self._move_on(results)
            verb = "INSERT OR IGNORE" if self._mode == "key" else "INSERT"
            statement = f"{verb} INTO results VALUES (?, ?, ?, ?, ?)"
            self._connection.executemany(statement, results)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _refuse_late(self, group: str, begin: Mapping[int, int]) -> None:
        writer = self.writer()
        if writer is not None and writer != group:
            raise OtherWriterError(f"{writer} writes now")
        for partition, offset in begin.items():
            position = self.position(partition)
            if position != offset:
                raise GoneOnError(f"partition {partition} goes on at {position}, not at {offset}")

    def _move_on(self, results: Sequence[Result]) -> None:
        ends = {each.partition: each.offset + 1 for each in results}  # the last of each
        self._connection.executemany(
            "INSERT OR REPLACE INTO positions VALUES (?, ?)", list(ends.items())
        )

    # -- which group may write -------------------------------------------------------------------

    def writer(self) -> str | None:
        """Return the group that may write; None: any."""
        row = self._connection.execute("SELECT name FROM writer").fetchone()
        return None if row is None else str(row[0])

    def switch(self, group: str) -> float:
        """Let this group write from now on, and no other; return when, in monotonic ms."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("DELETE FROM writer")
        self._connection.execute("INSERT INTO writer VALUES (?)", (group,))
        self._connection.execute("COMMIT")
        return time.monotonic() * 1000

    def rows(self) -> list[Result]:
        """Return all that is there, in the order in which it was put in."""
        found = self._connection.execute(
            "SELECT name, partition, offset, by, at_ms FROM results ORDER BY rowid"
        )
        return [Result(*row) for row in found]
