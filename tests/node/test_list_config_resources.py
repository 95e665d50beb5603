"""Goal: what has a configuration is listed, by the kinds that are asked for.

Method: a cluster in memory, asked over the wire in both versions; what is answered is what Apache
Kafka 4.3.1 answered.
"""

from __future__ import annotations

import pytest
from tests.control.control_world import play

from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
TOPICS = [(TOPIC, "a"), (TOPIC, "b")]
BROKERS = [(BROKER, "0"), (BROKER, "1")]
LOGGERS = [(LOGGER, "0"), (LOGGER, "1")]
GROUPS = [(GROUP, "g")]


@pytest.mark.parametrize(
    ("version", "kinds", "listed"),
    [
        (0, [], []),
        (1, [], GROUPS + LOGGERS + BROKERS + TOPICS),
        (1, [TOPIC], TOPICS),
        (1, [BROKER], BROKERS),
        (1, [LOGGER], LOGGERS),
        (1, [METRICS], []),
        (1, [GROUP], GROUPS),
        (1, [TOPIC, BROKER, TOPIC], BROKERS + TOPICS),
    ],
)
def test_what_is_there(version: int, kinds: list[int], listed: list[tuple[int, str]]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("a", assignments=[[0]], configs={"retention.ms": "5000"})
        await client.create_topic("b", assignments=[[1]])
        broker = cluster.nodes[0].broker
        assert broker is not None
        await cluster.until(lambda: set(broker.image.topics) == {"a", "b"}, "it has heard of both")
        broker.image.configs[GROUP, "g"] = {"consumer.session.timeout.ms": "50000"}
        request = ListConfigResourcesRequest(resource_types=kinds)
        answer = await client.ask(request, node=0, version=version)
        assert answer.error_code == ErrorCode.NONE
        found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
        assert found == listed

    play(story, brokers=2)


@pytest.mark.parametrize("kinds", [[0], [99], [-1], [TOPIC, 99]])
def test_a_kind_that_nobody_knows_is_none_of_this_version(kinds: list[int]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        request = ListConfigResourcesRequest(resource_types=kinds)
        client = cluster.client()
        await client.create_topic("a", assignments=[[0]])
        answer = await client.ask(request, node=0, version=1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert answer.config_resources == []

    play(story, brokers=1)
