"""A table of files that one driver at a time commits to: what Delta and Iceberg have in common.

A commit of ours has a *turn*, which the table names with it; what is remembered belongs to a turn.
To take a query over is a commit too, without files; its turn is the epoch. Each commit is made
directly behind what was read, or not at all, and what was read had the turn that this owner
committed last. So whoever commits knows that nobody else did since.

Owns that order, and what tasks have staged. How a table is read, and what a commit is, a store
decides: `delta_store`, `iceberg.store`.
"""

from __future__ import annotations

import json
import logging
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar
from urllib.parse import quote

from holdfast.pipelines.due import Memory, Work
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.parquet.task import SCHEMA, ParquetTask
from holdfast.pipelines.sinks.remembered import memory_of, told_gaps, told_moves, told_of
from holdfast.pipelines.sinks.store import Staged
from holdfast.pipelines.sinks.target import Mode, Target, TargetError
from holdfast.pipelines.sinks.written_files import Files, begin, make_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

AREA: Final = "_holdfast"
VERSION: Final = 1  # of what is remembered, as a text
DIGITS: Final = 20  # of a number in a name, so that names sort as numbers do
ATTEMPTS: Final = 100  # to commit; each that fails is somebody else's commit
NOTHING: Final[dict[str, Any]] = {
    "turn": 0, "before": 0, "checkpoint": None, "batch": None, "plan": None, "stateful": False,
    "by_place": True, "offsets": [],
}  # fmt: skip
"""What a table remembers of a query that it does not know."""

_FOR_PEOPLE: Final = ("query", "epoch", "checkpoint", "batch", "turn")


def for_people(told: Mapping[str, Any]) -> str:
    """Return what the table's history shows of a commit; nobody reads it back."""
    gaps = {"gaps": told["gaps"]} if told.get("gaps") else {}
    return json.dumps({**{key: told[key] for key in _FOR_PEOPLE}, **gaps})


T = TypeVar("T")  # a table, as it was when it was read
A = TypeVar("A")  # what a commit adds to it


class TurnStore(ABC, Generic[T, A]):
    """A table in a folder that every executor sees under the same name."""

    kind: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]]
    """What is raised where the table can't be read or written."""

    def __init__(self, query: str, target: Target) -> None:
        self._query = query
        self._target = target
        self._told: dict[str, Any] = {}  # what was committed last, by this owner
        self._trying: dict[str, Any] = {}  # what may have been committed since
        if target.mode is not Mode.APPEND:
            raise TargetError(f'mode: {self.kind} is appended to; "upsert" is not built for it')
        if target.keys:
            raise TargetError(f"keys: {self.kind} has no primary key; leave them out")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_told": {}, "_trying": {}}

    @property
    def query(self) -> str:
        return self._query

    # -- how a store does it -----------------------------------------------------------------------

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The table's folder."""

    @property
    @abstractmethod
    def _arrow(self) -> pa.Schema:
        """The columns as they are in a file."""

    @abstractmethod
    def _load(self) -> T:
        """Return the table as it is now. TargetError: it is there no more."""

    @abstractmethod
    def _turn_of(self, table: T) -> Any:
        """Return the turn that was committed last; 0 before the first."""

    @abstractmethod
    def _read(self, table: T) -> dict[str, Any] | None:
        """Return what that turn told. None: it is over, another one was committed since."""

    @abstractmethod
    def _next(self, told: Mapping[str, Any], *, takes: bool = False) -> dict[str, Any]:
        """Return what will be remembered if the commit is made, under a turn that nobody else has.

        `takes`: the turn is the epoch, too.
        """

    @abstractmethod
    def _adds(self, files: Files) -> Sequence[A]:
        """Return what a commit says of files. StagingError: they don't have what was computed."""

    @abstractmethod
    def _move_in(self, files: Files) -> None:
        """Put the chosen files where the table's are: its readers see what a commit names."""

    @abstractmethod
    def _refuse_misfit(self, table: T) -> None:
        """TargetError: rows of the query don't fit into the table any more."""

    @abstractmethod
    def _commit(self, table: T, told: Mapping[str, Any], adds: Sequence[A]) -> Exception | None:
        """Commit directly behind what was read, or not at all; return what went wrong.

        An error need not say that the commit was not made.
        """

    @abstractmethod
    def _is_conflict(self, failure: Exception | None) -> bool:
        """Whether a commit failed because somebody else's came first."""

    @abstractmethod
    def _drop(self, told: Mapping[str, Any]) -> None:
        """Remove what a turn would have added. The table, as it was read just now, has it not."""

    @abstractmethod
    def _is_committed(self, told: Mapping[str, Any], over: Mapping[str, Any]) -> None:
        """Remove what is needed no more: `told` is committed, and `over` was, before it."""

    # -- who owns the query ------------------------------------------------------------------------

    @property
    def _area(self) -> Path:
        return self.folder / AREA / quote(self._query, safe="")

    @property
    def _staged(self) -> Path:
        return self._area / "staged" / self._name(self._told["epoch"])

    @staticmethod
    def _name(turn: Any) -> str:
        return f"{turn:0{DIGITS}}" if isinstance(turn, int) else str(turn)

    def _make_area(self, *folders: Path) -> None:
        for folder in folders:
            make_folder(folder)

    def _take(self) -> dict[str, Any]:
        """Commit a turn of our own, whoever had the one before; return what that one told."""
        for _ in range(ATTEMPTS):
            table = self._load()
            before = self._read(table)
            if before is None:
                continue
            nothing = {"rows": 0, "files": [], "ranges": [], "gaps": []}
            took = {**before, "before": before["turn"], **nothing}
            told = self._next(took, takes=True)
            failure = self._commit(table, told, [])
            if self._turn_of(self._load()) == told["turn"]:
                self._told = told
                self._staged.mkdir(parents=True)
                self._remove_staged()
                return before
            if failure is None:
                break  # it was written, and somebody took the query over at once
            self._drop(told)
            if not self._is_conflict(failure):
                raise failure
        raise FencedError(f"query {self._query!r}: others took it at the same time")

    def _remove_staged(self) -> None:
        """Remove the staging areas of the owners before."""
        for folder in self._staged.parent.iterdir():
            if folder.name < self._staged.name:
                shutil.rmtree(folder, ignore_errors=True)

    def _owned(self) -> T:
        """Return the table as it is now, if its last turn is ours. FencedError: it is not."""
        table = self._load()
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

    def memory(self) -> Memory:
        self._owned()
        return memory_of(self._told)

    # -- a batch -----------------------------------------------------------------------------------

    def task(self, batch: Batch) -> ParquetTask:
        """Return what each task of a batch does with its rows."""
        folder = self._staging(batch)
        begin(folder)
        return ParquetTask(folder, self._arrow)

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        with self.told_if_fenced():
            done = frame.mapInArrow(self.task(batch), SCHEMA).collect()
        return Files.of(self._staging(batch), done)

    def _staging(self, batch: Batch) -> Path:
        return self._staged / f"{batch.number:0{DIGITS}}"

    def commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        with self.told_if_fenced():
            memory = self.memory()
            files = Files(self._staging(batch), (), 0) if staged is None else staged
            assert isinstance(files, Files)
            adds = self._adds(files)
            over = self._told
            told = self._next({
                "before": over["turn"],
                "epoch": over["epoch"],
                **told_of(batch),
                "rows": files.count,
                "files": list(files.names),
                **told_moves(self._query, memory, work),
                "gaps": told_gaps(batch, work),
            })  # fmt: skip
            try:
                self._move_in(files)
                self._commit_owned(told, adds)
            except Exception:
                self._withdraw(told)
                raise
        files.close()
        self._is_committed(told, over)

    def _commit_owned(self, told: dict[str, Any], adds: Sequence[A]) -> None:
        """Commit a turn after ours, behind whatever commits of others are there by then."""
        self._trying = told
        failure: Exception | None = None
        for attempt in count():
            table = self._owned()
            if self._told is told:
                if failure is not None:
                    logger.warning("%s: written, but then: %s", self.folder, failure)
                return
            others = self._is_conflict(failure) and attempt < ATTEMPTS
            if failure is not None and not others:
                raise failure
            self._refuse_misfit(table)
            failure = self._commit(table, told, adds)

    def _withdraw(self, told: Mapping[str, Any]) -> None:
        """Remove what a commit that failed would have added; where that is not sure, it stays."""
        with suppress(FencedError, TargetError, *self.errors):
            self._owned()
            if self._told["turn"] != told["turn"]:
                self._drop(told)

    def close(self) -> None:
        """Nothing is held: tables are opened anew with each batch."""
