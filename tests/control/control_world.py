"""What the tests of the controller's life share: a simulated cluster, and questions to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.node.controller.controller import Controller
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import ClusterClient, RetryError
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import CreateTopicsRequest, new_topic
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)

Story = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]
CLUSTER_ID = "S6zsVBQdQz6WrYmHb7WaQQ"
METADATA_FILE = "/data/__cluster_metadata-0/00000000000000000000.log"


def play(story: Story, *, seed: int = 1, brokers: int = 3, **config: str) -> None:
    """Run a story on a cluster that has started; keys of the configuration with underscores."""
    world = World(seed)

    async def main() -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        cluster = SimulatedCluster(world, brokers=brokers, config=settings)
        await cluster.start()
        await story(cluster)

    world.run(main)


def controller(cluster: SimulatedCluster) -> Controller:
    """The controller that runs, for looking at only."""
    found = cluster.nodes[CONTROLLER].controller
    assert found is not None
    return found


def leads(cluster: SimulatedCluster) -> bool:
    """Whether the controller's process is up and deciding."""
    node = cluster.nodes.get(CONTROLLER)
    return node is not None and node.controller is not None and node.controller.active


def creation(*names: str, partitions: int = 1, factor: int = 3) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[new_topic(name, partitions, factor) for name in names], timeout_ms=5000
    )


async def created(client: ClusterClient, name: str) -> bytes:
    """Create a topic, for `client.until`; the id that the controller has answered.

    A topic that is there already came from an attempt whose answer was lost: its id is not known.
    """
    result = (await client.ask(creation(name))).topics[0]
    if result.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise RetryError(f"create {name}", result.error_code)
    assert result.error_code == ErrorCode.NONE, result
    return bytes(result.topic_id)


async def described(
    client: ClusterClient, name: str, *, node: int | None = None, create: bool = False
) -> MetadataResponseTopic:
    """What one broker says of a topic."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create
    )
    response = await client.ask(request, node=node)
    topic: MetadataResponseTopic = response.topics[0]
    return topic
