"""A cluster that the administrative commands are tried on, and a way to run a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.network.conftest import MARK, marked_processes

from holdfast import cli
from holdfast.cluster import LocalCluster
from holdfast.cluster.network import possible
from holdfast.cluster.processes import wait_until

EXTERNAL = os.environ.get("HOLDFAST_TEST_BOOTSTRAP")
BOUND_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command left behind."""

    status: int
    output: str
    errors: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in this process."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        status = cli.run(list(arguments))
        captured = capsys.readouterr()
        return Outcome(status=status, output=captured.out, errors=captured.err)

    return call


@pytest.fixture(scope="package")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Brokers of a running cluster: ours, or HOLDFAST_TEST_BOOTSTRAP's."""
    if EXTERNAL:
        yield EXTERNAL
        return
    directory = tmp_path_factory.mktemp("cli")
    with LocalCluster.create(directory, brokers=1, combined=True, port=0) as cluster:
        cluster.start()
        yield cluster.bootstrap_servers


@pytest.fixture
def default_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of the default cluster; whatever was started for it is gone in the end."""
    found = possible.look({})
    if found.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {found.reason}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    cli.run(["down"])
    wait_until(lambda: not marked_processes(str(tmp_path)), timeout_s=BOUND_S, what="all to end")
