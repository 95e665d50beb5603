"""Which producer snapshots one replica has, on disk and on their way there.

Owns the names and the order of writing and removing; `producers` owns what is in them. Files are
touched by flush jobs only, so that a removal comes after the write that it takes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from holdfast.log.flusher import FlushPlan
from holdfast.log.producers import SnapshotEntry
from holdfast.log.recovery import SNAPSHOT_SUFFIX
from holdfast.log.segment import prefix_of

Pending: TypeAlias = Mapping[int, tuple[str, list[SnapshotEntry]]]


class Snapshots:
    __slots__ = ("_directory", "_known", "_stale")

    def __init__(self, directory: str, on_disk: Iterable[int]) -> None:
        self._directory = directory
        # Offset -> its entries until a job has written them, then None.
        self._known: dict[int, list[SnapshotEntry] | None] = dict.fromkeys(on_disk)
        self._stale: set[int] = set()

    @property
    def latest(self) -> int:
        """Offset of the last one, -1 for none."""
        return max(self._known, default=-1)

    def written(self) -> set[int]:
        """Return the offsets of those that can be read."""
        return {offset for offset, entries in self._known.items() if entries is None}

    def take(self, offset: int, entries: list[SnapshotEntry]) -> None:
        """Keep the producers as they are at `offset`; the next flush writes it."""
        self._known[offset] = entries
        self._stale.discard(offset)

    def forget(self, is_stale: Callable[[int], bool]) -> None:
        """Believe these no more; the next flush removes them."""
        for offset in [offset for offset in self._known if is_stale(offset)]:
            del self._known[offset]
            self._stale.add(offset)

    def plan(self) -> tuple[dict[int, str], Pending]:
        """Return what to remove and what to write, both by offset."""
        stale, self._stale = self._stale, set()
        pending = {
            offset: (self._path(offset), entries)
            for offset, entries in self._known.items()
            if entries is not None
        }
        return {offset: self._path(offset) for offset in sorted(stale)}, pending

    def flushed(self, plan: FlushPlan) -> None:
        for offset, (_, entries) in plan.snapshots.items():
            if self._known.get(offset) is entries:
                self._known[offset] = None

    def undo(self, plan: FlushPlan) -> None:
        """The plan never ran."""
        self._stale |= plan.stale_snapshots.keys() - self._known.keys()

    def _path(self, offset: int) -> str:
        return prefix_of(self._directory, offset) + SNAPSHOT_SUFFIX
