"""What the log raises. A refusal that a peer may see is an `ErrorCode`, returned; these are not."""

from __future__ import annotations

from typing import Final

TOO_MUCH: Final = "too much waits for the disk"


class StorageError(Exception):
    """The disk did not do what was asked: the log directory named here is offline from now on.

    With `is_offline=False` it is not: a file in it is damaged, too much waits for the disk, or the
    replica is gone. A handler answers KAFKA_STORAGE_ERROR (56); other logs serve on.
    """

    def __init__(self, directory: str, reason: str, *, is_offline: bool = True) -> None:
        state = "is offline" if is_offline else "stays online"
        super().__init__(f"log directory {directory} {state}: {reason}")
        self.directory = directory
        self.reason = reason
        self.is_offline = is_offline


class CorruptFileError(Exception):
    """A file of ours does not hold what it should. The message names the file."""


class DirectoryError(Exception):
    """A log directory can't be used. The message says what to do; the node does not start."""
