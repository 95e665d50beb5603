"""`holdfast prove --bootstrap-server`, `--nodes`: what goes together, what is shown, whole runs.

Real processes: the cluster is one of ours, and the lab knows its address and commands only.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.cluster import LocalCluster
from holdfast.cluster.elsewhere.elsewhere_cluster import find
from holdfast.cluster.processes import State, wait_until
from holdfast.lab.elsewhere.before import look_with
from holdfast.lab.elsewhere.elsewhere_run import HELD, held
from holdfast.lab.parameters import LabError
from holdfast.lab.soak.elsewhere_campaigns import changed, our_command, write_nodes_file

if TYPE_CHECKING:
    from tests.cli.conftest import Run

MAY = "--i-may-break-this-cluster"
NOBODY = "127.0.0.1:1"
BOUND_S = 60.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "x.toml", "--bootstrap-server", NOBODY], "names its own bootstrap-server"),
        ([MAY], f"{MAY} goes with --nodes FILE.toml"),
        (["--bootstrap-server", NOBODY, MAY], f"{MAY} goes with --nodes FILE.toml"),
        (["--bootstrap-server", NOBODY, "--engine", "apache"], "--engine: a cluster that is there"),
        (["--bootstrap-server", NOBODY, "--config", "a=b"], "--config: a cluster that is there"),
        (["--bootstrap-server", NOBODY, "--no-elr"], "--elr: a cluster that is there"),
        (["--bootstrap-server", NOBODY, "--profile", "lab"], "--profile: a cluster that is there"),
        (["--bootstrap-server", NOBODY, "--controllers", "3"], "--controllers: a cluster that is"),
        (["--bootstrap-server", NOBODY], f"--bootstrap-server {NOBODY}: nobody answers there"),
        (["--bootstrap-server", ""], "'' is not host:port"),
        (["--nodes", "no-such.toml", MAY], "--nodes no-such.toml: No such file"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    outcome = run("prove", "one-broker-down", *words, "--output", str(tmp_path / "run"))
    assert (outcome.status, outcome.output) == (2, "")
    assert said in outcome.errors
    assert not (tmp_path / "run").exists()


def test_they_go_with_one_scenario(run: Run) -> None:
    for words in (["--list"], ["--all"]):
        outcome = run("prove", *words, "--bootstrap-server", NOBODY)
        assert (outcome.status, outcome.output) == (2, "")
        assert words[0] in outcome.errors


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("theirs")
    with LocalCluster.create(directory, brokers=2, controllers=1, port=0) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture(scope="module")
def nodes(theirs: LocalCluster) -> Path:
    path = theirs.directory / "nodes.toml"
    write_nodes_file(path, theirs)
    return path


@pytest.mark.slow
@pytest.mark.serial
def test_what_would_be_done_is_shown_and_not_done(
    run: Run, theirs: LocalCluster, nodes: Path, tmp_path: Path
) -> None:
    """Goal: nobody breaks a cluster by a slip. Method: a file with all commands, and no consent."""
    words = ["--no-control", "--signal", "KILL", "--output", str(tmp_path / "run")]
    outcome = run("prove", "one-broker-down", "--nodes", str(nodes), *words)
    assert (outcome.status, outcome.output) == (2, "")
    way = our_command()
    assert f"  node 1  kill       {way} kill 1 --signal KILL --data-dir" in outcome.errors
    assert f"  node 0  start      {way} start 0 --data-dir" in outcome.errors
    assert "pause" not in outcome.errors
    assert f"Nothing was done. If it may be: {MAY}." in outcome.errors
    assert list(changed(theirs)) == []
    servers = ["--bootstrap-server", theirs.bootstrap_servers]
    outcome = run("prove", "one-broker-down", *servers, *words)
    assert outcome.status == 2
    assert "--nodes FILE.toml says how these are hurt" in outcome.errors
    assert not (tmp_path / "run").exists()


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
def test_a_broker_is_killed_by_commands_and_the_verdict_is_as_ever(
    run: Run, theirs: LocalCluster, nodes: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    words = ["--no-control", "--signal", "KILL", "--duration", "0.5", "--output", str(directory)]
    outcome = run("prove", "one-broker-down", "--nodes", str(nodes), MAY, "--json", *words)
    told = json.loads(outcome.output)
    assert (outcome.status, told["exit"]) == (0, 0), outcome.errors
    assert told["engine"] == "elsewhere"
    assert told["settings"]["brokers"] == "0, 1"
    assert "Replicas were not compared" in told["verdict"]
    assert list(changed(theirs)) == []
    log = directory / "main" / "commands" / "node-0.log"
    assert "kill 0 --signal KILL" in log.read_text()
    assert run("check", str(directory)).status == 0


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
def test_ctrl_c_leaves_the_cluster_whole(theirs: LocalCluster, nodes: Path, tmp_path: Path) -> None:
    """Method: SIGINT to the command while a broker is dead by its doing."""
    command = ["prove", "one-broker-down", "--nodes", str(nodes), MAY, "--no-control"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *command, "--output", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            wait_until(
                lambda: any(theirs.state(n) is State.DEAD for n in theirs.broker_ids),
                timeout_s=BOUND_S,
                what="a broker to be dead",
            )
        finally:
            process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=2 * BOUND_S)
    assert process.returncode == 130, said
    assert "undone: start of node" in said
    assert "NOT UNDONE" not in said
    assert list(changed(theirs)) == []


@pytest.mark.slow
@pytest.mark.serial
def test_a_cluster_that_another_run_breaks_is_left_alone(
    run: Run, theirs: LocalCluster, nodes: Path, tmp_path: Path
) -> None:
    """Method: the topic of a run that still goes on, or was killed."""
    asked = ("topics", "--bootstrap-server", theirs.bootstrap_servers)
    topic = "holdfast-prove-another"
    assert run(*asked, "--create", "--topic", topic).status == 0
    words = ["--no-control", "--output", str(tmp_path / "run")]
    try:
        outcome = run("prove", "one-broker-down", "--nodes", str(nodes), MAY, *words)
    finally:
        assert run(*asked, "--delete", "--topic", topic).status == 0
    assert (outcome.status, outcome.output) == (2, "")
    assert f"has the topic {topic}: another run breaks it just now" in outcome.errors


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.usefixtures("nodes")
def test_two_that_look_in_the_same_moment_do_not_both_break_it(theirs: LocalCluster) -> None:
    """Method: neither has seen the other's topic; one of them comes while the other is at it."""
    found, said = find(theirs.bootstrap_servers), list[str]()
    with held(found, 2, said.append), pytest.raises(LabError) as refused:
        held(found, 2, said.append).__enter__()
    assert f"type holdfast topics --delete --topic {HELD} --bootstrap-server" in str(refused.value)
    with held(found, 2, said.append), pytest.raises(LabError, match=f"has the topic {HELD}: anot"):
        look_with(theirs.directory / "nodes.toml")
    assert said == []
    assert list(changed(theirs)) == []


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
def test_no_broker_is_hurt_while_others_have_data_on_it_alone(
    run: Run, theirs: LocalCluster, tmp_path: Path
) -> None:
    """Method: a stranger's topic has one replica in sync, on the broker that would be killed."""
    path = tmp_path / "nodes.toml"
    write_nodes_file(path, theirs)
    path.write_text(f"start-timeout = 1.5\n{path.read_text()}")
    asked = ("topics", "--bootstrap-server", theirs.bootstrap_servers)
    make = ("--create", "--replication-factor", "2", "--topic")
    assert run(*asked, *make, "others").status == 0
    theirs.kill(1)
    try:
        wait_until(lambda: in_sync(theirs) == {0}, timeout_s=BOUND_S, what="it to be missed")
        sizes = ["--brokers", "1", "--replication-factor", "1", "--min-isr", "1"]
        words = ["--no-control", "--signal", "KILL", *sizes, "--output", str(tmp_path / "run")]
        outcome = run("prove", "one-broker-down", "--nodes", str(path), MAY, *words)
        assert (outcome.status, theirs.state(0)) == (2, State.RUNNING), outcome.output
        assert "not whole after 1.5 s, so no broker of it is hurt: " in outcome.output
        assert "-0 has [0] of [0, 1] in sync" in outcome.output
    finally:
        theirs.start_node(1)
        run(*asked, "--delete", "--topic", "others")


def in_sync(cluster: LocalCluster) -> set[int]:
    states = cluster.partitions("others") or {}
    return {node for state in states.values() for node in state.isr}
