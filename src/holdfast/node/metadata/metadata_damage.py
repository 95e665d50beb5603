"""Damage of the metadata log that recovery must not cut away: the controller then doesn't start.

Owns the difference between a tail that a crash has torn and what was committed once. It changes
nothing on the disk.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.log.checkpoints import RECOVERY_POINT, read_offsets
from holdfast.log.errors import CorruptFileError
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.runtime.ports import Disk
from holdfast.wire.batch import HEADER_SIZE, MAGIC, crc_matches, read_header
from holdfast.wire.well_known import METADATA_TOPIC

_SECTOR: Final = 512  # what a disk writes at once
_OFFSET_SIZE: Final = 8  # what a batch begins with


def check_metadata_log(disk: Disk, directory: str) -> None:
    """Refuse a metadata log that is damaged before its end. To be called before logs are loaded.

    Recovery cuts any log at its first bad batch, which is right for a tail that a crash has torn.
    But what stands before a batch that is whole was mostly synced, hence committed, and cutting it
    would forget topics and configurations. Only where a sector was never written, after a power
    cut, there are zeros in its place; and never below the recovery point. Raises MetadataLogError.
    """
    path = f"{directory}/{METADATA_TOPIC}-0"
    try:
        if disk.exists(path):
            _check_segments(disk, directory, path)
    except OSError as error:
        raise MetadataLogError(f"{path} can't be read: {error}") from error


def _check_segments(disk: Disk, directory: str, path: str) -> None:
    names = [name for name in disk.list(path) if name.endswith(".log")]
    try:
        # So far a checkpoint says that the log was synced; it may be more.
        durable = read_offsets(disk, directory, RECOVERY_POINT).get((METADATA_TOPIC, 0), 0)
    except CorruptFileError:
        durable = 0  # whoever loads the directory says so
    epoch = -1
    for index, name in enumerate(names):
        file = f"{path}/{name}"
        data = memoryview(disk.read(file))
        bad, epoch = _first_bad(data, int(name.removesuffix(".log")), epoch)
        if bad is None:
            continue
        following = _whole_batch_after(data, bad.position)
        later = (memoryview(disk.read(f"{path}/{each}")) for each in names[index + 1 :])
        is_end = following < 0 and all(_whole_batch_after(each, -1) < 0 for each in later)
        is_torn = (
            bad.goes_back
            or is_end
            or _has_hole(data, bad.position, len(data) if following < 0 else following)
        )
        if bad.offset >= durable and is_torn and not bad.leaps:
            return  # nothing from there on was synced, and recovery cuts it off
        beyond = f"had been synced up to offset {durable}" if is_end else "whole batches follow"
        raise MetadataLogError(
            f"{file} is damaged at byte {bad.position} (offset {bad.offset}), and {beyond}: "
            "the controller does not start, for what it committed there would be forgotten. "
            "Restore the file from a copy."
        )


def _has_hole(data: memoryview, begin: int, end: int) -> bool:
    """Return whether a sector between two positions was never written: it reads as zeros.

    The first may have begun with what was written before: then it is from `begin` on that there is
    nothing, and no batch but the first of all begins with an offset of zeros.
    """
    first = data[begin : min(end, begin - begin % _SECTOR + _SECTOR)]
    if len(first) >= _OFFSET_SIZE and not any(first):
        return True
    # The batch at `end` may begin with the last of these zeros: no CRC covers its offset.
    following = range(begin // _SECTOR + 1, (end - 1) // _SECTOR + 1)
    sectors = (data[at * _SECTOR : (at + 1) * _SECTOR] for at in following)
    return any(len(sector) >= _OFFSET_SIZE and not any(sector) for sector in sectors)


class _Bad(NamedTuple):
    """The first batch that can't be the next one."""

    position: int
    offset: int  # that it should have
    goes_back: bool = False  # whole, but its offset or its epoch is a lower one
    leaps: bool = False  # whole, but its offset is a higher one; no power cut does that


def _first_bad(data: memoryview, expected: int, epoch: int) -> tuple[_Bad | None, int]:
    """Find where a segment that begins at `expected`, after `epoch`, is bad; and its last epoch.

    Recovery cuts there, or keeps what leaps, which must never be in this log.
    """
    position = 0
    while position < len(data):
        header = read_header(data, position) if position + HEADER_SIZE <= len(data) else None
        if header is None or header.magic != MAGIC or not crc_matches(data, position):
            return _Bad(position, expected), epoch
        behind = header.base_offset < expected or header.last_offset_delta < 0
        if behind or header.leader_epoch < epoch:
            return _Bad(position, expected, goes_back=True), epoch
        if header.base_offset > expected:
            return _Bad(position, expected, leaps=True), epoch
        position += header.size
        expected, epoch = header.next_offset, header.leader_epoch
    return None, epoch


def _whole_batch_after(data: memoryview, position: int) -> int:
    """Return the position of the next whole batch behind a bad one; -1: there is none."""
    for start in range(position + 1, len(data) - HEADER_SIZE + 1):
        if data[start + 16] != MAGIC:
            continue
        header = read_header(data, start)
        end = start + header.size
        plausible = header.size > HEADER_SIZE and end <= len(data) and header.base_offset >= 0
        if plausible and header.record_count > 0 and crc_matches(data[start:end]):
            return start
    return -1
