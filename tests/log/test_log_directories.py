"""Several log directories: whose they are, where replicas go, what a start finds."""

from __future__ import annotations

import asyncio
import errno
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.log.log_kit import (
    CLUSTER_ID,
    LOGS,
    TOPIC_ID,
    after_crash,
    append,
    crash,
    everything,
    fail_to_close,
    format_directory,
    memory_disk,
    new_log,
    open_directories,
    reopened,
    small_settings,
    virtual,
)

from holdfast.config.node import NodeSettings
from holdfast.log.checkpoints import (
    PARTITION_METADATA,
    MetaProperties,
    decode_offsets,
    encode_offsets,
    encode_partition_metadata,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    write_meta_properties,
)
from holdfast.log.directories import LogDirectories, LogDirectory
from holdfast.log.errors import CorruptFileError, DirectoryError, StorageError
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime, WorkerFullError
from holdfast.runtime.real import RealDisk, real_runtime
from holdfast.testing.ground.disk import DiskFault, MemoryDisk, Operation, _MemoryLock
from holdfast.testing.ground.worker import MemoryWorker
from holdfast.wire.uuids import NULL_UUID

PATHS = ("/one", "/two", "/three")
OTHER_ID = bytes(15) + b"o"
EVERY: tuple[Operation, ...] = get_args(Operation)


def whose(runtime: Runtime, log: Log) -> bytes:
    """Return the topic's id that is written down for a replica."""
    return read_partition_metadata(runtime.disk, log.directory)


def test_replicas_go_where_the_fewest_are_and_are_found_again() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS)
        for partition in range(7):
            log = directories.create("my-topic-1", partition, TOPIC_ID, small_settings())
            append(log, partition + 1)
        counts = [len(directory.replicas) for directory in directories.directories]
        assert counts == [3, 2, 2]
        await directories.close(broker_epoch=3)
        directories = open_directories(runtime, PATHS)
        assert directories.cluster_id == CLUSTER_ID
        assert directories.previous_broker_epoch == 3
        assert [each.directory_id[-1] for each in directories.directories] == [1, 2, 3]
        for partition in range(7):
            found = directories.get("my-topic-1", partition)
            assert found is not None
            assert (found.end, found.topic_id) == (partition + 1, TOPIC_ID)

    virtual(body)


def test_the_metadata_log_lies_in_its_own_directory() -> None:
    async def body(runtime: Runtime) -> None:
        format_directory(runtime.disk, "/metadata", number=9)
        directories = open_directories(runtime, PATHS, metadata_log_dir="/metadata")
        log = directories.create("__cluster_metadata", 0, TOPIC_ID, small_settings())
        assert log.home.path == "/metadata"
        for partition in range(9):
            assert (
                directories.create("t", partition, TOPIC_ID, small_settings()).home is not log.home
            )
        only = open_directories(after_crash(runtime), ("/metadata",))
        assert only.get("__cluster_metadata", 0) is not None

    virtual(body)


def test_a_directory_of_another_node_is_refused() -> None:
    async def body(runtime: Runtime) -> None:
        message = r"/one belongs to node 1, this is node 2: correct node\.id"
        with pytest.raises(DirectoryError, match=message):
            open_directories(runtime, PATHS, node_id=2)

    virtual(body)


def test_a_directory_of_another_cluster_is_refused() -> None:
    async def body(runtime: Runtime) -> None:
        format_directory(runtime.disk, "/one")
        format_directory(runtime.disk, "/two", cluster_id="another", number=2)
        with pytest.raises(DirectoryError, match="/two belongs to cluster another, not to abc"):
            open_directories(runtime, PATHS)

    virtual(body)


def test_an_unformatted_or_copied_directory_is_refused() -> None:
    async def body(runtime: Runtime) -> None:
        format_directory(runtime.disk, "/one")
        runtime.disk.make_directories("/copy")
        runtime.disk.write_atomic(
            "/copy/meta.properties", runtime.disk.read("/one/meta.properties")
        )
        with pytest.raises(DirectoryError, match=r"have one directory\.id"):
            open_directories(runtime, ("/one", "/copy"))
        runtime.disk.remove("/copy/meta.properties")
        runtime.disk.write_atomic("/copy/meta.properties", b"version=1\ncluster.id=x\n")
        with pytest.raises(DirectoryError, match=r"lacks node\.id"):
            open_directories(after_crash(runtime), ("/copy",))

    virtual(body)


def test_meta_properties_are_kafkas(tmp_path: Path) -> None:
    disk = RealDisk()
    assert read_meta_properties(disk, str(tmp_path)) is None
    properties = MetaProperties(cluster_id="c", node_id=7, directory_id=TOPIC_ID)
    write_meta_properties(disk, str(tmp_path), properties)
    assert read_meta_properties(disk, str(tmp_path)) == properties
    (tmp_path / "meta.properties").write_text("#\n#Mon\nversion=0\nbroker.id=1\n")
    with pytest.raises(DirectoryError, match="version 0"):
        read_meta_properties(disk, str(tmp_path))


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """On the real disk: the lock is the kernel's, and goes with the process that held it."""

    async def body() -> None:
        runtime = real_runtime()
        path = str(tmp_path / "logs")
        directories = open_directories(runtime, (path,))
        with pytest.raises(DirectoryError, match="in use by another process: stop it"):
            open_directories(runtime, (path,))
        crash(directories)
        again = open_directories(runtime, (path,))
        await again.close()

    asyncio.run(body())


def test_a_deleted_replica_is_gone_at_once_and_its_files_later() -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(file_delete_delay_ms=10_000)
        directories, log = new_log(runtime, settings)
        append(log)
        pending = log.flush()
        directories.delete("t", 0)
        assert directories.get("t", 0) is None
        (renamed,) = [name for name in runtime.disk.list(LOGS) if name.endswith("-delete")]
        assert renamed.startswith("t-0.")
        assert "t-0" not in runtime.disk.list(LOGS)
        with pytest.raises(Exception, match="the replica was deleted"):
            await pending
        fresh = directories.create("t", 0, TOPIC_ID, settings)
        assert append(fresh) == 0
        await asyncio.sleep(11)
        assert renamed not in runtime.disk.list(LOGS)
        directories.delete("t", 0)
        await directories.close()
        directories = open_directories(runtime)
        await asyncio.sleep(1)
        assert not [name for name in runtime.disk.list(LOGS) if name.endswith("-delete")]

    virtual(body)


def test_a_replica_set_aside_is_never_removed() -> None:
    """A metadata log that was lost must not take the data with it."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log, 3)
        await log.flush()
        whole = everything(log)
        path = directories.set_aside("t", 0)
        assert path is not None
        assert re.fullmatch(r"/logs/t-0\.[0-9a-f]{32}-stray", path)
        assert directories.get("t", 0) is None
        again = directories.create("t", 0, bytes(16), small_settings())
        append(again)
        await asyncio.sleep(1_000)  # far beyond file.delete.delay.ms
        await directories.close()
        runtime = after_crash(runtime, power=True)
        assert runtime.disk.read(f"{path}/{0:020}.log") == whole
        directories = open_directories(runtime)
        assert [one.end for one in directories.logs] == [1], "what is aside is not loaded"
        crash(directories)
        runtime.disk.rename(f"{LOGS}/t-0", f"{LOGS}/other-0")
        runtime.disk.rename(path, f"{LOGS}/t-0")  # given its name back
        _, log = reopened(after_crash(runtime))
        assert (everything(log), log.topic_id) == (whole, TOPIC_ID)

    virtual(body)


def test_a_replica_that_lost_its_topics_id_gets_it_back() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log, 3)
        await log.flush()
        crash(directories)
        runtime.disk.remove(f"{LOGS}/t-0/partition.metadata")
        directories, log = reopened(after_crash(runtime))
        assert log.topic_id == NULL_UUID
        directories.adopt(log, TOPIC_ID)
        assert log.topic_id == TOPIC_ID
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True))
        assert log.topic_id == TOPIC_ID

    virtual(body)


def test_a_long_topic_name_can_be_deleted() -> None:
    async def body(runtime: Runtime) -> None:
        directories, _ = new_log(runtime)
        directories.create("x" * 249, 12_345, TOPIC_ID, small_settings())
        directories.delete("x" * 249, 12_345)
        assert all(len(name) <= 255 for name in runtime.disk.list(LOGS))

    virtual(body)


def test_a_new_replicas_name_is_durable_soon() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        for partition in range(5):
            directories.create("t", partition, TOPIC_ID, small_settings())
        await asyncio.sleep(1)
        crash(directories)
        found = open_directories(after_crash(runtime, power=True))
        assert len(found.logs) == 5
        assert {log.end for log in found.logs} == {0}

    virtual(body)


def test_replicas_of_a_topic_share_the_file_of_its_id() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, ("/one", "/two"))
        logs = [directories.create("t", each, TOPIC_ID, small_settings()) for each in range(6)]
        other = directories.create("u", 0, OTHER_ID, small_settings())
        disk = memory_disk(runtime)
        files = {log: disk.inode(f"{log.directory}/{PARTITION_METADATA}") for log in [*logs, other]}
        shared = {log.home.path: files[log] for log in logs}
        assert [files[log] for log in logs] == [shared[log.home.path] for log in logs]
        assert len({*files.values()}) == 3, "one in each log directory, and another topic's"
        assert [whose(runtime, log) for log in [*logs, other]] == [TOPIC_ID] * 6 + [OTHER_ID]

    virtual(body)


def test_a_namesake_of_who_had_the_file_first_changes_no_ids() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        for partition in range(2):
            directories.create("t", partition, TOPIC_ID, small_settings())
        directories.delete("t", 0)
        assert whose(runtime, directories.create("t", 0, OTHER_ID, small_settings())) == OTHER_ID
        for partition in (2, 3):
            log = directories.create("t", partition, TOPIC_ID, small_settings())
            assert whose(runtime, log) == TOPIC_ID

    virtual(body)


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EPERM, errno.ENOENT])
def test_a_file_that_can_not_be_shared_is_written(code: int) -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        directories.create("t", 0, TOPIC_ID, small_settings())
        path = f"{LOGS}/t-1/{PARTITION_METADATA}"
        memory_disk(runtime).inject(DiskFault(operations=["make"], prefix=path, code=code))
        for partition in (1, 2):
            log = directories.create("t", partition, TOPIC_ID, small_settings())
            assert whose(runtime, log) == TOPIC_ID

    virtual(body)


def test_a_disk_that_fails_at_a_shared_file_goes_offline() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        log = directories.create("t", 0, TOPIC_ID, small_settings())
        path = f"{LOGS}/t-1/{PARTITION_METADATA}"
        memory_disk(runtime).inject(DiskFault(operations=["make"], prefix=path))
        with pytest.raises(StorageError):
            directories.create("t", 1, TOPIC_ID, small_settings())
        assert log.offline

    virtual(body)


def test_many_new_names_are_made_durable_by_few_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: a sync for each turn of the loop in which there was a new name."""
    synced: list[str] = []
    sync_directory = MemoryDisk.sync_directory

    def noted(self: MemoryDisk, path: str) -> None:
        synced.append(path)
        sync_directory(self, path)

    monkeypatch.setattr(MemoryDisk, "sync_directory", noted)

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        synced.clear()
        for partition in range(20):
            directories.create("t", partition, TOPIC_ID, small_settings())
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert synced == [LOGS] * 2, "the first one, and all the others"
        crash(directories)
        found = open_directories(after_crash(runtime, power=True))
        assert len(found.logs) == 20

    virtual(body)


def test_a_replica_whose_id_is_not_known_says_so() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log)
        await directories.close()
        for text in (None, b"version: 0\ntopic_id: nonsense"):
            path = f"{LOGS}/t-0/partition.metadata"
            if text is None:
                runtime.disk.remove(path)
            else:
                runtime.disk.write_atomic(path, text)
            directories = open_directories(runtime)
            found = directories.get("t", 0)
            assert found is not None
            assert (found.topic_id, found.end) == (NULL_UUID, 1)
            await directories.close()

    virtual(body)


def test_one_replica_in_two_directories_is_refused() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS)
        directories.create("t", 0, TOPIC_ID, small_settings())
        await directories.close()
        runtime.disk.make_directories("/two/t-0")
        runtime.disk.write_atomic(
            f"/two/t-0/{PARTITION_METADATA}", encode_partition_metadata(TOPIC_ID)
        )
        runtime.disk.write_atomic(f"/two/t-0/{0:020d}.log", b"")
        with pytest.raises(
            DirectoryError, match=r"t-0 lies in /one \(.* and in /two \(.*move away"
        ):
            open_directories(runtime, PATHS)

    virtual(body)


@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start"])
def test_a_damaged_checkpoint_is_done_without(name: str) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(40):
            append(log)
        whole = everything(log)
        await directories.close()
        runtime.disk.write_atomic(f"{LOGS}/{name}-offset-checkpoint", b"0\n9\nt 0")
        directories = open_directories(runtime)
        found = directories.get("t", 0)
        assert found is not None
        assert everything(found) == whole

    virtual(body)


def test_offset_checkpoints_are_kafkas() -> None:
    data = encode_offsets([("a-b", 0, 5), ("c", 10, 1 << 40)])
    assert data == b"0\n2\na-b 0 5\nc 10 1099511627776\n"
    assert decode_offsets(data, "file") == {("a-b", 0): 5, ("c", 10): 1 << 40}
    with pytest.raises(CorruptFileError):
        decode_offsets(b"0\n1\na b c\n", "file")


def test_few_descriptors_serve_many_replicas() -> None:
    """Goal: ten thousand replicas under a limit. Method: sixty under a limit of sixteen."""

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, file_limit=16)
        logs = [
            directories.create("t", partition, TOPIC_ID, small_settings())
            for partition in range(60)
        ]
        for round_number in range(3):
            for log in logs:
                assert append(log) == round_number
                assert everything(log)
        assert len(directories.directories[0].files) <= 16
        await directories.close()

    virtual(body)


def test_a_worker_that_is_full_delays_flushes_but_loses_none() -> None:
    async def body(runtime: Runtime) -> None:
        runtime = replace(runtime, worker=MemoryWorker(1, queue_max=1))
        directories, log = new_log(runtime)
        for _ in range(40):
            append(log, epoch=2)
        whole = everything(log)
        while log.recovery_point < log.end:
            with suppress(StorageError):  # too much waits for the disk: try again
                await log.flush()
            await asyncio.sleep(0.01)
        crash(directories)
        found = open_directories(after_crash(runtime, power=True)).get("t", 0)
        assert found is not None
        assert everything(found) == whole
        assert found.latest_epoch == 2

    virtual(body)


def test_a_replica_that_could_not_be_flushed_leaves_no_mark_of_a_clean_end() -> None:
    """An eligible replica is elected on the strength of that mark: it must have all it had.

    Seen to fail: with the mark written in spite of a flush for which the worker was full, and with
    who waits behind such a flush left waiting (it never ended).
    """

    async def body(runtime: Runtime) -> None:
        worker = MemoryWorker(1, queue_max=1)
        directories, log = new_log(replace(runtime, worker=worker))
        append(log)
        held = worker.submit(lambda: None)
        with pytest.raises(StorageError, match="too much"):
            await asyncio.gather(log.flush(), log.flush())
        end = asyncio.ensure_future(directories.close(broker_epoch=7))
        await end
        await held
        found = open_directories(after_crash(runtime, power=True))
        assert found.previous_broker_epoch == -1

    virtual(body)


@pytest.mark.parametrize("what", ["t-", "cleaner-offset-checkpoint"])
def test_a_disk_that_fails_while_the_node_stops_costs_the_others_nothing(what: str) -> None:
    """Seen to fail: with the first failure of a replica, or to look for a checkpoint, ending all.

    The latter ended the process with a traceback, its other directories open and unmarked.
    """

    async def body(runtime: Runtime) -> None:
        paths = "/one", "/two"
        directories = open_directories(runtime, paths)
        logs = [directories.create("t", each, TOPIC_ID, small_settings()) for each in range(4)]
        for log in logs:
            append(log, timestamp=-1)  # so that the largest timestamp is looked for at the end
        await directories.close(broker_epoch=7)
        runtime = after_crash(runtime)
        directories = open_directories(runtime, paths)
        assert directories.previous_broker_epoch == 7
        memory_disk(runtime).inject(DiskFault(operations={"read"}, prefix=f"/one/{what}"))
        await directories.close(broker_epoch=8)
        assert not runtime.disk.exists("/one/.kafka_cleanshutdown")
        assert runtime.disk.exists("/two/.kafka_cleanshutdown")
        memory_disk(runtime).heal()
        assert open_directories(after_crash(runtime), paths).previous_broker_epoch == -1

    virtual(body)


@pytest.mark.parametrize("failure", ["files", "lock", "worker", "bug"])
def test_an_end_that_fails_in_one_directory_costs_that_ones_mark_alone(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: with the error raised, and /two left locked and without its mark.

    close(2) fails at a file or at the lock, or the worker is full. A bug is raised, and yet it
    leaves nothing locked.
    """

    async def body(runtime: Runtime) -> None:
        paths = "/one", "/two"
        directories = open_directories(runtime, paths)
        logs = [directories.create("t", each, TOPIC_ID, small_settings()) for each in range(2)]
        for log in logs:
            append(log)
        one, disk = directories.directories[0], memory_disk(runtime)
        if failure == "files":
            fail_to_close(monkeypatch, "/one/t-")
        elif failure == "lock":
            release = _MemoryLock.release

            def fail(lock: _MemoryLock) -> None:
                release(lock)
                raise OSError(errno.EIO, "close")

            monkeypatch.setattr(_MemoryLock, "release", fail)
        else:
            submit = LogDirectory.submit

            def refused(home: LogDirectory, job: Any) -> asyncio.Future[Any]:
                if home is not one or "mark_clean" not in job.__qualname__:
                    return submit(home, job)
                future = asyncio.get_running_loop().create_future()
                future.set_exception(WorkerFullError("full") if failure == "worker" else KeyError())
                return future

            monkeypatch.setattr(LogDirectory, "submit", refused)
        if failure == "bug":
            with pytest.raises(KeyError):
                await directories.close(broker_epoch=5)
        else:
            await directories.close(broker_epoch=5)
            marks = [read_clean_shutdown(disk, path) for path in paths]
            assert marks == [5 if failure == "lock" else None, 5]
        assert not disk._platter.locks

    virtual(body)


@pytest.mark.parametrize("failing", ["metadata", "damage"])
def test_a_load_that_fails_costs_no_other_directory_its_mark(failing: str) -> None:
    """As Apache Kafka, a node does not start where batches tell nothing of what a replica had.

    Seen to fail: with the metadata log's directory loaded last, when all marks were gone, and with
    a directory that was not loaded whole marked at the end: its other replicas would have lost
    their checkpoints.
    """

    async def body(runtime: Runtime) -> None:
        roles: dict[str, Any] = {
            "process_roles": ("broker", "controller"),
            "metadata_log_dir": "/three",
        }
        directories = open_directories(runtime, PATHS, **roles)
        for partition in range(4):
            log = directories.create("t", partition, TOPIC_ID, small_settings())
            for _ in range(40):
                append(log)
        await directories.close(broker_epoch=5)
        disk = memory_disk(runtime)
        damaged = next(log for log in directories.logs if log.home.path == "/two")
        if failing == "metadata":
            disk.inject(DiskFault(operations={"read"}, prefix="/three/log-start-offset"))
        else:
            disk.remove(f"{damaged.directory}/leader-epoch-checkpoint")
            disk.corrupt(f"{damaged.directory}/{0:020}.log", 16, b"\xff")
        own = NodeSettings(node_id=1, log_dirs=PATHS, **roles)
        directories = LogDirectories(runtime, own, lambda _: small_settings())
        with pytest.raises(DirectoryError if failing == "metadata" else CorruptFileError):
            directories.load()
        assert failing == "damage" or read_clean_shutdown(disk, "/one") == 5
        assert directories.previous_broker_epoch == -1, "nobody has looked at what is there"
        await directories.close(broker_epoch=5)
        marks = [read_clean_shutdown(disk, path) for path in PATHS]
        assert marks == ([5, 5, None] if failing == "metadata" else [5, None, 5])
        assert not disk._platter.locks

    virtual(body)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize("times", [None, 1], ids=["for good", "once"])
@pytest.mark.parametrize("when", ["load", "close"])
def test_whichever_operation_fails_costs_no_other_directory_its_mark(
    when: str, times: int | None
) -> None:
    """Each operation of one directory in turn fails, in a start and an end, or in an end alone."""
    paths = "/one", "/two"

    def is_struck(after: int) -> bool:
        async def body(runtime: Runtime) -> bool:
            directories = open_directories(runtime, paths)
            for partition in range(4):
                log = directories.create("t", partition, TOPIC_ID, small_settings())
                for _ in range(20):
                    append(log)
            if when == "load":
                await directories.close(broker_epoch=4)
            disk = memory_disk(runtime)
            fault = DiskFault(operations=EVERY, prefix="/one", after=after, times=times)
            disk.inject(fault)
            if when == "load":
                own = NodeSettings(node_id=1, log_dirs=paths, metadata_log_dir="")
                directories = LogDirectories(runtime, own, lambda _: small_settings())
                directories.load()
                directories.start()
                await asyncio.sleep(1)
            await directories.close(broker_epoch=5)
            disk.heal()
            assert read_clean_shutdown(disk, "/two") == 5, f"after {after}"
            assert not disk._platter.locks, f"after {after}"
            return fault.struck > 0

        return virtual(body)

    after = 0
    while is_struck(after):
        after += 1
    assert after > 20


def test_a_log_start_is_written_although_an_older_write_is_under_way() -> None:
    """Seen to fail: with the write that a truncation made worthless still keeping others away."""

    async def body(runtime: Runtime) -> None:
        worker = MemoryWorker(1, delay_us=(50_000, 50_000))
        directories, log = new_log(replace(runtime, worker=worker))
        for _ in range(40):
            append(log)
        log.high_watermark = 30
        assert log.advance_start(3)
        log.truncate_to(35)
        log.home.write_now()
        assert log.advance_start(9)
        await asyncio.sleep(1)
        crash(directories)
        assert reopened(after_crash(runtime))[1].start == 9

    virtual(body)


@pytest.mark.parametrize("damage", ["cut", "gone", "none"])
def test_a_clean_end_proves_nothing_when_something_is_missing_since(damage: str) -> None:
    """Somebody removed a replica or restored a part: it must not be elected as if it were whole.

    Seen to fail: without a look at where each replica ended.
    """

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log)
        append(log)
        first = len(log.read(0, 1, 1).records)
        await directories.close(broker_epoch=7)
        runtime = after_crash(runtime)
        if damage == "gone":
            runtime.disk.remove_tree(log.directory)
        elif damage == "cut":
            file = runtime.disk.open(f"{log.directory}/{0:020d}.log")
            file.truncate(first)
            file.close()
        found = open_directories(runtime)
        assert found.previous_broker_epoch == (7 if damage == "none" else -1)
        await found.close(broker_epoch=8)

    virtual(body)


async def _checkpointed(runtime: Runtime, *, synced: bool) -> tuple[LogDirectories, Log]:
    """Forty committed records, and checkpoints that say so; if synced, nine of them deleted."""
    directories, log = new_log(runtime, small_settings(segment_bytes=1_000_000))
    directories.start()
    for _ in range(40):
        append(log)
    log.high_watermark = 40
    if synced:
        await log.flush()
        assert log.advance_start(9)
    await asyncio.sleep(61)  # virtual: all checkpoints have been written
    return directories, log


@pytest.mark.parametrize(
    "loss", ["made anew", "made anew after a start", "cut", "cut before a sync", "begun anew"]
)
def test_no_checkpoint_outlives_what_it_speaks_of(loss: str) -> None:
    """What is written behind a loss must not count as deleted, synced or committed after a crash.

    Seen to fail: each without its own call of `write_now`.
    """

    async def body(runtime: Runtime) -> None:
        directories, log = await _checkpointed(runtime, synced=loss != "cut before a sync")
        if loss.startswith("cut"):
            log.truncate_to(5)
        elif loss == "begun anew":
            log.reset_to(3)
        else:
            directories.delete("t", 0)
            if loss == "made anew after a start":
                crash(directories)
                runtime = after_crash(runtime)
                directories = open_directories(runtime)
            log = directories.create("t", 0, TOPIC_ID, small_settings())
        start, end = log.start, log.end
        while log.end < 40:
            append(log)
        crash(directories)
        found = reopened(after_crash(runtime))[1]
        assert found.start == start
        assert found.high_watermark <= end
        assert found.end == 40

    virtual(body)


def test_what_a_power_cut_took_does_not_count_as_committed_when_it_is_written_anew() -> None:
    """Seen to fail: with the old high watermark left in its checkpoint, above the log's end."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        directories.start()
        await log.flush()
        for _ in range(40):
            append(log)
        log.high_watermark = 40
        await asyncio.sleep(6)  # virtual: the high watermark has been written
        crash(directories)
        runtime = after_crash(runtime, power=True)
        directories, log = reopened(runtime)
        end = log.end
        assert log.high_watermark <= end < 40
        while log.end < 40:
            append(log)
        crash(directories)
        found = reopened(after_crash(runtime))[1]
        assert found.end == 40
        assert found.high_watermark <= end

    virtual(body)


@pytest.mark.parametrize("died", [False, True])
def test_a_deleted_replica_does_not_come_back_beside_the_one_made_anew(died: bool) -> None:
    """Seen to fail: without making the old one's new name durable first (at a start, too)."""

    async def body(runtime: Runtime) -> None:
        paths = ["/a", "/b"]
        directories = open_directories(runtime, paths)
        first = directories.create("t", 0, TOPIC_ID, small_settings())
        await asyncio.sleep(1)  # virtual: its name is durable
        directories.delete("t", 0)
        if died:
            crash(directories)
            runtime = after_crash(runtime)
            directories = open_directories(runtime, paths)
        directories.create("t", 1, TOPIC_ID, small_settings())
        again = directories.create("t", 0, bytes(16 * [7]), small_settings())
        assert again.home.path != first.home.path
        append(again)
        await again.flush()
        crash(directories)
        found = open_directories(after_crash(runtime, power=True), paths).get("t", 0)
        assert found is not None
        assert found.topic_id == again.topic_id

    for seed in range(6):
        virtual(body, seed=seed)


def test_whose_a_replica_is_survives_with_what_is_synced_of_it() -> None:
    """Also when it begins behind 0, and its first process was killed: then nothing says it is new.

    Seen to fail: with the recovery point taken for the sign of one whose id had been synced.
    """

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        log.reset_to(23)
        append(log)
        for _ in range(2):
            crash(directories)
            runtime = after_crash(runtime)
            directories, log = reopened(runtime)
            directories.start()
            await asyncio.sleep(61)  # virtual: what there was to sync is, and checkpoints say so
        await log.flush()
        crash(directories)
        found = reopened(after_crash(runtime, power=True))[1]
        assert (found.topic_id, found.start, found.end) == (TOPIC_ID, 23, 24)

    for seed in range(4):
        virtual(body, seed=seed)


def test_a_deleted_replica_comes_back_whole_or_not_at_all() -> None:
    """Seen to fail: with its files removed before its new name is durable."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(40):
            append(log)
        await log.flush()
        directories.delete("t", 0)
        await asyncio.sleep(log.settings.file_delete_delay_ms / 1000 + 1)
        crash(directories)
        found = open_directories(after_crash(runtime, power=True, torn=True)).get("t", 0)
        assert found is None or (found.start, found.end) == (0, 40)

    for seed in range(20):
        virtual(body, seed=seed)
