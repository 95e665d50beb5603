"""Every bug that `make mutants` puts in still has its place in the code.

Goal: no mutation is lost when the code it breaks is rewritten. Method: look for the text of each
edit, which has to be there exactly once, and compile what comes of it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "mutants.py"


@pytest.mark.slow
@pytest.mark.process
def test_every_mutation_applies() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"write it anew in scripts/mutations_*.py:\n{done.stderr}"
