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
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from holdfast.pipelines.fence import epoch_after
from holdfast.pipelines.sinks.delta_table import (
    Columns,
    Latest,
    afterwards,
    entries,
    fit,
    has_checkpoint,
    made,
    refuse_misfit,
    sync_log,
    tidy,
)
from holdfast.pipelines.sinks.target import Target, TargetError
from holdfast.pipelines.sinks.turns import AREA, NOTHING, VERSION, TurnStore, for_people
from holdfast.pipelines.sinks.written_files import Files, folder_of, sync

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_WHY_LOCAL: Final = (
    "A former owner is kept out by renames and links of files; what an object store has instead is "
    "not built"
)


class DeltaStore(TurnStore[DeltaTable, AddAction]):
    """A Delta table in a folder that every executor sees under the same name."""

    kind = "a Delta table"
    errors = (DeltaError, OSError)

    def __init__(self, url: str, query: str, target: Target) -> None:
        super().__init__(query, target)
        self._root = folder_of(url, "delta", _WHY_LOCAL) / target.table
        self._columns: Columns | None = None
        self._latest = Latest(self._root)
        self._seen: tuple[DeltaTable, int, int] | None = None  # of a table at a version, our turn
        self._synced: int | None = None  # entries of the log before this one are on disk
        if "%" in str(self._root):
            raise TargetError(
                f"target: {self._root}: deltalake takes the % of a folder's name for an escape, "
                "and would look elsewhere; give the folder another name"
            )

    def __getstate__(self) -> dict[str, Any]:
        fresh = {"_columns": None, "_latest": Latest(self._root), "_seen": None, "_synced": None}
        return {**super().__getstate__(), **fresh}

    @property
    def folder(self) -> Path:
        return self._root

    @property
    def _arrow(self) -> pa.Schema:
        assert self._columns is not None, "open() comes first"
        return self._columns.arrow

    @property
    def _app(self) -> str:
        """Of a query, not of its checkpoint: one that is removed must not let rows come again."""
        return f"holdfast:{self._query}"

    @property
    def _memory(self) -> Path:
        return self._area / "memory"

    def _file(self, turn: int) -> Path:
        return self._memory / f"{self._name(turn)}.json"

    # -- who owns the query ----------------------------------------------------------------------

    def open(self, schema: StructType, master: str) -> None:
        del master  # wherever it runs: the folder has to be the same one, which nobody can tell
        self._columns = Columns(schema)
        self._latest = Latest(self._root)
        made(self._root, self._columns)
        fit(self._root, self._columns, adds=self._target.adds_columns)  # before anybody is fenced
        self._make_area(self._memory)
        self._sweep(self._take())

    def _load(self) -> DeltaTable:
        return self._latest.table()

    def _turn_of(self, table: DeltaTable) -> int:
        version = table.version()
        if self._seen is None or self._seen[0] is not table or self._seen[1] != version:
            self._seen = (table, version, table.transaction_version(self._app) or 0)
        return self._seen[2]

    def _sweep(self, before: Mapping[str, Any]) -> None:
        """Remove what owners before have left that was not committed, and now never will be.

        Turns rise with each commit. So what lies between three that followed on each other was not
        committed, and whoever would do so now must have read a turn that is over. Data files of
        older turns stay: of those nobody knows, and Delta's own VACUUM takes what no reader needs.
        """
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

    def _read(self, table: DeltaTable) -> dict[str, Any] | None:
        turn = self._turn_of(table)
        if not turn:
            return dict(NOTHING)
        try:
            told: dict[str, Any] = json.loads(self._file(turn).read_text())
        except FileNotFoundError:
            if self._turn_of(self._load()) != turn:
                return None
            raise TargetError(
                f"{self._file(turn)} is not there: it says how far the table is with query "
                f"{self._query!r}. Bring it back (a copy of the table has to have {AREA} too), or "
                "give the query another name and an empty table"
            ) from None
        return told

    def _next(self, told: Mapping[str, Any], *, takes: bool = False) -> dict[str, Any]:
        """Write what will be remembered if its turn is committed; nobody else gets that turn."""
        turns = (int(path.stem) for path in self._memory.iterdir())
        last = max(told["before"], *turns, 0)
        turn = epoch_after(last) if takes else last + 1
        while True:
            whole = {**told, "version": VERSION, "query": self._query, "turn": turn}
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

    def _adds(self, files: Files) -> list[AddAction]:
        return [_add(files.folder / name, rows) for name, rows in files.rows().items()]

    def _move_in(self, files: Files) -> None:
        """Put the chosen files into the table's folder: its readers see what a commit names."""
        files.move_to(self._root)

    def _refuse_misfit(self, table: DeltaTable) -> None:
        assert self._columns is not None, "open() comes first"
        refuse_misfit(table, self._columns)

    def _commit(
        self, table: DeltaTable, told: Mapping[str, Any], adds: Sequence[AddAction]
    ) -> Exception | None:
        """Commit at the version after the table's, or not at all; return what went wrong.

        An error says nothing: what follows a commit (Delta's checkpoint) may fail too.
        """
        version = table.version() + 1
        try:
            table.create_write_transaction(
                list(adds),
                "append",
                table.schema(),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": f'{{"holdfast": {for_people(told)}}}'},
                    max_commit_retries=0,
                    app_transactions=[Transaction(self._app, told["turn"])],
                ),
                post_commithook_properties=afterwards(table),
            )
        except self.errors as error:
            failure: Exception | None = error
            self._latest = Latest(self._root)  # what was read may be what is wrong
        else:
            failure = None
        with suppress(FileNotFoundError):
            sync_log(self._root, version, self._others(version))
            self._synced = version + 1
            if failure is None and has_checkpoint(table, version):
                self._tidy()
        return failure

    def _others(self, version: int) -> Iterable[int]:
        """Return the versions before this one that may not be on disk: others', since our last."""
        if self._synced is None or self._synced > version:  # of a table that was restored
            return [number for number in entries(self._root) if number < version]
        return range(self._synced, version)

    def _tidy(self) -> None:
        """Remove old entries of the log. What fails there is tried again behind the next one."""
        with suppress(*self.errors):
            tidy(self._root)

    def _is_conflict(self, failure: Exception | None) -> bool:
        return isinstance(failure, CommitFailedError)

    def _drop(self, told: Mapping[str, Any]) -> None:
        self._remove_files(self._file(told["turn"]))
        self._file(told["turn"]).unlink(missing_ok=True)

    def _is_committed(self, told: Mapping[str, Any], over: Mapping[str, Any]) -> None:
        del told
        self._file(over["turn"]).unlink(missing_ok=True)


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
