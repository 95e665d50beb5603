"""Goal: of a process of a cluster's network that does not serve the cluster is not blamed.

Whoever looks is told of it first, what it means and what to do; what is seen through it is not
told, and nobody waits for it for long.

Method: a cluster in a network of its own; its agent and its doors stand still, and are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from holdfast.cluster import LocalCluster, processes
from holdfast.cluster.network import ground
from holdfast.cluster.network.ground import Servant
from holdfast.cluster.network.links import link_calls
from holdfast.cluster.networked import ClusterNetwork
from holdfast.cluster.processes import State

if TYPE_CHECKING:
    from tests.cli.conftest import Run

pytestmark = [
    pytest.mark.process,
    pytest.mark.serial,
    pytest.mark.slow,
    pytest.mark.usefixtures("default_network"),
]
BOUND_S = 60.0
HURRIED_S = 10.0  # less than whoever waits for an agent as long as it may
AGENT, DOOR, WATCH_DOOR = range(3)
WATCH = ("watch", "--looks", "2", "--every", "0.1")


@dataclass(frozen=True, slots=True)
class Broken:
    """A cluster of one node, whose network's processes are hurt."""

    cluster: LocalCluster
    servants: tuple[Servant, ...]

    def send(self, which: int, name: str) -> int:
        """Send a signal, wait until it has taken effect, and return whom it reached."""
        each = self.servants[which]
        os.kill(each.pid, getattr(signal, f"SIG{name}"))
        wanted = {"STOP": State.STOPPED, "CONT": State.RUNNING, "KILL": State.DEAD}[name]
        processes.wait_until(
            lambda: processes.state(each.pid, each.process) is wanted,
            timeout_s=BOUND_S,
            what=f"{each.name} {wanted}",
        )
        return each.pid


@pytest.fixture
def broken(run: Run) -> Iterator[Broken]:
    up = run("up", "--network", "--brokers", "1", "--combined", "--port", "0", "--detach")
    assert up.status == 0, up.errors
    made = run("topics", "--create", "--topic", "t", "--partitions", "1")
    assert made.status == 0, made.errors
    cluster = LocalCluster.open(directory(run))
    network = ground.open_network(cluster.directory / "network")
    assert [each.name for each in network.servants] == [
        "links.link_agent",
        "relays.door",
        "relays.door",
    ]
    try:
        yield Broken(cluster, network.servants)
    finally:
        run("down")


def directory(run: Run) -> str:
    return str(json.loads(run("status", "--json").output)["directory"])


@contextmanager
def hurried() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < HURRIED_S


def test_who_serves_a_network_and_does_not(
    run: Run, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: `status` called all well without the door for clients; without the other one it
    said that no controller is active, and so did `watch`; a stopped agent held both up for 30 s.
    """
    assert run("status").status == 0
    doors_stop_amid_a_look(run, broken, monkeypatch)
    an_agent_stands_still(run, broken, monkeypatch)
    the_door_for_clients_ended(run, broken)
    the_door_of_who_watches_ended(run, broken)
    an_agent_ended(run, broken)


def doors_stop_amid_a_look(run: Run, broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked meanwhile is not told, and what is left out is told with the reason.

    Method: the door stops as the first question is about to be asked, and goes on as `status`
    counts links behind them, which it does only where it leaves out all else.

    Seen to fail: `watch` said that no controller is active, and `status` named the agent alone.
    """

    def hurts(what: str, which: int, name: str) -> Callable[..., object]:
        """Return a method of the same that sends a signal before."""
        owner = LocalCluster if what == "quorum" else ClusterNetwork
        usual = getattr(owner, what)

        def call(self: object, *arguments: object) -> object:
            broken.send(which, name)
            return usual(self, *arguments)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(LocalCluster, "quorum", hurts("quorum", WATCH_DOOR, "STOP"))
        watched = run("watch", "--looks", "1")
    assert "the door by which nodes are watched, process" in watched.output
    assert "nodes can't be seen from here" in watched.output
    assert "no controller is active" not in watched.output
    broken.send(AGENT, "STOP")
    with monkeypatch.context() as patched:
        patched.setattr(ClusterNetwork, "broken_links", hurts("broken_links", WATCH_DOOR, "CONT"))
        seen = run("status")
    assert "can't be seen from here" in seen.output
    assert "the door by which nodes are watched, process" in seen.output
    broken.send(AGENT, "CONT")
    assert run("status").status == 0


def an_agent_stands_still(run: Run, broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks goes on without it, and a change that has no answer is not called undone."""
    pid = broken.send(AGENT, "STOP")
    with hurried():
        seen = run("status")
    assert seen.status == 1
    first = f"network: the agent of its links, process {pid}, stands still: "
    assert seen.output.splitlines()[3].startswith(first)
    assert f"`kill -CONT {pid}` lets it go on." in seen.output
    assert "which links are broken is not known" in seen.output
    assert "all replicas in sync" in seen.output, "that is seen all the same"
    assert "all links are whole" not in seen.output
    with hurried():
        watched = run(*WATCH)
    assert "not known: the network is gone, or the agent of its links does not" in watched.output
    assert watched.output.count("controller 0 is active") == 2
    with hurried():
        links = run("status", "--links")
    assert links.status == 1
    assert "so nobody knows which links are broken" in links.errors
    with monkeypatch.context() as patched:
        patched.setattr(link_calls.Links.__init__, "__defaults__", (1.0,))
        change = run("cut", "0", "host")
    assert change.status == 1
    assert "what was asked for (cut) may be in force, or may come into force" in change.errors
    assert "`holdfast status --links` tells" in change.errors
    broken.send(AGENT, "CONT")
    assert run("status", "--links").output == "All links are whole.\n", "it came too late"
    assert run("status").status == 0


def the_door_for_clients_ended(run: Run, broken: Broken) -> None:
    pid = broken.send(DOOR, "KILL")
    seen = run("status")
    assert seen.status == 1
    first = f"network: the door for clients outside, process {pid}, has ended: they reach no broker"
    assert seen.output.splitlines()[3].startswith(first)
    assert "`holdfast down` and `holdfast up` start all anew." in seen.output
    assert "controller 0 is active" in seen.output
    told = json.loads(run("status", "--json").output)
    assert (told["healthy"], len(told["network_troubles"])) == (False, 1)
    assert first[:60] in run(*WATCH).output


def the_door_of_who_watches_ended(run: Run, broken: Broken) -> None:
    pid = broken.send(WATCH_DOOR, "KILL")
    name = f"network: the door by which nodes are watched, process {pid}, has ended: "
    seen, watched = run("status"), run(*WATCH)
    assert seen.status == 1
    assert seen.output.splitlines()[4].startswith(name)
    assert "can't be seen from here" in seen.output
    assert name in watched.output
    assert "nodes can't be seen from here" in watched.output
    for output in (seen.output, watched.output):
        for claim in ("no controller is active", "o broker answers", "not serving", "in sync,"):
            assert claim not in output
    told = json.loads(run("status", "--json").output)
    assert (told["nodes"][0]["state"], told["nodes"][0]["serving"]) == ("running", None)
    for words in ("kill controller:active", "isolate leader:t-0"):
        refused = run(*words.split())
        assert refused.status == 1
        assert name in refused.errors
    run("kill", "0")
    assert name in run("start", "0").errors, "nobody could see whether it serves"


def an_agent_ended(run: Run, broken: Broken) -> None:
    """Nothing was sent to it, so nothing can have changed."""
    pid = broken.send(AGENT, "KILL")
    assert f"the agent of its links, process {pid}, has ended: " in run("status").output
    assert "does not answer" in (errors := run("cut", "0", "host").errors)
    assert "they stay as they are" in errors


def test_a_network_that_has_gone_is_named_first(run: Run, broken: Broken) -> None:
    """Seen to fail: `watch` said that no controller is active, before it said why."""
    holder = ground.open_network(broken.cluster.directory / "network").holder
    os.kill(holder.pid, signal.SIGKILL)
    processes.wait_until(
        lambda: processes.state(holder.pid, holder.process) is State.DEAD,
        timeout_s=BOUND_S,
        what="the holder's end",
    )
    watched = run(*WATCH)
    _, first, *_ = watched.output.splitlines()
    assert first.startswith("The network of the cluster in ")
    assert "has gone, and its nodes" in watched.output.replace("\n", " ")
    assert "no controller is active" not in watched.output
    assert run("status").status == 1


def test_who_is_left_inside_is_named(run: Run, broken: Broken) -> None:
    """Method: a command that was entered, amid `down`.

    Seen to fail: it stayed, and nothing was said of it.
    """
    words = [sys.executable, "-m", "holdfast.cli", "enter", "sh", "-c", "echo in; read word"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as entered:
        assert entered.stdout is not None
        assert entered.stdout.readline() == b"in\n"
        down = run("down")
        entered.communicate(b"\n", timeout=BOUND_S)
    assert down.status == 0
    command = "sh -c echo in; read word"
    assert f"Process {entered.pid} still runs in its network, and reaches nobody: {command}\n" in (
        down.output
    )
    assert f"`kill {entered.pid}` ends what is left there.\n" in down.output
    assert broken.cluster.is_down
    assert "Process" not in run("down").output


def test_who_ends_a_cluster_from_inside_is_not_left_inside(broken: Broken) -> None:
    """Method: `holdfast enter sh` runs `holdfast down`; the shell ends with it, and another stays.

    Seen to fail: `down` named itself, and told to kill it.
    """
    down = f"{sys.executable} -m holdfast.cli down"
    command = [sys.executable, "-m", "holdfast.cli", "enter"]
    with subprocess.Popen(
        [*command, "sh", "-c", "echo in; read word"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as staying:
        assert staying.stdout is not None
        assert staying.stdout.readline() == b"in\n"
        words = ["sh", "-c", f"{down}; echo ended"]
        ended = subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=BOUND_S, check=False
        )
        staying.communicate(b"\n", timeout=BOUND_S)
    assert "is down." in ended.stdout, ended.stderr
    assert ended.stdout.count("still runs in its network") == 1
    assert f"`kill {staying.pid}` ends what is left there.\n" in ended.stdout
    assert broken.cluster.is_down
