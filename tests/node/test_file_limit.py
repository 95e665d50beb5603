"""Descriptors: a node takes what it may have, and its logs leave half of it to connections.

Goal: many clients or many replicas don't make a good disk look broken. Method: a process that is
given a low limit, which can't be taken back within one's own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource
from holdfast.node.__main__ import _raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(_raise_file_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("soft", "hard", "expected"), [(64, 200, "100 200 200"), (300, 300, "150 300 300")]
)
def test_a_node_takes_what_descriptors_it_may_have(soft: int, hard: int, expected: str) -> None:
    code = CODE.format(soft=soft, hard=hard)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == expected
