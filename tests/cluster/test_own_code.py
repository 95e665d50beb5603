"""Goal: what a cluster starts is of the code that started it, never of what is installed beside.

Method: a copy of the code in which one program says that it is the copy's, and ends; a process
that has loaded the copy makes a cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import crc32c
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
BY_HAND = """
import sys
sys.path.insert(0, sys.argv[1])
from holdfast.cli.node import _become_node
_become_node(["--help"])
"""
INSTALLED = """
import os, subprocess, sys
from holdfast.cluster import own_code
print(own_code.environment(), flush=True)
command = [sys.executable, "-P", "-m", "holdfast.node", "--help"]
subprocess.run(command, env={**os.environ, **own_code.environment()})
"""
PASSED_OVER = """
import sys
sys.path.insert(0, sys.argv[1])
from holdfast.cluster import own_code
import json
print(json.dumps(own_code.environment()))
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


def python(
    *words: str, path: str = "", program: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run Python that begins as processes of ours do, with this PYTHONPATH."""
    return subprocess.run(
        [program, "-P", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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
    done = python("-c", PROGRAM.format(does), str(copy), str(place))
    assert SAID in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.process
def test_a_node_by_hand_runs_the_code_of_its_command(tmp_path: Path) -> None:
    """Seen to fail: `holdfast node` of code that is not installed ran the node that is."""
    copy = copy_with(tmp_path, "holdfast/node/__main__.py")
    done = python("-c", BY_HAND, str(copy))
    assert SAID in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.process
def test_what_is_installed_beside_us_stands_before_nobody(tmp_path: Path) -> None:
    """A wheel's folder has all that others have installed there, modules of Python's names too.

    Seen to fail: a node ended in the `asyncio` there, which its lab had never seen.
    """
    venv.create(tmp_path, with_pip=False, symlinks=True)
    (installed,) = tmp_path.glob("lib/python*/site-packages")
    for package in (holdfast, crc32c):  # what a node needs
        folder = Path(str(package.__file__)).parent
        (installed / folder.name).symlink_to(folder)
    (installed / "asyncio.py").write_text("raise SystemExit('not that of Python')\n")
    (tmp_path / "theirs").mkdir()
    for path in ("", str(tmp_path / "theirs")):
        done = python("-c", INSTALLED, path=path, program=str(tmp_path / "bin/python"))
        assert done.stdout.startswith("{}\nUsage: python -m holdfast.node"), done


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("flag", "beside"),
    [("-E", {}), ("-I", {"PYTHONNOUSERSITE": "1"}), ("-s", {"PYTHONNOUSERSITE": "1"})],
)
def test_what_we_pass_over_a_process_of_ours_passes_over(
    tmp_path: Path, flag: str, beside: dict[str, str]
) -> None:
    """A lab does not look at PYTHONPATH, or the user's packages; its nodes found other code there.

    Seen to fail.
    """
    theirs = copy_with(tmp_path, "holdfast/node/__main__.py")
    done = python(flag, "-c", PASSED_OVER, str(SOURCE), path=str(theirs))
    path = f"{theirs}" if flag == "-s" else ""
    found = json.loads(done.stdout)
    assert found == {"PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), path])), **beside}


def test_a_folder_that_may_not_be_read_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python does. Seen to fail: no node started where somebody else's HOME was meant."""
    is_file = Path.is_file

    def refusing(path: Path) -> bool:
        if path.is_relative_to("/closed"):
            raise PermissionError(str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refusing)
    monkeypatch.setenv("PYTHONPATH", "/closed")
    assert own_code.environment() == {"PYTHONPATH": f"{SOURCE}:/closed"}


def test_who_names_other_code_for_a_process_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook of a test, or the copy with a bug: it stands before this code, and this one stays."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert own_code.environment() == {"PYTHONPATH": str(SOURCE)}
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    found = own_code.environment({"PYTHONPATH": "/hook", "A": "b"})
    assert found == {"PYTHONPATH": f"/hook:{SOURCE}:/theirs", "A": "b"}
