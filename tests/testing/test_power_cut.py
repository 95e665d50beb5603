"""What the memory disk keeps through a crash and through a power cut, as a table.

Goal: a test above that passes here would pass on the harshest disk that POSIX allows. Method: each
row does something, cuts the power, and names what must be there afterwards.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from holdfast.testing.ground.disk import DiskFault, MemoryDisk
from holdfast.testing.ground.disk_quota import NAME_BYTES

Tree = dict[str, bytes]


def tree(disk: MemoryDisk, path: str = "/d") -> Tree:
    if not disk.exists(path):
        return {}
    return {name: disk.read(f"{path}/{name}") for name in disk.list(path)}


def prepared() -> MemoryDisk:
    """Return a disk with /d/old, synced in every way."""
    disk = MemoryDisk()
    disk.make_directories("/d")
    disk.sync_directory("/")
    disk.write_atomic("/d/old", b"old")
    return disk


def write(disk: MemoryDisk, path: str, data: bytes, *, sync: bool = False) -> None:
    file = disk.open(path, create=True)
    file.append(data)
    if sync:
        file.sync()
    file.close()


def created_only(disk: MemoryDisk) -> None:
    write(disk, "/d/new", b"new")


def created_and_synced(disk: MemoryDisk) -> None:
    write(disk, "/d/new", b"new", sync=True)


def created_and_directory_synced(disk: MemoryDisk) -> None:
    write(disk, "/d/new", b"new")
    disk.sync_directory("/d")


def created_and_all_synced(disk: MemoryDisk) -> None:
    write(disk, "/d/new", b"new", sync=True)
    disk.sync_directory("/d")


def appended(disk: MemoryDisk) -> None:
    write(disk, "/d/old", b"er")


def appended_and_synced(disk: MemoryDisk) -> None:
    write(disk, "/d/old", b"er", sync=True)


def appended_synced_and_appended(disk: MemoryDisk) -> None:
    write(disk, "/d/old", b"er", sync=True)
    write(disk, "/d/old", b"!")


def truncated(disk: MemoryDisk) -> None:
    disk.open("/d/old").truncate(1)


def truncated_and_synced(disk: MemoryDisk) -> None:
    file = disk.open("/d/old")
    file.truncate(1)
    file.sync()


def truncated_and_written_anew(disk: MemoryDisk) -> None:
    file = disk.open("/d/old")
    file.truncate(1)
    file.append(b"dd")
    file.sync()


def renamed(disk: MemoryDisk) -> None:
    disk.rename("/d/old", "/d/new")


def renamed_and_synced(disk: MemoryDisk) -> None:
    disk.rename("/d/old", "/d/new")
    disk.sync_directory("/d")


def replaced_without_sync(disk: MemoryDisk) -> None:
    disk.write_atomic("/d/old", b"new", sync=False)


def replaced(disk: MemoryDisk) -> None:
    disk.write_atomic("/d/old", b"new")


def replaced_name_before_bytes(disk: MemoryDisk) -> None:
    """The classic: rename synced, contents never."""
    disk.write_atomic("/d/old", b"new", sync=False)
    disk.sync_directory("/d")


def removed(disk: MemoryDisk) -> None:
    disk.remove("/d/old")


def removed_and_synced(disk: MemoryDisk) -> None:
    disk.remove("/d/old")
    disk.sync_directory("/d")


def tree_removed(disk: MemoryDisk) -> None:
    disk.remove_tree("/d")


def tree_removed_and_synced(disk: MemoryDisk) -> None:
    disk.remove_tree("/d")
    disk.sync_directory("/")


Row = tuple[Callable[[MemoryDisk], None], Tree, Tree]
TABLE: list[Row] = [
    # what is done, what a crash leaves, what a power cut leaves
    (created_only, {"old": b"old", "new": b"new"}, {"old": b"old"}),
    (created_and_synced, {"old": b"old", "new": b"new"}, {"old": b"old"}),
    (created_and_directory_synced, {"old": b"old", "new": b"new"}, {"old": b"old", "new": b""}),
    (created_and_all_synced, {"old": b"old", "new": b"new"}, {"old": b"old", "new": b"new"}),
    (appended, {"old": b"older"}, {"old": b"old"}),
    (appended_and_synced, {"old": b"older"}, {"old": b"older"}),
    (appended_synced_and_appended, {"old": b"older!"}, {"old": b"older"}),
    (truncated, {"old": b"o"}, {"old": b"old"}),
    (truncated_and_synced, {"old": b"o"}, {"old": b"o"}),
    (truncated_and_written_anew, {"old": b"odd"}, {"old": b"odd"}),
    (renamed, {"new": b"old"}, {"old": b"old"}),
    (renamed_and_synced, {"new": b"old"}, {"new": b"old"}),
    (replaced_without_sync, {"old": b"new"}, {"old": b"old"}),
    (replaced, {"old": b"new"}, {"old": b"new"}),
    (replaced_name_before_bytes, {"old": b"new"}, {"old": b""}),
    (removed, {}, {"old": b"old"}),
    (removed_and_synced, {}, {}),
    (tree_removed, {}, {"old": b"old"}),
    (tree_removed_and_synced, {}, {}),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
def test_crash_keeps_the_page_cache(row: Row) -> None:
    act, after_crash, _ = row
    disk = prepared()
    act(disk)
    assert tree(disk.crash()) == after_crash


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].__name__)
def test_power_cut_drops_what_was_not_synced(row: Row) -> None:
    act, _, after_cut = row
    disk = prepared()
    act(disk)
    found = disk.power_cut()
    assert tree(found) == after_cut
    assert tree(found.power_cut()) == after_cut, "a second cut finds nothing left to drop"


def test_directory_without_its_parent_synced_is_gone() -> None:
    disk = MemoryDisk()
    disk.make_directories("/a/b")
    write(disk, "/a/b/f", b"x", sync=True)
    disk.sync_directory("/a/b")
    disk.sync_directory("/a")
    assert not disk.power_cut().exists("/a")


@pytest.mark.parametrize("seed", range(40))
def test_torn_cut_never_touches_what_was_synced(seed: int) -> None:
    disk = MemoryDisk(seed)
    disk.make_directories("/d")
    disk.sync_directory("/")
    write(disk, "/d/log", b"s" * 700, sync=True)
    disk.sync_directory("/d")
    write(disk, "/d/log", b"u" * 900)
    found = disk.power_cut(torn=True).read("/d/log")
    assert found[:700] == b"s" * 700
    assert set(found[700:]) <= {ord("u"), 0}
    assert len(found) <= 1600


def test_torn_cuts_differ_by_seed_and_repeat_by_seed() -> None:
    def cut(seed: int) -> tuple[Tree, bool]:
        disk = MemoryDisk(seed)
        disk.make_directories("/d")
        disk.sync_directory("/")
        write(disk, "/d/a", b"a" * 100, sync=True)
        disk.sync_directory("/d")
        write(disk, "/d/a", b"b" * 100)
        disk.rename("/d/a", "/d/z")
        write(disk, "/d/c", b"c" * 100, sync=True)
        found = disk.power_cut(torn=True)
        return tree(found), found.exists("/d/c")

    outcomes = [cut(seed) for seed in range(60)]
    assert outcomes == [cut(seed) for seed in range(60)]
    names = {tuple(found) for found, _ in outcomes}
    assert names == {("a",), ("z",), ("c", "z")}, "changes of a directory persist in their order"


def test_failed_sync_never_becomes_a_good_one() -> None:
    """After a failed fsync the kernel forgets the pages: the next fsync says nothing of them."""
    disk = prepared()
    fault = DiskFault(operations={"sync"}, times=1)
    disk.inject(fault)
    file = disk.open("/d/old")
    file.append(b"er")
    with pytest.raises(OSError, match="Input/output") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()
    assert tree(disk.power_cut()) == {"old": b"old"}


def test_faults_strike_where_they_are_laid() -> None:
    disk = prepared()
    disk.make_directories("/e")
    disk.inject(DiskFault(operations={"append"}, prefix="/d/", after=1, times=2, code=errno.EROFS))
    other = disk.open("/e/f", create=True)
    file = disk.open("/d/f", create=True)
    file.append(b"1")
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only"):
            file.append(b"2")
        other.append(b"x")
    file.append(b"3")
    assert (file.pread(9, 0), other.pread(9, 0)) == (b"13", b"xx")


def test_full_disk_leaves_the_file_as_it_was() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    file = disk.open("/f", create=True)
    file.append(b"12345678")
    with pytest.raises(OSError, match="No space") as caught:
        file.append(b"901")
    assert caught.value.errno == errno.ENOSPC
    assert file.size == 8
    file.append(b"90")
    disk.remove("/f")
    disk.open("/g", create=True).append(b"0123456789")


def full(act: Callable[[], object]) -> None:
    with pytest.raises(OSError, match="No space"):
        act()


def test_a_small_file_system_below_a_prefix_is_full_for_all_that_grows() -> None:
    """Names take room as well, and what is removed makes some; other directories have their own."""
    disk = prepared()
    quota = disk.limit("/d/", NAME_BYTES + 8)
    file = disk.open("/d/f", create=True)
    file.append(b"12345678")
    full(lambda: file.append(b"9"))
    full(lambda: disk.open("/d/g", create=True))
    full(lambda: disk.make_directories("/d/sub"))
    full(lambda: disk.write_atomic("/d/g", b"x"))
    assert quota.struck == 4
    assert sorted(disk.list("/d")) == ["f", "old"]
    disk.open("/elsewhere", create=True).append(b"0" * 100)
    disk.open("/d/old").sync()
    disk.rename("/d/f", "/d/g")
    disk.remove("/d/g")
    disk.open("/d/h", create=True).append(b"1")
    after = disk.crash()
    full(lambda: after.open("/d/h").append(b"2345678901"))
    after.heal()
    after.open("/d/h").append(b"2345678901")


def test_a_write_that_does_not_fit_may_leave_a_part() -> None:
    """Cutting it off may fail as well: then the next start finds it."""
    sizes = set()
    for seed in range(40):
        disk = MemoryDisk(seed)
        disk.open("/f", create=True).append(b"1234")
        disk.limit("/", 3)
        with pytest.raises(OSError, match="No space"):
            disk.open("/f").append(b"56789")
        found = disk.crash().read("/f")
        assert b"123456789".startswith(found)
        sizes.add(len(found))
    assert min(sizes) == 4
    assert max(sizes) > 4
    assert max(sizes) < 9


def test_dead_process_reaches_nothing() -> None:
    disk = prepared()
    file = disk.open("/d/old")
    lock = disk.lock("/d/.lock")
    after = disk.crash()
    acts: list[Callable[[], None]] = [
        lambda: file.append(b"x"),
        lambda: disk.remove("/d/old"),
        file.sync,
    ]
    for act in acts:
        with pytest.raises(OSError, match="Input/output"):
            act()
    second = after.lock("/d/.lock")
    lock.release()
    second.release()
    assert after.read("/d/old") == b"old"


def test_torn_cuts_leave_holes_where_pages_were_not_written_yet() -> None:
    """A page may reach the disk before one that was written earlier."""
    holes = 0
    for seed in range(60):
        disk = MemoryDisk(seed)
        disk.make_directories("/d")
        write(disk, "/d/log", b"s" * 5_000, sync=True)
        disk.sync_directory("/d")
        disk.sync_directory("/")
        write(disk, "/d/log", b"x" * 60_000)
        found = disk.power_cut(torn=True).read("/d/log")
        assert found[:5_000] == b"s" * 5_000
        assert set(found[5_000:]) <= set(b"x\0")
        holes += b"\0x" in found
    assert 3 < holes < 30
