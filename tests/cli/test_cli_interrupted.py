"""Ctrl-C in the middle: what is done stays done, the rest can be gone on with, and it is said.

A node that won't end is played by a process that doesn't mind SIGTERM.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cluster import LocalCluster, layout, processes
from holdfast.cluster.processes import State, wait_until
from holdfast.lab import guard

if TYPE_CHECKING:
    from tests.cli.conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.process]
BOUND_S = 30.0
STUBBORN = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n"
    "print('up', flush=True)\n"
    "while True: time.sleep(60)\n"
)


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster whose only node runs, and won't end."""
    cluster = LocalCluster.create(tmp_path, brokers=1, combined=True, port=0)
    node = cluster.node(0)
    log = Path(node.log_file)
    pid = processes.spawn([sys.executable, "-c", STUBBORN], log_file=log)
    started = replace(node, pid=pid, process=processes.identify(pid))
    layout.write(cluster.directory, cluster.record.with_node(started))
    wait_until(lambda: "up\n" in log.read_text(), timeout_s=BOUND_S, what="the process")
    yield cluster
    processes.send(pid, started.process, signal.SIGKILL)


def interrupted(arguments: list[str], cluster: LocalCluster) -> str:
    """What a command says that gets SIGINT after the node has heard of SIGTERM."""
    log = Path(cluster.node(0).log_file)
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *arguments, "--data-dir", str(cluster.directory)],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: "heard\n" in log.read_text(), timeout_s=BOUND_S, what="SIGTERM")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=BOUND_S)
        assert process.returncode == 130
    return errors


def test_down_is_interrupted(run: Run, stubborn: LocalCluster) -> None:
    """Goal: it is said who may still run, and `down` can be typed again. Method: SIGINT to it."""
    assert "Interrupted. Node 0 may still run." in interrupted(["down"], stubborn)
    assert stubborn.state(0) is State.RUNNING
    at = ["--data-dir", str(stubborn.directory)]
    assert run("kill", "0", *at).status == 0
    again = run("down", *at)
    assert (again.status, "is not running" in again.output) == (0, True)


def test_kill_is_interrupted(stubborn: LocalCluster) -> None:
    """Goal: it is said that the signal went out. Method: SIGINT while the node takes its time."""
    said = interrupted(["kill", "0", "--signal", "TERM"], stubborn)
    assert "Interrupted. SIGTERM has been sent" in said


def test_kill_is_interrupted_while_it_sends(
    run: Run, stubborn: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no signal goes out unsaid. Method: Ctrl-C right behind the first one."""
    send = processes.send

    def send_and_interrupt(*arguments: Any) -> bool:
        send(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "send", send_and_interrupt)
    said = run("kill", "0", "--signal", "TERM", "--data-dir", str(stubborn.directory))
    assert said.status == 130
    assert "SIGTERM has been sent to node 0;" in said.errors


def test_producing_is_interrupted(run: Run, bootstrap: str) -> None:
    """Goal: what was read is in the topic, and counted. Method: SIGINT while a pipe is still open.

    Seen to lose what had not been sent yet, without a word.
    """
    topic = f"interrupted-{os.getpid()}"
    at = ["--bootstrap-server", bootstrap]
    assert run("topics", *at, "--create", "--topic", topic, "--partitions", "1").status == 0
    arguments = ["cat", "-P", "-t", topic, "-b", bootstrap, "-T", "-X", "linger.ms=60000"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("a\nb\nc\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(3)] == ["a\n", "b\n", "c\n"]
        process.send_signal(signal.SIGINT)
        assert "Interrupted. 3 of 3 messages are acknowledged." in process.stderr.read()
        assert process.wait(BOUND_S) == 130
    assert run("cat", "-C", "-t", topic, "-b", bootstrap, "-e", "-q").output == "a\nb\nc\n"


@pytest.mark.parametrize("command", [["topics", "--list"], ["features", "describe"]])
def test_asking_is_interrupted(command: list[str]) -> None:
    """Goal: a word, and status 130. Method: SIGINT while somebody accepts and says nothing.

    One line is read without typer, the other by it, which takes the interrupt for itself.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = ["--bootstrap-server", f"127.0.0.1:{server.getsockname()[1]}"]
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", *command, *at],
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            server.settimeout(BOUND_S)
            taken, _ = server.accept()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=BOUND_S)
        taken.close()
    assert (process.returncode, errors) == (130, "\nInterrupted.\n")


def is_spawned(directory: Path) -> bool:
    cluster = directory / "main" / "cluster"
    return layout.exists(cluster) and all(node.pid for node in LocalCluster.open(cluster).nodes)


def is_loaded(directory: Path) -> bool:
    return (directory / "main" / "history" / "producer.jsonl").exists()


def left_of(directory: Path) -> list[str]:
    """End everything that runs and names this directory, and return what that was."""
    listed = subprocess.run(
        ["/bin/ps", "-A", "-ww", "-o", "pid=,args="], check=True, capture_output=True, text=True
    )
    named = [line for line in listed.stdout.splitlines() if str(directory) in line]
    for line in named:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    return named


TAKEN = """
import sys
from holdfast.cli import command_table, main

def interrupted(*_):
    exec("raise KeyboardInterrupt")

sys.argv = ["holdfast", "status"]
command_table.filled = interrupted
main()
"""
LOADING = """
import sys
from holdfast.cli import main

class Interrupting:
    def find_spec(self, name, *_):
        if name == "holdfast.cli.command_table":
            exec("raise KeyboardInterrupt")

sys.argv = ["holdfast", "status"]
sys.meta_path.insert(0, Interrupting())
main()
"""
WATCHING = """
import sys
from holdfast.cli import main
from holdfast.cli.watch.samples import Sampler
from holdfast.cluster import LocalCluster

def interrupted(*_):
    exec("raise KeyboardInterrupt")

LocalCluster.create("cluster", brokers=1, combined=True, port=0)
Sampler.look = interrupted
sys.argv = ["holdfast", "watch", "--data-dir", "cluster"]
main()
"""

OVER = """
import os, signal, sys
from holdfast.cli import main

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

last = Last()
sys.argv = ["holdfast", "--version"]
main()
"""


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        pytest.param(TAKEN, 130, "Interrupted.", id="a command"),
        pytest.param(LOADING, 130, "Interrupted.", id="before any command"),
        pytest.param(WATCHING, 0, "", id="a command that it ends well"),
    ],
)
def test_an_interrupt_amid_text_that_is_executed_ends_as_any_other(
    tmp_path: Path, program: str, status: int, said: str
) -> None:
    """Seen to fail: Ctrl-C as modules were loaded ended the process by SIGINT, with our words, and
    with none where no command had begun; `watch` ended so, too.

    Method: a module that is run, as ours is.
    """
    (tmp_path / "taken.py").write_text(program)
    command = [sys.executable, "-m", "taken"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr.decode().strip()) == (status, said)


def test_an_interrupt_when_all_is_over_changes_no_status(tmp_path: Path) -> None:
    """Method: the last object that the interpreter takes apart sends it.

    Seen to fail: the process ended by SIGINT behind its words, as `up` may behind its last ones.
    """
    (tmp_path / "over.py").write_text(OVER)
    command = [sys.executable, "-m", "over"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"holdfast ")


@pytest.mark.serial
@pytest.mark.parametrize(
    ("begun", "signals"),
    [
        (is_spawned, [signal.SIGINT]),
        (is_loaded, [signal.SIGHUP, signal.SIGTERM, signal.SIGINT]),
    ],
    ids=["Ctrl-C while the cluster starts", "the terminal is closed under load"],
)
def test_a_proof_that_is_interrupted_leaves_no_process(
    tmp_path: Path, begun: Callable[[Path], bool], signals: list[signal.Signals]
) -> None:
    """Goal: nodes and clients end with the command, and its folder is named. Method: signals to it.

    Seen to leave three brokers, three controllers and clients that went on sending for ever.
    """
    directory = tmp_path / "proof"
    command = ["prove", "one-broker-down", "--output", str(directory)]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: begun(directory), timeout_s=BOUND_S, what="the run")
        for number in signals:
            process.send_signal(number)
        _, errors = process.communicate(timeout=2 * BOUND_S)
    assert left_of(directory) == []
    assert process.returncode == 130
    assert f"holdfast check {directory}" in errors


def left_of_run(mark: str, directory: Path) -> list[str]:
    """Name what still runs of a run: what bears its mark, and what names mark or directory."""
    listed = subprocess.run(
        ["/bin/ps", "-A", "-ww", "-o", "pid=,stat=,args="],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    alive = {int(row[0]): row[-1] for row in rows if not row[1].startswith("Z")}
    marked = set(guard.marked(mark))
    return [
        args
        for pid, args in alive.items()
        if pid in marked or mark in args or str(directory) in args
    ]


@pytest.mark.serial
def test_a_proof_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """Goal: nodes and clients end with the command, stopped ones too. Method: SIGKILL to it.

    Seen to leave six nodes and three clients that went on sending for ever.
    """
    directory = tmp_path / "proof"
    command = ["prove", "one-broker-down", "--output", str(directory)]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: is_loaded(directory), timeout_s=BOUND_S, what="the run")
        cluster = LocalCluster.open(directory / "main" / "cluster")
        cluster.kill(2, "STOP")
        pid = cluster.node(2).pid
        mark = next(
            value.partition("=")[2]
            for value in Path(f"/proc/{pid}/environ").read_text().split("\0")
            if value.startswith(guard.MARK)
        )
        assert len(left_of_run(mark, directory)) >= 9  # nodes, clients, the guard, the command
        process.kill()
    try:
        wait_until(
            lambda: not left_of_run(mark, directory), timeout_s=BOUND_S, what="all of it to end"
        )
    finally:
        left_of(directory)
