"""Goal: a table of SQLite or PostgreSQL has each batch once, wherever its writer dies.

Method: a writer that dies before each of its commits in turn, those of its tasks too, and another
one that goes on.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_writer_that_dies_at_any_commit_leaves_each_batch_whole_or_not_at_all(
    database: str, mode: str
) -> None:
    program = [sys.executable, "-m", "tests.pipelines.sql_writer", database, mode]
    done = subprocess.run(program, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 4, "it came to its end too soon to have died anywhere"
