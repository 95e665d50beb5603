"""Goal: whoever types docs/how-to/break-the-network.md gets what it says. Method: it is typed.

Each line in the page's order, on a cluster with free ports. Then what a command that is entered
gives back, and what is left when all is down.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import cli

pytestmark = [pytest.mark.serial, pytest.mark.slow]
BOUND_S = 60.0
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "break-the-network.md"
PROGRAM = [sys.executable, "-m", "holdfast.cli"]


def holdfast(line: str) -> subprocess.CompletedProcess[str]:
    """Run a command: in this process, but for `enter`, which would make another one of it."""
    if not line.startswith("enter "):
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = cli.run(shlex.split(line))
        return subprocess.CompletedProcess(line, status, output.getvalue(), errors.getvalue())
    return subprocess.run(
        [*PROGRAM, *shlex.split(line)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def typed() -> list[str]:
    """The page's commands, without the name of the program and without comments."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [
        re.sub(r"\s+#.*", "", line).removeprefix("holdfast ")
        for line in lines
        if line.startswith("holdfast ")
    ]


@pytest.mark.usefixtures("default_network")
def test_the_page_on_networks() -> None:
    lines = typed()
    assert lines.pop(0) == "up --network --zones a,b,c --detach"
    up = holdfast("up --network --zones a,b,c --detach --port 0")
    assert up.returncode == 0, up.stderr
    assert re.search(r"node 1 +broker on 127\.0\.0\.1:\d+ \(10\.1\.0\.2 in b\)", up.stdout)
    assert lines.pop() == "down"
    said = {}
    for line in lines:
        done = holdfast(line)
        # Of what is broken `status --links` says so by its exit status, too.
        expected = 1 if line == "status --links" else 0
        assert done.returncode == expected, f"{line}\n{done.stdout}{done.stderr}"
        said[line] = done.stdout
    assert said["status"].count("\n0     broker") == 1
    assert said["enter --zone a holdfast topics --list"] == "payments\n"
    assert "10.1.0.1 node-0" in said["enter --zone b cat /etc/hosts"]
    assert "10.1.0.2/32" in said["enter --node 1 ip -brief address"]
    assert said["cut 0 1"] == "Cut: what passes between 0 and 1 gets through no more (2 links).\n"
    assert re.match(
        r"Isolated: [012] is cut from all others \(\d+ links\)", said["isolate leader:payments-0"]
    )
    assert re.search(r"^0 <-> 1 +loses 1%", said["status --links"], re.MULTILINE)
    assert re.search(r"^1 -> host +swallowed 0 of 3 Produce", said["status --links"], re.MULTILINE)
    assert json.loads(said["status --links --json"])["whole"] is True
    again()
    command_entered()


def again() -> None:
    """What was done already is said to be so; what there isn't, with what there is."""
    assert holdfast("isolate 1").stdout.startswith("Isolated: 1")
    assert holdfast("isolate 1").stdout == "Nothing changed: 1 is isolated already.\n"
    assert json.loads(holdfast("isolate 1 --json").stdout) == {"command": "isolate", "changed": []}
    assert json.loads(holdfast("status --json").stdout)["broken_links"] > 0
    assert holdfast("heal 1").stdout.startswith("Healed: all links of 1 are whole (")
    assert holdfast("heal").stdout == "Nothing changed: all links are whole.\n"
    unknown = holdfast("cut 0 7")
    assert unknown.returncode == 2
    assert "There are 0, 1, 2, 100" in unknown.stderr
    assert holdfast("status --links").returncode == 0, "nothing was cut"


def command_entered() -> None:
    """Exit status, signals and terminal are the command's own."""
    assert holdfast("enter sh -c 'exit 7'").returncode == 7
    assert "`holdfast enter --node 0 COMMAND`" in holdfast("enter 0").stderr
    assert "`holdfast enter --zone c COMMAND`" in holdfast("enter c ls").stderr
    assert holdfast("enter --zone c printenv HOLDFAST_PLACE").stdout == "client-c\n"
    nested = holdfast("enter holdfast enter true")
    assert nested.returncode == 2
    assert "no other place can be entered" in nested.stderr
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done"
    with subprocess.Popen([*PROGRAM, "enter", "sh", "-c", script], stdout=subprocess.PIPE) as held:
        assert held.stdout
        assert held.stdout.readline() == b"ready\n"
        held.send_signal(signal.SIGTERM)
        assert held.wait(BOUND_S) == 9
    master, terminal = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, "enter", "sh", "-c", "test -t 0 && test -t 1"],
        stdin=terminal,
        stdout=terminal,
        timeout=BOUND_S,
        check=False,
    )
    os.close(terminal)
    os.close(master)
    assert done.returncode == 0, "it has the terminal"
