"""The five ports: clock, random, network, disk, worker. Protocols only; nothing here does anything.

All of `log`, `core` and `node` reach the world through these and through the running asyncio loop
(`call_later`, tasks, futures), which the simulator replaces by one with virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview
ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps have them. May jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back. For every lag, session and time-out."""


class Random(Protocol):
    def uuid(self) -> bytes:
        """Return 16 bytes, a version 4 UUID whose text form does not begin with a dash."""

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound)."""


class Listener(Protocol):
    @property
    def port(self) -> int:
        """Port really bound (never 0)."""

    def close(self) -> None:
        """Stop accepting. Connections already accepted go on."""


class Network(Protocol):
    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        """Accept connections, each with a protocol from `factory`. OSError: the port is taken."""

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Open one connection, without Nagle's delay. OSError when it can't be had."""


class File(Protocol):
    """One open file. Offsets and sizes are bytes. Every failure is an OSError."""

    @property
    def size(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. After an OSError the size is what it was before."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once all that was written survives a power cut. Slow: submit it to the worker."""

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    """Held on a directory's lock file; it has seen each failure of the disk since it was taken."""

    @property
    def syncs_everything(self) -> bool:
        """Whether `sync_everything` can be had, and says so when it fails."""

    def sync_everything(self) -> None:
        """Make all below the directory survive a power cut: data, names, removals.

        One call for any number of files. OSError: some of it may not, now or since the lock was
        taken. Slow: submit it to the worker.
        """

    def release(self) -> None: ...


class Files(Protocol):
    """Paths are absolute strings with forward slashes. Every failure is an OSError."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def remove(self, path: str) -> None: ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Write a temporary file, sync it, rename it over `path`, sync the directory.

        Without `sync` the two syncs are left out: whole or absent after a crash of the process,
        anything after a power cut.
        """

    def sync_directory(self, path: str) -> None: ...


class Space(NamedTuple):
    """What a file system holds, and what of that this process may still have."""

    total_bytes: int
    free_bytes: int
    files_free: int | None = None  # None: as many as there is room for


class Disk(Files, Protocol):
    def inside(self, path: str) -> AbstractContextManager[Files]:
        """Hold the directory that has this name now, for a job that a deletion may overtake.

        Paths below `path`, and itself, mean the held directory until the end of the block, also
        when it is called something else by then and another one has its name.
        """

    def list(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted."""

    def make_directories(self, path: str) -> bool:
        """Create a directory and its parents; True: it was not there. Durable once the parent is
        synced.
        """

    def link(self, source: str, target: str) -> None:
        """Give a file one more name, which nobody has. Not durable until the directory is synced.

        OSError also where the file system knows no such names, or the file can have no more.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename atomically. Not durable until the directory is synced."""

    def remove_tree(self, path: str) -> None: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def read(self, path: str) -> bytes: ...

    def space(self, path: str) -> Space:
        """Return the room in the file system of this directory."""

    def lock(self, path: str) -> DirectoryLock:
        """Take the lock file `path` for this process; BlockingIOError when another one holds it."""


class WorkerFullError(Exception):
    """More jobs wait than a worker may hold; the future of the one too many carries this."""


class Worker(Protocol):
    """Runs what would block the loop: system calls, or native code that releases the GIL."""

    def submit(self, job: Callable[[], T], *, lane: str = "") -> asyncio.Future[T]:
        """Run `job` off the loop; the future ends on the loop. Jobs of one lane run in order.

        A job touches sealed files and values of its own only, and returns a plan that the loop
        applies. A lane is a log directory, so that its syncs stay in order.
        """


def never(_point: str) -> bool:
    """Provoke nothing: what every real process has."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One of each; a node gets it when it is made and passes it down."""

    clock: Clock
    random: Random
    network: Network
    disk: Disk
    worker: Worker
    # True: take the rare branch of that name now. Only a simulation ever says so; each name
    # stands once in the code and in `testing.ground.provoke.POINTS`.
    provoke: Callable[[str], bool] = never
