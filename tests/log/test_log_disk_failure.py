"""A full or failing disk: the directory goes offline, the log is not damaged, others serve on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
from tests.log.log_kit import (
    after_crash,
    append,
    crash,
    everything,
    fail_to_close,
    found_at,
    make_batch,
    memory_disk,
    new_log,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.log.directories import LogDirectory
from holdfast.log.errors import DirectoryError, StorageError
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime, Space
from holdfast.testing.ground.disk import DiskFault, Operation

PATHS = ("/one", "/two")


def use_everything(log: Log) -> Iterator[Callable[[], object]]:
    yield lambda: append(log)
    yield lambda: log.read(0, 100, 1)
    yield lambda: log.truncate_to(0)
    yield lambda: log.start_epoch(9)
    yield lambda: found_at(log, 0)
    yield log.flush


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_append_leaves_the_log_as_it_was(code: int) -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS)
        seen: list[LogDirectory] = []
        directories.watch_offline(seen.append)
        log = directories.create("t", 0, bytes(16), small_settings())
        other = directories.create("t", 1, bytes(16), small_settings())
        assert log.home is not other.home
        append(log, 2)
        whole = everything(log)
        disk = memory_disk(runtime)
        disk.inject(DiskFault(operations={"append"}, prefix=log.directory, code=code))
        with pytest.raises(StorageError, match="is offline") as raised:
            append(log)
        assert raised.value.directory == log.home.path
        for use in use_everything(log):
            with pytest.raises(StorageError):
                use()
        await asyncio.sleep(0)
        assert [directory.path for directory in seen] == [log.home.path]
        assert [each.partition for each in directories.logs] == [other.partition]
        append(other)
        await other.flush()
        await directories.close()
        disk.heal()
        directories = open_directories(after_crash(runtime), PATHS)
        found = directories.get("t", 0)
        assert found is not None
        assert everything(found) == whole

    virtual(body)


@pytest.mark.parametrize("operation", ["sync", "open", "append", "rename"])
def test_a_failed_flush_takes_the_directory_offline(operation: Operation) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(30):
            append(log)
        if operation == "append":
            log.flush_sealed()  # the first job's writes are indexes, snapshots and epochs
        memory_disk(runtime).inject(DiskFault(operations={operation}, prefix=log.directory))
        with pytest.raises(StorageError):
            await log.flush()
        assert not directories.logs
        with pytest.raises(StorageError):
            append(log)
        await directories.close(broker_epoch=5)
        memory_disk(runtime).heal()
        _, log = reopened(after_crash(runtime))
        assert log.end == 30, "it was not closed properly, so it was read again"

    virtual(body)


def test_a_failing_read_takes_the_directory_offline() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log)
        memory_disk(runtime).inject(DiskFault(operations={"read"}, prefix=log.directory))
        with pytest.raises(StorageError):
            log.read(0, 100, 1)
        assert not directories.logs

    virtual(body)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full: No space left on device, 10 of 5,000 bytes are free"),
        (errno.EDQUOT, "the disk is full: Disk quota exceeded, 10 of 5,000 bytes are free"),
        (errno.EIO, "the disk fails: [Errno 5] Input/output error"),
        (errno.EROFS, "the disk fails: [Errno 30] Read-only file system"),
    ],
)
def test_a_full_disk_is_told_from_a_failing_one_and_once(
    code: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        disk = memory_disk(runtime)
        disk.capacity_bytes = 5000
        with closing(disk.open("/filler", create=True)) as filler:
            filler.append(bytes(disk.space("/").free_bytes - 10))
        assert disk.space("/") == Space(5000, 10)
        disk.inject(DiskFault(operations={"append"}, code=code))
        for _ in range(3):
            with pytest.raises(StorageError, match="is offline: the disk "):
                append(log)
        with pytest.raises(StorageError):
            directories.create("t", 1, bytes(16), small_settings())
        assert log.home.failure.startswith(words)
        told = [each.getMessage() for each in caplog.records if "offline" in each.getMessage()]
        assert len(told) == 1, "its replicas need not say it again"
        assert words in told[0]
        assert ("until there is room" in told[0]) is ("is full" in words)

    virtual(body)


@pytest.mark.parametrize("operation", ["make", "open", "append"])
def test_a_new_replica_goes_where_there_is_room(operation: Operation) -> None:
    """A full directory may well be the one with the fewest replicas.

    Afterwards its disk has room again, and what was begun there is not taken for the replica.
    """

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS)
        full = DiskFault(operations={operation}, prefix="/one/t-0", code=errno.ENOSPC)
        memory_disk(runtime).inject(full)
        log = directories.create("t", 0, bytes(15) + b"7", small_settings())
        assert log.home.path == "/two"
        assert [each.online for each in directories.directories] == [False, True]
        append(log, 2)
        await log.flush()
        crash(directories)
        memory_disk(runtime).heal()
        directories = open_directories(after_crash(runtime), PATHS)
        found = directories.get("t", 0)
        assert found is not None
        assert (found.home.path, found.end) == ("/two", 2)

    virtual(body)


def append_many(log: Log) -> None:
    for _ in range(60):
        append(log)


def test_a_full_disk_in_the_middle_of_rolling() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log)
        memory_disk(runtime).inject(DiskFault(operations={"open"}, code=errno.ENOSPC))
        with pytest.raises(StorageError):
            append_many(log)
        end = log.end
        memory_disk(runtime).heal()
        crash(directories)
        _, log = reopened(after_crash(runtime))
        assert log.end == end

    virtual(body)


@pytest.mark.parametrize("is_full", [True, False])
def test_what_was_deleted_makes_room_for_a_start(is_full: bool) -> None:
    """Seen to fail: on a full disk a start wrote first, and none ever removed what was gone."""

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS)
        directories.start()
        log = directories.create("big", 0, b"1" * 16, small_settings(segment_bytes=1 << 20))
        append_many(log)
        home = log.home.path
        directories.delete("big", 0)
        crash(directories)
        again = after_crash(runtime)
        disk = memory_disk(again)
        if is_full:
            disk.capacity_bytes = disk._platter.used
        found = open_directories(again, PATHS)
        left = [name for name in disk.list(home) if name.endswith("-delete")]
        assert len(left) == (not is_full), "in the background, unless there is no room"
        assert all(each.online for each in found.directories)
        await asyncio.sleep(1)
        assert not [name for name in disk.list(home) if name.endswith("-delete")]

    virtual(body)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("write", ["of checkpoints", "of a segment"])
def test_a_start_makes_room_where_bytes_are_free(code: int, write: str) -> None:
    """Seen to fail: a file system had run out of files, and no start ever removed any."""

    async def body(runtime: Runtime) -> None:
        directories, kept = new_log(runtime)
        directories.start()
        gone = directories.create("gone", 0, b"1" * 16, small_settings())
        append_many(kept)
        append_many(gone)
        await kept.flush()
        end, home = kept.end, kept.home
        if write == "of checkpoints":
            home.write_now()  # and what they say of who is gone is to be written anew
        else:
            new = directories.create("new", 0, b"2" * 16, small_settings())
            memory_disk(runtime).remove(f"{new.directory}/{0:020}.log")  # a crash came before it
        directories.delete("gone", 0)
        crash(directories)
        again = after_crash(runtime)
        disk = memory_disk(again)
        quota = disk.limit(home.path, -1000, code)  # a snapshot that goes makes too little
        found, log = reopened(again)
        assert quota.struck, "there was no room at first"
        assert all(each.online for each in found.directories)
        assert log.end == end
        assert not [name for name in disk.list(home.path) if name.endswith("-delete")]

    virtual(body)


@pytest.mark.parametrize(
    ("code", "is_removed"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_a_full_disk_does_not_keep_what_was_deleted(code: int, is_removed: bool) -> None:
    """Also where its directory is offline already; a failing one is left alone."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        directories.create("gone", 0, b"1" * 16, small_settings())
        directories.delete("gone", 0)
        disk, home = memory_disk(runtime), log.home
        disk.inject(DiskFault(operations={"append"}, code=code))
        with pytest.raises(StorageError):
            append(log)
        assert not home.online
        await asyncio.sleep(120)  # file.delete.delay.ms is over
        left = [name for name in disk.list(home.path) if name.endswith("-delete")]
        assert len(left) == (not is_removed)

    virtual(body)


def test_start_goes_on_without_a_directory_that_fails() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS)
        for partition in range(4):
            append(directories.create("t", partition, bytes(16), small_settings()))
        await directories.close()
        disk = memory_disk(runtime)
        disk.inject(DiskFault(operations={"list"}, prefix="/two"))
        directories = open_directories(runtime, PATHS)
        assert [each.online for each in directories.directories] == [True, False]
        assert len(directories.logs) == 2
        assert directories.previous_broker_epoch == -1
        crash(directories)
        with pytest.raises(DirectoryError, match=r"metadata\.log\.dir must work"):
            open_directories(
                runtime, PATHS, metadata_log_dir="/two", process_roles=("broker", "controller")
            )
        directories = open_directories(after_crash(runtime), PATHS, metadata_log_dir="/two")
        assert len(directories.logs) == 2, "no broker has its metadata log there"
        crash(directories)
        disk.inject(DiskFault(operations={"list"}, prefix="/one"))
        with pytest.raises(DirectoryError, match="no log directory works"):
            open_directories(after_crash(runtime), PATHS)

    virtual(body)


@pytest.mark.parametrize("unreadable", [True, False])
def test_an_active_segment_that_cannot_say_its_age_refuses_appends(unreadable: bool) -> None:
    """After a clean stop its first batch is read for that; what is wrong there is a refusal."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log, 2)
        append(log)
        await directories.close()
        directories, log = reopened(runtime)
        disk, path = memory_disk(runtime), f"{log.directory}/{0:020}.log"
        if unreadable:
            disk.inject(DiskFault(operations={"read"}, prefix=path))
        else:
            disk.corrupt(path, 16, b"\xff")
        with pytest.raises(StorageError):
            append(log)
        assert log.end == 3
        assert log.offline is unreadable

    virtual(body)


@pytest.mark.parametrize("as_follower", [False, True])
@pytest.mark.parametrize("unreadable", [True, False])
def test_an_active_segment_that_cannot_say_its_newest_timestamp_refuses_appends(
    unreadable: bool, as_follower: bool
) -> None:
    """After a clean stop its batches are read for that, if none has a timestamp.

    Seen to fail: with that read behind the write. The batch was in the file and not in the log, and
    the error was none of those that take a directory offline.
    """

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(3):
            append(log, timestamp=-1)
        await directories.close()
        directories, log = reopened(runtime)
        disk, path = memory_disk(runtime), f"{log.directory}/{0:020}.log"
        size = disk.size(path)
        if unreadable:
            disk.inject(DiskFault(operations={"read"}, prefix=path, after=1))
        else:
            disk.corrupt(path, log.size - 1 - len(make_batch()) + 17, b"\xff")  # its magic
        batch = memoryview(bytearray(make_batch(timestamp=-1, base_offset=3, leader_epoch=0)))
        write = log.append_as_follower if as_follower else partial(log.append_as_leader, epoch=0)
        with pytest.raises(StorageError):
            write(batch)
        disk.heal()
        assert disk.size(path) == size
        assert log.offline is unreadable

    virtual(body)


@pytest.mark.parametrize("struck", ["an append", "a flush", "a deletion"])
def test_files_that_do_not_close_keep_nobody_from_going_offline(
    struck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: with the first of them ending it.

    Who watches was not told, who waited for a flush waited for ever, and the error was raised to
    who appended, or deleted a replica.
    """

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS[:1])
        told: list[LogDirectory] = []
        directories.watch_offline(told.append)
        logs = [directories.create("t", each, bytes(16), small_settings()) for each in range(2)]
        for log in logs:
            append(log)
        fail_to_close(monkeypatch, logs[0].directory)
        disk = memory_disk(runtime)
        if struck == "a deletion":
            directories.delete("t", 0)
        else:
            operation: Operation = "append" if struck == "an append" else "sync"
            disk.inject(DiskFault(operations={operation}, prefix=logs[0].directory))
            with pytest.raises(StorageError):
                append(logs[0]) if operation == "append" else await logs[0].flush()
        await asyncio.sleep(0)
        assert told == [logs[0].home]
        assert not logs[0].home.files, "the others are closed all the same"
        await directories.close()

    virtual(body)
