"""Goal: snapshots are made, loaded, fetched and cleaned up while a cluster lives, and lose nothing.

Method: simulated clusters with tiny limits, so that every few records a snapshot is due; crashes,
power cuts and damage in between; images are compared with the active controller's.
"""

from __future__ import annotations

import pytest
from tests.control.control_world import controller, creation, leads, play

from holdfast.core.image import MetadataImage
from holdfast.core.snapshot import SnapshotId, image_delta
from holdfast.node.metadata_log import MetadataLogError
from holdfast.testing.cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

DIRECTORY = "/data/__cluster_metadata-0"
OFTEN = {"metadata_log_max_record_bytes_between_snapshots": "1000"}
NARROW = {**OFTEN, "metadata_max_retention_bytes": "0"}


def snapshot_files(cluster: SimulatedCluster, node: int = CONTROLLER) -> list[str]:
    names = cluster.machine(node).disk.list(DIRECTORY)
    return [name for name in names if ".checkpoint" in name]


def same(one: MetadataImage, other: MetadataImage) -> bool:
    return not image_delta(one, other) and one.next_producer_id == other.next_producer_id


async def topics(cluster: SimulatedCluster, *names: str) -> None:
    for name in names:
        await cluster.client().create_topic(name, partitions=3)


async def drop(cluster: SimulatedCluster, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    await cluster.client().ask(request)


async def restart(cluster: SimulatedCluster, node: int = CONTROLLER) -> None:
    cluster.crash(node)
    cluster.start_node(node)
    if node == CONTROLLER:
        await cluster.until(lambda: leads(cluster), "the controller leads again")
    else:
        await cluster.until_ready(node)


def test_the_prefix_goes_and_brokers_start_from_a_snapshot() -> None:
    """Once the log begins later, a broker that starts must learn all the same what was before."""

    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a", "b", "c")
        store = controller(cluster).snapshots
        log = controller(cluster).log
        assert store is not None
        assert log is not None
        await cluster.until(lambda: log.start > 0, "the log's prefix is gone")
        assert store.oldest is not None
        assert log.start == store.oldest.end_offset
        await restart(cluster, 1)
        image = cluster.nodes[1].broker.image  # type: ignore[union-attr]
        await cluster.until(
            lambda: same(image, controller(cluster).state.image), "the broker knows everything"
        )
        await restart(cluster)
        assert {"a", "b", "c"} <= controller(cluster).state.image.topics.keys()
        assert len(snapshot_files(cluster)) == 1

    play(story, **NARROW)
