"""Goal: Apache Kafka's tools read our snapshots, and our quorum, as if they were Kafka's own.

Method: a controller and a broker of ours, with limits so small that snapshots come at once;
kafka-metadata-quorum to the controller and through the broker, kafka-dump-log and
kafka-metadata-shell on a snapshot.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.local import LocalCluster
from holdfast.wire.administration import create_topic

pytestmark = [pytest.mark.apache, pytest.mark.slow]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
SHELL = "org.apache.kafka.shell.MetadataShell"


@pytest.fixture(scope="module")
def cluster(kafka_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    assert kafka_tools
    directory = tmp_path_factory.mktemp("snapshots") / "cluster"
    config = {"metadata.log.max.record.bytes.between.snapshots": "500"}
    with LocalCluster.create(directory, brokers=1, port=0, config=config) as cluster:
        cluster.start()
        with Driver(cluster.bootstrap_servers) as driver:
            for number in range(8):
                driver.perform(create_topic(f"topic-{number}", partitions=2, replication_factor=1))
        yield cluster


@pytest.fixture(scope="module")
def snapshot(cluster: LocalCluster) -> Path:
    return max(cluster.directory.rglob("0*-0*.checkpoint"))


def run(tools: Path, command: str, *arguments: str) -> str:
    done = subprocess.run(
        [tools, command, *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("through", ["--bootstrap-server", "--bootstrap-controller"])
def test_metadata_quorum(kafka_tools: Path, cluster: LocalCluster, through: str) -> None:
    controller = cluster.node(cluster.controller_ids[0])
    address = cluster.bootstrap_servers
    if through == "--bootstrap-controller":
        address = f"{controller.host}:{controller.port}"
    status = run(kafka_tools, "class", QUORUM, through, address, "describe", "--status")
    assert f"LeaderId:               {controller.id}" in status
    assert "MaxFollowerLag:         0" in status
    replicas = run(kafka_tools, "class", QUORUM, through, address, "describe", "--replication")
    rows = [line.split() for line in replicas.splitlines()[1:]]
    assert {(row[0], row[-1]) for row in rows if row} == {
        (str(controller.id), "Leader"),
        (str(cluster.broker_ids[0]), "Observer"),
    }


def test_dump_log(kafka_tools: Path, snapshot: Path) -> None:
    arguments = ("--cluster-metadata-decoder", "--files", str(snapshot))
    dumped = run(kafka_tools, "dump-log", *arguments)
    assert "SnapshotHeader" in dumped
    assert "SnapshotFooter" in dumped
    assert dumped.index("SnapshotHeader") < dumped.index('"type":"FEATURE_LEVEL_RECORD"')
    for kind in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"):
        assert f'"type":"{kind}"' in dumped
    assert "isvalid: false" not in dumped


def test_metadata_shell(kafka_tools: Path, snapshot: Path) -> None:
    listed = run(
        kafka_tools, "class", SHELL, "--snapshot", str(snapshot), "ls", "image/topics/byName"
    )
    assert "topic-0" in listed
    described = run(
        kafka_tools, "class", SHELL, "--snapshot", str(snapshot),
        "cat", "image/topics/byName/topic-0/1",
    )  # fmt: skip
    assert "leaderEpoch" in described
