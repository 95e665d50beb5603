"""Goal: a run's cluster may have a network of its own, which ends with the run, however it ends.

Method: a run on one broker, in a process of its own; a client of the lab is cut off and goes on.
Then that process is killed while its cluster serves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.network.conftest import MARK, marked_processes

from holdfast.cluster.network import ground, possible
from holdfast.cluster.processes import wait_until
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.serial]
BOUND_S = 60.0
PARAMETERS = Parameters(
    brokers=1, controllers=1, replication_factor=1, min_isr=1, partitions=1, network=True
)


def cut_off_and_back(directory: Path) -> None:
    """Say that it is up once the lab's client was cut off and came back; then wait for ever."""
    with Run(PARAMETERS, directory, lambda _: None) as run:
        run.make_topic()
        producer = run.start_producer()
        run.must_flow(producer)
        run.cluster.links().isolate("0")  # from the lab's clients, too
        run.wait("packets of its producer to be lost", lambda: lost(run), BOUND_S)
        assert {node.serving for node in run.cluster.status().nodes} == {True}
        run.cluster.links().heal()
        run.must_flow(producer)
        sys.stdout.write("up\n")
        sys.stdout.flush()
        sys.stdin.read()


# A lab in a process of its own.
SCRIPT = f"""
import sys
from pathlib import Path
from {__name__} import {cut_off_and_back.__name__}
{cut_off_and_back.__name__}(Path(sys.argv[1]))
"""


def lost(run: Run) -> bool:
    """Say whether the lab's clients, which come in by the door, have lost packets."""
    links = run.cluster.links().status()["links"]
    return any(link["dropped"]["cut"] for link in links if link["from"] == "host")


@pytest.fixture(autouse=True)
def _has_namespaces() -> None:
    found = possible.look({})
    if found.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {found.reason}")


def test_a_lab_that_is_killed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    assert Parameters.from_json(PARAMETERS.as_json()) == PARAMETERS
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, env={**os.environ, "PYTHONPATH": path}
    ) as lab:
        assert lab.stdout
        assert lab.stdout.readline() == b"up\n"
        network = ground.open_network(tmp_path / "run" / "cluster" / "network")
        lab.send_signal(signal.SIGKILL)
    wait_until(lambda: not network.stands(), timeout_s=BOUND_S, what="the holder's end")
    wait_until(lambda: not marked_processes(str(tmp_path)), timeout_s=BOUND_S, what="all ends")


def without_servant(run: Run, number: int) -> str:
    """Kill a process that serves the run's network; return how it is called then."""
    network = ground.open_network(run.cluster.network().directory)
    servant = network.servants[number]
    os.kill(servant.pid, signal.SIGKILL)
    return f"its {servant.name}, process {servant.pid}"


def without_holder(run: Run) -> str:
    pid = ground.open_network(run.cluster.network().directory).holder.pid
    os.kill(pid, signal.SIGKILL)
    return f"its holder, process {pid}"


@pytest.mark.parametrize(
    "break_it",
    [without_holder, partial(without_servant, number=0), partial(without_servant, number=1)],
    ids=["holder", "agent", "clients' door"],
)
def test_a_cluster_is_not_blamed_for_the_network_of_its_run(
    tmp_path: Path, break_it: Callable[[Run], str]
) -> None:
    """Seen to fail: nothing was acknowledged any more, and the verdict was a broken promise."""
    with Run(PARAMETERS, tmp_path / "run", lambda _: None) as run:
        run.make_topic()
        producer = run.start_producer()
        run.must_flow(producer)
        ended = break_it(run)
        with pytest.raises(LabError, match=f"network is broken: {ended}, has ended by itself"):
            run.steady(producer, BOUND_S)
        with pytest.raises(LabError, match="has ended by itself"):
            run.check("it goes on", "yes", "no", kept=False)
        assert not run.checks
    run.journal.close()
