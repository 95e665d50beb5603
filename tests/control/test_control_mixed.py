"""Goal: an unmodified Apache Kafka broker joins our controller and replicates with our broker.

It registers, reads our metadata log, beats, leads, follows, changes ISRs and leaves in good order:
whatever we have misread of Kafka's internal protocol shows here. Method: real processes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.waiting import live_brokers, wait_for_leader

from holdfast.clients.blocking_driver import Driver, UnreachableError
from holdfast.cluster import LocalCluster
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = [pytest.mark.apache, pytest.mark.slow]

KAFKA = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"
THEIRS = 5
PATIENCE_S = 60


@contextmanager
def _kafka(directory: Path, cluster: LocalCluster) -> Iterator[subprocess.Popen[bytes]]:
    directory.mkdir()
    (port,) = free_ports(1)
    controller = cluster.node(cluster.controller_ids[0])
    properties = directory / "server.properties"
    properties.write_text(
        f"process.roles=broker\nnode.id={THEIRS}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"controller.quorum.voters={controller.id}@{controller.host}:{controller.port}\n"
        f"log.dirs={directory / 'data'}\n"
    )
    done = subprocess.run(
        [KAFKA, "format", "-t", cluster.cluster_id, "-c", properties],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with (directory / "kafka.log").open("wb") as log:
        process = subprocess.Popen([KAFKA, "run", properties], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _snapshots(directory: Path) -> list[Path]:
    """The snapshots of the metadata log below a directory; bootstrap.checkpoint is none."""
    return sorted(directory.rglob("0*-0*.checkpoint"))


def _append(driver: Driver, topic: str, partition: int, count: int) -> tuple[int, int]:
    """One batch with acks=all; the error code and base offset of the answer."""
    batch = build_batch([Record(None, str(n).encode(), 1) for n in range(count)])
    data = PartitionProduceData(index=partition, records=bytes(batch))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    response = driver.send(request, node=driver.leader(topic, partition), version=12)
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def _listens(driver: Driver, node: int) -> bool:
    try:
        driver.peer(node)
    except UnreachableError:
        return False
    return True


def test_an_apache_kafka_broker_is_one_of_us(tmp_path: Path) -> None:
    often = {
        "metadata.log.max.record.bytes.between.snapshots": "500",
        "metadata.max.retention.bytes": "0",
    }
    with LocalCluster.create(tmp_path / "ours", brokers=1, port=0, config=often) as cluster:
        cluster.start()
        ours = cluster.broker_ids[0]
        for number in range(8):
            asked = create_topic(f"before-{number}", partitions=3, replication_factor=1)
            with Driver(cluster.bootstrap_servers) as driver:
                driver.perform(asked)
        wait_until(
            lambda: _snapshots(tmp_path / "ours"),
            timeout_s=PATIENCE_S,
            what="snapshots of the controller",
        )
        with (
            _kafka(tmp_path / "theirs", cluster) as kafka,
            Driver(cluster.bootstrap_servers) as driver,
        ):
            wait_until(
                lambda: THEIRS in live_brokers(cluster),
                timeout_s=PATIENCE_S,
                what="Kafka to be unfenced",
            )
            # The log's beginning is gone: what Kafka knows of it, it has from our snapshot.
            assert _snapshots(tmp_path / "theirs")
            placed = {0: [THEIRS, ours], 1: [ours, THEIRS]}
            configs = {"min.insync.replicas": "2"}
            driver.perform(create_topic("mixed", assignment=placed, configs=configs))
            for partition, leader in ((0, THEIRS), (1, ours)):
                wait_for_leader(cluster, "mixed", partition)
                wait_until(
                    lambda: _listens(driver, leader),  # noqa: B023 - it is called at once
                    timeout_s=PATIENCE_S,
                    what="the leader's door, which Kafka opens after it is unfenced",
                )
                assert driver.leader("mixed", partition) == leader
                assert _append(driver, "mixed", partition, 10) == (0, 0)
                assert _append(driver, "mixed", partition, 10) == (0, 10)
            kafka.terminate()
            kafka.wait(timeout=PATIENCE_S)
            assert wait_until(
                lambda: all(
                    wait_for_leader(cluster, "mixed", partition).isr == (ours,)
                    for partition in (0, 1)
                ),
                timeout_s=PATIENCE_S,
                what="Kafka to leave in good order",
            )
