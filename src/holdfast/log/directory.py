"""One of the log directories, as its replicas see it: descriptors, jobs, and going offline.

Owns what must happen once when its disk fails. Knows of replicas only their offsets, which its
checkpoints hold.

Rules: compaction.md#the-cleaner-checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any, Final, Protocol, TypeAlias

from holdfast.log.checkpoints import (
    CLEANED,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    Offsets,
    encode_offsets,
    write_clean_shutdown,
)
from holdfast.log.errors import CorruptFileError, StorageError
from holdfast.log.files import FileCache
from holdfast.log.offline import FULL, what_helps, why_offline
from holdfast.log.start_keeper import StartKeeper
from holdfast.runtime.ports import DirectoryLock, Runtime, T, WorkerFullError
from holdfast.runtime.timed_turns import TimedTurns
from holdfast.wire.uuids import NULL_UUID

DELETED_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
_NAME_MAX: Final = 255
_NEXT_SUFFIX: Final = ".next"
_SYNCED_EACH_MAX: Final = 200  # replicas whose files are synced one by one at the end
_ROOM_BYTES: Final = 16 * 1024 * 1024  # with less a disk is as good as full
_FLUSHES_BEGUN: Final = 20  # in one turn of the loop
_OUTDATED_MAX: Final = 1000  # replicas that are gone and may stand in checkpoints

logger = logging.getLogger(__name__)


class Replica(Protocol):
    """What the checkpoints need to know of a log."""

    topic: str
    partition: int
    high_watermark: int
    cleaned_to: int | None

    @property
    def start(self) -> int: ...

    @property
    def first_segment(self) -> int: ...

    @property
    def recovery_point(self) -> int: ...

    def flush_in_background(self) -> None: ...


# What each checkpoint says of a replica; None: nothing.
_TOLD: Final[Mapping[str, Callable[[Replica], int | None]]] = {
    RECOVERY_POINT: attrgetter("recovery_point"),
    # Only where it is not that of the first segment, as Kafka does.
    LOG_START: lambda replica: replica.start if replica.start > replica.first_segment else None,
    HIGH_WATERMARK: attrgetter("high_watermark"),
    # Below it no key has an older record left. One that is too low costs a round; one that is too
    # high keeps an old record beside a later one, and brings it back once that is deleted.
    CLEANED: attrgetter("cleaned_to"),
}

# Replicas, and what a checkpoint says of each.
_Captured: TypeAlias = tuple[list[tuple[str, int]], list[int | None]]


def _flush(replica: Replica) -> None:
    replica.flush_in_background()


def _encode(captured: _Captured) -> bytes:
    return encode_offsets(
        (topic, partition, offset)
        for (topic, partition), offset in zip(*captured, strict=True)
        if offset is not None
    )


class LogDirectory:
    """One directory of `log.dirs`."""

    def __init__(self, runtime: Runtime, path: str, *, file_limit: int) -> None:
        self.runtime = runtime
        self.path = path
        self.directory_id = NULL_UUID  # from meta.properties; NULL_UUID if it can't be read
        self.online = True
        self.is_loaded = False  # all that lies there was found and opened
        self.failure = ""  # why it went offline; "" while online
        self._is_full = False  # that is why
        self.files = FileCache(runtime.disk, file_limit)
        self.replicas: dict[tuple[str, int], Replica] = {}
        self.lock: DirectoryLock | None = None
        self.on_offline: Callable[[LogDirectory], None] | None = None
        # Called with a replica of which something has changed that matters to compaction.
        self.log_changed: Callable[[Any], None] = lambda _log: None
        # Replicas of which there is so much, or so old, that is not durable.
        self.due_flushes: Final = TimedTurns(_flush, in_a_turn=_FLUSHES_BEGUN)
        self._removals: set[asyncio.TimerHandle] = set()
        self._written: dict[str, _Captured] = {}  # what checkpoints say, to leave out repetitions
        # Checkpoints that a job is writing, each with the generation in which it began.
        self._under_way: dict[str, int] = {}
        self._generation = 0  # of the checkpoints; see `supersede`
        # Replicas that were taken out, and of which checkpoints may still speak.
        self._outdated: set[tuple[str, int]] = set()
        # True at the end: jobs write without a sync, and one sync of everything follows them.
        self.synced_at_end = False
        self.starts: Final = StartKeeper(self)
        self._starts_written: Callable[[bool], None] | None = None  # see `write_starts`
        self.names = 0  # replicas made so far
        self.names_durable = 0  # so many of them survive a power cut

    def check(self) -> None:
        """Raise StorageError if the directory is offline."""
        if not self.online:
            raise StorageError(self.path, self.failure)

    def fail(self, error: OSError) -> StorageError:
        """Take the directory offline because of `error`; return what to raise.

        The log says so once, here: who is told of it afterwards need not.
        """
        if self.online:
            self.online = False
            self.failure = why_offline(self.runtime.disk, self.path, error)
            logger.error(
                "log directory %s goes offline: %s. What lies there answers KAFKA_STORAGE_ERROR "
                "until %s.",
                self.path,
                self.failure,
                what_helps(error),
            )
            self.due_flushes.clear()
            self._is_full = error.errno in FULL
            if not self._is_full:  # a removal needs no room, and makes some for the next start
                self._cancel_removals()
            if self.on_offline is not None:
                asyncio.get_running_loop().call_soon(self.on_offline, self)
            with suppress(OSError):  # it is offline already
                self.files.close()
        return StorageError(self.path, self.failure)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Touch the disk in here. StorageError: the directory is offline, or goes offline by it.

        Where a file does not hold what it should, it stays online: that says nothing of the disk.
        """
        self.check()
        try:
            yield
        except OSError as error:
            raise self.fail(error) from error
        except CorruptFileError as error:
            raise StorageError(self.path, str(error), is_offline=False) from error

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run a job in this directory's lane."""
        return self.runtime.worker.submit(job, lane=self.path)

    # --- checkpoints ---

    def contents(self) -> dict[str, bytes]:
        """Return what each checkpoint has to say of all replicas now, by its name."""
        captured = {name: self._capture(name) for name in _TOLD}
        return {
            name: _encode(told)
            for name, told in captured.items()
            if not self._is_needless(name, told)
        }

    def _capture(self, name: str) -> _Captured:
        """Take down what a checkpoint would say: its text, ten times as slow, is a job's work."""
        return list(self.replicas), list(map(_TOLD[name], self.replicas.values()))

    def checkpoint(self, name: str) -> None:
        """Write a checkpoint in the background, if it changed.

        The job writes a file beside it, which the loop puts in its place unless `write_now` was
        faster: what is trusted after a crash must never be older than a truncation.
        """
        if not self.online or self._under_way.get(name) == self._generation:
            return
        done = self._take_starts_written() if name == LOG_START else None
        if done is None and self.runtime.provoke("checkpoint.left-out"):
            return  # what is there is older and still true
        captured, generation = self._capture(name), self._generation
        if self._written.get(name) == captured:
            if done is not None:  # what is there, but its name may not be durable yet
                self._sync_checkpoint(generation, done)
            return
        disk, path = self.runtime.disk, f"{self.path}/{name}"
        self._under_way[name] = generation

        def written(future: asyncio.Future[None]) -> None:
            if self._under_way.get(name) == generation:
                del self._under_way[name]
            is_done = self.settle(future) and self.online and generation == self._generation
            if is_done:
                try:
                    disk.rename(path + _NEXT_SUFFIX, path)
                except OSError as error:
                    self.fail(error)
                    is_done = False
            if not is_done:
                for asked in (done, self._take_starts_written() if name == LOG_START else None):
                    if asked is not None:
                        asked(False)
                return
            self._written[name] = captured
            self._sync_checkpoint(generation, done)
            if name == LOG_START and (self._starts_written or self._capture(name) != captured):
                self.checkpoint(name)  # records were deleted meanwhile, and that is told as done

        self.submit(
            lambda: disk.write_atomic(path + _NEXT_SUFFIX, _encode(captured))
        ).add_done_callback(written)

    def write_starts(self, done: Callable[[bool], None]) -> None:
        """Write log starts as they are now, or as they are a little later, in the background.

        `done(True)`: they survive a power cut. `done(False)`: that is not known, for the disk fails
        or a log was cut meanwhile. One at a time.
        """
        assert self._starts_written is None, "asked twice"
        self._starts_written = done
        self.checkpoint(LOG_START)

    def _take_starts_written(self) -> Callable[[bool], None] | None:
        done, self._starts_written = self._starts_written, None
        return done

    def _sync_checkpoint(self, generation: int, done: Callable[[bool], None] | None) -> None:
        job = self.sync_path()
        if done is not None:
            job.add_done_callback(
                lambda job: done(
                    not job.cancelled()
                    and job.exception() is None
                    and generation == self._generation
                )
            )

    def write_now(self) -> None:
        """Write all checkpoints durably before this returns: a log was cut below one (rare).

        Otherwise what is written from now on below the old offset would count, after a crash, as
        synced, as deleted, or as committed.
        """
        self._write_now([*_TOLD])
        self._outdated.clear()

    def write_first(self) -> None:
        """Write all checkpoints durably, as `write_now`, while loading. OSError: the disk fails."""
        self._write([*_TOLD])

    def write_starts_now(self) -> None:
        """Write log starts durably before this returns, and what is known to be synced."""
        self._write_now((RECOVERY_POINT, LOG_START))

    def _write_now(self, names: Sequence[str]) -> None:
        self.check()
        self.supersede()
        with self.guarded():
            self._write(names)

    def _write(self, names: Sequence[str]) -> None:
        for name in names:
            captured = self._capture(name)
            if self._written.get(name) != captured and not self._is_needless(name, captured):
                self.runtime.disk.write_atomic(f"{self.path}/{name}", _encode(captured))
                self._written[name] = captured

    def _is_needless(self, name: str, captured: _Captured) -> bool:
        """Whether a checkpoint says nothing and is not there: where nothing is ever compacted."""
        return (
            name == CLEANED
            and name not in self._written
            and all(offset is None for offset in captured[1])
            and not self.runtime.disk.exists(f"{self.path}/{name}")
        )

    def contradicts(
        self, recovery_points: Offsets, starts: Offsets, watermarks: Offsets, cleaned: Offsets
    ) -> bool:
        """Whether these checkpoints say more than is true of the replicas that are there."""
        replicas = self.replicas

        def past(offsets: Offsets, offset_of: Callable[[Replica], int]) -> bool:
            return any(
                key not in replicas or told > offset_of(replicas[key])
                for key, told in offsets.items()
            )

        return (
            past(recovery_points, lambda replica: replica.recovery_point)
            or past(starts, lambda replica: replica.start)
            or past(watermarks, lambda replica: replica.high_watermark)
            or past(cleaned, _cleaned_to)
        )

    def take_out(self, key: tuple[str, int]) -> None:
        """Let go of a replica. StorageError: the disk failed, and it is gone all the same."""
        del self.replicas[key]
        self._outdated.add(key)
        if len(self._outdated) >= _OUTDATED_MAX and self.online:
            self.write_now()

    def forget(self, key: tuple[str, int]) -> None:
        """Nothing of an earlier replica of this name is found again once this returns.

        What checkpoints say of it would be taken as said of the new one, and cost it what it has;
        and after a power cut it could stand there with its old name once more.
        """
        if key in self._outdated:
            self.write_now()
            self.sync_names()

    def sync_names(self) -> None:
        """Make names in the directory durable before this returns."""
        with self.guarded():
            self.runtime.disk.sync_directory(self.path)

    def supersede(self) -> None:
        """Checkpoints under way are out of date."""
        self._generation += 1

    # --- the end ---

    def begin_end(self) -> None:
        """What is flushed from here on is durable only after `sync_at_end`, if that is quicker.

        Each replica has a file, a name and a directory to be synced: thousands of them take a
        minute, and one sync of all takes a second.
        """
        self.synced_at_end = (
            self.lock is not None
            and self.lock.syncs_everything
            and (len(self.replicas) > _SYNCED_EACH_MAX or self.runtime.provoke("close.at-once"))
        )

    def sync_at_end(self) -> None:
        """In the worker, behind every flush. OSError: not all of it is durable."""
        if self.synced_at_end:
            assert self.lock is not None
            self.lock.sync_everything()

    # --- deletion ---

    def set_aside(self, path: str, topic: str, partition: int) -> str:
        """Rename a replica's directory to -stray, durably; return the new path.

        StorageError: the disk failed.
        """
        target = self.rename_away(path, topic, partition, STRAY_DIRECTORY_SUFFIX)
        # At once: a new replica may get the old name next, and must not replace this one.
        self.sync_names()
        return target

    def rename_away(self, path: str, topic: str, partition: int, ending: str) -> str:
        """Give a replica's directory a name that is nobody's, as Kafka does.

        StorageError: the disk failed.
        """
        suffix = f"-{partition}.{self.runtime.random.uuid().hex()}{ending}"
        target = f"{self.path}/{topic[: _NAME_MAX - len(suffix)]}{suffix}"
        with self.guarded():
            self.runtime.disk.rename(path, target)
        return target

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files or directories after a while; that they are gone already is no error.

        Also where the disk is full by then and the directory offline. What is left when the process
        ends is removed when the directory is loaded.
        """

        def start() -> None:
            self._removals.discard(handle)
            if self.online or self._is_full:
                self.submit(lambda: remove_all(self.runtime, paths)).add_done_callback(self.settle)

        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, start)
        self._removals.add(handle)

    def remove_deleted(self) -> bool:
        """Remove replicas that were deleted before the last end; return whether there are any.

        In the background, for they may be large. But where there is hardly room for what a start
        writes, at once: the directory would go offline by it.
        """
        gone = self._deleted()
        if gone and self.runtime.disk.space(self.path).free_bytes < _ROOM_BYTES:
            self._make_room(gone)
        elif gone:
            self.remove_later(gone, 0)
        return bool(gone)

    def with_room(self, step: Callable[[bool], T]) -> T:
        """Do a step of loading. If there is no room for it, remove what was deleted and do it anew.

        Free bytes don't tell that beforehand: file systems run out of files, too, and users of
        their quota. `step` is told whether it was tried before. OSError: the disk fails, or is
        full all the same.
        """
        try:
            return step(False)
        except OSError as error:
            gone = self._deleted()
            if error.errno not in FULL or not gone:
                raise
            self._make_room(gone)
        return step(True)

    def _deleted(self) -> list[str]:
        path = self.path
        names = self.runtime.disk.list(path)
        return [f"{path}/{name}" for name in names if name.endswith(DELETED_DIRECTORY_SUFFIX)]

    def _make_room(self, gone: Sequence[str]) -> None:
        logger.warning("%s is full, or nearly: what was deleted is removed first", self.path)
        remove_all(self.runtime, gone)

    def add_name(self) -> int:
        """Count a new replica's name. It is durable once `names_durable` has reached its number."""
        self.names += 1
        return self.names

    def sync_path(self) -> asyncio.Future[None]:
        """Make names in the directory durable, in the background."""
        disk, path, names = self.runtime.disk, self.path, self.names

        def synced(future: asyncio.Future[None]) -> None:
            if self.settle(future):
                self.names_durable = max(self.names_durable, names)

        job = self.submit(lambda: disk.sync_directory(path))
        job.add_done_callback(synced)
        return job

    async def mark_clean(self, broker_epoch: int) -> None:
        """Write the checkpoints and the mark of a clean end, or go offline for what fails."""
        disk, path = self.runtime.disk, self.path
        self.supersede()
        try:
            self.files.close()  # an error of close(2) is one of what was written
            contents = self.contents()

            def write() -> None:
                self.sync_at_end()  # before anything says how far it is durable
                for name, data in contents.items():
                    disk.write_atomic(f"{path}/{name}", data)
                write_clean_shutdown(disk, path, broker_epoch)

            await self.submit(write)
        except OSError as error:
            self.fail(error)
        except WorkerFullError as error:
            logger.warning("%s is not marked as closed properly: %s", path, error)

    def close(self) -> None:
        """Let go of everything. The lock goes last."""
        self._cancel_removals()
        self.due_flushes.clear()
        with suppress(OSError):  # without a mark of a clean end the next start looks at all of it
            self.files.close()
        lock, self.lock = self.lock, None
        if lock is not None:
            with suppress(OSError):  # close(2) lets go of it even then
                lock.release()

    def _cancel_removals(self) -> None:
        for handle in self._removals:
            handle.cancel()
        self._removals.clear()

    def settle(self, future: asyncio.Future[None]) -> bool:
        """Look at the outcome of a background job. True: it was done."""
        if future.cancelled():
            return False
        error = future.exception()
        if error is None:
            return True
        if isinstance(error, WorkerFullError):
            logger.warning("%s: %s", self.path, error)  # it is tried again with the next one
        elif isinstance(error, OSError):
            self.fail(error)
        else:
            raise error
        return False


def _cleaned_to(replica: Replica) -> int:
    return -1 if replica.cleaned_to is None else replica.cleaned_to


def remove_all(runtime: Runtime, paths: Iterable[str]) -> None:
    """Remove files and directories that may be there."""
    disk = runtime.disk
    for path in paths:
        if path.endswith(DELETED_DIRECTORY_SUFFIX):
            if disk.exists(path):
                # Else it may be back after a power cut, with its old name and half of its files.
                disk.sync_directory(path.rpartition("/")[0] or "/")
                disk.remove_tree(path)
        elif disk.exists(path):
            disk.remove(path)


def partition_of(name: str) -> tuple[str, int] | None:
    """Return topic and partition of a replica's directory, None if the name is not of one."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return topic, int(partition)
