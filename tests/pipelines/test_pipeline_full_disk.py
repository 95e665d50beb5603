"""Goal: a full disk under a sink is told in plain words, and costs no row and doubles none.

Method: real writers on a small file system of their own; see `full_disk_writer`.
"""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError
from tests.pipelines.full_disk_writer import KINDS

from holdfast.pipelines.fence import FencedError, folder_of
from holdfast.pipelines.sinks.store import FullDiskError, told_if_full

ROOT = Path(__file__).parent.parent.parent
TRIES = "from pathlib import Path; from holdfast.lab.steps.mounts import mount_small; "


def refuse_without_mounts(folder: Path) -> None:
    """Skip where nobody may mount: it is tried in a process of its own, which it stays in."""
    tried = f"{TRIES}mount_small(Path({str(folder)!r}), 1 << 20)"
    done = subprocess.run(
        [sys.executable, "-c", tried], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no small file system can be had: {done.stderr.splitlines()[-1]}")


@pytest.mark.process
@pytest.mark.slow
def test_a_full_disk_costs_no_row_and_doubles_none(tmp_path: Path) -> None:
    refuse_without_mounts(tmp_path / "tried")
    command = [sys.executable, "-m", "tests.pipelines.full_disk_writer", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert {Path(line).relative_to(tmp_path).parts[0].partition(":")[0] for line in told} == {
        *KINDS
    }
    for line in told:
        assert "no room is left on this disk" in line
        assert "start the query again" in line


def test_a_worker_s_report_of_a_full_disk_is_told_too(tmp_path: Path) -> None:
    """What a task met comes as the text of Spark's own error."""
    with pytest.raises(FullDiskError, match=str(tmp_path)), told_if_full(tmp_path / "not" / "yet"):
        raise RuntimeError(f"Job aborted: {OSError(errno.ENOSPC, 'No space left on device')}")


def test_a_disk_that_has_room_is_not_the_only_one_named(tmp_path: Path) -> None:
    """Rows wait in temporary files, of ours and of Spark's, which may lie on another disk."""
    with pytest.raises(FullDiskError, match=f"{tmp_path}.*TMPDIR"), told_if_full(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


ROW = "disk 3: No space left on device"
TWICE = IntegrityError("INSERT INTO logs (line) VALUES (?)", (ROW,), ValueError("UNIQUE failed"))
OTHERS = (
    FencedError("taken over"),
    OSError(errno.EACCES, "no"),
    RuntimeError("disk I/O error"),
    TWICE,  # whose row is a log's line
)


@pytest.mark.parametrize("error", OTHERS)
def test_what_is_no_full_disk_stays_what_it_is(tmp_path: Path, error: Exception) -> None:
    """An error of the disk where there is room is another one."""
    with pytest.raises(type(error)) as found, told_if_full(tmp_path):
        raise error
    assert found.value is error


def test_a_server_says_by_itself_what_it_lacks() -> None:
    error = RuntimeError("No space left on device")
    with pytest.raises(RuntimeError) as found, told_if_full(None):
        raise error
    assert found.value is error


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("sqlite:////data/table.db", Path("/data")),
        ("sqlite+pysqlite:////data/table.db", Path("/data")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("postgresql://me@host/database", None),
    ],
)
def test_where_a_database_s_files_are(url: str, folder: Path | None) -> None:
    assert folder_of(url) == folder
