"""A controller and its own disk: nothing that breaks there goes unheard, or keeps it from starting.

Goal: whatever a power cut leaves of the metadata log is a prefix of it, and a controller whose disk
fails ends, and says why, whoever met the failure.
"""

from __future__ import annotations

import asyncio
import errno
import gc

import pytest
from tests.control.control_world import METADATA_FILE, controller, leads, play
from tests.log.log_kit import (
    LOGS,
    after_crash,
    append,
    crash,
    make_batch,
    open_directories,
    small_settings,
    virtual,
)

from holdfast.config.node import NodeSettings
from holdfast.core.controller.decisions import Decision
from holdfast.log.directories import LogDirectories
from holdfast.log.epochs import EpochEnd
from holdfast.node.metadata.metadata_damage import check_metadata_log
from holdfast.node.metadata.metadata_log import MetadataLog, MetadataLogError
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import DiskFault, MemoryDisk, Operation
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.records.metadata import NoOpRecord

PROPERTIES = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://here:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@here:9093",
    "log.dirs": LOGS,
}


def opened(runtime: Runtime) -> tuple[LogDirectories, MetadataLog]:
    """As a controller opens its log, but with segments of a few batches."""
    check_metadata_log(runtime.disk, LOGS)
    directories = open_directories(runtime)
    settings, _ = NodeSettings.from_properties(PROPERTIES)
    log = MetadataLog.open(runtime, settings, directories)
    log.replica.settings = small_settings(segment_bytes=700)
    return directories, log


def segments(log: MetadataLog) -> int:
    disk, directory = log.replica.home.runtime.disk, log.replica.directory
    return len([name for name in disk.list(directory) if name.endswith(".log")])


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_right_after_a_new_segment_tears_the_end_and_no_more(seed: int) -> None:
    """Two files reach a disk in any order: the second may be whole, and the first may not.

    Seen to fail, in three of these seeds: it looked like damage amid the log, for good.
    """

    async def body(runtime: Runtime) -> None:
        directories, log = opened(runtime)
        append(log.replica, size=40 + 7 * (seed % 20), epoch=1)
        await log.sync()
        durable, before = log.end, segments(log)
        while segments(log) == before:
            append(log.replica, size=50 + 11 * (seed % 9), epoch=1)
        end = log.end
        crash(directories)
        directories, log = opened(after_crash(runtime, power=True, torn=True))
        assert durable <= log.end <= end
        crash(directories)

    virtual(body, seed=seed)


@pytest.mark.parametrize("seed", range(60))
def test_what_was_cut_off_does_not_come_back_behind_what_was_written_then(seed: int) -> None:
    """An ex-leader's tail begins a segment, and more of it lies in the next.

    Seen to fail in 15 of these seeds with the names of the segments not synced, and in 25 with the
    cut itself: records of the two leaders one after the other, or a log that looked damaged.
    """

    async def body(runtime: Runtime) -> None:
        directories, log = opened(runtime)
        append(log.replica, size=40, epoch=1)
        while segments(log) < 2:
            append(log.replica, size=150, epoch=1)
        kept = log.end - 1
        log.truncate_at(EpochEnd(1, kept))  # so that what comes begins the second segment
        while segments(log) < 4:
            append(log.replica, size=150, epoch=3)
        await log.sync()
        await asyncio.sleep(1)  # virtual
        log.truncate_at(EpochEnd(1, kept))
        assert log.end == log.durable_end == kept
        sent = [
            make_batch(size=150, base_offset=kept + number, leader_epoch=2)
            for number in range(1 + seed % 4)
        ]
        log.append_fetched(b"".join(sent))
        crash(directories)
        directories, log = opened(after_crash(runtime, power=True, torn=True))
        assert kept <= log.end <= kept + len(sent)
        assert log.replica.latest_epoch <= 2
        crash(directories)

    virtual(body, seed=seed)


@pytest.mark.parametrize("past", [0, 1, 8, 11, 12])
def test_the_next_batch_may_begin_with_the_last_zeros_of_such_a_sector(past: int) -> None:
    """So many bytes of it: of its offset, and of its length, of which no CRC tells.

    Seen to fail with 1, 8 and 11: the sector was not looked at to its end.
    """
    disk = MemoryDisk("seed", now_ms=lambda: 0)
    disk.make_directories("/data/__cluster_metadata-0")
    around = len(build_batch([Record(None, b"x" * 700)])) - 700
    first = build_batch([Record(None, b"x" * (300 - around + 1))], leader_epoch=1)
    second = build_batch(
        [Record(None, b"x" * (1024 - past - len(first) - around))], base_offset=1, leader_epoch=1
    )
    third = build_batch([Record(None, b"x" * 70)], base_offset=2, leader_epoch=1)
    whole = bytes(first + second + third)
    assert len(first) + len(second) == 1024 - past, "the length of what is around it"
    torn = whole[:512] + bytes(512 - max(0, past - 11)) + whole[1024 - max(0, past - 11) :]
    disk.open(METADATA_FILE, create=True).append(torn)
    if past < 12:
        check_metadata_log(disk, "/data")
    else:  # its length is there, and says that the sector was written
        with pytest.raises(MetadataLogError, match=r"\(offset 1\), and whole batches follow"):
            check_metadata_log(disk, "/data")


@pytest.mark.parametrize("spoilt", ["a lower offset", "a higher offset", "a lower epoch"])
@pytest.mark.parametrize("durable", [0, 4])
def test_what_no_crc_covers_is_looked_at_too(spoilt: str, durable: int) -> None:
    """Recovery cuts at an offset or an epoch that goes back, and keeps one that leaps.

    Seen to fail below the recovery point: what was committed was forgotten, and nothing said so.
    """
    disk = MemoryDisk("seed", now_ms=lambda: 0)
    disk.make_directories("/data/__cluster_metadata-0")
    whole = [
        build_batch([Record(None, b"x" * 50)], base_offset=offset, leader_epoch=3)
        for offset in range(4)
    ]
    disk.open(METADATA_FILE, create=True).append(b"".join(whole))
    at = 2 * len(whole[0])
    byte, value = {
        "a lower offset": (7, b"\x00"),
        "a higher offset": (6, b"\x01"),
        "a lower epoch": (15, b"\x01"),
    }[spoilt]
    disk.corrupt(METADATA_FILE, at + byte, value)
    checkpoint = b"0\n1\n__cluster_metadata 0 %d\n"
    disk.write_atomic("/data/recovery-point-offset-checkpoint", checkpoint % durable)
    if durable == 0 and spoilt != "a higher offset":
        check_metadata_log(disk, "/data")
    else:
        with pytest.raises(MetadataLogError, match=rf"byte {at} \(offset 2\)"):
            check_metadata_log(disk, "/data")


def test_no_power_cut_makes_an_offset_larger() -> None:
    """Of the last batch, which nothing follows: recovery would keep it."""
    disk = MemoryDisk("seed", now_ms=lambda: 0)
    disk.make_directories("/data/__cluster_metadata-0")
    leaping = build_batch([Record(None, b"x" * 50)], base_offset=1, leader_epoch=3)
    disk.open(METADATA_FILE, create=True).append(leaping)
    with pytest.raises(MetadataLogError, match=r"byte 0 \(offset 0\)"):
        check_metadata_log(disk, "/data")


def test_an_offset_that_was_torn_is_not_taken_for_what_was_synced() -> None:
    """A batch lost the sector that holds just its offset, and a later one is torn for good.

    Seen to fail: that offset, now 0, was below the recovery point.
    """
    disk = MemoryDisk("seed", now_ms=lambda: 0)
    disk.make_directories("/data/__cluster_metadata-0")
    batches = [
        bytes(build_batch([Record(None, b"x" * 50)], base_offset=300 + n, leader_epoch=3))
        for n in range(3)
    ]
    batches[1] = bytes(8) + batches[1][8:]
    path = METADATA_FILE.replace(f"{0:020d}", f"{300:020d}")
    disk.open(path, create=True).append(b"".join(batches)[:-7])
    checkpoint = b"0\n1\n__cluster_metadata 0 %d\n"
    disk.write_atomic("/data/recovery-point-offset-checkpoint", checkpoint % 301)
    check_metadata_log(disk, "/data")


@pytest.mark.parametrize("before", [0, 8, 11, 300])
def test_a_sector_that_was_never_written_is_a_torn_end(before: int) -> None:
    """A batch that begins so many bytes before a sector's end, or with it, lost just that sector.

    Seen to fail, but for the second: only whole pages, or a dozen zeros, were looked for. In the
    second just its offset is missing, which no CRC covers: recovery cuts it there.
    """
    disk = MemoryDisk("seed", now_ms=lambda: 0)
    disk.make_directories("/data/__cluster_metadata-0")
    around = len(build_batch([Record(None, b"x" * 700)])) - 700
    first = build_batch([Record(None, b"x" * (1024 - before - around))], leader_epoch=1)
    assert len(first) == 1024 - before, "the length of what is around it"
    second = build_batch([Record(None, b"x" * 700)], base_offset=1, leader_epoch=1)
    third = build_batch([Record(None, b"x" * 700)], base_offset=2, leader_epoch=1)
    lost = before or 512
    torn = bytes(first) + bytes(lost) + bytes(second[lost:])
    disk.open(METADATA_FILE, create=True).append(torn + bytes(third))
    check_metadata_log(disk, "/data")


def test_a_controller_that_can_not_read_how_it_was_formatted_ends() -> None:
    """Seen to fail: it led a cluster without a metadata.version, and nobody was told."""
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=0)
        fault = DiskFault(operations={"read"}, prefix="/data/bootstrap.checkpoint", times=1)
        cluster.machine(CONTROLLER).disk.inject(fault)
        cluster.start_node(CONTROLLER)
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert fault.struck == 1
        assert "bootstrap.checkpoint" in cluster.exits[0]

    world.run(main)


def test_a_controller_that_can_not_read_its_log_says_so_and_does_not_start() -> None:
    """Seen to fail: it ended with a trace in place of a reason."""

    async def story(cluster: SimulatedCluster) -> None:
        cluster.crash(CONTROLLER)
        fault = DiskFault(operations={"read"}, prefix=METADATA_FILE, times=1)
        cluster.machine(CONTROLLER).disk.inject(fault)
        cluster.start_node(CONTROLLER)
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert "__cluster_metadata-0 can't be read" in cluster.exits[0]

    play(story)


def test_a_controller_whose_first_sync_fails_ends() -> None:
    """Seen to fail: who watches the disk ended it first, and nobody heard what the sync said."""

    async def story(cluster: SimulatedCluster) -> None:
        cluster.crash(CONTROLLER)
        cluster.start_node(CONTROLLER)
        fault = DiskFault(operations={"sync"}, prefix="/data/__cluster_metadata-0", times=1)
        cluster.machine(CONTROLLER).disk.inject(fault)
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert "offline" in cluster.exits[0]

    play(story)


def test_a_controller_whose_checkpoint_can_not_be_written_ends() -> None:
    """Seen to fail: its directory was offline, and ten minutes later it still led."""

    async def story(cluster: SimulatedCluster) -> None:
        disk = cluster.machine(CONTROLLER).disk
        disk.inject(
            DiskFault(operations={"rename"}, prefix="/data/replication-offset-checkpoint.next")
        )
        await cluster.client().create_topic("t")
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert "/data" in cluster.exits[0]
        assert not leads(cluster)

    play(story)


def test_a_sync_that_can_not_even_begin_ends_the_controller() -> None:
    """Another one met the disk's failure while a sync was under way, and more had been appended.

    Seen to fail: an error without an owner, and what was decided was neither synced nor refused.
    """

    async def story(cluster: SimulatedCluster) -> None:
        deciding = controller(cluster)
        assert deciding.log is not None
        assert deciding.quorum is not None
        cluster.machine(CONTROLLER).slow_disk((50_000, 50_000))
        deciding._append(Decision(None, [NoOpRecord()]))
        deciding._append(Decision(None, [NoOpRecord()]))
        assert deciding.log.durable_end < deciding.log.end
        deciding.log.replica.home.fail(OSError(errno.EIO, "as who writes a checkpoint would"))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        deciding.quorum._synced(done)
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert "offline" in cluster.exits[0]

    play(story)


@pytest.mark.slow
def test_one_disk_that_ends_both_roles_ends_the_node_once() -> None:
    """A broker that is a controller too, with one directory, whose checkpoint can't be written."""
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=3, controllers=3, combined=True)
        await cluster.start()
        await ends_by(cluster, 0, "rename", "/data/replication-offset-checkpoint.next")

    world.run(main)


def test_a_follower_whose_log_can_not_be_synced_ends() -> None:
    """Both who watches the disk and the fetch that waits for it meet the failure."""
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=1, controllers=3)
        await cluster.start()
        followers = [
            node
            for node in cluster.controllers
            if (deciding := cluster.nodes[node].controller) is not None and not deciding.active
        ]
        assert len(followers) == 2
        await ends_by(cluster, followers[0], "sync", METADATA_FILE)

    world.run(main)


async def ends_by(cluster: SimulatedCluster, node: int, operation: Operation, path: str) -> None:
    """Let a node's disk fail once, see it end by that and come back, and look for what is left."""
    client = cluster.client()
    fault = DiskFault(operations={operation}, prefix=path, times=1)
    cluster.machine(node).disk.inject(fault)
    await client.until(lambda: client.create_topic("t", partitions=3, replication_factor=1))
    await cluster.until(lambda: bool(cluster.exits), "the node gives up")
    assert len(cluster.exits) == fault.struck == 1
    process = cluster.machine(node).process
    assert process is not None
    await cluster.until(lambda: not process.alive, "it has ended")
    cluster.start_node(node)
    gc.collect()  # a failure that nobody has heard of would speak up now
