"""What the disk port promises, asked of the real one and of the one in memory.

Goal: what passes over memory passes over a real disk. Method: the same tests run over both.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.runtime.ports import Disk


@pytest.fixture
def disk(world: Any) -> Disk:
    found: Disk = world.runtime.disk
    return found


@pytest.fixture
def root(world: Any) -> str:
    found: str = world.root
    return found


def test_append_read_truncate(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    assert (file.size, file.pread(10, 0)) == (0, b"")
    file.append(b"hello ")
    file.append(bytearray(b"wor"))
    file.append(memoryview(b"..ld..")[2:4])
    assert (file.size, file.pread(100, 0)) == (11, b"hello world")
    assert (file.pread(3, 6), file.pread(9, 9), file.pread(4, 11)) == (b"wor", b"ld", b"")
    file.truncate(5)
    file.append(b"!")
    assert (file.size, file.pread(100, 0)) == (6, b"hello!")
    file.sync()
    file.close()
    assert (disk.size(f"{root}/f"), disk.read(f"{root}/f")) == (6, b"hello!")


def test_opening_again_finds_the_end(disk: Disk, root: str) -> None:
    first = disk.open(f"{root}/f", create=True)
    first.append(b"abc")
    first.close()
    second = disk.open(f"{root}/f", create=True)
    second.append(b"d")
    assert (second.size, second.pread(9, 0)) == (4, b"abcd")
    second.close()


def test_large_reads_and_writes_are_whole(disk: Disk, root: str) -> None:
    data = bytes(range(256)) * 20_000
    file = disk.open(f"{root}/f", create=True)
    file.append(data)
    assert file.pread(len(data), 0) == data
    assert file.pread(2 * len(data), 7) == data[7:]
    file.close()


def test_removed_file_stays_with_who_has_it_open(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f", create=True)
    file.append(b"here")
    disk.remove(f"{root}/f")
    assert not disk.exists(f"{root}/f")
    assert file.pread(9, 0) == b"here"
    file.close()


def test_directories(disk: Disk, root: str) -> None:
    disk.make_directories(f"{root}/a/b/c")
    disk.make_directories(f"{root}/a/b")
    for name in ("z", "a", "m"):
        disk.open(f"{root}/a/b/{name}", create=True).close()
    assert disk.list(f"{root}/a/b") == ["a", "c", "m", "z"]
    assert disk.exists(f"{root}/a/b/c")
    assert not disk.exists(f"{root}/a/x")
    assert not disk.exists(f"{root}/a/b/z/below-a-file")
    disk.sync_directory(f"{root}/a/b")
    disk.remove_tree(f"{root}/a")
    assert disk.list(root) == []


def test_rename(disk: Disk, root: str) -> None:
    disk.write_atomic(f"{root}/one", b"1")
    disk.write_atomic(f"{root}/two", b"2")
    disk.rename(f"{root}/one", f"{root}/two")
    assert (disk.list(root), disk.read(f"{root}/two")) == (["two"], b"1")
    disk.make_directories(f"{root}/d")
    disk.rename(f"{root}/two", f"{root}/d/two")
    disk.rename(f"{root}/d", f"{root}/e")
    assert (disk.list(root), disk.read(f"{root}/e/two")) == (["e"], b"1")


def test_a_file_with_two_names(disk: Disk, root: str) -> None:
    disk.make_directories(f"{root}/d")
    disk.write_atomic(f"{root}/f", b"both")
    disk.link(f"{root}/f", f"{root}/d/g")
    assert (disk.read(f"{root}/d/g"), disk.list(f"{root}/d")) == (b"both", ["g"])
    disk.write_atomic(f"{root}/f", b"another")
    assert disk.read(f"{root}/d/g") == b"both", "what takes the place of one is not the other"
    disk.remove(f"{root}/f")
    assert disk.read(f"{root}/d/g") == b"both"


@pytest.mark.parametrize("sync", [True, False])
def test_write_atomic(disk: Disk, root: str, sync: bool) -> None:
    disk.write_atomic(f"{root}/f", b"first, and long", sync=sync)
    disk.write_atomic(f"{root}/f", b"second", sync=sync)
    assert (disk.read(f"{root}/f"), disk.list(root)) == (b"second", ["f"])
    disk.write_atomic(f"{root}/empty", b"", sync=sync)
    assert disk.read(f"{root}/empty") == b""


def test_lock_is_taken_once(disk: Disk, root: str) -> None:
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    disk.lock(f"{root}/.lock").release()


def test_modified_time_is_a_number_of_now(disk: Disk, root: str) -> None:
    disk.write_atomic(f"{root}/f", b"x")
    assert disk.modified_ms(f"{root}/f") >= 0


REFUSALS: list[tuple[str, Callable[[Disk, str], object], int]] = [
    ("open what is not there", lambda disk, root: disk.open(f"{root}/no"), errno.ENOENT),
    (
        "create below what is not there",
        lambda disk, root: disk.open(f"{root}/no/f", create=True),
        errno.ENOENT,
    ),
    ("open a directory", lambda disk, root: disk.open(f"{root}/d"), errno.EISDIR),
    ("read what is not there", lambda disk, root: disk.read(f"{root}/no"), errno.ENOENT),
    ("size of what is not there", lambda disk, root: disk.size(f"{root}/no"), errno.ENOENT),
    ("list what is not there", lambda disk, root: disk.list(f"{root}/no"), errno.ENOENT),
    ("list a file", lambda disk, root: disk.list(f"{root}/f"), errno.ENOTDIR),
    ("make below a file", lambda disk, root: disk.make_directories(f"{root}/f"), errno.EEXIST),
    ("remove what is not there", lambda disk, root: disk.remove(f"{root}/no"), errno.ENOENT),
    ("remove a directory as a file", lambda disk, root: disk.remove(f"{root}/d"), errno.EISDIR),
    (
        "remove a tree that is not there",
        lambda disk, root: disk.remove_tree(f"{root}/no"),
        errno.ENOENT,
    ),
    (
        "rename what is not there",
        lambda disk, root: disk.rename(f"{root}/no", f"{root}/x"),
        errno.ENOENT,
    ),
    (
        "rename a file over a directory",
        lambda disk, root: disk.rename(f"{root}/f", f"{root}/d"),
        errno.EISDIR,
    ),
    (
        "rename a directory over a full one",
        lambda disk, root: disk.rename(f"{root}/e", f"{root}/d"),
        errno.ENOTEMPTY,
    ),
    (
        "link what is not there",
        lambda disk, root: disk.link(f"{root}/no", f"{root}/x"),
        errno.ENOENT,
    ),
    ("link to what is there", lambda disk, root: disk.link(f"{root}/f", f"{root}/d"), errno.EEXIST),
    ("link a directory", lambda disk, root: disk.link(f"{root}/d", f"{root}/x"), errno.EPERM),
    (
        "sync a directory that is not there",
        lambda disk, root: disk.sync_directory(f"{root}/no"),
        errno.ENOENT,
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal[0])
def test_refusals(
    disk: Disk, root: str, refusal: tuple[str, Callable[[Disk, str], object], int]
) -> None:
    _, act, code = refusal
    disk.write_atomic(f"{root}/f", b"f")
    disk.make_directories(f"{root}/d/full")
    disk.make_directories(f"{root}/e")
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the code below says which
        act(disk, root)
    assert caught.value.errno == code


def test_a_held_directory_is_the_same_one_under_any_name(disk: Disk, root: str) -> None:
    """What has its old name by then is another one, and not touched."""
    disk.make_directories(f"{root}/d")
    disk.write_atomic(f"{root}/d/old", b"1")
    with disk.inside(f"{root}/d") as files:
        disk.rename(f"{root}/d", f"{root}/gone")
        disk.make_directories(f"{root}/d")
        file = files.open(f"{root}/d/made", create=True)
        file.append(b"2")
        file.close()
        files.write_atomic(f"{root}/d/whole", b"3")
        assert files.exists(f"{root}/d/old")
        files.remove(f"{root}/d/old")
        assert not files.exists(f"{root}/d/old")
        files.sync_directory(f"{root}/d")
    assert disk.list(f"{root}/d") == []
    assert disk.list(f"{root}/gone") == ["made", "whole"]
    assert disk.read(f"{root}/gone/whole") == b"3"


def test_no_directory_is_held_that_is_not_there(disk: Disk, root: str) -> None:
    with pytest.raises(FileNotFoundError), disk.inside(f"{root}/none"):
        pytest.fail("there is none")


def test_what_is_written_takes_room(disk: Disk, root: str) -> None:
    before = disk.space(root)
    assert 0 < before.free_bytes <= before.total_bytes
    assert before.files_free is None or before.files_free > 0
    with pytest.raises(FileNotFoundError):
        disk.space(f"{root}/nowhere")
