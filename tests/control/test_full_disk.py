"""Goal: a full disk is brought back in each way that docs/how-to/full-disk.md names.

Method: real processes; one of three brokers has its only log directory on a file system of a few
megabytes, which events fill. What was acknowledged is in its files again at the end, byte by byte.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.waiting import wait_for_isr, wait_for_leader

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.replica_files import stored_batches
from holdfast.cluster import LocalCluster
from holdfast.cluster.plan import with_config
from holdfast.cluster.processes import State, wait_until
from holdfast.lab.parameters import LabError
from holdfast.lab.steps.mounts import mount_small, resize, unmount
from holdfast.wire.administration import create_topic, reassign, reassignments
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = [pytest.mark.serial, pytest.mark.slow]

VICTIM = 1
SMALL_BYTES = 4 << 20
EVENT_BYTES = 60_000
PATIENCE_S = 60
PRODUCE_VERSION = 9
PARTITIONS = range(3)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "small"
    try:
        mount_small(directory, SMALL_BYTES)
    except LabError as error:
        pytest.skip(str(error))
    yield directory
    unmount(directory)


@pytest.fixture
def cluster(tmp_path: Path, small: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", brokers=3, controllers=1, port=0)
    config = Path(made.node(VICTIM).config_file)
    config.write_text(with_config(config.read_text(), {"log.dirs": str(small / "data")}))
    made.start()
    yield made
    made.down()


@pytest.fixture
def driver(cluster: LocalCluster) -> Iterator[Driver]:
    with Driver(cluster.bootstrap_servers, timeout_s=PATIENCE_S) as driver:
        placed = {index: [(VICTIM + index + n) % 3 for n in range(3)] for index in PARTITIONS}
        driver.perform(create_topic("t", assignment=placed))
        for index in PARTITIONS:
            wait_for_isr(cluster, "t", index, {0, 1, 2})
        yield driver


def acknowledged(driver: Driver, cluster: LocalCluster, partition: int) -> bool:
    """Send one event with acks=all to who leads; whether it was acknowledged."""
    leader = wait_for_leader(cluster, "t", partition).leader
    batch = build_batch([Record(value=bytes(EVENT_BYTES), timestamp=1)])
    data = PartitionProduceData(index=partition, records=bytes(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=PATIENCE_S * 1000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    answer = driver.peer(leader).send(request, version=PRODUCE_VERSION)
    code = answer.responses[0].partition_responses[0].error_code
    assert code in {
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    return bool(code == ErrorCode.NONE)


def fill(driver: Driver, cluster: LocalCluster, wanted: range = PARTITIONS) -> None:
    """Send until the broker whose disk is small has ended."""

    def ended() -> bool:
        for partition in wanted:
            if cluster.state(VICTIM) is not State.DEAD:
                acknowledged(driver, cluster, partition)
        return cluster.state(VICTIM) is State.DEAD

    wait_until(ended, timeout_s=PATIENCE_S, what="the broker on a full disk to end")


def last_words(cluster: LocalCluster) -> str:
    (found,) = (each for each in cluster.status().nodes if each.node.id == VICTIM)
    return found.ended_with or ""


def same_files(cluster: LocalCluster, small: Path, partition: int) -> bool:
    other = Path(cluster.node(0).config_file).parent / "data" / f"t-{partition}"
    mine = list(stored_batches(small / "data" / f"t-{partition}"))
    return mine == list(stored_batches(other))


def whole_again(cluster: LocalCluster, small: Path, partition: int) -> None:
    wait_for_isr(cluster, "t", partition, {0, 1, 2})
    wait_until(
        lambda: same_files(cluster, small, partition),
        timeout_s=PATIENCE_S,
        what="the same batches in two replicas",
    )


def test_a_file_system_that_grows(cluster: LocalCluster, driver: Driver, small: Path) -> None:
    """Until it does, each start ends as the first one, and takes nothing along."""
    fill(driver, cluster)
    assert "the disk is full: No space left on device" in last_words(cluster)
    assert f"of {SMALL_BYTES:,} bytes are free" in last_words(cluster)
    cluster.start_node(VICTIM, wait=False)
    fill(driver, cluster)
    assert "the disk is full" in last_words(cluster)
    assert all(acknowledged(driver, cluster, partition) for partition in PARTITIONS)
    resize(small, 4 * SMALL_BYTES)
    cluster.start_node(VICTIM)
    for partition in PARTITIONS:
        whole_again(cluster, small, partition)


def test_partitions_that_move_away_leave_room(
    cluster: LocalCluster, driver: Driver, small: Path
) -> None:
    """One is removed by hand before the next start, the other one as what that has set aside."""
    fill(driver, cluster)
    driver.perform(reassign({("t", 0): [0, 2], ("t", 1): [0, 2]}))
    wait_until(
        lambda: not driver.perform(reassignments()), timeout_s=PATIENCE_S, what="nothing to move"
    )
    shutil.rmtree(small / "data" / "t-0")
    cluster.start_node(VICTIM)
    wait_until(lambda: list(small.glob("data/t-1.*-stray")), timeout_s=PATIENCE_S, what="a stray")
    whole_again(cluster, small, 2)
    for stray in small.glob("data/*-stray"):
        shutil.rmtree(stray)
    assert acknowledged(driver, cluster, 2)
    whole_again(cluster, small, 2)
