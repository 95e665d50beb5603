"""Many replicas in one directory: what is done once for all of them, and is as safe.

Goal: a clean end of a directory with hundreds of replicas is one sync, not one for each of them;
what it says is durable is; and where one sync of all can't be had, each is synced.
Method: the memory disk, which keeps what was synced and no more, and counts who asked for it.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.log.log_kit import (
    LOGS,
    TOPIC_ID,
    after_crash,
    append,
    everything,
    memory_disk,
    open_directories,
    small_settings,
    virtual,
)

from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.runtime.real import RealDisk, real_runtime
from holdfast.testing.ground.disk import DiskFault

MANY = 300


def with_many(runtime: Runtime) -> tuple[LogDirectories, list[Log]]:
    directories = open_directories(runtime, file_limit=64)
    logs = [directories.create("t", index, TOPIC_ID, small_settings()) for index in range(MANY)]
    for log in logs:
        append(log, 3)
    return directories, logs


def test_a_clean_end_of_many_replicas_is_one_sync_and_survives_a_power_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(runtime: Runtime) -> tuple[int, int]:
        directories, logs = with_many(runtime)
        before = [everything(log) for log in logs]
        synced: list[str] = []
        files = memory_disk(runtime)
        sync = files.sync_directory

        def counted(path: str) -> None:
            synced.append(path)
            sync(path)

        monkeypatch.setattr(files, "sync_directory", counted)
        await directories.close(broker_epoch=7)
        found = open_directories(after_crash(runtime, power=True), file_limit=64)
        assert found.previous_broker_epoch == 7
        assert [everything(log) for log in found.logs] == before
        assert all(log.topic_id == TOPIC_ID for log in found.logs)
        return len(synced), len(found.logs)

    syncs, replicas = virtual(body)
    assert replicas == MANY
    assert syncs < 10, "each replica's directory was synced for itself"


def test_where_all_can_not_be_synced_at_once_each_replica_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(runtime: Runtime) -> None:
        directories, logs = with_many(runtime)
        before = [everything(log) for log in logs]
        (directory,) = directories.directories
        assert directory.lock is not None
        monkeypatch.setattr(type(directory.lock), "syncs_everything", False)
        await directories.close(broker_epoch=7)
        found = open_directories(after_crash(runtime, power=True), file_limit=64)
        assert found.previous_broker_epoch == 7
        assert [everything(log) for log in found.logs] == before

    virtual(body)


def test_no_clean_end_is_claimed_when_the_one_sync_fails() -> None:
    async def body(runtime: Runtime) -> None:
        directories, _ = with_many(runtime)
        fault = DiskFault(operations={"sync"}, prefix=f"{LOGS}/t-1", code=errno.EIO)
        memory_disk(runtime).inject(fault)
        await directories.close(broker_epoch=7)
        assert fault.struck
        memory_disk(runtime).heal()
        found = open_directories(after_crash(runtime, power=True), file_limit=64)
        assert found.previous_broker_epoch == -1
        assert all(log.recovery_point == 0 for log in found.logs)

    virtual(body)


@pytest.mark.parametrize("release", ["5.7.19", "4.4.0", "next"])
def test_a_kernel_that_does_not_tell_is_not_believed(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.8 syncfs says nothing of files that could not be written."""
    lock = RealDisk().lock(f"{tmp_path}/.lock")
    if lock.syncs_everything:
        lock.sync_everything()
    monkeypatch.setattr("os.uname", type("Name", (), {"release": release}))
    assert not lock.syncs_everything
    lock.release()
    with pytest.raises(OSError, match="descriptor"):
        lock.sync_everything()
    assert real_runtime().provoke("close.at-once") is False


def test_a_replica_goes_on_with_what_lies_in_its_directory_already() -> None:
    """Only a directory that was made just now is taken for empty without a look."""

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        log = directories.create("t", 0, TOPIC_ID, small_settings())
        append(log, 3)
        await log.flush()
        crash = after_crash(runtime)
        crash.disk.make_directories(f"{LOGS}/u-0")
        for name in crash.disk.list(log.directory):
            crash.disk.rename(f"{log.directory}/{name}", f"{LOGS}/u-0/{name}")
        crash.disk.remove_tree(log.directory)
        crash.disk.rename(f"{LOGS}/u-0", f"{LOGS}/hidden")
        directories = open_directories(crash)
        crash.disk.rename(f"{LOGS}/hidden", f"{LOGS}/u-0")
        assert directories.create("u", 0, TOPIC_ID, small_settings()).end == 3

    virtual(body)


def test_a_directory_says_whether_it_was_there(tmp_path: Path) -> None:
    disk = RealDisk()
    assert disk.make_directories(f"{tmp_path}/a/b")
    assert disk.make_directories(f"{tmp_path}/a/c")
    assert not disk.make_directories(f"{tmp_path}/a/b")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        disk.make_directories(f"{tmp_path}/file")
