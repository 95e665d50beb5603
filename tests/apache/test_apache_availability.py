"""Goal: Apache Kafka's own tools see who is eligible to lead, switch that, and unregister brokers.

Method: three brokers of ours, two of them killed; kafka-topics, kafka-features and kafka-cluster
against them, kafka-dump-log on the metadata log and on what a controller was formatted with.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from holdfast.cluster.local import LocalCluster
from holdfast.node.controller.bootstrap_checkpoint import bootstrap_file
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

pytestmark = [pytest.mark.apache, pytest.mark.slow]

FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
BOUND_S = 40.0


def run(kafka: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [kafka, *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_tools_see_and_switch_eligible_replicas(kafka_tools: Path, tmp_path: Path) -> None:
    with LocalCluster.create(tmp_path / "c", brokers=3, controllers=1, port=0) as cluster:
        cluster.start()
        alive = cluster.node(cluster.broker_ids[0])
        at = ("--bootstrap-server", f"{alive.host}:{alive.port}")
        ids = ":".join(map(str, cluster.broker_ids))
        run(kafka_tools, "topics", *at, "--create", "--topic", "t", "--replica-assignment", ids)
        described = run(kafka_tools, "class", FEATURES, *at, "describe")
        line = next(each for each in described.splitlines() if ELIGIBLE_LEADER_REPLICAS in each)
        words = [
            "SupportedMinVersion:",
            "0",
            "SupportedMaxVersion:",
            "1",
            "FinalizedVersionLevel:",
            "1",
        ]
        assert line.split()[2:8] == words
        for broker in cluster.broker_ids[1:]:
            cluster.kill(broker)
        give_up = time.monotonic() + BOUND_S
        elr = ""
        while not elr and time.monotonic() < give_up:
            shown = run(kafka_tools, "topics", *at, "--describe", "--topic", "t")
            elr = shown.partition("Elr: ")[2].split("\t")[0].strip()
        assert elr in map(str, cluster.broker_ids[1:])
        gone = str(cluster.broker_ids[2])
        run(kafka_tools, "class", CLUSTER, "unregister", *at, "--id", gone)
        name = f"{ELIGIBLE_LEADER_REPLICAS}=0"
        run(kafka_tools, "class", FEATURES, *at, "downgrade", "--feature", name)
        shown = run(kafka_tools, "topics", *at, "--describe", "--topic", "t")
        assert shown.partition("Elr: ")[2].split("\t")[0].strip() == ""
        logs = sorted((tmp_path / "c").rglob("__cluster_metadata-0/*.log"))
        dumped = run(kafka_tools, "dump-log", "--cluster-metadata-decoder", "--files", logs[0])
        assert '"eligibleLeaderReplicas":[' in dumped
        assert "UNREGISTER_BROKER_RECORD" in dumped


def test_kafka_reads_what_a_controller_was_formatted_with(
    kafka_tools: Path, tmp_path: Path
) -> None:
    path = tmp_path / "00000000000000000000-0000000000.checkpoint"
    path.write_bytes(bootstrap_file({ELIGIBLE_LEADER_REPLICAS: 1}))
    dumped = run(kafka_tools, "dump-log", "--cluster-metadata-decoder", "--files", path)
    assert f'"name":"{ELIGIBLE_LEADER_REPLICAS}","featureLevel":1' in dumped
