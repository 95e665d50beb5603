"""Goal: a run's small file system is small, is nobody else's, and leaves its files behind.

Method: a process of its own mounts, fills and unmounts one, as root or in a user's own namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.lab.steps.mounts import KEPT

pytestmark = [pytest.mark.process, pytest.mark.slow]

SIZE = 1 << 20
PROGRAM = """
import errno, os, sys, threading
from pathlib import Path
from holdfast.lab.steps import mounts
from holdfast.lab.parameters import LabError

NOBODY = 65534
directory = Path(sys.argv[1])
if sys.argv[2] == "refused":
    mounts._unshare = lambda flags: (_ for _ in ()).throw(LabError("not here"))
if sys.argv[2] == "threads":
    os.setresuid(NOBODY, NOBODY, NOBODY)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    mounts.mount_small(directory, int(sys.argv[3]))
except LabError as error:
    print(f"refused: {error}")
    sys.exit()
found = os.statvfs(directory)
assert found.f_blocks * found.f_frsize == int(sys.argv[3])
with (directory / "kept").open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(65536))
    except OSError as error:
        print(errno.errorcode[error.errno], file.tell())
if sys.argv[2] == "raced":  # the node takes a page just after its room was counted
    counted = iter([os.statvfs])
    def count(path, real=os.statvfs):
        found = real(path)
        for _ in counted:
            (directory / "node").write_bytes(bytes(65536))
        return found
    (directory / "kept").unlink()
    os.statvfs = count
    from holdfast.lab.steps.small_disks import take_room
    take_room(directory / "filler", 0)
    found = os.statvfs(directory)
    print(found.f_bavail)
if sys.argv[2] == "unmounted":
    mounts.unmount(directory)
else:
    os.kill(os.getpid(), 9)
"""


def ran(directory: Path, how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory), how, str(SIZE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    if how not in {"refused", "threads"} and done.stdout.startswith("refused"):
        pytest.skip(done.stdout.strip())
    return done.stdout.strip()


def test_what_it_holds_is_kept_in_its_place(tmp_path: Path) -> None:
    assert ran(tmp_path / "small", "unmounted") == f"ENOSPC {SIZE}"
    assert (tmp_path / "small" / "kept").stat().st_size == SIZE
    assert not (tmp_path / f"small{KEPT}").exists()


def test_nothing_is_left_mounted_when_a_run_is_killed(tmp_path: Path) -> None:
    assert ran(tmp_path / "small", "killed") == f"ENOSPC {SIZE}"
    assert not list((tmp_path / "small").iterdir())
    (tmp_path / "small").rmdir()  # busy, were it mounted here


def test_where_it_may_not_be_had_that_is_said(tmp_path: Path) -> None:
    assert ran(tmp_path / "small", "refused") == "refused: not here"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else, which takes root")
def test_who_is_not_root_is_told_how_to_be(tmp_path: Path) -> None:
    """Goal: a run has threads by then, and the system gives those no namespace of a user."""
    assert "put `unshare --map-root-user` before" in ran(tmp_path / "small", "threads")


def test_room_is_taken_beside_who_writes(tmp_path: Path) -> None:
    assert ran(tmp_path / "small", "raced").endswith("\n0")
