"""Reads what replicas' files hold: the one witness that is not a client.

Two replicas that hold the same log hold the same bytes. Files are read after the nodes have
settled; a batch that is cut at the end of a file is not there yet. Nothing is ever written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.wire.batch import batches, crc_matches
from holdfast.wire.errors import WireError

SEGMENT_BYTES_MAX = 2 << 30
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
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
    begin = max(bases[0], checkpointed(directory, LOG_STARTS))
    return StoredReplica(min(begin, end), end, batches)


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
        try:
            for position, header in batches(data):
                if not crc_matches(data, position):
                    raise DamagedFileError(f"{path}: wrong CRC in the batch at byte {position}")
                end = position + header.size
                yield StoredBatch(
                    offset=header.base_offset,
                    last_offset=header.base_offset + header.last_offset_delta,
                    epoch=header.leader_epoch,
                    digest=f"{zlib.crc32(data[position:end]):08x}",
                    size=header.size,
                )
        except WireError as error:
            raise DamagedFileError(f"{path}: {error}") from error


def position_of(directory: Path, offset: int) -> tuple[Path, int] | None:
    """Segment and byte at which the first batch begins that holds this offset or a later one.

    None: the log ends before it. DamagedFileError, OSError.
    """
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        try:
            for position, header in batches(data):
                if header.base_offset + header.last_offset_delta >= offset:
                    return path, position
        except WireError as error:
            raise DamagedFileError(f"{path}: {error}") from error
    return None
