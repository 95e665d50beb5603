"""The cluster that unmodified clients are tried on.

Ours, with one broker and with three; or, when HOLDFAST_TEST_BOOTSTRAP names one, any other: that is
how these tests are shown to be right on Apache Kafka.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster

EXTERNAL = os.environ.get("HOLDFAST_TEST_BOOTSTRAP")
SHAPES = ["external"] if EXTERNAL else ["one", "three"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running cluster, as a client sees it; `local` is None when it isn't ours."""

    bootstrap: str
    brokers: int
    local: LocalCluster | None

    def logs(self) -> str:
        """What all nodes have logged so far."""
        assert self.local is not None
        return "".join(Path(node.log_file).read_text() for node in self.local.nodes)


@pytest.fixture(scope="package", params=SHAPES)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    if EXTERNAL:
        with Driver(EXTERNAL) as driver:
            brokers = len(driver.nodes())
        yield Target(bootstrap=EXTERNAL, brokers=brokers, local=None)
        return
    brokers = 1 if request.param == "one" else 3
    directory = tmp_path_factory.mktemp(f"conformance-{request.param}")
    with LocalCluster.create(directory, brokers=brokers, port=0) as cluster:
        cluster.start()
        yield Target(bootstrap=cluster.bootstrap_servers, brokers=brokers, local=cluster)


_names = itertools.count()


@pytest.fixture
def new_topic() -> Callable[[], str]:
    """Return a function that makes up the name of a topic that isn't there yet."""
    return lambda: f"conformance-{os.getpid()}-{next(_names)}"
