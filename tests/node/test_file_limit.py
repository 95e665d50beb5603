"""Descriptors: a node takes what it may have, and its logs leave half of it to connections.

Goal: many clients or many replicas don't make a good disk look broken. Method: a process that is
given a low limit, which can't be taken back within one's own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import resource
from holdfast.node.__main__ import _share_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(*_share_descriptors(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("soft", "hard", "expected"), [(64, 200, "100 50 200 200"), (300, 300, "150 75 300 300")]
)
def test_a_node_takes_what_descriptors_it_may_have(soft: int, hard: int, expected: str) -> None:
    code = CODE.format(soft=soft, hard=hard)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == expected


TAKEN = """
import os, resource, sys
from holdfast.runtime.real import RealDisk
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
disk, home = RealDisk(), sys.argv[1]
disk.open(f"{home}/first", create=True).close()
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError as error:
    print(error.strerror)
disk.open(f"{home}/second", create=True).append(b"kept")
disk.write_atomic(f"{home}/third", b"kept")
print(*disk.list(home), disk.read(f"{home}/second").decode())
disk.remove_tree(home)
"""


@pytest.mark.process
def test_files_are_opened_when_connections_have_taken_every_descriptor(tmp_path: Path) -> None:
    """Seen to fail: with EMFILE, which counted as the end of the disk."""
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", TAKEN, str(home)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "Too many open files\nfirst second third kept\n", done.stderr
    assert not home.exists()
