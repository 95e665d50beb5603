"""One new segment on its way to the place of those that it replaces, a power cut at each step.

Owns the names of its files. First they are `.swap`, which is made durable: from here on it counts.
Then the old segments lose their names, the log serves the new one, and that is made durable. Only
then the new one gets its name: else a power cut could keep that and bring an old segment back
beside it, whose offsets go back. What a crash leaves at each step `half_done_swaps` puts right.

All but the syncs runs on the loop. Whoever cuts, resets or deletes a log calls `settle` first: what
is half done then would bring back what was cut.

Rules: compaction.md#files-of-a-round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from holdfast.log.compaction.cleaned_segment import Cleaned
from holdfast.log.files import FileCache
from holdfast.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    prefix_of,
)
from holdfast.runtime.ports import Disk
from holdfast.runtime.sliced_work import Steps


class Host(Protocol):
    """The log, as a round needs it. Called on the loop."""

    def is_as_planned(self, bases: Sequence[int]) -> bool:
        """Whether these segments are there, none of them is cut, and none between them is new."""

    def take_over(self, bases: Sequence[int], segment: Segment, removed: Sequence[str]) -> None:
        """Serve one segment in the place of these, and remove files after file.delete.delay.ms.

        Its files are called `.swap` still: reads that were remembered by position are forgotten.
        """


class _State(Enum):
    CLEANED = auto()
    OFFERED = auto()  # as `.swap`; whether that is durable is not known
    SERVED = auto()  # the old segments have lost their names
    NAMED = auto()  # whether that is durable is not known
    DONE = auto()
    WITHDRAWN = auto()


class Replacement:
    """Take its `steps`; OSError from them, or from `settle`, takes the directory offline."""

    def __init__(
        self,
        disk: Disk,
        files: FileCache,
        directory: str,
        cleaned: Cleaned,
        host: Host,
        *,
        is_over: Callable[[], bool],
    ) -> None:
        """`is_over` may be asked in a worker's job: the replica is deleted or closed."""
        self._disk = disk
        self._files = files
        self._directory = directory
        self._cleaned = cleaned
        self._host = host
        self._is_over = is_over
        self._state = _State.CLEANED

    @property
    def is_done(self) -> bool:
        return self._state is _State.DONE

    def steps(self) -> Steps[bool]:
        """Put it in its place. False: the log is not what it was planned for, and stays as it is.

        Between two steps anything may happen, `settle` as well.
        """
        if self._state is _State.CLEANED and not self._is_as_planned():
            self.settle()
        if self._state is _State.CLEANED:
            self._offer()
            yield self._sync
        if self._state is _State.OFFERED and not self._is_as_planned():
            self.settle()
        if self._state is _State.OFFERED:
            self._serve()
            yield self._sync
        if self._state is _State.SERVED:
            self._name()
            yield self._sync
        if self._state is _State.NAMED:
            self._state = _State.DONE
        return self.is_done

    def settle(self) -> None:
        """Have it done, or have it never been, durably, before this returns.

        It comes late for a replica that is deleted: then its directory's name is another one's, so
        call it before that is given away.
        """
        if self._state is _State.CLEANED:
            self._withdraw(CLEANED_SUFFIX)
        elif self._state is _State.OFFERED:
            self._withdraw(SWAP_SUFFIX)
            self._disk.sync_directory(self._directory)
        if self._state is _State.SERVED:
            self._disk.sync_directory(self._directory)
            self._name()
        if self._state is _State.NAMED:
            self._disk.sync_directory(self._directory)
            self._state = _State.DONE

    def _is_as_planned(self) -> bool:
        return not self._is_over() and self._host.is_as_planned(self._cleaned.bases)

    def _offer(self) -> None:
        """Rename `.cleaned` to `.swap`, the batches last: with them it counts."""
        for path in self._paths():
            self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        self._state = _State.OFFERED

    def _serve(self) -> None:
        """Take the names of the old segments, and have the new one served."""
        removed = []
        for base in self._cleaned.bases:
            prefix = prefix_of(self._directory, base)
            for path in [prefix + suffix for suffix in SUFFIXES]:
                self._files.forget(path)
                if self._disk.exists(path):
                    self._disk.rename(path, path + DELETED_SUFFIX)
                    removed.append(path + DELETED_SUFFIX)
        self._call(SWAP_SUFFIX)
        self._state = _State.SERVED
        self._host.take_over(self._cleaned.bases, self._cleaned.segment, removed)

    def _name(self) -> None:
        """Give it its name."""
        for path in self._paths():
            self._files.forget(path + SWAP_SUFFIX)
            self._disk.rename(path + SWAP_SUFFIX, path)
        self._call("")
        segment = self._cleaned.segment
        segment.offsets.release()
        segment.times.release()
        self._state = _State.NAMED

    def _withdraw(self, suffix: str) -> None:
        for path in reversed(self._paths()):
            self._disk.remove(path + suffix)
        self._state = _State.WITHDRAWN

    def _call(self, ending: str) -> None:
        """Say where its files are."""
        segment = self._cleaned.segment
        segment.log_path = segment.prefix + LOG_SUFFIX + ending
        segment.offsets.path = segment.prefix + OFFSET_INDEX_SUFFIX + ending
        segment.times.path = segment.prefix + TIME_INDEX_SUFFIX + ending

    def _paths(self) -> list[str]:
        """Return its files by their names to be, the batches last."""
        prefix = self._cleaned.segment.prefix
        suffixes = [suffix for suffix in self._cleaned.suffixes if suffix != LOG_SUFFIX]
        return [prefix + suffix for suffix in (*suffixes, LOG_SUFFIX)]

    def _sync(self) -> None:
        """Make names durable. In the worker, with the directory held: see `compaction_round`."""
        try:
            with self._disk.inside(self._directory) as files:
                if not self._is_over():
                    files.sync_directory(self._directory)
        except FileNotFoundError:
            if not self._is_over():
                raise
