"""Goal: what is kept is what somebody wrote. Method: every file that git knows of is text.

A compiled module beside the sources is imported in place of them, on the one machine it fits.
Seen to fail: with an extension module in `src` that a `git add` had taken along.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.process
def test_nothing_compiled_is_kept() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    listed = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    assert names
    assert not [name for name in names if b"\0" in (ROOT / name).read_bytes()]
