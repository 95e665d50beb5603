"""Goal: what a crash leaves of a round is told apart by its names.

Method: tables of directories; which names are finished, which go. Then the small parts: jobs and
rests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.log.compaction.compaction_steps import JOB_TURNS, Throttle, in_jobs
from holdfast.log.compaction.half_done_swaps import covered, finish_swaps, leftovers, offset_of
from holdfast.log.files import FileCache
from holdfast.runtime.sliced_work import Steps
from holdfast.testing.ground.disk import MemoryDisk, _apply
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import WireError


def name(base: int, *suffixes: str) -> list[str]:
    return [f"{base:020d}{suffix}" for suffix in suffixes]


SWAPS = (".index.swap", ".timeindex.swap", ".log.swap")


@pytest.mark.parametrize(
    ("names", "swaps", "half_swaps", "cleaned"),
    [
        (name(0, ".log", ".index"), [], [], []),
        (name(0, *SWAPS), name(0, *SWAPS), [], []),
        # Its batches are not there yet: the old ones are.
        (name(0, *SWAPS[:2], ".log.cleaned"), [], name(0, *SWAPS[:2]), name(0, ".log.cleaned")),
        (name(0, *SWAPS[:2]), [], name(0, *SWAPS[:2]), []),
        # As above, and a directory that keeps names in another order than they were given.
        (
            name(0, ".log.swap", ".index.cleaned"),
            [],
            name(0, ".log.swap"),
            name(0, ".index.cleaned"),
        ),
        # Half of a segment that Apache Kafka splits.
        (name(5, *SWAPS) + name(0, ".log.cleaned"), [], name(5, *SWAPS), name(0, ".log.cleaned")),
        # A group behind one that is done.
        (name(0, *SWAPS) + name(9, ".log.cleaned"), name(0, *SWAPS), [], name(9, ".log.cleaned")),
        (name(0, ".log.swap"), name(0, ".log.swap"), [], []),
        (["partition.metadata", "x.deleted"], [], [], []),
    ],
)
def test_what_is_left_of_a_round(
    names: Sequence[str], swaps: Sequence[str], half_swaps: Sequence[str], cleaned: Sequence[str]
) -> None:
    found = leftovers(names)
    assert sorted(found.swaps) == sorted(swaps)
    assert sorted(found.half_swaps) == sorted(half_swaps)
    assert sorted(found.cleaned) == sorted(cleaned)
    assert not found.swaps or found.swaps[-1].endswith(".log.swap"), "the batches come last"


def test_what_a_segment_covers() -> None:
    names = [
        *name(0, ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.deleted"),
        *name(10, ".log", ".log.swap"),
        *name(19, ".log"),
        *name(20, ".log"),
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    gone = [*name(0, ".index", ".log", ".timeindex", ".txnindex"), *name(10, ".log")]
    assert covered(names, 0, 19) == [*gone, *name(19, ".log")]
    assert covered(names, 0, 18) == gone
    assert covered(names, 10, 10) == name(10, ".log")
    assert [offset_of(each) for each in ("7.log", "x.log", "٣.log", "")] == [7, -1, -1, -1]


def test_a_swap_takes_its_place() -> None:
    """By the offsets that are in it: here up to 7, so the segment of 8 stays."""
    disk = MemoryDisk(1)
    disk.make_directories("/d")
    disk.sync_directory("/")
    for each in (
        *name(0, ".log", ".index"),
        *name(4, ".log"),
        *name(8, ".log"),
        *name(2, ".log.cleaned"),
    ):
        disk.write_atomic(f"/d/{each}", b"old")
    batch = build_batch([Record(b"a"), Record(b"b")], base_offset=6)
    disk.write_atomic(f"/d/{name(0, '.log.swap')[0]}", bytes(batch))
    disk.write_atomic("/d/partition.metadata", b"")
    left = [*name(0, ".log"), *name(8, ".log"), "partition.metadata"]
    assert finish_swaps(disk, FileCache(disk, 4), "/d") == left
    assert list(disk.list("/d")) == left
    assert disk.read(f"/d/{left[0]}") == batch
    assert list(disk.power_cut().list("/d")) == left


@pytest.mark.parametrize(
    "names",
    [
        name(0, ".log", *SWAPS[:2], ".log.cleaned"),
        name(0, ".log", ".log.swap", ".index.cleaned"),
        name(5, ".log", *SWAPS) + name(0, ".log", ".log.cleaned"),
    ],
)
@pytest.mark.parametrize("seed", range(8))
def test_what_was_half_done_never_looks_whole(names: Sequence[str], seed: int) -> None:
    """Whenever recovery dies, and whichever of its removals survive that."""
    operations, is_done = 0, False
    while not is_done:
        disk = MemoryDisk(seed)
        disk.make_directories("/d")
        disk.sync_directory("/")
        for each in names:
            disk.write_atomic(f"/d/{each}", b"")
        is_done = dies_after(operations, disk)
        directory, draw = disk._directory("/d"), random.Random(seed)
        for change in directory.pending:
            if draw.random() < 0.5:
                _apply(directory.durable, change)
        left = list(disk.power_cut().list("/d"))
        assert not leftovers(left).swaps
        assert {each for each in names if each.endswith(".log")} <= set(left)
        operations += 1
    assert operations > 4


def dies_after(operations: int, disk: MemoryDisk) -> bool:
    """Have recovery die before its disk does one thing more than so many. True: it was done."""
    left = operations

    def count(path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise InterruptedError(path)

    disk.watch = count
    try:
        finish_swaps(disk, FileCache(disk, 4), "/d")
    except InterruptedError:
        return False
    finally:
        disk.watch = None
    return True


# --- jobs and rests ---


def test_jobs_take_steps_until_they_have_done_enough() -> None:
    def work() -> Steps[str]:
        for number in range(20):
            if number == 3:
                try:
                    yield _fails
                except WireError as error:
                    assert str(error) == "no"  # noqa: PT017 - it has to come to here
            assert (yield partial(int, number)) == number
            yield None
        return "end"

    jobs = 0
    steps = in_jobs(work())
    try:
        wanted: object = next(steps)
        while True:
            assert callable(wanted)
            wanted = steps.send(wanted())
            jobs += 1
    except StopIteration as end:
        returned = end.value
    assert returned == "end"
    assert jobs == (20 * 1.25 + 0.25) // JOB_TURNS, "and one more, with the end"


def _fails() -> None:
    raise WireError("no")


def test_rests_take_as_long_as_the_bytes_do() -> None:
    throttle, now_ms = Throttle(1_000, 0), 0
    for part in range(1, 101):
        now_ms += throttle.rest_ms(part * 1_000, now_ms)
    assert 100_000 <= now_ms <= 100_200


@settings(deadline=None)
@given(
    rate=st.integers(1, 10_000),
    parts=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 3_000)), min_size=1),
)
def test_rests_keep_to_so_many_bytes_a_second(rate: int, parts: list[tuple[int, int]]) -> None:
    """From whenever it was not too fast: no more than the rate, and one part."""
    throttle, now_ms, done = Throttle(rate, 0), 0, 0
    times = [(0, 0)]
    for size, took_ms in parts:
        now_ms += took_ms
        done += size
        now_ms += throttle.rest_ms(done, now_ms)
        times.append((now_ms, done))
    largest = max(size for size, _ in parts)
    for since_ms, before in times:
        for until_ms, after in times:
            if until_ms >= since_ms:
                assert after - before <= rate * (until_ms - since_ms) / 1000 + largest + 1
