"""`holdfast up` and what is done to a cluster afterwards, as a user types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import State, wait_until

pytestmark = pytest.mark.slow
BOUND_S = 60.0


def holdfast(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.mark.serial
def test_a_cluster_from_up_to_down(tmp_path: Path) -> None:
    """Goal: the whole round as documented. Method: up --detach, look, kill, start, down, again."""
    directory = tmp_path / "cluster"
    at = ["--data-dir", str(directory)]
    misspelt = ["--config", "num.partition=5"]
    refused = holdfast("up", "--detach", *at, "--config", "num.partitions=many", status=2)
    assert "num.partitions=many" in refused.stderr
    up = holdfast("up", "--detach", "--port", "0", *at, "--config", "num.partitions=4", *misspelt)
    assert "num.partition is not a known key" in up.stderr
    assert str(directory) in up.stdout
    assert "broker.session.timeout.ms=3000" in up.stdout
    values = json.loads((directory / "cluster.json").read_text())
    assert [node["id"] for node in values["nodes"]] == [0, 1, 2, 100, 101, 102]
    assert values["bootstrap_servers"] in up.stdout
    servers = ["--bootstrap-server", values["bootstrap_servers"]]
    holdfast("topics", *servers, "--create", "--topic", "t")
    second = holdfast("up", "--detach", *at, status=1)
    assert "running already" in second.stderr
    healthy = json.loads(holdfast("status", "--json", *at).stdout)
    assert healthy["healthy"]
    active = healthy["active_controller"]
    (leader,) = [node for node in healthy["nodes"] if node["id"] == active]
    assert (leader["active"], leader["lag"]) == (True, 0)
    shown = holdfast("metadata-quorum", *servers, "describe", "--status").stdout
    assert f"LeaderId:               {active}" in shown
    assert healthy["partitions"] == 4
    assert "3 brokers" in holdfast("cat", "-L", "-b", values["bootstrap_servers"]).stdout

    assert "dead now" in holdfast("kill", "1", *at).stdout
    sick = json.loads(holdfast("status", "--json", *at, status=1).stdout)
    states = {node["id"]: node["state"] for node in sick["nodes"]}
    assert states.pop(1) == "dead"
    assert set(states.values()) == {"running"}
    assert "process" in holdfast("start", "1", *at).stdout
    assert f"Node {active}" in holdfast("kill", "controller:active", *at).stdout
    assert f"Node {active} serves" in holdfast("start", "controllers", *at).stdout
    holdfast("kill", "1", "--signal", "HUP", *at, status=2)

    assert "is down" in holdfast("down", *at).stdout
    assert "not running" in holdfast("down", *at).stdout
    wrong = holdfast("up", "--detach", "--brokers", "5", *at, status=2)
    assert "--brokers 5, but it has 3" in wrong.stderr
    assert "Resuming" in holdfast("up", "--detach", *at).stdout
    assert "t" in holdfast("topics", *servers, "--list").stdout.split()
    holdfast("down", *at)


@pytest.mark.serial
def test_ctrl_c_stops_a_foreground_cluster(tmp_path: Path) -> None:
    """Goal: Ctrl-C leaves nothing behind. Method: SIGINT to `up`, then look for its nodes."""
    arguments = ["up", "--brokers", "1", "--combined", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        read_until(process.stdout, "Ctrl-C stops")
        cluster = LocalCluster.open(tmp_path)
        node = cluster.node(0)
        assert cluster.state(0) is State.RUNNING
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(BOUND_S) == 0
    assert "All nodes have ended." in rest
    assert node.pid is not None
    wait_until(
        lambda: not Path(f"/proc/{node.pid}").exists(), timeout_s=BOUND_S, what="the node to go"
    )


def read_until(stream: IO[str], text: str) -> None:
    for line in stream:
        if text in line:
            return
    pytest.fail(f"the output ended without {text!r}")
