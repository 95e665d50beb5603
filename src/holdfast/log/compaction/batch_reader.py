"""Batches of a sealed segment, read in large pieces.

Owns the bound on what is held of a file. Looks at headers; whether a batch's records can be read is
another matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.log.errors import CorruptFileError
from holdfast.runtime.ports import File
from holdfast.wire.batch_header import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
)

CHUNK_BYTES: Final = 1 << 20


class FoundBatch(NamedTuple):
    """A batch in a file. `data` is None where it is too large to be held."""

    position: int
    header: BatchHeader
    data: memoryview | None


class BatchReader:
    """Reads the first bytes of a file, which end with a whole batch."""

    __slots__ = ("_base", "_batch_bytes_max", "_end", "_file", "_path", "_size", "bytes_read")

    def __init__(
        self, file: File, path: str, size: int, offsets: tuple[int, int], *, batch_bytes_max: int
    ) -> None:
        """`offsets`: where the segment begins, and where the following one does."""
        self._file = file
        self._path = path
        self._size = size
        self._base, self._end = offsets
        self._batch_bytes_max = batch_bytes_max
        self.bytes_read = 0

    def batches(self) -> Iterator[FoundBatch]:
        """Yield all batches.

        CorruptFileError: there is none where one should be, or not with the offsets that it could
        have: what is made of it would take the place of others. OSError: the disk failed.
        """
        data, position, start, expected = memoryview(b""), 0, 0, self._base
        while position < self._size:
            at = position - start
            if at + HEADER_SIZE > len(data):
                data, start, at = self._read(position, CHUNK_BYTES), position, 0
            if len(data) < HEADER_SIZE:
                raise CorruptFileError(f"{self._path}: no batch at byte {position}")
            header = BatchHeader._make(HEADER.unpack_from(data, at))
            size = LENGTH_END + header.batch_length
            following = position + size
            if (
                header.magic != MAGIC
                or header.batch_length < BATCH_LENGTH_MIN
                or following > self._size
                or not expected <= header.base_offset <= header.last_offset < self._end
            ):
                raise CorruptFileError(f"{self._path}: no batch at byte {position}")
            if size > self._batch_bytes_max:
                yield FoundBatch(position, header, None)
                data, start = memoryview(b""), following
            else:
                if at + size > len(data):
                    data, start, at = self._read(position, max(CHUNK_BYTES, size)), position, 0
                yield FoundBatch(position, header, data[at : at + size])
            position, expected = following, header.next_offset

    def pieces(self, found: FoundBatch) -> Iterator[bytes]:
        """Yield the bytes of a batch that is too large to be held."""
        end = found.position + found.header.size
        for position in range(found.position, end, CHUNK_BYTES):
            yield bytes(self._read(position, min(CHUNK_BYTES, end - position)))

    def _read(self, position: int, size: int) -> memoryview:
        wanted = min(size, self._size - position)
        data = self._file.pread(wanted, position)
        if len(data) != wanted:
            raise OSError(f"{self._path} is shorter than it was")
        self.bytes_read += wanted
        return memoryview(data)
