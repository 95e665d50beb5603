"""Goal: what a small file system can't be had for, or can't be, is an error that says so.

Method: a machine whose programs are nowhere, and sizes that are none. Nothing is mounted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.lab.parameters import LabError
from holdfast.lab.steps import mounts

PAGE = 4096


@pytest.mark.parametrize("size_bytes", [0, -PAGE])
def test_no_file_system_gets_a_size_that_is_no_bound(size_bytes: int) -> None:
    with pytest.raises(LabError, match="a size of 0 is no bound"):
        mounts.resize(Path("nowhere"), size_bytes)


@pytest.mark.process
def test_a_machine_without_mount_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seen to fail: a storm ended with a traceback there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mounts, "_entered", True)
    with pytest.raises(LabError, match=r"mount -t tmpfs .*No such file"):
        mounts.mount_small(tmp_path / "small", PAGE)
