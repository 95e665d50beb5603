"""The segments of one replica, oldest first; the last one is written.

Owns which files there are: making, cutting and discarding segments, and what of that is not
durable yet. Knows nothing of epochs, producers or the high watermark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress

from holdfast.config.topic import TopicSettings
from holdfast.log.directory import LogDirectory
from holdfast.log.errors import StorageError
from holdfast.log.files import sync_file
from holdfast.log.flusher import FlushPlan
from holdfast.log.index import RELATIVE_MAX, IndexWrite
from holdfast.log.recovery import jitter_of
from holdfast.log.segment import DELETED_SUFFIX, Segment, prefix_of
from holdfast.wire.batch_header import BatchHeader


def runs(headers: Sequence[BatchHeader], segment_bytes: int) -> list[list[BatchHeader]]:
    """Split what was fetched so that each run fits into one segment."""
    found: list[list[BatchHeader]] = []
    left = 0
    for header in headers:
        if (
            not found
            or header.size > left
            or header.last_offset - found[-1][0].base_offset > RELATIVE_MAX
        ):
            found.append([])
            left = segment_bytes
        found[-1].append(header)
        left -= header.size
    return found


class Segments:
    """Never empty. StorageError: the disk failed, and the directory went offline."""

    __slots__ = ("_directory", "_home", "active", "all", "bases", "cut", "names_dirty")

    def __init__(
        self, home: LogDirectory, directory: str, segments: list[Segment], *, durable: bool
    ) -> None:
        assert segments
        self._home = home
        self._directory = directory
        self.all = segments
        self.bases = [segment.base for segment in segments]
        self.active = segments[-1]
        # What a crash left may not be durable either: removed names, cut files.
        self.names_dirty = not durable  # names in our directory
        self.cut = not durable  # the active segment was made shorter

    @property
    def size(self) -> int:
        """Bytes in all of them."""
        return sum(segment.size for segment in self.all)

    def index_of(self, offset: int) -> int:
        """Return which segment may hold `offset`."""
        return bisect_right(self.bases, offset) - 1

    def begin(self, base: int, settings: TopicSettings) -> None:
        """Add an empty segment and make it the active one."""
        self.active = self._create(base, settings)
        self.all.append(self.active)
        self.bases.append(base)

    def begin_anew(self, base: int, settings: TopicSettings) -> None:
        """Put one empty segment in the place of all, durably.

        It is there before the others go, for without any a replica would begin at 0. What goes on
        from nothing is not believed. Where one of the others has its name, that goes first.
        """
        old = list(reversed(self.all))
        if base == self.active.base and not self.active.size:
            old.remove(self.active)
            self.sync_active()  # it may have been cut
        else:
            for segment in [segment for segment in old if segment.base == base]:
                old.remove(segment)
                self._discard(segment, settings)
            self.active = self._create(base, settings)
        self._sync_names()
        for segment in old:
            self._discard(segment, settings)
        self._sync_names()
        self.all[:] = [self.active]
        self.bases[:] = [base]

    def sync_active(self) -> None:
        """Make the active segment's batches, and where they end, durable before this returns."""
        with self._home.guarded():
            sync_file(self._home.runtime.disk, self.active.log_path)

    def _sync_names(self) -> None:
        with self._home.guarded():
            self._home.runtime.disk.sync_directory(self._directory)

    def move_active(self, base: int, settings: TopicSettings) -> None:
        """Begin the active segment, which is empty, at another offset."""
        assert not self.active.size
        self._discard(self.all.pop(), settings)
        self.bases.pop()
        self.begin(base, settings)

    def drop_first(self, settings: TopicSettings) -> Segment:
        assert len(self.all) > 1, "the active segment stays"
        self.bases.pop(0)
        segment = self.all.pop(0)
        self._discard(segment, settings)
        return segment

    def replace(self, bases: Sequence[int], segment: Segment) -> None:
        """Have one segment in the place of neighbours; their files are somebody else's business."""
        index = self.bases.index(bases[0])
        behind = index + len(bases)
        assert self.bases[index:behind] == list(bases), "neighbours"
        assert behind < len(self.bases), "the active segment stays"
        self.all[index:behind] = [segment]
        self.bases[index:behind] = [segment.base]

    def truncate(self, offset: int, settings: TopicSettings) -> int:
        """Cut everything from `offset` on; return where the log ends now.

        OSError: from the segment that had to be cut. CorruptFileError: it is damaged, and nothing
        was cut.
        """
        keep = bisect_right(self.bases, offset)
        assert keep, "a cut below all segments is a new beginning"
        # Before anything goes: a log that is cut in half would say that it has what it had.
        position, offset = self.all[keep - 1].cut_at(offset)
        gone = self.all[keep:]
        del self.all[keep:]
        del self.bases[keep:]
        for segment in reversed(gone):
            self._discard(segment, settings)
        if gone:
            self._sync_names()  # or they would be back behind what is written here from now on
        self.active = self.all[-1]
        self.active.truncate(position, offset)
        self.cut = True
        return offset

    def forget_files(self) -> None:
        for segment in self.all:
            segment.forget_files()

    def _create(self, base: int, settings: TopicSettings) -> Segment:
        runtime = self._home.runtime
        with self._home.guarded():
            segment = Segment.create(
                self._home.files,
                prefix_of(self._directory, base),
                base,
                now_ms=runtime.clock.wall_ms(),
                jitter_ms=jitter_of(runtime.random, settings),
            )
        self.names_dirty = True
        return segment

    def _discard(self, segment: Segment, settings: TopicSettings) -> None:
        """Rename a segment's files away; they go after file.delete.delay.ms.

        A flush under way may write an index all the same, which goes when it has ended.
        """
        disk = self._home.runtime.disk
        renamed = []
        with self._home.guarded():
            segment.forget_files()
            for path in segment.paths():
                if disk.exists(path):
                    disk.rename(path, path + DELETED_SUFFIX)
                    renamed.append(path + DELETED_SUFFIX)
        # Were they back after a power cut, they would be taken for what goes on from here.
        self.names_dirty = True
        self._home.remove_later(renamed, settings.file_delete_delay_ms)

    # --- flushing ---

    def plan(
        self, up_to: int, end: int, recovery_point: int, *, closed: bool
    ) -> tuple[list[str], list[IndexWrite]]:
        """Return the files to sync and the index entries to write, the oldest first.

        The active segment's indexes are written only with all of it: what lies behind the recovery
        point is trusted together with its indexes, as soon as another segment follows.
        """
        logs: list[str] = []
        indexes: list[IndexWrite] = []
        following = end
        for segment in reversed(self.all):
            flushed = following <= recovery_point
            if flushed and segment is not self.active and segment.is_indexed and not closed:
                break
            if segment.size and (segment is not self.active or up_to == end):
                writes = segment.offsets.plan_write(), segment.times.plan_write()
                indexes[:0] = [write for write in writes if write is not None]
            if segment.base < up_to and not flushed:
                logs.insert(0, segment.log_path)
            following = segment.base
        if up_to == end and self.cut:
            self.cut = False
            if self.active.log_path not in logs:
                logs.append(self.active.log_path)
        return logs, indexes

    def flushed(self, plan: FlushPlan, *, closed: bool) -> None:
        """Sealed indexes that are written leave memory.

        Those of segments that were thrown away meanwhile go. What is `closed` leaves them: its
        directory may be another replica's by now.
        """
        if plan.indexes:
            if not closed:
                self._remove_others(plan)
            for segment in self.all:
                if segment is not self.active:
                    segment.offsets.release()
                    segment.times.release()

    def _remove_others(self, plan: FlushPlan) -> None:
        """Remove what was written of segments that are none of these any more."""
        kept = {index.path for each in self.all for index in (each.offsets, each.times)}
        disk = self._home.runtime.disk
        with suppress(StorageError), self._home.guarded():  # who fails is told of by itself
            for write in plan.indexes:
                if write.path not in kept and disk.exists(write.path):
                    disk.remove(write.path)

    def undo(self, plan: FlushPlan) -> None:
        """The plan never ran."""
        writes = {write.path: write for write in plan.indexes}
        for segment in self.all:
            for index in (segment.offsets, segment.times):
                if index.path in writes:
                    index.unplan_write(writes[index.path])
        self.names_dirty = self.names_dirty or plan.has_new_names
        self.cut = self.cut or self.active.log_path in plan.logs
