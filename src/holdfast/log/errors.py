"""What the log raises. A refusal that a peer may see is an `ErrorCode`, returned; these are not."""

from __future__ import annotations


class StorageError(Exception):
    """The disk failed: the log directory named here is offline from now on.

    A handler answers KAFKA_STORAGE_ERROR (56); logs in other directories serve on.
    """

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(f"log directory {directory} is offline: {reason}")
        self.directory = directory
        self.reason = reason


class CorruptFileError(Exception):
    """A file of ours does not hold what it should. The message names the file."""


class DirectoryError(Exception):
    """A log directory can't be used. The message says what to do; the node does not start."""
