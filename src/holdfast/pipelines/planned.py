"""What a micro-batch was planned to cover, as Spark's checkpoint says it.

Owns the reading of the checkpoint: its id, the offset log (`CHECKPOINT/offsets/BATCH`), and whether
the query keeps state. A batch's range never comes from its rows: filters and holes hide where it
ends.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from holdfast.pipelines.offsets import (
    OffsetsError,
    Partition,
    Position,
    made_anew,
    position_from_text,
)
from holdfast.pipelines.progress.group import ProgressGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSET_LOG_VERSION = "v1"
NO_OFFSET = "-"
LISTINGS = 10  # each of a folder into which Spark may be renaming a file


class PlanError(RuntimeError):
    """The checkpoint can't be read, or the query does not continue where the table ends."""


class Reader(NamedTuple):
    """One partition as one source of the query reads it: a self-join reads each of them twice.

    `source` is the source's place in the entries of the offset log, which holds as long as the
    checkpoint; `progress.sources` says what it is in another one.
    """

    partition: Partition
    source: int = 0

    def __str__(self) -> str:
        return f"{self.partition}, source {self.source}" if self.source else str(self.partition)


@dataclass(frozen=True, slots=True)
class Planned:
    """Offsets [start, end) for one reader. Without `topic_id` the cluster tells none."""

    reader: Reader
    start: int
    end: int
    topic_id: str | None = None
    group: ProgressGroup | None = None  # is told where it ends, once the table has it
    # What the log lacked when this was planned; the last ones before `start`, if found too late.
    gaps: tuple[tuple[int, int], ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()  # where it has other records now; before `start`


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch before it is written. `plan` tells two plans under one number apart."""

    number: int
    checkpoint: str  # the checkpoint's own id, which Spark gave it
    plan: str
    stateful: bool
    ranges: tuple[Planned, ...]
    # Which sources knew a partition in the entry before, by their places in it.
    known: Mapping[Partition, tuple[int, ...]] = field(default_factory=dict)


def parse_offset_log(text: str, name: str) -> list[Position | None]:
    """Read one entry: a version, a line about the batch, then one line for each source."""
    lines = text.splitlines()
    if len(lines) < 3 or lines[0] != OFFSET_LOG_VERSION:
        raise PlanError(f"{name}: not an offset log of version {OFFSET_LOG_VERSION}")
    sources: list[Position | None] = []
    for line in lines[2:]:
        if line == NO_OFFSET:
            sources.append(None)
            continue
        try:
            sources.append(position_from_text(line))
        except OffsetsError as error:
            raise PlanError(
                f"{name}: a source whose offsets are not those of holdfast ({error}); "
                "the sink can't tell what its batches cover"
            ) from error
    return sources


def planned_ranges(
    before: Sequence[Position | None] | None, after: Sequence[Position | None]
) -> tuple[Planned, ...]:
    """Return what lies between two entries, empty ranges too.

    Ranges of batch 0 (`before` is None) and of a new partition are empty: the source pins where a
    query begins before it reads. A topic made anew counts as new even under the same name.
    """
    earlier = [None] * len(after) if before is None else list(before)
    if len(earlier) != len(after):
        raise PlanError(f"the query had {len(earlier)} sources, and now it has {len(after)}")
    planned: list[Planned] = []
    for place, (old, new) in enumerate(zip(earlier, after, strict=True)):
        if new is None:
            continue
        known = {} if old is None else old.offsets
        other = {} if old is None else made_anew(old.ids, new.ids)
        for partition, end in sorted(new.offsets.items()):
            start = end if partition.topic in other else known.get(partition, end)
            if end < start:
                raise PlanError(f"{partition}: planned backwards, from {start} to {end}")
            topic_id = new.ids.get(partition.topic)
            # While nothing moves Spark writes the text before down again: it was told then.
            gaps, cuts = (
                () if old == new else told.get(partition, ()) for told in (new.gaps, new.cuts)
            )
            reader = Reader(partition, place)
            planned.append(Planned(reader, start, end, topic_id, new.group, gaps, cuts))
    return tuple(planned)


def places(entry: Iterable[Position | None]) -> dict[Partition, tuple[int, ...]]:
    """Return which sources know a partition, by their places in an entry."""
    found: dict[Partition, tuple[int, ...]] = {}
    for place, position in enumerate(entry):
        for partition in () if position is None else position.offsets:
            found[partition] = (*found.get(partition, ()), place)
    return found


class Checkpoint:
    """One query's checkpoint, on this machine's disk or anywhere Spark can read."""

    def __init__(self, path: str | os.PathLike[str], session: SparkSession | None = None) -> None:
        self._path = os.fspath(path).rstrip("/")
        self._session = session
        self._stateful = False  # once there, state stays there: looking lists all of it

    def batch(self, number: int, query: str | None = None) -> Batch:
        """Return a batch whose entry Spark has written, which is before it runs.

        With `query`, the id that Spark gave the running one, another's checkpoint is refused: its
        batches have the same numbers and cover something else.
        """
        found = self.must_be_of(query)
        text, name = self._entry(number)
        after = parse_offset_log(text, name)
        before = parse_offset_log(*self._entry(number - 1)) if number else None
        self._stateful = self._stateful or self._exists("state")
        return Batch(
            number=number,
            checkpoint=found,
            # Hash the whole entry: watermark and time decide about a batch's rows too.
            plan=hashlib.sha256(text.encode()).hexdigest(),
            stateful=self._stateful,
            ranges=planned_ranges(before, after),
            known=places(before or ()),
        )

    def must_be_of(self, query: str | None) -> str:
        """Return the checkpoint's id. PlanError: `query`, where it is known, has another one."""
        found = self.id()
        if query not in {None, found}:
            raise PlanError(
                f"{self._path} is the checkpoint of another query (its id is {found}, and this "
                f"one's is {query}): give the checkpointLocation of its own query"
            )
        return found

    def done(self) -> int | None:
        """Return the last batch that Spark has committed; None before the first."""
        return max((int(name) for name in self._names("commits") if name.isdigit()), default=None)

    def positions(self, number: int) -> list[Position]:
        """Return where a batch's sources end that are this package's; others are passed over."""
        found: list[Position] = []
        for line in self._entry(number)[0].splitlines()[2:]:
            with suppress(OffsetsError):
                found.append(position_from_text(line))
        return found

    def id(self) -> str:
        """Return what Spark called the query when it made the checkpoint."""
        name = f"{self._path}/metadata"
        try:
            found = json.loads(self._read(name))["id"]
        except (ValueError, KeyError, TypeError) as error:
            raise PlanError(f"{name}: not what Spark writes about a checkpoint") from error
        return str(found)

    def _entry(self, batch: int) -> tuple[str, str]:
        name = f"{self._path}/offsets/{batch}"
        return self._read(name), name

    def _local(self, name: str) -> Path | None:
        """Return the path on this machine, None if Spark has to read it.

        As Spark reads such addresses: what stands behind `file:` is no URL's, and % and # are a
        name's like any other.
        """
        scheme = urlsplit(name).scheme
        if not scheme:
            return Path(name)
        path = name[len("file:") :]
        if path.startswith("//"):
            path = "/" + path[2:].partition("/")[2]
        return Path(path) if scheme == "file" else None

    def _reading_session(self, name: str) -> SparkSession:
        if self._session is None:
            raise PlanError(f"{name}: reading it needs the Spark session")
        return self._session

    def _read(self, name: str) -> str:
        local = self._local(name)
        if local is None:
            rows = self._reading_session(name).read.text(name, wholetext=True).collect()
            return str(rows[0][0])
        try:
            return local.read_text()
        except OSError as error:
            raise PlanError(f"{name}: {error.strerror}; is this the query's checkpoint?") from error

    def _names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder of the checkpoint; none, if it is not there."""
        name = f"{self._path}/{folder}"
        local = self._local(name)
        if local is not None:
            try:
                return [path.name for path in local.iterdir()] if local.is_dir() else []
            except OSError as error:
                raise PlanError(f"{name}: {error.strerror}") from error
        return self._found(name, nested=False) or []

    def _exists(self, folder: str) -> bool:
        """Return whether the checkpoint has this folder; `state` is made before batch 0 runs."""
        name = f"{self._path}/{folder}"
        local = self._local(name)
        if local is not None:
            return local.is_dir()
        return self._found(name, nested=True) is not None

    def _found(self, name: str, *, nested: bool) -> list[str] | None:
        """Return the names of the files that Spark finds in a folder, None if there is no folder.

        With `nested` it is only asked whether there is one, and the list stays empty. Spark may be
        renaming a file there meanwhile; where a file system looks at each file (Hadoop's of local
        disks), one that has gone fails the whole listing, so it is tried again.
        """
        from pyspark.errors import AnalysisException  # noqa: PLC0415 - local ones need no Spark

        reader = self._reading_session(name).read.format("binaryFile")
        reader = reader.option("recursiveFileLookup", str(nested).lower())
        for left in reversed(range(LISTINGS)):
            try:
                files = reader.load(name).select("path")
                rows = (files.limit(0) if nested else files).collect()  # Connect looks only now
                return [str(row.path).rpartition("/")[2] for row in rows]
            except AnalysisException as error:
                if error.getCondition() == "PATH_NOT_FOUND":
                    return None
                raise
            except Exception as error:  # Spark's, Connect's and Py4J's have no other base
                if not left:
                    raise PlanError(f"{name}: can't be listed: {error}") from error
        raise AssertionError
