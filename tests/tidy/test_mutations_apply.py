"""Every bug that `make mutants` puts in still has its place in the code.

Goal: no mutation is lost when the code it breaks is rewritten. Method: look for the text of each
edit, which has to be there exactly once, and compile what comes of it. What finds one is named.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mutants import first_failed

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


def test_a_failed_test_is_named_whatever_programs_write() -> None:
    output = """\
ERROR py4j.java_gateway:java_gateway.py:1055 Error while sending
=================== short test summary info ====================
FAILED tests/pipelines/test_sink.py::test_once - AssertionError: 2 - 1
ERROR tests/pipelines/test_sink.py::test_twice - OSError
1 failed, 1 error in 3.10s
"""
    assert first_failed(output) == "FAILED tests/pipelines/test_sink.py::test_once"
    assert first_failed("ERROR py4j\n1 failed") == "a test"
