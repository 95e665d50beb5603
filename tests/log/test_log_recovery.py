"""After SIGKILL: the log is cut at the first bad batch, and everything derived is made anew."""

from __future__ import annotations

import asyncio

import pytest
from tests.log.log_kit import (
    LOGS,
    NOW_MS,
    after_crash,
    append,
    bases,
    crash,
    everything,
    make_batch,
    memory_disk,
    new_log,
    offset_entries,
    reopened,
    small_settings,
    time_entries,
    virtual,
)

from holdfast.config.topic import TopicSettings
from holdfast.log.checkpoints import CLEANED
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import batches
from holdfast.wire.errors import ErrorCode

HERE = f"{LOGS}/t-0"
ONE_SEGMENT = small_settings(segment_bytes=1 << 20)


def indexes(log: Log) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    segments = log._segments.all
    return [(offset_entries(each.offsets), time_entries(each.times)) for each in segments]


def test_a_tail_torn_at_every_byte() -> None:
    """Whatever stays of the last write, the log ends at a whole batch and takes new ones."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, ONE_SEGMENT)
        for number in range(3):
            append(log, 2, epoch=number)
        whole = everything(log)
        ends = [position + header.size for position, header in batches(whole)]
        crash(directories)
        for size in range(len(whole), -1, -1):
            runtime = after_crash(runtime)
            file = runtime.disk.open(f"{HERE}/{0:020d}.log")
            file.truncate(0)
            file.append(whole[:size])
            file.close()
            directories, log = reopened(runtime, ONE_SEGMENT)
            kept = [end for end in ends if end <= size]
            assert everything(log) == whole[: kept[-1] if kept else 0]
            assert log.end == 2 * len(kept)
            assert log.latest_epoch == len(kept) - 1
            assert append(log, epoch=9) == 2 * len(kept)
            crash(directories)

    virtual(body)


@pytest.mark.parametrize("what", ["zeros", "junk", "old epoch", "old offset", "flipped"])
def test_what_follows_the_first_bad_batch_is_gone(what: str) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, ONE_SEGMENT)
        for _ in range(4):
            append(log, 2, epoch=5)
        whole = everything(log)
        crash(directories)
        runtime = after_crash(runtime)
        bad = {
            "zeros": bytes(300),
            "junk": b"\xff" * 300,
            "old epoch": make_batch(2, base_offset=8, leader_epoch=4),
            "old offset": make_batch(2, base_offset=6, leader_epoch=5),
            "flipped": b"",
        }[what]
        file = runtime.disk.open(f"{HERE}/{0:020d}.log")
        file.append(bad + make_batch(2, base_offset=10, leader_epoch=5))
        file.close()
        if what == "flipped":
            memory_disk(runtime).corrupt(f"{HERE}/{0:020d}.log", len(whole) // 2 + 70, b"?")
            whole = whole[: len(whole) // 2]
        _, log = reopened(runtime, ONE_SEGMENT)
        assert everything(log) == whole

    virtual(body)


def test_later_segments_go_with_a_bad_batch() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(60):
            append(log)
        assert len(log._segments.bases) >= 3
        middle = log._segments.bases[1]
        crash(directories)
        runtime = after_crash(runtime)
        memory_disk(runtime).corrupt(f"{HERE}/{middle:020d}.log", 70, b"?")
        directories, log = reopened(runtime)
        assert log.end == middle
        assert log._segments.bases == [0, middle]
        assert append(log) == middle
        await directories.close()
        _, log = reopened(runtime)
        assert bases(everything(log)) == [*range(middle + 1)]

    virtual(body)


@pytest.mark.parametrize("interval", [0, 150, 1 << 20])
def test_indexes_made_anew_are_those_that_were_lost(interval: int) -> None:
    """After SIGKILL, and after a clean stop whose index files went missing or were damaged."""

    async def body(runtime: Runtime) -> None:
        chosen = small_settings(index_interval_bytes=interval)
        directories, log = new_log(runtime, chosen)
        for number in range(60):
            append(log, 1 + number % 2, timestamp=NOW_MS + 10 * (number ^ 5))
        expected = indexes(log)
        whole = everything(log)
        crash(directories)
        runtime = after_crash(runtime)
        directories, log = reopened(runtime, chosen)
        assert [offsets for offsets, _ in indexes(log)] == [offsets for offsets, _ in expected]
        # A segment that was sealed has one more entry: its largest timestamp.
        for (_, times), (_, made) in zip(expected, indexes(log), strict=True):
            assert times[: len(made)] == made
            assert len(times) - len(made) in (0, 1)
        await directories.close()
        for damage in ("remove", "cut", "outside"):
            for name in runtime.disk.list(HERE):
                if name.endswith((".index", ".timeindex")):
                    path = f"{HERE}/{name}"
                    if damage == "remove":
                        runtime.disk.remove(path)
                    elif damage == "cut" and runtime.disk.size(path):
                        runtime.disk.open(path).truncate(runtime.disk.size(path) - 1)
                    elif damage == "outside" and name.endswith(".index"):
                        runtime.disk.open(path).append(b"\x00\x00\xff\xff\x7f\xff\xff\xff")
            directories, log = reopened(runtime, chosen)
            assert everything(log) == whole
            assert [offsets for offsets, _ in indexes(log)] == [offsets for offsets, _ in expected]
            await directories.close()

    virtual(body)


def test_a_clean_stop_is_believed_and_a_second_crash_is_not() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, ONE_SEGMENT)
        for number in range(5):
            append(log, epoch=number)
        log.high_watermark = 4
        await directories.close(broker_epoch=42)
        assert (
            runtime.disk.read(f"{LOGS}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
        )
        # A CRC that is wrong now shows whether the batches were read again.
        memory_disk(runtime).corrupt(f"{HERE}/{0:020d}.log", 70, b"?")
        directories, log = reopened(runtime, ONE_SEGMENT)
        assert directories.previous_broker_epoch == 42
        assert (log.end, log.high_watermark, log.recovery_point) == (5, 4, 5)
        crash(directories)
        directories, log = reopened(after_crash(runtime), ONE_SEGMENT)
        assert directories.previous_broker_epoch == -1
        assert log.end == 0, "read again, the damage is found"

    virtual(body)


def test_flushed_segments_are_not_read_again() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(60):
            append(log)
        await log.flush()
        directories.directories[0].checkpoint("recovery-point-offset-checkpoint")
        await directories.directories[0].sync_path()
        whole = everything(log)
        crash(directories)
        runtime = after_crash(runtime)
        # A CRC that is wrong now shows whether the batches were read again.
        memory_disk(runtime).corrupt(f"{HERE}/{0:020d}.log", 70, b"?")
        directories, log = reopened(runtime)
        assert log.end == 60
        assert len(everything(log)) == len(whole)
        assert not log._segments.all[0].offsets.resident, "its index was trusted"
        assert log._segments.all[-1].offsets.resident

    virtual(body)


def test_an_epoch_begins_where_it_began_although_that_was_compacted() -> None:
    """Else who has something else there is told that it is the same, and keeps it for good."""

    async def scenario(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log, 2, epoch=0)
        # Offsets 2 to 6 are gone, with all that epochs 1 and 2 wrote.
        hole = make_batch(2, base_offset=7, leader_epoch=3)
        assert log.append_as_follower(memoryview(bytearray(hole))) is ErrorCode.NONE
        path = f"{HERE}/leader-epoch-checkpoint"
        for told, entries in (
            ("0\n4\n0 0\n1 2\n2 5\n3 6\n", [(0, 0), (1, 2), (2, 5), (3, 6)]),
            ("0\n3\n0 0\n1 2\n3 7\n", [(0, 0), (1, 2), (3, 7)]),
            # Of what was cut off before it was written anew.
            ("0\n3\n0 0\n1 1\n4 6\n", [(0, 0), (3, 7)]),
            ("0\n3\n0 0\n2 8\n3 9\n", [(0, 0), (3, 7)]),
        ):
            crash(directories)
            runtime = after_crash(runtime)
            runtime.disk.write_atomic(path, told.encode())
            directories, log = reopened(runtime)
            assert log._epochs.entries() == entries

    virtual(scenario)


def test_epochs_come_from_the_batches_when_the_file_is_behind_ahead_or_damaged() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, ONE_SEGMENT)
        for epoch in (1, 1, 4, 4, 6):
            append(log, 2, epoch=epoch)
        expected = [log.epoch_end(epoch) for epoch in range(8)]
        crash(directories)
        for text in (None, b"0\n1\n1 0\n", b"0\n2\n1 0\n5 3\n", b"0\n3\n1 0\n9 1", b"\x00" * 20):
            runtime = after_crash(runtime)
            if text is not None:
                runtime.disk.write_atomic(f"{HERE}/leader-epoch-checkpoint", text)
            directories, log = reopened(runtime, ONE_SEGMENT)
            assert [log.epoch_end(epoch) for epoch in range(8)] == expected
            crash(directories)

    virtual(body)


def producer_batch(sequence: int, pid: int = 9) -> memoryview:
    fields = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence}
    return memoryview(bytearray(make_batch(1, **fields)))


@pytest.mark.parametrize("stop", ["clean", "crash", "no snapshots", "damaged snapshots"])
def test_duplicates_are_still_known_after_a_restart(stop: str) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for sequence in range(60):
            log.append_as_leader(producer_batch(sequence), 0)
        assert len(log._segments.bases) >= 3
        if stop == "crash":
            crash(directories)
        else:
            await directories.close()
        runtime = after_crash(runtime)
        for name in runtime.disk.list(HERE):
            if name.endswith(".snapshot"):
                if stop == "no snapshots":
                    runtime.disk.remove(f"{HERE}/{name}")
                elif stop == "damaged snapshots":
                    memory_disk(runtime).corrupt(f"{HERE}/{name}", 12, b"?")
        _, log = reopened(runtime)
        assert log.check_producer(producer_batch(59)).duplicate_offset == 59
        assert log.check_producer(producer_batch(60)).error == 0
        assert log.check_producer(producer_batch(62)).error != 0

    virtual(body)


def test_a_stale_snapshot_is_not_believed() -> None:
    """Taken, then the log was cut below it and grew again, then SIGKILL before it was removed."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for sequence in range(60):
            log.append_as_leader(producer_batch(sequence), 0)
        await log.flush()
        directories.directories[0].checkpoint("recovery-point-offset-checkpoint")
        await directories.directories[0].sync_path()
        log.truncate_to(10)
        for sequence in range(60):
            log.append_as_leader(producer_batch(sequence, pid=8), 1)
        crash(directories)
        _, log = reopened(after_crash(runtime))
        assert log.end == 70
        assert log.check_producer(producer_batch(59, pid=8)).duplicate_offset == 69
        assert log.check_producer(producer_batch(9, pid=9)).duplicate_offset == 9
        assert log.check_producer(producer_batch(59, pid=9)).duplicate_offset is None

    virtual(body)


def test_a_log_that_ends_before_its_start_begins_again_there() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, ONE_SEGMENT)
        for _ in range(5):
            append(log)
        log.high_watermark = 5
        log.advance_start(4)
        await directories.close()
        runtime.disk.remove(f"{LOGS}/.kafka_cleanshutdown")
        runtime.disk.open(f"{HERE}/{0:020d}.log").truncate(len(make_batch()))
        _, log = reopened(runtime, ONE_SEGMENT)
        assert (log.start, log.end, log.high_watermark) == (4, 4, 4)
        assert append(log) == 4

    virtual(body)


def test_leftovers_are_removed_and_a_swap_is_finished() -> None:
    """A cleaner (Apache Kafka's) died half-way: .swap counts, .cleaned and .deleted do not."""

    async def body(runtime: Runtime) -> None:
        disk = runtime.disk
        directories, log = new_log(runtime, ONE_SEGMENT)
        for _ in range(6):
            append(log)
        kept = [0, 3, 5]
        data = everything(log)
        size = len(data) // 6
        await directories.close()
        cleaned = b"".join(data[offset * size : (offset + 1) * size] for offset in kept)
        for name, content in {
            f"{0:020d}.log.swap": cleaned,
            f"{0:020d}.index.swap": b"",
            f"{0:020d}.timeindex.swap": b"",
            f"{99:020d}.log.deleted": b"x",
            f"{50:020d}.index": b"orphan",
            "leader-epoch-checkpoint.tmp": b"x",
        }.items():
            disk.write_atomic(f"{HERE}/{name}", content)
        compacted = TopicSettings(cleanup_policy=("compact",))
        directories, log = reopened(runtime, compacted)
        assert bases(everything(log)) == kept
        assert not [
            name for name in disk.list(HERE) if name.endswith((".swap", ".deleted", ".tmp"))
        ]
        assert f"{50:020d}.index" not in disk.list(HERE)
        await directories.close()
        disk.write_atomic(f"{HERE}/{0:020d}.log.swap", b"x")
        disk.write_atomic(f"{HERE}/{0:020d}.log.cleaned", b"x")
        _, log = reopened(runtime, compacted)
        assert bases(everything(log)) == kept, "an unfinished cleaning changed nothing"

    virtual(body)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_segment_that_is_missing_ends_the_log(policy: str) -> None:
    """A power cut took a segment's name but left the next one's; compaction leaves no such hole."""
    settings = small_settings(cleanup_policy=(policy,))

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, settings)
        for _ in range(60):
            append(log)
        gone = log._segments.bases[1]
        crash(directories)
        runtime = after_crash(runtime)
        runtime.disk.remove(f"{HERE}/{gone:020d}.log")
        _, log = reopened(runtime, settings)
        assert log.end == gone

    virtual(body)


@pytest.mark.parametrize(("checkpoint", "is_loss"), [(1, False), (0, True), (None, True)])
def test_a_hole_that_a_cleaner_left_is_no_loss(checkpoint: int | None, is_loss: bool) -> None:
    """Apache Kafka's leaves such; whoever loses an index of its directory loses nothing else."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(60):
            append(log)
        first = log._segments.all[0]
        whole, following = everything(log), log._segments.bases[1]
        await directories.close()
        disk = runtime.disk
        size = disk.size(first.log_path) // following  # of each batch
        disk.open(first.log_path).truncate(size * (following - 1))
        disk.remove(first.offsets.path)
        if checkpoint is not None:
            up_to = following if checkpoint else following - 1
            disk.write_atomic(f"{LOGS}/{CLEANED}", f"0\n1\nt 0 {up_to}\n".encode())
        _, log = reopened(runtime)
        kept = [offset for offset in bases(whole) if offset != following - 1]
        assert bases(everything(log)) == kept[: following - 1 if is_loss else None]

    virtual(body)


def test_a_hole_that_no_index_can_count_is_no_loss() -> None:
    """A leader with a directory of Apache Kafka's has one: its follower begins a segment there."""

    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        append(log)
        batch = bytearray(make_batch())
        batch[:8] = (1 << 32).to_bytes(8, "big")  # its CRC does not cover that,
        batch[12:16] = bytes(4)  # nor its epoch
        assert log.append_as_follower(memoryview(batch)) == 0
        assert log._segments.bases == [0, 1 << 32]
        crash(directories)
        _, log = reopened(after_crash(runtime))
        assert bases(everything(log)) == [0, 1 << 32]

    virtual(body)


def test_sealed_segments_that_recovery_read_are_flushed_in_the_background() -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime)
        for _ in range(60):
            append(log)
        crash(directories)
        directories, log = reopened(after_crash(runtime))
        assert log.recovery_point < log._segments.active.base
        directories.start()
        await asyncio.sleep(1)
        assert log.recovery_point == log._segments.active.base
        await directories.close()

    virtual(body)
