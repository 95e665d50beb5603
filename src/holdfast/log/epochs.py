"""Which leader epoch began where (KIP-101), and the text of its checkpoint.

Owns the answers to epoch look-ups. Pure: the log writes the text when it must be durable.

Rules: log.md#epoch-cache, log.md#epoch-look-up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.log.checkpoints import checkpoint_lines
from holdfast.log.errors import CorruptFileError

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = -1


class EpochEnd(NamedTuple):
    """Answer of an epoch look-up; (-1, -1) is undefined."""

    epoch: int
    end: int


class EpochCache:
    """(epoch, start offset) pairs, both strictly rising."""

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.dirty = False  # True: the checkpoint on disk lacks an entry or has one too many
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """Enter that `epoch` is in force at `start`; what contradicts it goes.

        An epoch that is known already keeps the start it has, unless the new one is earlier.
        """
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start:
            return
        self.dirty = True
        while epochs and (epochs[-1] > epoch or starts[-1] >= start):
            epochs.pop()
            starts.pop()
        if not epochs or epochs[-1] != epoch:
            epochs.append(epoch)
            starts.append(start)

    def end_of(self, epoch: int, log_end: int) -> EpochEnd:
        """Return the largest known epoch up to `epoch`, and the offset at which it ended."""
        epochs = self._epochs
        if epoch == UNDEFINED or not epochs or epoch > epochs[-1]:
            return EpochEnd(UNDEFINED, UNDEFINED)
        if epoch == epochs[-1]:
            return EpochEnd(epoch, log_end)
        above = bisect_right(epochs, epoch)
        return EpochEnd(epochs[above - 1] if above else epoch, self._starts[above])

    def at(self, offset: int) -> int:
        """Return the epoch in which `offset` was written, -1 if it lies before the first entry."""
        above = bisect_right(self._starts, offset)
        return self._epochs[above - 1] if above else UNDEFINED

    def truncate_from_end(self, offset: int) -> None:
        """Forget epochs that begin at `offset` or later: the log ends there now."""
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True

    def truncate_from_start(self, offset: int) -> None:
        """Forget what lies before `offset`; the epoch in force there begins there now."""
        below = bisect_right(self._starts, offset) - 1
        if below < 0 or (below == 0 and self._starts[0] == offset):
            return
        del self._epochs[:below]
        del self._starts[:below]
        self._starts[0] = offset
        self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()

    def text(self) -> bytes:
        """Return the checkpoint file's content."""
        lines = [f"{epoch} {start}\n" for epoch, start in self.entries()]
        return f"0\n{len(lines)}\n{''.join(lines)}".encode("ascii")


def parse_epochs(data: bytes, path: str) -> EpochCache:
    """Read a checkpoint. CorruptFileError: rebuild it from the batches."""
    try:
        entries = [(int(epoch), int(start)) for epoch, start in checkpoint_lines(data, path)]
    except ValueError as error:
        raise CorruptFileError(f"{path}: {error}") from error
    return EpochCache(entries)
