"""The clusters whose groups unmodified clients join.

Ours, with one broker and with three, and Apache Kafka: the suite says what users see there, and is
held against it. HOLDFAST_TEST_BOOTSTRAP names any other cluster.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.apache.conftest import apache_kafka, kafka_tools  # noqa: F401 - fixtures
from tests.group_clients.members import BOUND_S, CLIENTS, Client, Member, close_all

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

EXTERNAL = os.environ.get("HOLDFAST_TEST_BOOTSTRAP")
APACHE = pytest.param("apache", marks=pytest.mark.apache)


@pytest.fixture(scope="package", params=["external"] if EXTERNAL else ["one", "three", APACHE])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Addresses of the cluster."""
    if EXTERNAL:
        yield EXTERNAL
    elif request.param == "apache":
        yield request.getfixturevalue("apache_kafka")
    else:
        brokers = 1 if request.param == "one" else 3
        directory = tmp_path_factory.mktemp(f"groups-{request.param}")
        with LocalCluster.create(directory, brokers=brokers, port=0) as cluster:
            cluster.start()
            yield cluster.bootstrap_servers


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
    """Return a function that makes a topic of so many partitions, and waits until all know it.

    A broker's image is a moment behind the controller's answer, and librdkafka's consumer tells its
    user at once that there is no such topic.
    """

    def make(partitions: int = 4, ending: str = "") -> str:
        made = name + ending
        asked = create_topic(made, partitions=partitions, replication_factor=1)
        with Driver(target) as driver:
            driver.perform(asked, node="controller")
            for node in driver.nodes():
                knows = partial(_knows, driver, node, made)
                wait_until(knows, timeout_s=BOUND_S, what=f"broker {node} to know {made}")
        return made

    return make


def _knows(driver: Driver, node: int, topic: str) -> bool:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    (found,) = driver.send(asked, node=node).topics
    return not found.error_code


@pytest.fixture
def join(target: str, name: str, client: Client) -> Iterator[Callable[..., Member]]:
    """Return a function that makes a member of the test's group; all leave at the end."""
    made: list[Member] = []

    def member(group: str = "", **settings: object) -> Member:
        made.append(client.member(target, group or name, **settings))
        return made[-1]

    yield member
    close_all(made)
