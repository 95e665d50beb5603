"""Rows of a batch that wait on this machine's disk until all of them are computed.

Owns one temporary file. A transaction must not be open while Spark computes: it holds the query's
lock, and PostgreSQL ends a session that is silent in one for too long. Memory is bounded by a
chunk, in rows and in bytes; the file has no name, so nothing is left of it whatever dies.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from sys import getsizeof
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK_ROWS = 5_000
CHUNK_BYTES = 16 << 20  # as Python has the values; a row that is larger has a chunk of its own

Chunk = list[dict[str, Any]]  # column names and values


class Spool:
    """Takes rows up until there are none, and then gives them out in chunks, once.

    A batch of one chunk, as most are, never sees the disk.
    """

    def __init__(
        self, rows: Iterable[Any], chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self._open = ExitStack()
        self._file: IO[bytes] | None = None
        chunks = _chunked(rows, chunk_rows, chunk_bytes)
        self._first = next(chunks, [])
        self.count = len(self._first)
        try:
            for chunk in chunks:
                self._keep(chunk)
        except BaseException:
            self.close()
            raise

    def _keep(self, chunk: Chunk) -> None:
        if self._file is None:
            self._file = self._open.enter_context(TemporaryFile())  # noqa: SIM115
        pickle.dump(chunk, self._file, pickle.HIGHEST_PROTOCOL)
        self.count += len(chunk)

    def chunks(self) -> Iterator[Chunk]:
        left = self.count - len(self._first)
        if self._first:
            yield self._first
            self._first = []
        if self._file is None:
            assert not left, "rows were counted that were not kept"
            return
        self._file.seek(0)
        while left:
            chunk: Chunk = pickle.load(self._file)  # noqa: S301 - what we have written ourselves
            left -= len(chunk)
            yield chunk

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


def _chunked(rows: Iterable[Any], most_rows: int, most_bytes: int) -> Iterator[Chunk]:
    """Yield rows as mappings, so many at a time that no bound is passed but by a row alone."""
    chunk: Chunk = []
    size = 0
    for row in rows:
        found = row.asDict()
        length = sum(map(_size, found.values()))
        if chunk and (len(chunk) == most_rows or size + length > most_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(found)
        size += length
    if chunk:
        yield chunk


def _size(value: Any) -> int:
    """Return about how many bytes a value has in memory, with all that is in it."""
    size = getsizeof(value)
    if isinstance(value, list | tuple):  # a tuple is a structure
        return size + sum(map(_size, value))
    if isinstance(value, dict):
        return size + sum(map(_size, value.keys())) + sum(map(_size, value.values()))
    return size


def spooled(frame: DataFrame) -> Spool:
    """Compute all rows of a frame, in this process."""
    return Spool(frame.toLocalIterator(prefetchPartitions=True))
