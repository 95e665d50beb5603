"""Changes what a stopped node's segments hold, checksums too: what no recovery can notice."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import crc32c

from holdfast.wire.batch import batches

CRC_AT = 17  # of a batch: four bytes, over all that follow
LAST_DELTA_AT = 23
TIMES_AT = (27, 35)  # base timestamp, largest timestamp


def stored(directory: Path) -> list[bytes]:
    """Return the batches of one replica."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        found += [bytes(data[at : at + header.size]) for at, header in batches(data)]
    return found


def base_of(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def end_of(batch: bytes) -> int:
    (delta,) = struct.unpack_from(">i", batch, LAST_DELTA_AT)
    return base_of(batch) + int(delta) + 1


def put(directory: Path, found: Sequence[bytes], base: int) -> None:
    """Let a replica hold these batches and no others, in one segment; indexes are made anew."""
    for path in directory.iterdir():
        if path.suffix in {".log", ".index", ".timeindex", ".snapshot"}:
            path.unlink()
    (directory / f"{base:020d}.log").write_bytes(b"".join(found))


def without_prefix(directory: Path) -> None:
    """Take away the first third."""
    found = stored(directory)
    kept = found[len(found) // 3 :]
    put(directory, kept, base_of(kept[0]))


def without_middle(directory: Path) -> None:
    """Take away one batch."""
    found = stored(directory)
    middle = len(found) // 2
    put(directory, found[:middle] + found[middle + 1 :], base_of(found[0]))


def without_anything(directory: Path) -> None:
    """Let the log begin where it ends."""
    put(directory, [], end_of(stored(directory)[-1]))


def later(directory: Path) -> None:
    """Let all records of the batch in the middle be a second later."""
    found = stored(directory)
    place = len(found) // 2
    batch = bytearray(found[place])
    for at in TIMES_AT:
        (stamp,) = struct.unpack_from(">q", batch, at)
        struct.pack_into(">q", batch, at, stamp + 1000)
    found[place] = summed(batch)
    put(directory, found, base_of(found[0]))


def summed(batch: bytearray) -> bytes:
    """Return a batch with the right checksum."""
    struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(bytes(batch[CRC_AT + 4 :])))
    return bytes(batch)


def changed(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Return what puts other bytes into the first batch behind the middle that has the old ones."""
    assert len(old) == len(new)

    def change(directory: Path) -> None:
        found = stored(directory)
        places = range(len(found) // 2, len(found))
        place = next(place for place in places if old in found[place])
        batch = summed(bytearray(found[place].replace(old, new, 1)))
        put(directory, [*found[:place], batch, *found[place + 1 :]], base_of(found[0]))

    return change
