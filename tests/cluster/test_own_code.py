"""Goal: what a cluster starts is of the code that started it, never of what is installed beside.

Method: a copy of the code in which one program says that it is the copy's, and ends; a process
that has loaded the copy makes a cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cluster import own_code

SOURCE = Path(holdfast.__file__).parent.parent
SAID = "this is the copy"
CREATE = "LocalCluster.create(Path(sys.argv[2]), port=0"
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.network import addresses
from holdfast.cluster.network.proxies import proxy_ground
from holdfast.cli.proving import prove_replay
from holdfast.lab.parameters import LabError
try:
    {}
except (ClusterError, LabError) as error:
    print(error)
"""


def copy_with(folder: Path, name: str) -> Path:
    """Return a copy of src that differs in this one file; all else of it are links."""
    there, here = folder / "copy", SOURCE
    there.mkdir()
    for part in Path(name).parts:
        for each in here.iterdir():
            if each.name != part:
                (there / each.name).symlink_to(each)
        here, there = here / part, there / part
        if here.is_dir():
            there.mkdir()
    there.write_text(f"raise SystemExit('error: {SAID}')\n")
    return folder / "copy"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("holdfast/node/__main__.py", f"{CREATE}).start()"),
        ("holdfast/node/__main__.py", f"{CREATE}, features={{'kraft.version': 1}})"),
        (
            "holdfast/cluster/network/proxies/pair_proxies.py",
            "proxy_ground.make(Path(sys.argv[2]), addresses.Plan(()), {})",
        ),
        ("holdfast/testing/simulation/drawing.py", "prove_replay.drawn(7)"),
    ],
    ids=["a node", "a node that formats", "the network's proxies", "the simulator that draws"],
)
def test_what_is_started_runs_the_code_that_starts_it(tmp_path: Path, name: str, does: str) -> None:
    """Seen to fail: nodes of an installed package stood in for code that could not even start."""
    copy, place = copy_with(tmp_path, name), tmp_path / "cluster"
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM.format(does), str(copy), str(place)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert SAID in done.stdout, done.stderr


def test_who_names_other_code_for_a_process_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook of a test, or the copy with a bug: it stands before this code, and this one stays."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert own_code.environment() == {"PYTHONPATH": str(SOURCE)}
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    found = own_code.environment({"PYTHONPATH": "/hook", "A": "b"})
    assert found == {"PYTHONPATH": f"/hook:{SOURCE}:/theirs", "A": "b"}
