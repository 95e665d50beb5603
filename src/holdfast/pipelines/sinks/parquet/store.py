"""Parquet files that any reader can trust: a folder a batch, there whole or not at all.

    TABLE/QUERY/CHECKPOINT/BATCH-COMMIT/part-....parquet   rows; _manifest.json: what the batch is
    TABLE/_holdfast/QUERY/EPOCH/                           what the owner of this epoch stages
    TABLE/_holdfast/_columns/QUERY.json                    which columns a query writes

Names that begin with _ are passed over by Spark, Arrow, pandas and whatever else reads folders of
Parquet. A batch is committed by one rename of its folder out of its owner's staging area. Who takes
a query over renames the staging areas of all owners before, and only then looks how far the table
is: what a former owner renames later is not where it was, so it commits nothing any more.

What rename and fsync promise here, POSIX promises; object stores don't, and are refused.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from holdfast.pipelines.due import Memory, Work
from holdfast.pipelines.fence import FencedError, epoch_after
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.parquet.columns import (
    MANIFEST,
    agree_with_others,
    columns_of,
    columns_of_files,
    columns_of_last,
    last_manifest,
    refuse_other_types,
)
from holdfast.pipelines.sinks.parquet.task import SCHEMA, ParquetTask
from holdfast.pipelines.sinks.remembered import memory_of, told_gaps, told_moves, told_of
from holdfast.pipelines.sinks.store import Staged
from holdfast.pipelines.sinks.target import Mode, Target, TargetError
from holdfast.pipelines.sinks.written_files import (
    Files,
    begin,
    folder_of,
    make_folder,
    sync,
    unmarked,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

AREA: Final = "_holdfast"
_VERSION: Final = 1
_WHY_LOCAL: Final = (
    "A batch is one rename, which an object store does not have; HDFS has it, and is not built"
)
_DIGITS: Final = 10  # of a batch's number, so that names sort as numbers do


class ParquetStore:
    """A folder on disks that every executor sees under the same name."""

    def __init__(self, url: str, query: str, target: Target) -> None:
        for option, name in (("query", query), *(("table", n) for n in target.table.split("/"))):
            _refuse_hidden(option, name)
        self._root = folder_of(url, "parquet", _WHY_LOCAL) / target.table
        self._query = query
        self._target = target
        self._schema = ""
        self._columns: dict[str, Any] = {}
        self._epoch = 0
        self._manifest: dict[str, Any] | None = None  # of the batch that was committed last
        if target.mode is not Mode.APPEND:
            raise TargetError("mode: Parquet's files are never changed; only append can be had")
        if target.keys:
            raise TargetError("keys: a Parquet table has no primary key; leave them out")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": 0, "_manifest": None}

    @property
    def query(self) -> str:
        return self._query

    @property
    def folder(self) -> Path:
        return self._root

    @property
    def _name(self) -> str:
        return quote(self._query, safe="")

    @property
    def _table(self) -> Path:
        return self._root / self._name

    @property
    def _areas(self) -> Path:
        return self._root / AREA / self._name

    @property
    def _area(self) -> Path:
        return self._areas / f"{self._epoch:0{_DIGITS}}"

    # -- who owns the query ----------------------------------------------------------------------

    def open(self, schema: StructType, master: str) -> None:
        del master  # wherever it runs: the folder has to be the same one, which nobody can tell
        told = unmarked(schema.jsonValue())
        self._schema = json.dumps(told, separators=(",", ":"), sort_keys=True)
        self._columns = columns_of(told)
        make_folder(self._areas)
        make_folder(self._table)
        last = last_manifest(self._table)
        self._refuse_other_columns(last)  # before anybody is fenced for it
        declared = {**columns_of_files(last), **self._columns}
        agree_with_others(self._root, AREA, self._name, declared)
        self._epoch = self._take()
        self._fence_others()
        self._manifest = last_manifest(self._table)
        self._refuse_other_columns(self._manifest)

    def _refuse_other_columns(self, last: Mapping[str, Any] | None) -> None:
        before = columns_of_files(last)
        former = self._columns if last is None else columns_of_last(last)
        if former != self._columns and not self._target.adds_columns:
            raise TargetError(
                f"{self._table}: its files have other columns than the query now has; write to "
                'another folder, or let files differ (schema_changes="add")'
            )
        files = f"{self._table}: its files have"
        refuse_other_types(before, self._columns, files, "write to another folder")

    def _take(self) -> int:
        """Make the staging area of an epoch that nobody had: what is fenced keeps its number."""
        epoch = max((_epoch_of(path) for path in self._areas.iterdir()), default=0)
        while True:
            epoch = epoch_after(epoch)
            try:
                (self._areas / f"{epoch:0{_DIGITS}}").mkdir()
            except FileExistsError:
                continue
            sync(self._areas)
            return epoch

    def _fence_others(self) -> None:
        """Put the staging areas of all owners before out of their reach, and then away."""
        for path in sorted(self._areas.iterdir()):
            if _epoch_of(path) >= self._epoch:
                continue
            fenced = path.with_name(f"{_epoch_of(path):0{_DIGITS}}.fenced")
            if path != fenced:
                path.rename(fenced)
                sync(self._areas)
            for left in fenced.iterdir():
                shutil.rmtree(left, ignore_errors=True)

    @contextmanager
    def told_if_fenced(self) -> Iterator[None]:
        """Say what a file that is not there means: that another driver took over. FencedError."""
        try:
            yield
        except Exception:
            self._refuse_if_fenced()
            raise

    def _refuse_if_fenced(self) -> None:
        if not self._area.is_dir():
            raise FencedError(
                f"query {self._query!r} was taken over: this driver, on {socket.gethostname()}, "
                f"has epoch {self._epoch}, which is over. Nothing was written"
            )

    # -- what is remembered ----------------------------------------------------------------------

    def memory(self) -> Memory:
        self._refuse_if_fenced()
        if self._manifest is None:
            return Memory()
        return memory_of(self._manifest)

    # -- a batch ---------------------------------------------------------------------------------

    def task(self, batch: Batch) -> ParquetTask:
        """Return what each task of a batch does with its rows."""
        folder = self._staging(batch)
        begin(folder)
        return ParquetTask(folder)

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        with self.told_if_fenced():
            done = frame.mapInArrow(self.task(batch), SCHEMA).collect()
        return Files.of(self._staging(batch), done)

    def _staging(self, batch: Batch) -> Path:
        return self._area / f"{batch.number:0{_DIGITS}}"

    def commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        with self.told_if_fenced():
            if staged is None:
                self.task(batch)
                staged = Files(self._staging(batch), (), 0)
            assert isinstance(staged, Files)
            staged.rows()
            manifest = self._manifest_of(batch, work, staged)
            ready = self._area / f"{batch.number:0{_DIGITS}}.ready"
            shutil.rmtree(ready, ignore_errors=True)
            self._gather(ready, staged, manifest)
            self._publish(ready, batch, manifest["commit"])
        staged.close()
        self._manifest = manifest

    def _gather(self, ready: Path, staged: Files, manifest: Mapping[str, Any]) -> None:
        """Put the chosen files and the manifest into one folder, on disk with all their names."""
        ready.mkdir()
        for name in staged.names:
            (staged.folder / name).rename(ready / name)
        with (ready / MANIFEST).open("x") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        sync(ready)

    def _publish(self, ready: Path, batch: Batch, commit: int) -> None:
        """The commit. An older copy of a checkpoint has batches of the same numbers again."""
        place = self._table / quote(batch.checkpoint, safe="")
        place.mkdir(exist_ok=True)
        sync(self._table)
        ready.rename(place / f"{batch.number:0{_DIGITS}}-{commit:0{_DIGITS}}")
        sync(place)

    def _manifest_of(self, batch: Batch, work: Work, staged: Files) -> dict[str, Any]:
        before = 0 if self._manifest is None else self._manifest["commit"]
        return {
            "version": _VERSION,
            "query": self._query,
            "commit": before + 1,
            "epoch": self._epoch,
            **told_of(batch),
            "schema": self._schema,
            "columns": {**columns_of_files(self._manifest), **self._columns},
            "rows": staged.count,
            "files": list(staged.names),
            **told_moves(self._query, self.memory(), work),
            "gaps": told_gaps(batch, work),
        }

    def close(self) -> None:
        """Nothing is held: files are opened and closed with each batch."""


def _refuse_hidden(option: str, name: str) -> None:
    """TargetError: what is written below a folder of this name is seen by no reader."""
    if name.startswith(("_", ".")):
        raise TargetError(
            f"{option}: {name!r} would be a folder that Spark, Arrow and others pass over when "
            "they read Parquet, since its name begins with _ or a dot; give it another name"
        )


def _epoch_of(path: Path) -> int:
    return int(path.name.partition(".")[0])
