"""The real clock, random, network, disk and worker: the ports over the operating system.

Owns every system call that a node makes. Must never decide anything, and must import nothing
that the event loop has not imported already: a node starts in milliseconds.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from socket import SO_KEEPALIVE, SOL_SOCKET, socket
from typing import Any

from holdfast.runtime.ports import (
    Buffer,
    DirectoryLock,
    File,
    Files,
    Listener,
    ProtocolT,
    Runtime,
    Space,
    T,
    WorkerFullError,
)
from holdfast.runtime.tasks import outcome_of, settle
from holdfast.wire.uuids import new_uuid

_ACCEPT_BACKLOG = 1024
_WORKER_THREADS = 2
_SWITCH_S = 0.0005  # for so long a thread in Python code keeps the loop waiting; Python's: 0.005
_WORKER_QUEUE_MAX = 100_000  # a flush of every replica of a big node, several times over
_FILE_MODE = 0o644
_SYNCFS_TELLS = (5, 8)  # the first Linux whose syncfs says that a file could not be written
_SPARE_DESCRIPTORS = 32
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_ACCEPTED_AT_ONCE = 4
_RANDOM_BYTES = 64 * 16  # drawn in one go: a system call costs as much as the rest of a number
_ACCEPT_PAUSE_S = 0.0005  # for each that was accepted; to begin and to end it takes 0.15 ms

SOURCE_VARIABLE = "HOLDFAST_SOURCE_ADDRESS"  # of the environment: from where a node dials

# macOS has no fdatasync; Linux's skips the time stamps and so one write of the journal.
_synchronize: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class RealClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class RealRandom:
    """The kernel's randomness: no two nodes may ever draw the same UUID."""

    def __init__(self) -> None:
        self._drawn = b""  # for numbers, which each answer to Metadata needs one of
        self._used = 0

    def uuid(self) -> bytes:
        return new_uuid(os.urandom)

    def below(self, bound: int) -> int:
        assert 0 < bound <= 1 << 64, "the bias of the remainder is below 2^-64 only up to here"
        if self._used == len(self._drawn):
            self._drawn, self._used = os.urandom(_RANDOM_BYTES), 0
        start = self._used
        self._used += 16
        return int.from_bytes(self._drawn[start : self._used], "big") % bound


class _RealListener:
    """Sockets that accept. A loop's own server would log each failure of a flood, by hundreds."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol], sockets: list[socket]) -> None:
        self._loop = asyncio.get_running_loop()
        self._factory = factory
        self._sockets = sockets
        self._accepted: set[asyncio.Task[None]] = set()
        self._pauses: dict[socket, asyncio.TimerHandle] = {}
        self.port: int = sockets[0].getsockname()[1]
        for each in sockets:
            each.setblocking(False)
            # What is accepted has it from here: a peer that vanished is found out by the system.
            each.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
            each.listen(_ACCEPT_BACKLOG)
            self._loop.add_reader(each, self._accept, each)

    def _accept(self, listening: socket) -> None:
        """Accept some of those who wait, then let others have the loop for longer than that took.

        So a flood of connections has less than a third of it, however many come at once.
        """
        tried = 0
        while tried < _ACCEPTED_AT_ONCE and self._accept_one(listening):
            tried += 1
        if tried:
            self._loop.remove_reader(listening)
            self._pauses[listening] = self._loop.call_later(
                tried * _ACCEPT_PAUSE_S, self._listen_again, listening
            )

    def _accept_one(self, listening: socket) -> bool:
        """Accept one of those who wait, or turn it away. False: nobody waits."""
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            _descriptors.turn_away(listening)
            return True
        accepted.setblocking(False)
        task = self._loop.create_task(self._begin(accepted))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)
        return True

    def _listen_again(self, listening: socket) -> None:
        del self._pauses[listening]
        self._loop.add_reader(listening, self._accept, listening)

    async def _begin(self, accepted: socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError:  # it has gone again
            accepted.close()

    def close(self) -> None:
        sockets, self._sockets = self._sockets, []
        for pause in self._pauses.values():
            pause.cancel()
        for each in sockets:
            self._loop.remove_reader(each)
            each.close()


class RealNetwork:
    """TCP over the running loop, which itself turns off Nagle's delay on every connection.

    With `source` all that is dialled is dialled from that address of this machine: by it a proxy
    between nodes on one machine knows who dials (docs/design/networks.md).
    """

    def __init__(self, source: str | None = None) -> None:
        self._source = None if source is None else (source, 0)

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        sockets = await _bound(host, port)
        ports = {each.getsockname()[1] for each in sockets}
        if len(ports) > 1:
            # Port 0 on a name with two addresses got two ports. Clients are told one.
            for each in sockets:
                each.close()
            sockets = await _bound(host, ports.pop())
        return _RealListener(factory, sockets)

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        loop = asyncio.get_running_loop()
        return await loop.create_connection(factory, host, port, local_addr=self._source)


class _Descriptors:
    """Opens files, with a few descriptors kept back for them.

    A flood of connections may take all that there are before it is turned away. Opening a file
    would fail then, and its disk be taken for a broken one.
    """

    def __init__(self) -> None:
        self._spare: list[int] = []

    def open(self, name: str, flags: int, at: int | None = None) -> int:
        """As os.open. OSError: it can't be opened, nor with a spare descriptor."""
        return self.use(lambda: os.open(name, flags | os.O_CLOEXEC, _FILE_MODE, dir_fd=at))

    def use(self, attempt: Callable[[], T]) -> T:
        """Return what comes of `attempt`, with a spare descriptor where none was left."""
        try:
            made = attempt()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS or not self._spare:
                raise
            os.close(self._spare.pop())
            return attempt()
        if len(self._spare) < _SPARE_DESCRIPTORS:
            self._keep_back()
        return made

    def turn_away(self, listening: socket) -> None:
        """Close on one who wants to connect, who would else wait for ever."""
        if self._spare:
            os.close(self._spare.pop())
            with suppress(OSError):
                listening.accept()[0].close()
        self._keep_back()

    def _keep_back(self) -> None:
        with suppress(OSError):
            while len(self._spare) < _SPARE_DESCRIPTORS:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


_descriptors = _Descriptors()


async def _bound(host: str, port: int) -> list[socket]:
    """Return sockets that are bound to all addresses of a name; "", as in Kafka: to every one."""
    server = await asyncio.get_running_loop().create_server(
        asyncio.Protocol, host or None, port, start_serving=False
    )
    sockets = [socket(fileno=os.dup(each.fileno())) for each in server.sockets]
    server.close()
    return sockets


class RealFile:
    """One descriptor. Writes go to the end that we remember, so a failed one leaves no hole."""

    __slots__ = ("_descriptor", "_size")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._descriptor, missing, offset + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def append(self, data: Buffer) -> None:
        length = len(data)
        try:
            written = os.pwrite(self._descriptor, data, self._size)
            if written != length:
                self._append_rest(memoryview(data), written)
        except OSError:
            self._cut_back()
            raise
        self._size += length

    def _append_rest(self, data: memoryview, written: int) -> None:
        """Go on after a short write; a disk that is full says so on the next one."""
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], self._size + written)

    def _cut_back(self) -> None:
        """Drop the part that a failed write left. If that fails too, the next one overwrites it."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            return  # the caller hears of the first error, which is the one that explains it

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self._size, "a file never grows by truncation"
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        _synchronize(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class _RealLock:
    """Its descriptor is as old as what this process wrote, so the kernel tells it every failure."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def syncs_everything(self) -> bool:
        return sys.platform == "linux" and _linux_version() >= _SYNCFS_TELLS

    def sync_everything(self) -> None:
        from ctypes import CDLL, c_int, get_errno  # noqa: PLC0415 - once, at the end

        syncfs = CDLL(None, use_errno=True).syncfs
        syncfs.argtypes = [c_int]
        if syncfs(self._descriptor):
            raise OSError(get_errno(), os.strerror(get_errno()))

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class RealFiles:
    """All of the disk, or what is inside of one directory that is held by its descriptor."""

    def __init__(self, held: str = "", descriptor: int | None = None) -> None:
        self._held = held
        self._at = descriptor

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return RealFile(_descriptors.open(self._name(path), flags, self._at))

    def exists(self, path: str) -> bool:
        # os.path.exists would call a failing disk an absent file.
        try:
            os.stat(self._name(path), dir_fd=self._at)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def remove(self, path: str) -> None:
        os.unlink(self._name(path), dir_fd=self._at)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        name = self._name(path)
        temporary = name + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = _descriptors.open(temporary, flags, self._at)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, name, src_dir_fd=self._at, dst_dir_fd=self._at)
        if sync:
            self.sync_directory(path.rpartition("/")[0] or "/")

    def sync_directory(self, path: str) -> None:
        descriptor = _open_directory(self._name(path), self._at)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _name(self, path: str) -> str:
        if self._at is None:
            return path
        assert f"{path}/".startswith(f"{self._held}/"), f"{path} is not inside of {self._held}"
        return path[len(self._held) + 1 :] or "."


def _linux_version() -> tuple[int, ...]:
    """Return the kernel's first two numbers; () where it spells them otherwise."""
    numbers = os.uname().release.split(".")[:2]
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else ()


def _open_directory(path: str, at: int | None = None) -> int:
    return _descriptors.open(path, os.O_RDONLY | os.O_DIRECTORY, at)


class RealDisk(RealFiles):
    @contextmanager
    def inside(self, path: str) -> Iterator[Files]:
        descriptor = _open_directory(path)
        try:
            yield RealFiles(path, descriptor)
        finally:
            os.close(descriptor)

    def list(self, path: str) -> Sequence[str]:
        return sorted(_descriptors.use(lambda: os.listdir(path)))

    def make_directories(self, path: str) -> bool:
        try:
            os.mkdir(path)
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
        except FileExistsError:
            os.makedirs(path, exist_ok=True)  # which fails where it is a file
            return False
        return True

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            inner = f"{path}/{name}"
            if stat.S_ISDIR(os.lstat(inner).st_mode):
                self.remove_tree(inner)
            else:
                os.unlink(inner)
        os.rmdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes:
        with FileIO(path, opener=_descriptors.open) as file:
            return file.readall()

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        unit = found.f_frsize
        # Some file systems make room for files as they come, and count none.
        files_free = found.f_favail if found.f_files else None
        return Space(found.f_blocks * unit, found.f_bavail * unit, files_free)

    def lock(self, path: str) -> DirectoryLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return _RealLock(descriptor)


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    lane: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class RealWorker:
    """A few threads. A lane is with one thread at a time, so its jobs keep their order."""

    def __init__(self, threads: int = _WORKER_THREADS, queue_max: int = _WORKER_QUEUE_MAX) -> None:
        assert threads > 0
        assert queue_max > 0
        self._threads_max = threads
        self._queue_max = queue_max
        self._condition = threading.Condition()
        self._ready: deque[_Job] = deque()
        self._behind: dict[str, deque[_Job]] = {}  # for each busy lane what waits behind its job
        self._waiting = 0  # jobs in both queues
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, job: Callable[[], T], *, lane: str = "") -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._condition:
            assert not self._closed, "a job came after the worker was closed"
            if self._waiting >= self._queue_max:
                future.set_exception(
                    WorkerFullError(f"{self._waiting} jobs wait already: the disk can't keep up")
                )
                return future
            self._waiting += 1
            entry = _Job(job, lane, loop, future)
            behind = self._behind.get(lane) if lane else None
            if behind is not None:
                behind.append(entry)
                return future
            if lane:
                self._behind[lane] = deque()
            self._ready.append(entry)
            if len(self._ready) > self._idle and len(self._threads) < self._threads_max:
                self._start_thread()
            else:
                self._condition.notify()
        return future

    def close(self) -> None:
        """Run what was submitted, then end the threads. Waits for them."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        if not self._threads and sys.getswitchinterval() > _SWITCH_S:
            sys.setswitchinterval(_SWITCH_S)
        # Daemons: a disk that hangs for good must not keep a process from ending.
        name = f"worker-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._take()) is not None:
            self._perform(job)
            if job.lane:
                self._leave(job.lane)

    def _take(self) -> _Job | None:
        with self._condition:
            while not self._ready:
                if self._closed:
                    return None
                self._idle += 1
                self._condition.wait()
                self._idle -= 1
            self._waiting -= 1
            return self._ready.popleft()

    def _leave(self, lane: str) -> None:
        with self._condition:
            behind = self._behind[lane]
            if behind:
                self._ready.append(behind.popleft())
                self._condition.notify()
            else:
                del self._behind[lane]

    @staticmethod
    def _perform(job: _Job) -> None:
        outcome = outcome_of(job.run)
        try:
            job.loop.call_soon_threadsafe(settle, job.future, *outcome)
        except RuntimeError:
            assert job.loop.is_closed(), "only a closed loop refuses an answer"


def real_runtime(*, worker_threads: int = _WORKER_THREADS) -> Runtime:
    """One of each real port, for one node's process."""
    return Runtime(
        clock=RealClock(),
        random=RealRandom(),
        network=RealNetwork(os.environ.get(SOURCE_VARIABLE)),
        disk=RealDisk(),
        worker=RealWorker(worker_threads),
    )
