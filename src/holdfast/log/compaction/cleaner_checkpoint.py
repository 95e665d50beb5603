"""Up to where each log of a log directory is clean, in Apache Kafka's file.

Owns the file's text and what it may say. It is written behind the files of a round: one that is too
low costs a round, one that is too high keeps an old record beside a later one of its key, and
brings it back once that is deleted. So what cuts a log below its checkpoint lowers it durably
first.

Rules: compaction.md#the-cleaner-checkpoint.
"""

from __future__ import annotations

import logging
from typing import Final

from holdfast.log.checkpoints import encode_offsets, read_offsets
from holdfast.log.errors import CorruptFileError
from holdfast.runtime.ports import Disk

FILE_NAME: Final = "cleaner-offset-checkpoint"

logger = logging.getLogger(__name__)


class CleanerCheckpoint:
    """The offsets of one log directory's replicas."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: dict[tuple[str, int], int]) -> None:
        self._offsets = offsets

    @classmethod
    def read(cls, disk: Disk, directory: str) -> CleanerCheckpoint:
        """Read what the last process wrote; if that is nonsense, all of every log is dirty.

        OSError: the disk failed.
        """
        try:
            return cls(read_offsets(disk, directory, FILE_NAME))
        except CorruptFileError as error:
            logger.warning("%s: logs are compacted from their beginnings", error)
            return cls({})

    def get(self, replica: tuple[str, int]) -> int | None:
        return self._offsets.get(replica)

    def moved(self, replica: tuple[str, int], offset: int) -> None:
        """A round is done: the log is clean up to here."""
        self._offsets[replica] = offset

    def cut(self, replica: tuple[str, int], end: int) -> bool:
        """The log is about to end here. True: the file says more than is true, so write it."""
        if self._offsets.get(replica, end) <= end:
            return False
        self._offsets[replica] = end
        return True

    def forget(self, replica: tuple[str, int]) -> bool:
        """A replica is gone, or another one has its name. True: as `cut` says."""
        return self._offsets.pop(replica, None) is not None

    def write(self, disk: Disk, directory: str) -> None:
        """Make it durable. Slow. OSError: the disk failed."""
        disk.write_atomic(f"{directory}/{FILE_NAME}", self.text())

    def text(self) -> bytes:
        """Return the file's content."""
        return encode_offsets((*replica, offset) for replica, offset in self._offsets.items())
