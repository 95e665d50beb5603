"""The floor: the least that any broker must do for a Produce and a Fetch, and nothing else.

It receives a frame, checks the batch's CRC, gives it an offset, writes it, answers; and it reads
whole batches back. There are no topics, indexes, replicas, waits or refusals. It is written as the
broker is, on asyncio's BufferedProtocol, so that what a broker loses against it is what its
features cost. Only bench/load.py's requests are understood: Produce 7 and Fetch 11, one partition.

    python bench/floor.py PORT FILE      prints "ready PORT" when it listens on loopback
"""

from __future__ import annotations

import asyncio
import os
import sys
from struct import Struct
from typing import cast

from crc32c import crc32c

PRODUCE = 0  # whatever else comes is taken for a Fetch
_BUFFER_BYTES = 64 * 1024
_FRAME_BYTES_MAX = 100 * 1024 * 1024

_I16 = Struct(">h")
_I32 = Struct(">i")
_I64 = Struct(">q")
_REQUEST = Struct(">ihhi")  # size, key, version, correlation id
_BATCH = Struct(">qiibIhi")  # base offset, length, epoch, magic, CRC, attributes, last delta
_PRODUCE_TAIL = Struct(">iihqqqi")  # partitions, index, error, offset, time, log start, throttle
_FETCH_HEAD = Struct(">iihii")  # correlation id, throttle, error, session, topics
_FETCH_TAIL = Struct(">iihqqqiii")  # partitions, index, error, HW, LSO, start, aborted, replica, n


class Store:
    """One file of batches, all of the same size and count."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self.end = 0
        self.batch_bytes = 1
        self.batch_records = 1

    def append(self, batch: memoryview) -> int:
        """Check, number and write one batch; return its offset."""
        _, _, _, _, crc, _, last_delta = _BATCH.unpack_from(batch)
        if crc32c(batch[21:]) != crc:
            raise ValueError("CRC mismatch")
        if self.batch_bytes != len(batch):  # another run of the load begins
            os.ftruncate(self.file, 0)
            os.lseek(self.file, 0, os.SEEK_SET)
            self.end, self.batch_bytes, self.batch_records = 0, len(batch), last_delta + 1
        offset = self.end
        _I64.pack_into(batch, 0, offset)
        os.write(self.file, batch)
        self.end = offset + last_delta + 1
        return offset

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return whole batches from `offset` on."""
        size = max(bytes_max // self.batch_bytes, 1) * self.batch_bytes
        return os.pread(self.file, size, offset // self.batch_records * self.batch_bytes)


class Connection(asyncio.BufferedProtocol):
    """One client. Frames are handled in place, in the buffer they arrive in."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.buffer = bytearray(_BUFFER_BYTES)
        self.filled = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return memoryview(self.buffer)[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        view = memoryview(self.buffer)[: self.filled]
        start = 0
        answers: list[bytes] = []
        while self.filled - start >= 4:
            (size,) = _I32.unpack_from(view, start)
            end = start + 4 + size
            if not 14 <= size <= _FRAME_BYTES_MAX:
                self.transport.abort()
                return
            if end > self.filled:
                self._make_room(start, 4 + size)
                break
            answers.extend(self._answer(view[start:end]))
            start = end
        else:
            self._make_room(start, 4)
        if answers:
            # One by one: what is joined first, as writelines does, is copied once more.
            for answer in answers:
                self.transport.write(answer)

    def _make_room(self, start: int, needed: int) -> None:
        """Move the beginning of a frame to the front, of a larger buffer where it needs one."""
        if start == 0 and needed <= len(self.buffer):
            return
        rest = bytes(memoryview(self.buffer)[start : self.filled])
        if needed > len(self.buffer):
            self.buffer = bytearray(1 << (needed - 1).bit_length())
        self.buffer[: len(rest)] = rest
        self.filled = len(rest)

    def _answer(self, frame: memoryview) -> tuple[bytes, ...]:
        _, key, _, correlation = _REQUEST.unpack_from(frame)
        position = _skip_string(frame, 12)
        if key == PRODUCE:
            # transactional id, acks, time-out, number of topics
            position = _skip_string(frame, position) + 10
            name_end = _skip_string(frame, position)
            name = bytes(frame[position:name_end])
            records = name_end + 12  # number of partitions, index, size
            offset = self.store.append(frame[records:])
            tail = _PRODUCE_TAIL.pack(1, 0, 0, offset, -1, 0, 0)
            body = _I32.pack(correlation) + _I32.pack(1) + name + tail
            return (_I32.pack(len(body)) + body,)
        position += 25  # replica, wait, bytes min and max, isolation, session id and epoch
        name_end = _skip_string(frame, position + 4)
        name = bytes(frame[position + 4 : name_end])
        (offset,) = _I64.unpack_from(frame, name_end + 12)
        (bytes_max,) = _I32.unpack_from(frame, name_end + 28)
        records_read = self.store.read(offset, bytes_max)
        end = self.store.end
        tail = _FETCH_TAIL.pack(1, 0, 0, end, end, 0, -1, -1, len(records_read))
        head = _FETCH_HEAD.pack(correlation, 0, 0, 0, 1) + name + tail
        return (_I32.pack(len(head) + len(records_read)) + head, records_read)


def _skip_string(frame: memoryview, position: int) -> int:
    length: int = _I16.unpack_from(frame, position)[0]
    return position + 2 + max(length, 0)


async def main(port: int, path: str) -> None:
    """Serve until killed."""
    store = Store(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(store), "127.0.0.1", port)
    sys.stdout.write(f"ready {server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
