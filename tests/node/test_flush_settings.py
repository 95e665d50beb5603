"""Goal: who sets a bound on what is not on a disk has it kept, on every replica.

Method: a cluster in memory; the bound set when the topic is made, changed for the topic, or changed
for all brokers while they run; the recovery points of all replicas.

Rules: log.md#forced-to-disk.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.control.control_world import play

from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.structs import ConfigOperation, ResourceType

TOPIC, CLUSTER = (ResourceType.TOPIC, "t"), (ResourceType.BROKER, "")


def unflushed(cluster: SimulatedCluster) -> list[int]:
    """Return how many records of each replica a power cut may take."""
    logs = [log for log in cluster.logs("t", 0).values() if log is not None]
    return [log.end - log.recovery_point for log in logs]


async def changed(
    client: ClusterClient, resource: tuple[ResourceType, str], key: str, value: str
) -> None:
    change = AlterableConfig(config_operation=ConfigOperation.SET, name=key, value=value)
    kind, name = resource
    asked = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    (answer,) = (await client.ask(IncrementalAlterConfigsRequest(resources=[asked]))).responses
    assert not answer.error_code, answer.error_message


@pytest.mark.parametrize(
    ("resource", "key", "value"),
    [
        (None, "flush.messages", "3"),
        (None, "flush.ms", "2000"),
        (TOPIC, "flush.messages", "3"),
        (TOPIC, "flush.ms", "2000"),
        (CLUSTER, "log.flush.interval.messages", "3"),
        (CLUSTER, "log.flush.interval.ms", "2000"),
    ],
)
def test_every_replica_keeps_the_bound(
    resource: tuple[ResourceType, str] | None, key: str, value: str
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", configs={} if resource else {key: value})
        leader = await client.leader("t", 0)
        for count in (1, 2):
            sent = [b"a record"] * count
            await client.until(lambda sent=sent: client.produce("t", 0, sent, acks=-1, node=leader))  # type: ignore[misc]
        if resource:
            await asyncio.sleep(5)
            assert unflushed(cluster) == [3, 3, 3]
            await changed(client, resource, key, value)
        await cluster.until(lambda: unflushed(cluster) == [0, 0, 0], "all of it is on disk")

    play(story)
