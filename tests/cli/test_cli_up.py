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
from holdfast.lab.soak.killed_campaigns import hearing

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
    assert "t" in holdfast("topics", *at, "--list").stdout.split()
    holdfast("kill", "controllers", "2", *at)
    nobody_knows(at)
    holdfast("kill", "all", *at)  # nobody is there to be told goodbye
    assert "not running" in holdfast("down", *at).stdout


def nobody_knows(at: list[str]) -> None:
    """Without a controller: of node 2, dead, no metadata say so, and its leaderships seem to be."""
    left = json.loads(holdfast("status", "--json", *at, status=1).stdout)
    assert (left["active_controller"], left["under_replicated"], left["leaderless"]) == (None,) * 3
    assert (left["topics"], left["partitions"], left["healthy"]) == (1, 4, False)
    brokers = {node["id"]: node for node in left["nodes"] if "broker" in node["roles"]}
    assert {node["serving"] for node in brokers.values() if node["id"] != 2} == {True}
    assert not brokers[2]["serving"]
    assert {node["leaders"] for node in brokers.values()} == {None}
    assert "in sync nobody knows" in holdfast("status", *at, status=1).stdout
    described = holdfast("topics", "--describe", *at)  # seen to wait for half a minute
    assert "PartitionCount: 4" in described.stdout
    assert "warning: no controller says" in described.stderr


@pytest.mark.process
def test_a_feature_that_there_is_not(tmp_path: Path) -> None:
    """Goal: one clean sentence, and nothing left behind. Method: a name, a level; then without.

    Seen to end in "Node 100 can't be formatted: error: There is ...".
    """
    at = ["--data-dir", str(tmp_path), "--brokers", "1", "--port", "0", "--detach"]
    refused = holdfast("up", *at, "--feature", "foo=1", status=2)
    assert refused.stderr.startswith("holdfast: --feature foo=1: There is no feature foo")
    assert refused.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [".cluster.lock"]


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_making_a_cluster_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """Goal: a signal while its directories are formatted leaves none of them. Method: each one.

    Seen to leave folders without a description, which every later `up` refused.
    """
    arguments = ["up", "--port", "0", "--data-dir", str(tmp_path), "--controllers", "9"]
    feature = ["--feature", "eligible.leader.replicas.version=0"]
    command = [sys.executable, "-m", "holdfast.cli", *arguments, *feature]
    with hearing(number), subprocess.Popen(command) as process:
        wait_until(
            lambda: list(tmp_path.glob("controller-100/data*")), timeout_s=BOUND_S, what="a folder"
        )
        process.send_signal(number)
        assert process.wait(BOUND_S) == 130
    assert [path.name for path in tmp_path.iterdir()] == [".cluster.lock"]


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
