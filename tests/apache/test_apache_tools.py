"""Goal: Apache Kafka's own tools, and the Java clients in them, work on our broker unchanged.

Method: one broker of ours; kafka-topics, kafka-configs, kafka-producer-perf-test (idempotent,
acks=all), kafka-leader-election against it, and kafka-dump-log on what it wrote.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.local import LocalCluster

pytestmark = [pytest.mark.apache, pytest.mark.slow]

KAFKA = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"


@pytest.fixture(scope="module")
def cluster(kafka_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    assert kafka_tools == KAFKA
    directory = tmp_path_factory.mktemp("tools") / "cluster"
    with LocalCluster.create(directory, brokers=1, combined=True, port=0) as cluster:
        cluster.start()
        yield cluster


def tool(cluster: LocalCluster | None, command: str, *arguments: str) -> str:
    """Run one of Apache Kafka's tools; its output must not speak of an error."""
    bootstrap = [] if cluster is None else ["--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run(
        [KAFKA, command, *bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_topics(cluster: LocalCluster) -> None:
    tool(cluster, "topics", "--create", "--topic", "a", "--partitions", "2")
    assert tool(cluster, "topics", "--list").split() == ["a"]
    tool(cluster, "topics", "--alter", "--topic", "a", "--partitions", "3")
    described = tool(cluster, "topics", "--describe", "--topic", "a")
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert described.count("Leader: 0\tReplicas: 0\tIsr: 0") == 3
    tool(cluster, "topics", "--delete", "--topic", "a")
    assert tool(cluster, "topics", "--list").split() == []


def test_configs(cluster: LocalCluster) -> None:
    tool(cluster, "topics", "--create", "--topic", "b", "--config", "retention.ms=1000")
    entity = ("--entity-type", "topics", "--entity-name", "b")
    tool(cluster, "configs", *entity, "--alter", "--add-config", "segment.ms=7200000")
    tool(cluster, "configs", *entity, "--alter", "--delete-config", "retention.ms")
    described = tool(cluster, "configs", *entity, "--describe")
    assert "segment.ms=7200000" in described
    assert "retention.ms" not in described

    brokers = ("--entity-type", "brokers", "--entity-default")
    tool(cluster, "configs", *brokers, "--alter", "--add-config", "log.retention.ms=5000")
    everything = tool(cluster, "configs", *entity, "--describe", "--all")
    assert "retention.ms=5000" in everything
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5000" in everything
    tool(cluster, "configs", *brokers, "--alter", "--delete-config", "log.retention.ms")
    of_all = tool(cluster, "configs", "--entity-type", "topics", "--describe")
    assert "Dynamic configs for topic b are:" in of_all
    assert tool(cluster, "configs", "--entity-type", "client-metrics", "--describe") == ""


def test_settings_of_a_group(cluster: LocalCluster) -> None:
    """With --all: without it the tool first lists groups and what is configured."""
    entity = ("--entity-type", "groups", "--entity-name", "g")
    session = "consumer.session.timeout.ms"
    tool(cluster, "configs", *entity, "--alter", "--add-config", f"{session}=50000")
    described = tool(cluster, "configs", *entity, "--describe", "--all")
    assert f"{session}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:" in described
    tool(cluster, "configs", *entity, "--alter", "--delete-config", session)
    assert "DYNAMIC_GROUP_CONFIG" not in tool(cluster, "configs", *entity, "--describe", "--all")


def test_an_idempotent_java_producer_and_the_log_it_leaves(cluster: LocalCluster) -> None:
    tool(cluster, "topics", "--create", "--topic", "c")
    load = ("--topic", "c", "--num-records", "5000", "--record-size", "200", "--throughput", "-1")
    servers = f"bootstrap.servers={cluster.bootstrap_servers}"
    said = tool(None, "producer-perf-test", *load, "--command-property", servers)
    assert "5000 records sent" in said

    data = next(cluster.directory.rglob("c-0"))
    dumped = tool(None, "dump-log", "--files", str(data / f"{0:020}.log"), "--deep-iteration")
    batches = [line for line in dumped.splitlines() if line.startswith("baseOffset")]
    assert sum(int(line.split("count: ")[1].split()[0]) for line in batches) == 5000
    assert all("isvalid: true" in line for line in batches)
    assert all("producerId: -1" not in line for line in batches)

    transactions = "org.apache.kafka.tools.TransactionsCommand"
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    partition = ("--topic", "c", "--partition", "0")
    said = tool(None, "class", transactions, *server, "describe-producers", *partition)
    (header, producer) = [line.split() for line in said.splitlines() if line.strip()]
    found = dict(zip(header, producer, strict=True))
    assert f"producerId: {found['ProducerId']}" in dumped
    assert (found["ProducerEpoch"], found["LastSequence"]) == ("0", "4999")


def test_leader_election(cluster: LocalCluster) -> None:
    tool(cluster, "topics", "--create", "--topic", "d")
    election = ("--election-type", "preferred", "--topic", "d", "--partition", "0")
    said = tool(cluster, "leader-election", *election)
    assert "Valid replica already elected for partitions d-0" in said
    everywhere = ("--election-type", "preferred", "--all-topic-partitions")
    tool(cluster, "leader-election", *everywhere)


def test_the_metadata_log_is_kafkas(cluster: LocalCluster) -> None:
    data = next(cluster.directory.rglob("__cluster_metadata-0"))
    segment = str(data / f"{0:020}.log")
    dumped = tool(None, "dump-log", "--cluster-metadata-decoder", "--files", segment)
    assert "LeaderChange" in dumped
    assert '"type":"REGISTER_BROKER_RECORD"' in dumped
    assert '"type":"FEATURE_LEVEL_RECORD"' in dumped
