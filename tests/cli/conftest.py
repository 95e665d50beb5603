"""A cluster that the administrative commands are tried on, and a way to run a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from holdfast import cli
from holdfast.cluster import LocalCluster

EXTERNAL = os.environ.get("HOLDFAST_TEST_BOOTSTRAP")


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
