"""What a crash left of a round: finished, or removed.

Owns the names of a replica's files until it is loaded. A set of `.swap` files is whole when it has
batches and nothing is left of it as `.cleaned`: then it takes the place of the segments whose
offsets it covers, some of which may be gone already. Anything else of a round goes, and the
segments that it was made from are there.

Rules: compaction.md#after-a-crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.log.files import FileCache
from holdfast.log.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    READ_STEP_BYTES,
    SUFFIXES,
    SWAP_SUFFIX,
    Segment,
    prefix_of,
)
from holdfast.runtime.ports import Disk


class Leftovers(NamedTuple):
    """What of a directory's names is left of a round."""

    swaps: Sequence[str]  # that are put in their places, each set's batches last
    half_swaps: Sequence[str]  # that are not whole
    cleaned: Sequence[str]


def leftovers(names: Iterable[str]) -> Leftovers:
    """Tell what is whole from what is not. Pure."""
    cleaned, swaps = [], []
    for name in sorted(names):
        if name.endswith(CLEANED_SUFFIX):
            cleaned.append(name)
        elif name.endswith(SWAP_SUFFIX):
            swaps.append(name)
    # Kafka renames the parts of a segment that it splits from the last one on, so what comes behind
    # a `.cleaned` is not whole without it. Rounds leave none in front of a `.swap`.
    bound = min(map(offset_of, cleaned), default=None)
    whole = {
        offset_of(name)
        for name in swaps
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and (bound is None or offset_of(name) < bound)
    }
    finished = [name for name in swaps if offset_of(name) in whole]
    return Leftovers(
        sorted(finished, key=lambda name: (offset_of(name), _is_log(name))),
        [name for name in swaps if offset_of(name) not in whole],
        cleaned,
    )


def covered(names: Iterable[str], base: int, last: int) -> list[str]:
    """Return the files of segments whose place is taken by one with these offsets. Pure."""
    return [
        name for name in sorted(names) if _is_segments(name) and base <= offset_of(name) <= last
    ]


def finish_swaps(disk: Disk, files: FileCache, directory: str) -> list[str]:
    """Leave whole segments only; return the names of the directory.

    Wherever the power goes meanwhile, the next call ends the same. OSError: the disk failed.
    CorruptFileError: a segment is damaged.
    """
    names = list(disk.list(directory))
    found = leftovers(names)
    _remove(disk, directory, names, found.half_swaps)
    if found.half_swaps or found.swaps:
        # What is left of half a set would be whole without the `.cleaned` beside it. And a whole
        # one that a process left which was killed may be lost yet.
        disk.sync_directory(directory)
    _remove(disk, directory, names, found.cleaned)
    for swap in [name for name in found.swaps if _is_log(name)]:
        last = _last_offset(disk, files, directory, swap)
        _remove(disk, directory, names, covered(names, offset_of(swap), last))
    if found.swaps:
        disk.sync_directory(directory)  # else one of them could be back beside the new one
    for name in found.swaps:
        target = name.removesuffix(SWAP_SUFFIX)
        disk.rename(f"{directory}/{name}", f"{directory}/{target}")
        names[names.index(name)] = target
    if found.swaps or found.cleaned:
        disk.sync_directory(directory)
    return sorted(names)


def offset_of(name: str) -> int:
    """Return the offset in the name of one of a segment's files, -1 if it has none."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else -1


def _last_offset(disk: Disk, files: FileCache, directory: str, swap: str) -> int:
    base = last = offset_of(swap)
    segment = Segment(files, prefix_of(directory, base), base)
    segment.log_path = f"{directory}/{swap}"
    segment.size = disk.size(segment.log_path)
    for _, header in segment.headers(0, READ_STEP_BYTES):
        last = max(last, header.last_offset)
    files.forget(segment.log_path)
    return last


def _remove(disk: Disk, directory: str, names: list[str], gone: Iterable[str]) -> None:
    for name in gone:
        disk.remove(f"{directory}/{name}")
        names.remove(name)


def _is_log(swap: str) -> bool:
    return swap.endswith(LOG_SUFFIX + SWAP_SUFFIX)


def _is_segments(name: str) -> bool:
    """Whether it is a file of a segment that has its name."""
    stem, dot, suffix = name.partition(".")
    return dot + suffix in SUFFIXES and stem.isascii() and stem.isdigit()
