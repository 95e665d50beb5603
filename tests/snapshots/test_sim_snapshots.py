"""Goal: snapshots are made, loaded, fetched and cleaned up while a cluster lives, and lose nothing.

Method: simulated clusters with tiny limits, so that every few records a snapshot is due; crashes,
power cuts and damage in between; images are compared with the active controller's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.control.control_world import controller, created, leads, play

from holdfast.core.metadata.image import MetadataImage
from holdfast.core.metadata.image_records import SnapshotId, image_delta
from holdfast.log.errors import StorageError
from holdfast.node.metadata.metadata_snapshots import SnapshotMaker, SnapshotStore
from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

DIRECTORY = "/data/__cluster_metadata-0"
OFTEN: dict[str, Any] = {"metadata_log_max_record_bytes_between_snapshots": "1000"}
NARROW: dict[str, Any] = {**OFTEN, "metadata_max_retention_bytes": "0"}


def snapshot_files(cluster: SimulatedCluster, node: int = CONTROLLER) -> list[str]:
    names = cluster.machine(node).disk.list(DIRECTORY)
    return [name for name in names if name.endswith(".checkpoint")]


def store(cluster: SimulatedCluster) -> SnapshotStore:
    found = controller(cluster).snapshots
    assert found is not None
    return found


def log_start(cluster: SimulatedCluster) -> int:
    log = controller(cluster).log
    assert log is not None
    return log.start


def image_of(cluster: SimulatedCluster, broker: int) -> MetadataImage:
    found = cluster.nodes[broker].broker
    assert found is not None
    return found.image


def same(one: MetadataImage, other: MetadataImage) -> bool:
    return not image_delta(one, other) and one.next_producer_id == other.next_producer_id


async def until_same(cluster: SimulatedCluster, broker: int) -> None:
    await cluster.until(
        lambda: same(image_of(cluster, broker), controller(cluster).image),
        "the broker knows what the controller knows",
    )


async def topics(cluster: SimulatedCluster, *names: str, factor: int = 3) -> None:
    for name in names:
        await cluster.client().create_topic(name, partitions=3, replication_factor=factor)


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
        await cluster.until(lambda: log_start(cluster) > 0, "the log's prefix is gone")
        oldest = store(cluster).oldest
        assert oldest is not None
        assert log_start(cluster) == oldest.end_offset
        await restart(cluster, 1)
        await until_same(cluster, 1)
        await restart(cluster)
        assert {"a", "b", "c"} <= controller(cluster).image.topics.keys()
        assert len(snapshot_files(cluster)) == 1

    play(story, **NARROW)


def test_without_pressure_the_log_stays_and_so_do_the_snapshots() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a", "b", "c")
        await cluster.until(lambda: len(snapshot_files(cluster)) >= 2, "two snapshots")
        assert log_start(cluster) == 0

    play(story, **OFTEN)


@pytest.mark.slow
def test_a_snapshot_is_made_after_a_while_even_of_little() -> None:
    """metadata.log.max.snapshot.interval.ms; and no second one while nothing happens."""

    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a")
        await cluster.until(lambda: len(store(cluster).files) == 1, "one", seconds=100)
        latest = store(cluster).latest
        assert latest is not None
        assert latest.end_offset == controller(cluster).image.offset + 1
        await restart(cluster)
        await cluster.until(lambda: len(store(cluster).files) == 2, "another", seconds=100)

    play(story, metadata_log_max_snapshot_interval_ms="60000")


def test_a_broker_far_behind_deletes_what_a_snapshot_no_longer_names() -> None:
    """It was cut off while a topic went and came again; records that said so are gone, too."""

    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "gone", "again")
        await until_same(cluster, 2)
        old = image_of(cluster, 2).topics["again"].topic_id
        behind = image_of(cluster, 2).offset
        for one, other in (("broker-2", "controller"), ("controller", "broker-2")):
            cluster.world.fabric.cut(one, other)
        await cluster.until(lambda: not controller(cluster).image.is_active(2), "fenced")
        await drop(cluster, "gone")
        await drop(cluster, "again")
        await topics(cluster, "again", "more", factor=2)
        await cluster.until(lambda: log_start(cluster) > behind + 1, "too far behind")
        assert cluster.nodes[2].directories.get("gone", 0) is not None
        cluster.world.fabric.heal_all()
        await until_same(cluster, 2)
        assert image_of(cluster, 2).topics["again"].topic_id != old
        assert cluster.nodes[2].directories.get("gone", 0) is None
        found = cluster.nodes[2].directories.get("again", 0)
        assert found is None or found.topic_id != old

    play(story, **NARROW)


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_was_answered_survives_power_cuts_among_snapshots(seed: int, torn: bool) -> None:
    """Cut at any moment: while one is written, renamed, or the log's prefix is deleted.

    Seen failing when `_seal` does not sync the file, and when it does not sync the directory.
    """

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        known: dict[str, bytes] = {}
        for number in range(12):
            name = f"t{number}"
            known[name] = await client.until(partial(created, client, name))
            cluster.power_cut(CONTROLLER, torn=torn)
            cluster.start_node(CONTROLLER)
            await cluster.until(lambda: leads(cluster), "the controller is back")
            topics = controller(cluster).image.topics
            assert known == {each: topics[each].topic_id for each in known}
        await cluster.until(lambda: log_start(cluster) > 0, "the log's prefix is gone")
        for broker in cluster.brokers:
            await until_same(cluster, broker)

    play(story, seed=seed, **NARROW)


def test_a_damaged_snapshot_stops_the_start() -> None:
    """It says which file and where; an older one is not taken in its place."""

    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a", "b", "c")
        cluster.crash(CONTROLLER)
        name = snapshot_files(cluster)[-1]
        cluster.machine(CONTROLLER).disk.corrupt(f"{DIRECTORY}/{name}", 300, b"\xff\xff\xff")
        cluster.start_node(CONTROLLER)
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert f"{DIRECTORY}/{name} is damaged at byte " in cluster.exits[0]
        assert "Restore the file from a copy." in cluster.exits[0]

    play(story, **OFTEN)


def test_a_log_without_its_beginning_stops_the_start() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a", "b", "c")
        await cluster.until(lambda: log_start(cluster) > 0, "the log's prefix is gone")
        await cluster.stop(CONTROLLER)
        for name in snapshot_files(cluster):
            cluster.machine(CONTROLLER).disk.remove(f"{DIRECTORY}/{name}")
        cluster.start_node(CONTROLLER)
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert "no snapshot reaches that far" in cluster.exits[0]

    play(story, **NARROW)


def test_what_was_never_finished_is_removed() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a")
        cluster.crash(CONTROLLER)
        part = f"{DIRECTORY}/{SnapshotId(3, 1).file_name}.part"
        cluster.machine(CONTROLLER).disk.open(part, create=True).append(b"half")
        cluster.start_node(CONTROLLER)
        await cluster.until(lambda: leads(cluster), "the controller leads again")
        assert not cluster.machine(CONTROLLER).disk.exists(part)

    play(story)


def test_a_snapshot_that_can_not_be_written_ends_the_controller() -> None:
    """A disk that fails is known at once, not when the next record can't be synced."""

    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a")
        fault = DiskFault(operations=["rename"], prefix=DIRECTORY)
        cluster.machine(CONTROLLER).disk.inject(fault)
        await cluster.until(lambda: bool(cluster.exits), "the controller gives up")
        assert fault.struck

    play(story, metadata_log_max_snapshot_interval_ms="20000")


def test_a_log_that_can_not_be_counted_ends_the_controller() -> None:
    """Whether a snapshot is due is read from the disk, where nobody waits for an answer.

    Seen to fail: with an error that nobody handled.
    """

    async def story(cluster: SimulatedCluster) -> None:
        await topics(cluster, "a")
        active = controller(cluster)
        assert active.log is not None
        failures: list[StorageError] = []
        maker = SnapshotMaker(active.log.replica, store(cluster), active.settings, failures.append)
        fault = DiskFault(operations=["read"], prefix=DIRECTORY)
        cluster.machine(CONTROLLER).disk.inject(fault)
        maker.consider(active.image, active.log.committed)
        assert fault.struck
        assert len(failures) == 1

    play(story, metadata_log_max_record_bytes_between_snapshots="100000")
