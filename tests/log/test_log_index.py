"""Both indexes find what a walk would find, in memory and on disk, whole and cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.log.log_kit import offset_entries, time_entries

from holdfast.log.errors import CorruptFileError
from holdfast.log.files import FileCache
from holdfast.log.index import OffsetIndex, TimeIndex, write_index
from holdfast.runtime.real import RealDisk

BASE = 1 << 40
rising = st.lists(st.integers(1, 50), max_size=40).map(
    lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))]
)
on_one_disk = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def persist(disk: RealDisk, index: OffsetIndex | TimeIndex) -> None:
    write = index.plan_write()
    if write is not None:
        write_index(disk, write, sync=False)
    assert index.is_written


@on_one_disk
@given(rising, st.integers(0, 2_100))
def test_offset_index_finds_the_floor(tmp_path: Path, offsets: list[int], wanted: int) -> None:
    disk = RealDisk()
    files = FileCache(disk, 4)
    index = OffsetIndex(files, f"{tmp_path}/i", BASE)
    for offset in offsets:
        index.add(BASE + offset, offset * 10)
    floor = max((offset * 10 for offset in offsets if offset <= wanted), default=0)
    assert index.floor(BASE + wanted) == floor
    assert index.floor_position(wanted * 10 + 9) == floor
    persist(disk, index)
    index.release()
    assert index.resident is (not offsets), "a sealed index leaves memory"
    assert index.floor(BASE + wanted) == floor
    assert index.floor_position(wanted * 10 + 9) == floor
    again = OffsetIndex(files, f"{tmp_path}/i", BASE, len(offsets))
    assert offset_entries(again) == [(BASE + offset, offset * 10) for offset in offsets]
    files.close()


@on_one_disk
@given(rising, st.integers(0, 2_100))
def test_time_index_finds_the_floor(tmp_path: Path, stamps: list[int], wanted: int) -> None:
    disk = RealDisk()
    files = FileCache(disk, 4)
    index = TimeIndex(files, f"{tmp_path}/t", BASE)
    for number, stamp in enumerate(stamps):
        index.add((stamp << 33) + 7, BASE + number)
        index.add(stamp, BASE + number)  # not larger: no entry
    floor = max(
        (BASE + n for n, s in enumerate(stamps) if (s << 33) + 7 <= wanted << 33), default=BASE
    )
    assert index.floor(wanted << 33) == floor
    persist(disk, index)
    index.release()
    assert index.floor(wanted << 33) == floor
    again = TimeIndex(files, f"{tmp_path}/t", BASE, len(stamps))
    assert again.last() == (((stamps[-1] << 33) + 7, BASE + len(stamps) - 1) if stamps else None)
    assert time_entries(again) == [((s << 33) + 7, BASE + n) for n, s in enumerate(stamps)]
    files.close()


@on_one_disk
@given(rising, st.integers(0, 40), st.integers(0, 40))
def test_a_cut_index_is_written_as_it_is_now(
    tmp_path: Path, offsets: list[int], written: int, cut: int
) -> None:
    """Entries on disk that were cut off meanwhile are replaced by the next write."""
    disk = RealDisk()
    files = FileCache(disk, 4)
    index = OffsetIndex(files, f"{tmp_path}/c", BASE)
    written %= len(offsets) + 1
    for offset in offsets[:written]:
        index.add(BASE + offset, offset * 10)
    persist(disk, index)
    for offset in offsets[written:]:
        index.add(BASE + offset, offset * 10)
    kept = offsets[: cut % (len(offsets) + 1)]
    index.truncate(kept[-1] * 10 + 1 if kept else 0)
    persist(disk, index)
    size = disk.size(f"{tmp_path}/c")
    assert size == len(kept) * index.entry_size, "nothing of what was cut off stays in the file"
    index.add(BASE + 5_000, 50_000)
    persist(disk, index)
    again = OffsetIndex(files, f"{tmp_path}/c", BASE, len(kept) + 1)
    assert offset_entries(again) == [*((BASE + o, o * 10) for o in kept), (BASE + 5_000, 50_000)]
    files.close()


def test_a_plan_that_never_ran_is_planned_again(tmp_path: Path) -> None:
    disk = RealDisk()
    index = OffsetIndex(FileCache(disk, 4), f"{tmp_path}/p", BASE)
    index.add(BASE + 1, 100)
    persist(disk, index)
    index.add(BASE + 2, 200)
    lost = index.plan_write()
    assert lost is not None
    index.unplan_write(lost)
    assert index.plan_write() == lost


def test_an_index_that_points_outside_the_log_is_refused(tmp_path: Path) -> None:
    index = OffsetIndex(FileCache(RealDisk(), 4), f"{tmp_path}/x", BASE)
    index.add(BASE + 1, 100)
    index.check(101)
    with pytest.raises(CorruptFileError):
        index.check(100)
