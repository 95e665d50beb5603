"""A Delta table that has each batch once: rows and what is remembered of them, in one commit.

    TABLE/part-....parquet                     rows; TABLE/_delta_log: Delta's
    TABLE/_holdfast/QUERY/memory/TURN.json     what the table remembers once TURN is committed
    TABLE/_holdfast/QUERY/staged/EPOCH/BATCH/  what the tasks of this epoch's owner write

Delta keeps a number for each application, in a commit (`txn`) and in its checkpoints. Ours is the
turn: the file of memory that counts. Its file is made first, by name exclusively, so a turn has one
writer and one text; the commit that adds a batch's files names it. To take a query over is a commit
too, without files; its turn is the epoch.

Each commit is made at the one version that follows what was read, or not at all, and what was read
had the turn that this owner committed last. So whoever commits knows that nobody else did since.
`docs/design/spark.md` has what was measured of deltalake, and why its own retries are off.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from holdfast.pipelines.due import Memory, Work
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.delta_table import (
    ATTEMPTS,
    Columns,
    fit,
    loaded,
    made,
    refuse_misfit,
    sync_log,
)
from holdfast.pipelines.sinks.parquet_task import SCHEMA, ParquetTask
from holdfast.pipelines.sinks.remembered import memory_of, told_moves, told_of
from holdfast.pipelines.sinks.store import Staged
from holdfast.pipelines.sinks.target import Mode, Target, TargetError
from holdfast.pipelines.sinks.written_files import Files, begin, folder_of, sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

AREA: Final = "_holdfast"
_VERSION: Final = 1
_DIGITS: Final = 20  # of a turn, so that names sort as numbers do
_WHY_LOCAL: Final = (
    "A former owner is kept out by renames and links of files; what an object store has instead is "
    "not built"
)
_NOTHING: Final[dict[str, Any]] = {
    "turn": 0, "before": 0, "checkpoint": None, "batch": None, "plan": None, "stateful": False,
    "offsets": [],
}  # fmt: skip


class DeltaStore:
    """A Delta table in a folder that every executor sees under the same name."""

    def __init__(self, url: str, query: str, target: Target) -> None:
        self._root = folder_of(url, "delta", _WHY_LOCAL) / target.table
        self._query = query
        self._target = target
        self._columns: Columns | None = None
        self._told: dict[str, Any] = {}  # what was committed last, by this owner
        self._trying: dict[str, Any] = {}  # what may have been committed since
        if target.mode is not Mode.APPEND:
            raise TargetError('mode: a Delta table is appended to; "upsert" is not built for it')
        if target.keys:
            raise TargetError("keys: a Delta table has no primary key; leave them out")
        if "%" in str(self._root):
            raise TargetError(
                f"target: {self._root}: deltalake takes the % of a folder's name for an escape, "
                "and would look elsewhere; give the folder another name"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_columns": None, "_told": {}, "_trying": {}}

    @property
    def query(self) -> str:
        return self._query

    @property
    def _app(self) -> str:
        """Of a query, not of its checkpoint: one that is removed must not let rows come again."""
        return f"holdfast:{self._query}"

    @property
    def _area(self) -> Path:
        return self._root / AREA / quote(self._query, safe="")

    @property
    def _memory(self) -> Path:
        return self._area / "memory"

    def _file(self, turn: int) -> Path:
        return self._memory / f"{turn:0{_DIGITS}}.json"

    # -- who owns the query ----------------------------------------------------------------------

    def open(self, schema: StructType, master: str) -> None:
        del master  # wherever it runs: the folder has to be the same one, which nobody can tell
        self._columns = Columns(schema)
        made(self._root, self._columns)
        fit(self._root, self._columns, adds=self._target.adds_columns)  # before anybody is fenced
        self._memory.mkdir(parents=True, exist_ok=True)
        for folder in (self._area, self._area.parent, self._root):
            sync(folder)
        before = self._take()
        self._staged.mkdir(parents=True)
        self._sweep(before)

    @property
    def _staged(self) -> Path:
        return self._area / "staged" / f"{self._told['epoch']:0{_DIGITS}}"

    def _take(self) -> dict[str, Any]:
        """Commit a turn of our own, whoever had the one before; return what that one told."""
        for _ in range(ATTEMPTS):
            table = loaded(self._root)
            before = self._read(self._turn_of(table))
            if before is None:
                continue
            took = {**before, "before": before["turn"], "rows": 0, "files": [], "ranges": []}
            told = self._write(took, takes=True)
            failure = self._commit(table, told, [])
            turn = self._turn_of(loaded(self._root))
            if turn == told["turn"]:
                self._told = told
                return before
            if failure is None:
                break  # it was written, and somebody took the query over at once
            self._file(told["turn"]).unlink(missing_ok=True)
            if not isinstance(failure, CommitFailedError):
                raise failure
        raise FencedError(f"query {self._query!r}: others took it at the same time")

    def _turn_of(self, table: DeltaTable) -> int:
        return table.transaction_version(self._app) or 0

    def _owned(self) -> DeltaTable:
        """Return the table as it is now, if its last turn is ours. FencedError: it is not."""
        table = loaded(self._root)
        turn = self._turn_of(table)
        if self._trying and turn == self._trying["turn"]:
            self._told, self._trying = self._trying, {}
        if turn != self._told["turn"]:
            raise FencedError(
                f"query {self._query!r} was taken over: this driver, on {socket.gethostname()}, "
                f"has epoch {self._told['epoch']} and committed turn {self._told['turn']} last, "
                f"and the table has turn {turn}. What it had not committed is not written"
            )
        return table

    @contextmanager
    def told_if_fenced(self) -> Iterator[None]:
        """Say what a file that is not there means: that another driver took over. FencedError."""
        try:
            yield
        except Exception:
            self._owned()
            raise

    def _sweep(self, before: Mapping[str, Any]) -> None:
        """Remove what owners before have left that was not committed, and now never will be.

        Turns rise with each commit. So what lies between three that followed on each other was not
        committed, and whoever would do so now must have read a turn that is over. Data files of
        older turns stay: of those nobody knows, and Delta's own VACUUM takes what no reader needs.
        """
        for folder in self._staged.parent.iterdir():
            if int(folder.name) < self._told["epoch"]:
                shutil.rmtree(folder, ignore_errors=True)
        committed = {before["turn"], before["before"]}
        for path in self._memory.iterdir():
            turn = int(path.stem)
            if turn >= self._told["turn"]:
                continue
            if turn > before["before"] and turn not in committed:
                self._remove_files(path)
            path.unlink(missing_ok=True)

    def _remove_files(self, memory: Path) -> None:
        """Remove the data files of a turn that was not committed."""
        try:
            names = json.loads(memory.read_text())["files"]
        except (FileNotFoundError, ValueError):
            return  # nothing is moved before this file is whole
        for name in names:
            (self._root / name).unlink(missing_ok=True)

    # -- what is remembered ----------------------------------------------------------------------

    def memory(self) -> Memory:
        self._owned()
        return memory_of(self._told)

    def _read(self, turn: int) -> dict[str, Any] | None:
        """Return what a committed turn told. None: it is over, another one was committed since."""
        if not turn:
            return dict(_NOTHING)
        try:
            told: dict[str, Any] = json.loads(self._file(turn).read_text())
        except FileNotFoundError:
            if self._turn_of(loaded(self._root)) != turn:
                return None
            raise TargetError(
                f"{self._file(turn)} is not there: it says how far the table is with query "
                f"{self._query!r}. Bring it back (a copy of the table has to have {AREA} too), or "
                "give the query another name and an empty table"
            ) from None
        return told

    def _write(self, told: Mapping[str, Any], *, takes: bool = False) -> dict[str, Any]:
        """Write what will be remembered if its turn is committed; nobody else gets that turn."""
        turns = (int(path.stem) for path in self._memory.iterdir())
        turn = max(told["before"], *turns, 0) + 1
        while True:
            whole = {**told, "version": _VERSION, "query": self._query, "turn": turn}
            if takes:
                whole["epoch"] = turn
            try:
                with self._file(turn).open("x") as file:
                    json.dump(whole, file, indent=1)
                    file.flush()
                    os.fsync(file.fileno())
            except FileExistsError:
                turn += 1
                continue
            sync(self._memory)
            return whole

    # -- a batch ---------------------------------------------------------------------------------

    def task(self, batch: Batch) -> ParquetTask:
        """Return what each task of a batch does with its rows."""
        assert self._columns is not None, "open() comes first"
        folder = self._staging(batch)
        begin(folder)
        return ParquetTask(folder, self._columns.arrow)

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        with self.told_if_fenced():
            done = frame.mapInArrow(self.task(batch), SCHEMA).collect()
        return Files.of(self._staging(batch), done)

    def _staging(self, batch: Batch) -> Path:
        return self._staged / f"{batch.number:0{_DIGITS}}"

    def commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        with self.told_if_fenced():
            memory = self.memory()
            files = Files(self._staging(batch), (), 0) if staged is None else staged
            assert isinstance(files, Files)
            adds = [_add(files.folder / name, rows) for name, rows in files.rows().items()]
            told = self._write({
                "before": self._told["turn"],
                "epoch": self._told["epoch"],
                **told_of(batch),
                "rows": files.count,
                "files": list(files.names),
                **told_moves(self._query, memory, work),
            })  # fmt: skip
            over = self._file(self._told["turn"])
            try:
                self._move_in(files)
                self._commit_owned(told, adds)
            except Exception:
                self._withdraw(told)
                raise
        files.close()
        over.unlink(missing_ok=True)

    def _move_in(self, files: Files) -> None:
        """Put the chosen files into the table's folder: its readers see what a commit names."""
        for name in files.names:
            (files.folder / name).rename(self._root / name)
        sync(self._root)

    def _commit_owned(self, told: dict[str, Any], adds: Sequence[AddAction]) -> None:
        """Commit a turn after ours, at whatever version the commits of others leave for it."""
        assert self._columns is not None
        self._trying = told
        failure: Exception | None = None
        for attempt in count():
            table = self._owned()
            if self._told is told:
                if failure is not None:
                    logger.warning("%s: written, but then: %s", self._root, failure)
                return
            others = isinstance(failure, CommitFailedError) and attempt < ATTEMPTS
            if failure is not None and not others:
                raise failure
            refuse_misfit(table, self._columns)
            failure = self._commit(table, told, adds)

    def _commit(
        self, table: DeltaTable, told: Mapping[str, Any], adds: Sequence[AddAction]
    ) -> Exception | None:
        """Commit at the version after the table's, or not at all; return what went wrong.

        An error says nothing: what follows a commit (Delta's checkpoint) may fail too.
        """
        for_people = {key: told[key] for key in ("query", "epoch", "checkpoint", "batch", "turn")}
        try:
            table.create_write_transaction(
                list(adds),
                "append",
                table.schema(),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": json.dumps({"holdfast": for_people})},
                    max_commit_retries=0,
                    app_transactions=[Transaction(self._app, told["turn"])],
                ),
            )
        except (DeltaError, OSError) as error:
            failure: Exception | None = error
        else:
            failure = None
        with suppress(FileNotFoundError):
            sync_log(self._root, table.version() + 1)
        return failure

    def _withdraw(self, told: Mapping[str, Any]) -> None:
        """Remove what a commit that failed would have added; where that is not sure, it stays."""
        with suppress(FencedError, TargetError, DeltaError, OSError):
            self._owned()
            if self._told["turn"] != told["turn"]:
                self._remove_files(self._file(told["turn"]))
                self._file(told["turn"]).unlink()

    def close(self) -> None:
        """Nothing is held: tables are opened anew with each batch."""


def _add(path: Path, rows: int) -> AddAction:
    """Return what Delta's log says of a file, which lies beside the log when it is committed."""
    seen = path.stat()
    return AddAction(
        path=path.name,
        size=seen.st_size,
        partition_values={},
        modification_time=seen.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": rows}),
    )
