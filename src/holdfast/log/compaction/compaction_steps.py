"""The steps of a round in their order, wherever each is taken, and how fast they may be.

Owns which steps are jobs. Compiled, the two passes are jobs of some megabytes for the worker, in a
lane of their own; in Python they are slices of the loop, because a thread would hold the
interpreter. What touches the log itself is on the loop either way.

Rules: compaction.md#a-round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.log.compaction.cleaned_segment import Cleaned
from holdfast.log.compaction.compaction_round import Round, RoundOverError
from holdfast.log.compaction.replacement import Host, Replacement
from holdfast.log.errors import CorruptFileError
from holdfast.log.files import FileCache
from holdfast.log.segment import CLEANED_SUFFIX
from holdfast.runtime.ports import Disk, T
from holdfast.runtime.sliced_work import Steps
from holdfast.wire.errors import WireError

JOB_TURNS: Final = 8  # slices of a megabyte or so that one job does
_TURNS_OF_A_JOB: Final = 1 / 4  # so many more, when a body was inflated or compressed in it


class Compaction:
    """A round, from its plan to the last name. One at a time for each log."""

    def __init__(self, disk: Disk, files: FileCache, work: Round, host: Host) -> None:
        self._disk = disk
        self._files = files
        self._round = work
        self._host = host
        self._replacement: Replacement | None = None
        self._is_gone = False

    def steps(self) -> Steps[int | None]:
        """Take the round. Returns the log's next checkpoint; None: the log changed meanwhile.

        OSError: the disk failed. CorruptFileError: a segment is damaged, or would be too large.
        """
        work = self._round
        try:
            self._remove_leftovers()
            yield from self._taken(work.find_keys())
            for group in work.groups():
                cleaned = yield from self._taken(work.copy(group))
                if work.is_over:
                    break  # since the copy was done: its directory may have another name by now
                if cleaned is None:
                    yield partial(work.remove_copy, group)
                elif not (yield from self._replaced(cleaned)):
                    break
            else:
                return None if work.is_over else work.map_end
        except RoundOverError:
            pass
        except CorruptFileError:
            self._remove_leftovers()
            raise
        self._remove_leftovers()
        return None

    def end(self, *, is_gone: bool = False) -> None:
        """End the round before the log is cut, reset, closed or deleted, or loses a segment.

        What is half done is done, or never was, once this returns. `is_gone`: the directory will
        have another name, or be another replica's. OSError: the disk failed.
        """
        self._round.is_over = True
        self._is_gone = is_gone
        if self._replacement is not None:
            self._replacement.settle()

    def abandon(self) -> None:
        """The disk has failed: nothing of the round is put right any more, a start does that."""
        self._round.is_over = True
        self._is_gone = True

    def _taken(self, steps: Steps[T]) -> Steps[T]:
        """Take steps here, or have jobs take them."""
        if not self._round.is_aside:
            return (yield from steps)
        return (yield from in_jobs(steps))

    def _replaced(self, cleaned: Cleaned) -> Steps[bool]:
        """Put a new segment in its place. False: the log is not what it was planned for."""
        work = self._round
        self._replacement = Replacement(
            self._disk,
            self._files,
            work.plan.directory,
            cleaned,
            self._host,
            is_over=lambda: work.is_over,
        )
        is_done = yield from self._replacement.steps()
        self._replacement = None
        return is_done

    def _remove_leftovers(self) -> None:
        """Remove what a round left that was ended: a `.swap` behind it would count as half."""
        directory = self._round.plan.directory
        if not self._is_gone:
            for name in self._disk.list(directory):
                if name.endswith(CLEANED_SUFFIX):
                    self._disk.remove(f"{directory}/{name}")


def in_jobs(steps: Steps[T]) -> Steps[T]:
    """Take steps in jobs, each of so many slices; what they want a job for is done in there."""
    ended: list[T] = []
    advance: Callable[[], object] = partial(steps.send, None)

    def job() -> None:
        nonlocal advance
        turns = 0.0
        while turns < JOB_TURNS:
            try:
                wanted = advance()
            except StopIteration as end:
                ended.append(end.value)
                return
            advance = partial(steps.send, None)
            if not callable(wanted):
                turns += 1
                continue
            turns += _TURNS_OF_A_JOB
            try:
                advance = partial(steps.send, wanted())
            except (OSError, WireError, RoundOverError) as error:
                advance = partial(steps.throw, error)

    while not ended:
        yield job
    return ended[0]


class Throttle:
    """Rests that keep rounds at so many bytes a second (log.cleaner.io.max.bytes.per.second)."""

    __slots__ = ("_began_ms", "_bytes_a_second", "_bytes_before")

    def __init__(self, bytes_a_second: float, now_ms: int, bytes_done: int = 0) -> None:
        """A clock that never goes back is told; so much was done before."""
        assert bytes_a_second > 0
        self._bytes_a_second = bytes_a_second
        self._began_ms = now_ms
        self._bytes_before = bytes_done

    def rest_ms(self, bytes_done: int, now_ms: int) -> int:
        """Return how long to rest after so many bytes of all rounds."""
        due_ms = (bytes_done - self._bytes_before) * 1000 / self._bytes_a_second
        rest = self._began_ms + due_ms - now_ms
        if rest <= 0:
            # What was not used is gone: a log that waited for its turn may not rush then.
            self._began_ms, self._bytes_before = now_ms, bytes_done
            return 0
        return int(rest) + 1
