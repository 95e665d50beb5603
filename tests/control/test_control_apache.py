"""Goal: Apache Kafka's own reader understands every record that our controller writes.

Method: a busy simulated cluster; kafka-dump-log with its metadata decoder over the log it leaves.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.control.control_world import METADATA_FILE, play

from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest

pytestmark = [pytest.mark.apache, pytest.mark.slow]

KAFKA = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"


def _busy() -> bytes:
    """Every kind of record that the controller can write, in one log."""
    written: list[bytes] = []

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", partitions=3, configs={"retention.ms": "5"})
        await client.create_topic("gone")
        change = AlterableConfig(name="unclean.leader.election.enable", value="true")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        await client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        for broker in (0, 1, 2):
            cluster.crash(broker)
        cluster.start_node(2)
        await cluster.until_ready(2)
        await cluster.stop(2)
        for broker in (0, 1, 2):
            cluster.start_node(broker)
        await cluster.until_ready(0, 1, 2)
        client.forget()
        await client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000)
        )
        written.append(cluster.machine(CONTROLLER).disk.read(METADATA_FILE))

    play(story)
    return written[0]


def _payloads(text: str) -> list[dict[str, Any]]:
    return [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]


def test_kafka_reads_our_metadata_log(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(_busy())
    command = [str(KAFKA), "dump-log", "--cluster-metadata-decoder", "--files", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    assert "Could not" not in done.stdout + done.stderr
    assert "LeaderChange: " in done.stdout
    records = _payloads(done.stdout)
    assert {record["type"] for record in records} == {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
        "REMOVE_TOPIC_RECORD",
    }
    changes = [each["data"] for each in records if each["type"] == "PARTITION_CHANGE_RECORD"]
    assert any(change.get("leaderRecoveryState") == 1 for change in changes), "an unclean election"
    registrations = [each["data"] for each in records if each["type"] == "REGISTER_BROKER_RECORD"]
    assert all(len(each["logDirs"]) == 1 for each in registrations)
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", done.stdout, re.MULTILINE)]
    assert offsets == list(range(len(offsets)))
