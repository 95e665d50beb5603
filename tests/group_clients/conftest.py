"""The cluster whose groups unmodified clients join.

Apache Kafka until groups are served here: the suite says what users see there, and is held against
it. HOLDFAST_TEST_BOOTSTRAP names any other cluster.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from tests.apache.conftest import apache_kafka, kafka_tools  # noqa: F401 - fixtures
from tests.group_clients.members import CLIENTS, Client, Member, close_all

from holdfast.clients.blocking_driver import Driver
from holdfast.wire.administration import create_topic


@pytest.fixture(scope="package")
def target(request: pytest.FixtureRequest) -> str:
    """Addresses of the cluster."""
    external = os.environ.get("HOLDFAST_TEST_BOOTSTRAP")
    return external or request.getfixturevalue("apache_kafka")


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client, and each protocol of groups that it speaks."""
    found: Client = request.param
    return found


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """Return a name that no topic and no group has yet."""
    return f"g-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(target: str, name: str) -> Callable[..., str]:
    """Return a function that makes a topic of so many partitions."""

    def make(partitions: int = 4, ending: str = "") -> str:
        with Driver(target) as driver:
            asked = create_topic(name + ending, partitions=partitions, replication_factor=1)
            driver.perform(asked, node="controller")
        return name + ending

    return make


@pytest.fixture
def join(target: str, name: str, client: Client) -> Iterator[Callable[..., Member]]:
    """Return a function that makes a member of the test's group; all leave at the end."""
    made: list[Member] = []

    def member(group: str = "", **settings: object) -> Member:
        made.append(client.member(target, group or name, **settings))
        return made[-1]

    yield member
    close_all(made)
