"""Goal: a run's small file system is small, is nobody else's, and leaves its files behind.

Method: a process of its own mounts, fills and unmounts one, as root or in a user's own namespace.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.lab.steps.mounts import KEPT

pytestmark = [pytest.mark.process, pytest.mark.slow]

SIZE = 1 << 20
PROGRAM = """
import errno, os, sys
from pathlib import Path
from holdfast.lab.steps import mounts
from holdfast.lab.parameters import LabError

directory = Path(sys.argv[1])
if sys.argv[2] == "refused":
    mounts._unshare = lambda flags: (_ for _ in ()).throw(LabError("not here"))
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
    if how != "refused" and done.stdout.startswith("refused"):
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
