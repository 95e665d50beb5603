"""Reads what replicas' files hold: the one witness that is not a client.

Two replicas that hold the same log hold the same bytes. Files are read after the nodes have
settled; a batch that is cut at the end of a file is not there yet. Nothing is ever written.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from holdfast.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    batches,
    crc_matches,
    read_header,
    read_records,
)
from holdfast.wire.errors import WireError

SEGMENT_BYTES_MAX = 2 << 30
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
SWAP = ".swap"  # a new segment that does not have its name yet
HEADER_LINES = 2  # of a checkpoint: its version, how many lines follow


class DamagedFileError(Exception):
    """A segment holds what no batch is."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    offset: int
    last_offset: int
    epoch: int
    digest: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record, as any reader would be given it. `timestamp` None: it is the broker's own."""

    offset: int
    epoch: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """One replica's files: it holds [begin, end), in these batches."""

    begin: int
    end: int
    batches: list[StoredBatch]


def stored_replica(directory: Path) -> StoredReplica:
    """Read all of one partition's directory. DamagedFileError, OSError."""
    bases = [int(path.stem) for path in sorted(directory.glob("*.log"))]
    if not bases:
        raise DamagedFileError(f"{directory} has no segment")
    batches = list(stored_batches(directory))
    end = batches[-1].last_offset + 1 if batches else bases[-1]
    return StoredReplica(min(max(bases[0], checkpointed(directory, LOG_STARTS)), end), end, batches)


def segments_of(directory: Path) -> list[str] | None:
    """Return the names of a replica's segments. OSError.

    None: a round of compaction is about to put a new one in the place of old ones.
    """
    names = sorted(path.name for path in directory.iterdir())
    if any(name.endswith(SWAP) for name in names):
        return None
    return [name for name in names if name.endswith(".log")]


def stored_records(directory: Path) -> Iterator[StoredRecord]:
    """Every record in one partition's directory, in order. DamagedFileError, OSError."""
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        for position, header in _headers(path, data):
            if header.is_control:
                continue
            try:
                for record in read_records(data[position : position + header.size]):
                    yield StoredRecord(
                        offset=record.offset,
                        epoch=header.leader_epoch,
                        key=record.key,
                        value=record.value,
                        headers=record.headers,
                        timestamp=None if header.is_log_append_time else record.timestamp,
                    )
            except WireError as error:
                raise DamagedFileError(f"{path}: {error}") from error


class ReplicaTail:
    """Where one replica's files end, looked at again and again while a node writes to them.

    Each look reads the headers of what is new since the look before, in the last segment. Whether
    the bytes are whole, `stored_replica` says.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begin(None)

    def _begin(self, segment: Path | None) -> None:
        self._segment = segment
        self._last = b""  # the header of the last batch that was seen, and where it stands
        self._position = 0
        self._following = 0  # the byte behind that batch
        self._end = 0 if segment is None else int(segment.stem)

    def end(self) -> int:
        """Return the offset behind the last whole batch. DamagedFileError, OSError."""
        segment = max(self._directory.glob("*.log"), default=None)
        if segment is None:
            raise DamagedFileError(f"{self._directory} has no segment")
        with segment.open("rb") as file:
            if segment != self._segment or not self._still_stands(file):
                self._begin(segment)
            self._follow(file)
        return self._end

    def _still_stands(self, file: BinaryIO) -> bool:
        """Whether the last batch is still where it was: a log may have been cut and gone on."""
        if os.fstat(file.fileno()).st_size < self._following:
            return False
        file.seek(self._position)
        return file.read(len(self._last)) == self._last

    def _follow(self, file: BinaryIO) -> None:
        size = os.fstat(file.fileno()).st_size
        while size - self._following >= HEADER_SIZE:
            file.seek(self._following)
            data = file.read(HEADER_SIZE)
            if len(data) < HEADER_SIZE:  # cut meanwhile
                return
            header = read_header(data)
            if header.magic != MAGIC or header.size < HEADER_SIZE:
                raise DamagedFileError(f"{file.name}: no batch begins at byte {self._following}")
            if self._following + header.size > size:
                return
            self._last, self._position = data, self._following
            self._following += header.size
            self._end = header.next_offset


def checkpointed(directory: Path, checkpoint: str) -> int:
    """Return what a checkpoint beside a partition's directory says of it; 0: nothing."""
    topic, _, partition = directory.name.rpartition("-")
    try:
        lines = (directory.parent / checkpoint).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return 0
    for line in lines[HEADER_LINES:]:
        name, number, offset = line.split()
        if (name, number) == (topic, partition):
            return int(offset)
    return 0


def stored_batches(directory: Path) -> Iterator[StoredBatch]:
    """Every batch in one partition's directory, in order. DamagedFileError, OSError."""
    for path in sorted(directory.glob("*.log")):
        if path.stat().st_size > SEGMENT_BYTES_MAX:
            raise DamagedFileError(f"{path} is larger than a segment may be")
        data = memoryview(path.read_bytes())
        for position, header in _headers(path, data):
            if not crc_matches(data, position):
                raise DamagedFileError(f"{path}: wrong CRC in the batch at byte {position}")
            yield StoredBatch(
                offset=header.base_offset,
                last_offset=header.last_offset,
                epoch=header.leader_epoch,
                digest=f"{zlib.crc32(data[position : position + header.size]):08x}",
                size=header.size,
            )


def _headers(path: Path, data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield where each batch of a segment begins, and its header. DamagedFileError."""
    try:
        yield from batches(data)
    except WireError as error:
        raise DamagedFileError(f"{path}: {error}") from error


def position_of(directory: Path, offset: int) -> tuple[Path, int] | None:
    """Segment and byte at which the first batch begins that holds this offset or a later one.

    None: the log ends before it. DamagedFileError, OSError.
    """
    for path in sorted(directory.glob("*.log")):
        for position, header in _headers(path, memoryview(path.read_bytes())):
            if header.last_offset >= offset:
                return path, position
    return None
