"""A disk in memory that knows what would survive: a crash of the process, or a loss of power.

Owns two states of every file and directory: as processes see it, and as it was last synced.
Must never keep more through a power cut than fsync promises; what a real disk might also have
kept is drawn from the seed when a torn cut is asked for.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn, TypeAlias

from holdfast.runtime.ports import Buffer, DirectoryLock, File, Files, Space
from holdfast.testing.ground.disk_quota import NAME_BYTES, Quota
from holdfast.testing.ground.trace import Part, brief

Operation: TypeAlias = Literal[
    "open", "read", "append", "truncate", "sync", "rename", "remove", "make", "list", "lock"
]
Fold: TypeAlias = Callable[..., None]

_SECTOR = 512
_PAGE = 4096
_ENDLESS = 1 << 50


@dataclass(slots=True, eq=False)
class _Inode:
    """A file. `durable` is what it would hold after a power cut; both differ from `dirty_from`."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty_from: int | None = None
    modified_ms: int = 0
    unsound: bool = False  # a sync failed: the kernel forgot these pages, later syncs say nothing

    def touch(self, offset: int) -> None:
        if self.dirty_from is None or offset < self.dirty_from:
            self.dirty_from = offset

    def sync(self) -> None:
        if self.dirty_from is not None and not self.unsound:
            self.durable[self.dirty_from :] = self.data[self.dirty_from :]
            self.dirty_from = None


_Change: TypeAlias = "dict[str, _Inode | _Directory | None]"


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory: its names now, its names when last synced, and the changes between."""

    entries: dict[str, _Inode | _Directory] = field(default_factory=dict)
    durable: dict[str, _Inode | _Directory] = field(default_factory=dict)
    pending: list[_Change] = field(default_factory=list)

    def change(self, change: _Change) -> None:
        self.pending.append(change)
        _apply(self.entries, change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()


def _apply(entries: dict[str, _Inode | _Directory], change: _Change) -> None:
    for name, target in change.items():
        if target is None:
            entries.pop(name, None)
        else:
            entries[name] = target


@dataclass(slots=True, kw_only=True)
class DiskFault:
    """What goes wrong: these operations on paths with this prefix raise OSError(`code`).

    The first `after` of them still work; then each fails by the chance `rate`, until `times` have.
    """

    operations: Collection[Operation]
    prefix: str = "/"
    code: int = errno.EIO
    after: int = 0
    times: int | None = None
    rate: float = 1.0
    struck: int = field(default=0, init=False)  # how often it has

    def strikes(self, operation: Operation, path: str, draw: random.Random) -> bool:
        if operation not in self.operations or not path.startswith(self.prefix):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times == 0 or (self.rate < 1 and draw.random() >= self.rate):
            return False
        if self.times is not None:
            self.times -= 1
        self.struck += 1
        return True


@dataclass(slots=True)
class _Platter:
    """What outlives every process: the tree, the room there is, the faults that were laid in."""

    root: _Directory
    draw: random.Random
    capacity: int | None
    used: int = 0
    faults: list[DiskFault] = field(default_factory=list)
    quotas: list[Quota] = field(default_factory=list)
    locks: dict[_Inode, MemoryDisk] = field(default_factory=dict)


class MemoryFile:
    """An open file. It goes on working after its name is removed, as on any Unix."""

    __slots__ = ("_disk", "_inode", "_open", "_path")

    def __init__(self, disk: MemoryDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._open = True

    @property
    def size(self) -> int:
        return len(self._inode.data)

    def pread(self, size: int, offset: int) -> bytes:
        self._check("read")
        return bytes(self._inode.data[offset : offset + size])

    def append(self, data: Buffer) -> None:
        self._check("append")
        end = len(self._inode.data)
        try:
            self._disk.take_room(self._path, len(data))
        except OSError:
            self._inode.data += data[: self._disk.draw_left(len(data))]
            self._inode.touch(end)
            raise
        self._inode.data += data
        self._inode.touch(end)
        self._inode.modified_ms = self._disk.now_ms()
        self._disk.fold("append", self._path, end, brief(data))

    def truncate(self, size: int) -> None:
        self._check("truncate")
        assert 0 <= size <= len(self._inode.data), "a file never grows by truncation"
        self._disk.take_room(self._path, size - len(self._inode.data))
        del self._inode.data[size:]
        self._inode.touch(size)
        self._inode.modified_ms = self._disk.now_ms()
        self._disk.fold("truncate", self._path, size)

    def sync(self) -> None:
        try:
            self._check("sync")
        except OSError:
            self._inode.unsound = self._inode.dirty_from is not None
            raise
        self._inode.sync()
        self._disk.fold("sync", self._path, len(self._inode.data))

    def close(self) -> None:
        self._open = False

    def _check(self, operation: Operation) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        self._disk.check(operation, self._path)


class _MemoryLock:
    syncs_everything = True

    def __init__(self, disk: MemoryDisk, locks: dict[_Inode, MemoryDisk], path: str) -> None:
        self._disk = disk
        self._locks = locks
        self._inode: _Inode | None = disk.inode(path)
        self._directory = path.rpartition("/")[0] or "/"
        locks[self._inode] = disk

    def sync_everything(self) -> None:
        self._disk.sync_everything(self._directory)

    def release(self) -> None:
        if self._inode is not None:
            self._locks.pop(self._inode, None)
            self._inode = None


class MemoryDisk:
    """The disk port as one process has it.

    After `crash` or `power_cut` this one is dead, each of its operations is an OSError, and the
    returned one is what the next process finds.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        capacity_bytes: int | None = None,
        now_ms: Callable[[], int] = int,
        fold: Fold | None = None,
        platter: _Platter | None = None,
    ) -> None:
        if platter is None:
            platter = _Platter(_Directory(), random.Random(f"disk/{seed}"), capacity_bytes)
        self._platter: Final = platter
        self.now_ms = now_ms
        self._fold = fold
        self._dead = False
        self.watch: Callable[[str], None] | None = None  # told each operation's path before it
        self._looked_at = False
        self._inside: tuple[list[str], _Directory] | None = None  # held for a job

    # What goes wrong.

    def crash(self) -> MemoryDisk:
        """The process dies as by SIGKILL: the page cache stays, locks and open files go."""
        self._dead = True
        self._platter.locks.clear()
        return self._successor()

    def power_cut(self, *, torn: bool = False) -> MemoryDisk:
        """Everything that was not synced is gone: bytes, new names, renames, removals.

        `torn`: some of it is there all the same, by the seed: the first so many changes of each
        directory, a piece of what was written to a file, its last sector perhaps as zeros, or with
        holes of zeros where pages were not written yet.
        """
        self._dead = True
        self._platter.locks.clear()
        self._lose(self._platter.root, torn, set())
        self._platter.used = _bytes_below(self._platter.root)
        return self._successor()

    def inject(self, fault: DiskFault) -> DiskFault:
        """Lay a fault in; it stays through crashes until `heal`."""
        self.fold("inject", fault.prefix, fault.code, *sorted(fault.operations))
        self._platter.faults.append(fault)
        return fault

    def limit(self, prefix: str, left_bytes: int, code: int = errno.ENOSPC) -> Quota:
        """Leave so much room below a prefix; it stays through crashes until `heal`.

        Of a write that does not fit a part may stay in the file, as where cutting it off fails.
        """
        self.fold("limit", prefix, left_bytes)
        self._platter.quotas.append(Quota(prefix=prefix, left_bytes=left_bytes, code=code))
        return self._platter.quotas[-1]

    @contextmanager
    def observed(self) -> Iterator[None]:
        """For an observer: what it asks meanwhile strikes no fault and draws no chance."""
        self._looked_at = True
        try:
            yield
        finally:
            self._looked_at = False

    def heal(self) -> None:
        """Take all faults out, and make room. What failed syncs have lost stays lost."""
        self.fold("heal disk")
        self._platter.faults.clear()
        self._platter.quotas.clear()

    @property
    def capacity_bytes(self) -> int | None:
        return self._platter.capacity

    @capacity_bytes.setter
    def capacity_bytes(self, value: int | None) -> None:
        self._platter.capacity = value

    def corrupt(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes in place and for good, as a bad sector or a stray hand would."""
        inode = self._file(path)
        assert offset + len(data) <= len(inode.data), "corruption changes bytes, not sizes"
        inode.data[offset : offset + len(data)] = data
        inode.durable[offset : offset + len(data)] = data

    # The port.

    @contextmanager
    def inside(self, path: str) -> Iterator[Files]:
        # A job has the world for itself until it ends, so this disk can serve as what is held.
        assert self._inside is None, "a job of a replica has one directory"
        self.check("open", path)
        self._inside = _parts(path), self._directory(path)
        try:
            yield self
        finally:
            self._inside = None

    def open(self, path: str, *, create: bool = False) -> File:
        self.check("open", path)
        directory, name = self._parent(path)
        found = directory.entries.get(name)
        if isinstance(found, _Directory):
            _fail(errno.EISDIR, path)
        if found is None:
            if not create:
                _fail(errno.ENOENT, path)
            self._take_quota(path, NAME_BYTES)
            found = _Inode(modified_ms=self.now_ms())
            directory.change({name: found})
            self.fold("create", path)
        return MemoryFile(self, path, found)

    def exists(self, path: str) -> bool:
        self.check("read", path)
        try:
            self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> Sequence[str]:
        self.check("list", path)
        return sorted(self._directory(path).entries)

    def make_directories(self, path: str) -> bool:
        self.check("make", path)
        at, is_new = self._platter.root, False
        for name in _parts(path):
            below = at.entries.get(name)
            is_new = below is None
            if below is None:
                self._take_quota(path, NAME_BYTES)
                below = _Directory()
                at.change({name: below})
                self.fold("make", path, name)
            if isinstance(below, _Inode):
                _fail(errno.EEXIST, path)
            at = below
        return is_new

    def link(self, source: str, target: str) -> None:
        self.check("make", target)
        found, (directory, name) = self._find(source), self._parent(target)
        if name in directory.entries or isinstance(found, _Directory):
            _fail(errno.EEXIST if name in directory.entries else errno.EPERM, target)
        self._take_quota(target, NAME_BYTES)
        self.take_room(target, len(found.data))  # as if it were one more file: what goes gives back
        directory.change({name: found})
        self.fold("link", source, target)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        found = self._find(source)
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        replaced = to_directory.entries.get(to_name)
        if replaced is found:
            return
        if isinstance(replaced, _Directory):
            if isinstance(found, _Inode):
                _fail(errno.EISDIR, target)
            if replaced.entries:
                _fail(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(found, _Directory):
            _fail(errno.ENOTDIR, target)
        if from_directory is to_directory:
            from_directory.change({from_name: None, to_name: found})
        else:
            to_directory.change({to_name: found})
            from_directory.change({from_name: None})
        self._give_room_back(target, replaced)
        self.fold("rename", source, target)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        found = self._find(path)
        if isinstance(found, _Directory):
            _fail(errno.EISDIR, path)
        directory, name = self._parent(path)
        directory.change({name: None})
        self._give_room_back(path, found)
        self.fold("remove", path)

    def remove_tree(self, path: str) -> None:
        self.check("remove", path)
        found = self._directory(path)
        for name, below in sorted(found.entries.items()):
            if isinstance(below, _Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        directory, name = self._parent(path)
        directory.change({name: None})
        self.fold("remove", path)

    def size(self, path: str) -> int:
        self.check("read", path)
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        self.check("read", path)
        return self._file(path).modified_ms

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._file(path).data)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        if sync:
            file.sync()
        file.close()
        self.rename(temporary, path)
        if sync:
            self.sync_directory(path.rpartition("/")[0] or "/")

    def sync_directory(self, path: str) -> None:
        self.check("sync", path)
        self._directory(path).sync()
        self.fold("sync", path)

    def space(self, path: str) -> Space:
        self.check("read", path)
        self._directory(path)
        capacity = _ENDLESS if self._platter.capacity is None else self._platter.capacity
        return Space(capacity, max(0, capacity - self._platter.used))

    def lock(self, path: str) -> DirectoryLock:
        self.check("lock", path)
        self.open(path, create=True).close()
        if self._file(path) in self._platter.locks:
            _fail(errno.EWOULDBLOCK, path)
        return _MemoryLock(self, self._platter.locks, path)

    # For MemoryFile and the lock, which are part of this module's secret.

    def inode(self, path: str) -> _Inode:
        return self._file(path)

    def sync_everything(self, path: str) -> None:
        """Sync a directory and all below it; a fault that lies on some of it strikes."""
        directory = self._directory(path)
        self.check("sync", path)
        for name, below in sorted(directory.entries.items()):
            inside = f"{path}/{name}"
            if isinstance(below, _Directory):
                self.sync_everything(inside)
            elif below.dirty_from is not None:
                MemoryFile(self, inside, below).sync()
        directory.sync()
        self.fold("sync", path)

    def check(self, operation: Operation, path: str) -> None:
        """Raise what an operation has to raise before it does anything."""
        if self._looked_at:
            return
        if self.watch is not None:
            self.watch(path)  # it may pull the plug
        if self._dead:
            _fail(errno.EIO, path)
        for fault in self._platter.faults:
            if fault.strikes(operation, path, self._platter.draw):
                self.fold("disk fault", operation, path, fault.code)
                _fail(fault.code, path)

    def take_room(self, path: str, count: int) -> None:
        """Count bytes that files need; ENOSPC when there is no room for them."""
        platter = self._platter
        if count > 0 and platter.capacity is not None and platter.used + count > platter.capacity:
            _fail(errno.ENOSPC, path)
        self._take_quota(path, count)
        platter.used += count

    def draw_left(self, size: int) -> int:
        """Draw how much of a write that did not fit stays: nothing, mostly."""
        draw = self._platter.draw
        return draw.randint(0, size - 1) if self._platter.quotas and draw.random() < 0.3 else 0

    def _take_quota(self, path: str, count: int) -> None:
        for quota in self._platter.quotas:
            if not quota.take(path, count):
                self.fold("disk full", path, count)
                _fail(quota.code, path)

    def fold(self, kind: str, *parts: Part) -> None:
        if self._fold is not None:
            self._fold(kind, *parts)

    # Inside.

    def _successor(self) -> MemoryDisk:
        return MemoryDisk(now_ms=self.now_ms, fold=self._fold, platter=self._platter)

    def _lose(self, directory: _Directory, torn: bool, seen: set[_Inode]) -> None:
        draw = self._platter.draw
        kept = draw.randint(0, len(directory.pending)) if torn and directory.pending else 0
        entries = dict(directory.durable)
        for change in directory.pending[:kept]:
            _apply(entries, change)
        directory.entries = entries
        directory.durable = dict(entries)
        directory.pending = []
        for _, below in sorted(entries.items()):
            if isinstance(below, _Directory):
                self._lose(below, torn, seen)
            elif below not in seen:
                seen.add(below)
                self._lose_bytes(below, torn)

    def _lose_bytes(self, inode: _Inode, torn: bool) -> None:
        draw = self._platter.draw
        if torn and inode.dirty_from is not None and draw.random() < 0.5:
            unsynced = inode.data[inode.dirty_from :]
            size = len(unsynced) if draw.random() < 0.3 else draw.randint(0, len(unsynced))
            kept = bytearray(unsynced[:size])
            if draw.random() < 0.3:  # the size was journalled, the last data never written
                zeros = min(len(kept), draw.randint(1, _SECTOR))
                kept[len(kept) - zeros :] = bytes(zeros)
            if draw.random() < 0.3:  # pages are written in any order
                self._lose_pages(kept, inode.dirty_from)
            inode.durable[inode.dirty_from :] = kept
        inode.data = bytearray(inode.durable)
        inode.dirty_from = None
        inode.unsound = False

    def _lose_pages(self, kept: bytearray, begins: int) -> None:
        """Leave holes of zeros where pages, or sectors of a page, were never written.

        `kept` begins at the offset `begins` of its file.
        """
        draw = self._platter.draw
        unit = draw.choice((_SECTOR, _PAGE))
        for number in range(begins // unit, (begins + len(kept)) // unit + 1):
            if draw.random() < 0.3:
                low = max(0, number * unit - begins)
                high = min(len(kept), (number + 1) * unit - begins)
                kept[low:high] = bytes(max(0, high - low))

    def _give_room_back(self, path: str, gone: _Inode | _Directory | None) -> None:
        if isinstance(gone, _Inode):
            self._platter.used -= len(gone.data)
            self._take_quota(path, -len(gone.data) - NAME_BYTES)

    def _find(self, path: str) -> _Inode | _Directory:
        at: _Inode | _Directory = self._platter.root
        parts = _parts(path)
        if self._inside is not None and parts[: len(self._inside[0])] == self._inside[0]:
            at, parts = self._inside[1], parts[len(self._inside[0]) :]
        for name in parts:
            if isinstance(at, _Inode):
                _fail(errno.ENOTDIR, path)
            below = at.entries.get(name)
            if below is None:
                _fail(errno.ENOENT, path)
            at = below
        return at

    def _file(self, path: str) -> _Inode:
        found = self._find(path)
        if isinstance(found, _Directory):
            _fail(errno.EISDIR, path)
        return found

    def _directory(self, path: str) -> _Directory:
        found = self._find(path)
        if isinstance(found, _Inode):
            _fail(errno.ENOTDIR, path)
        return found

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        assert name, "the root has no name"
        return self._directory(above or "/"), name


def _parts(path: str) -> list[str]:
    assert path.startswith("/"), f"paths are absolute: {path!r}"
    return [part for part in path.split("/") if part]


def _bytes_below(directory: _Directory) -> int:
    return sum(
        _bytes_below(below) if isinstance(below, _Directory) else len(below.data)
        for below in directory.entries.values()
    )


def _fail(code: int, path: str) -> NoReturn:
    raise OSError(code, os.strerror(code), path)
