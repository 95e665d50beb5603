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


class DamagedFileError(Exception):
    """A segment holds what no batch is."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    offset: int
    last_offset: int
    epoch: int
    digest: str


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
