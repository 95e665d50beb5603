"""Goal: partitions move, and records go, with each side's tools on the other side's brokers.

Method: kafka-reassign-partitions and kafka-delete-records on three brokers of ours; our commands on
a broker of Apache Kafka, where a move can only begin, be refused and be listed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import cli
from holdfast.clients import reassigning
from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic

pytestmark = [pytest.mark.apache, pytest.mark.slow]
BOUND_S = 60.0


@pytest.fixture(scope="module")
def cluster(kafka_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    assert kafka_tools.exists()
    directory = tmp_path_factory.mktemp("reassign") / "cluster"
    with LocalCluster.create(directory, brokers=3, controllers=1, port=0) as made:
        made.start()
        yield made


def tool(kafka_tools: Path, servers: str, command: str, *arguments: str) -> str:
    done = subprocess.run(
        [kafka_tools, command, "--bootstrap-server", servers, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def until_known(servers: str, topic: str) -> None:
    def known() -> bool | None:
        with Driver(servers) as driver:
            found = driver.metadata([topic]).topics[0]
        return (not found.error_code and all(p.leader_id >= 0 for p in found.partitions)) or None

    wait_until(known, timeout_s=BOUND_S, what=f"{topic} to be known")


def test_kafkas_tool_moves_our_partitions(
    kafka_tools: Path, cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    with Driver(servers) as driver:
        driver.perform(create_topic("moved", assignment={0: [0, 1], 1: [1, 2]}))
    until_known(servers, "moved")
    topics, move = tmp_path / "topics", tmp_path / "move"
    topics.write_text('{"version":1,"topics":[{"topic":"moved"}]}')

    def reassign(*arguments: str) -> str:
        return tool(kafka_tools, servers, "reassign-partitions", *arguments)

    proposed = reassign(
        "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "0,2"
    )
    assert '"topic":"moved","partition":1,"replicas":[1,2]' in proposed.splitlines()[1]
    move.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {"topic": "moved", "partition": 0, "replicas": [2, 1]},
                    {"topic": "moved", "partition": 1, "replicas": [2, 1, 0]},
                ],
            }
        )
    )
    given = ("--reassignment-json-file", str(move))
    begun = reassign("--execute", *given, "--throttle", "50000000")
    assert "Successfully started partition reassignments for moved-0,moved-1" in begun

    def verified() -> str | None:
        said = reassign("--verify", *given)
        return said if said.count("is completed") == 2 else None

    said = wait_until(verified, timeout_s=BOUND_S, what="the move")
    assert "Clearing broker-level throttles on brokers 0,1,2" in said
    with Driver(servers) as driver:
        assert list(reassigning.assignment(driver, ["moved"]).values()) == [[2, 1], [2, 1, 0]]
    assert "No partition reassignments found." in reassign("--list")
    assert "None of the specified partition moves are active" in reassign("--cancel", *given)


def test_kafkas_tool_deletes_our_records(
    kafka_tools: Path, cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    with Driver(servers) as driver:
        driver.perform(create_topic("deleted", assignment={0: [0, 1, 2]}))
    until_known(servers, "deleted")
    load = ("--topic", "deleted", "--num-records", "50", "--record-size", "10")
    produced = subprocess.run(
        [kafka_tools, "producer-perf-test", *load, "--throughput", "-1",
         "--command-property", f"bootstrap.servers={servers}"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    offsets = tmp_path / "offsets"
    offsets.write_text('{"version":1,"partitions":[{"topic":"deleted","partition":0,"offset":30}]}')
    said = tool(kafka_tools, servers, "delete-records", "--offset-json-file", str(offsets))
    assert "partition: deleted-0\tlow_watermark: 30" in said


def test_our_commands_on_apache_kafka(
    apache_kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Driver(apache_kafka) as driver:
        driver.perform(create_topic("theirs", assignment={0: [0]}))
    until_known(apache_kafka, "theirs")

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        status = cli.run([arguments[0], "--bootstrap-server", apache_kafka, *arguments[1:]])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    move = tmp_path / "move"
    move.write_text('{"version":1,"partitions":[{"topic":"theirs","partition":0,"replicas":[0]}]}')
    given = ("--reassignment-json-file", str(move))
    status, said = run("reassign-partitions", *given, "--execute", "--throttle", "1000")
    assert status == 0, said
    assert "Successfully started partition reassignment for theirs-0" in said
    status, said = run("reassign-partitions", *given, "--verify")
    assert status == 0, said
    assert "Reassignment of partition theirs-0 is completed." in said
    assert run("reassign-partitions", "--list") == (0, "No partition reassignments found.\n")
    status, said = run("reassign-partitions", *given, "--cancel")
    assert "None of the specified partition moves are active." in said
    move.write_text('{"version":1,"partitions":[{"topic":"theirs","partition":0,"replicas":[7]}]}')
    status, said = run("reassign-partitions", *given, "--execute")
    assert (status, "INVALID_REPLICA_ASSIGNMENT" in said) == (1, True)
    assert run("reassign-partitions", "--topic", "theirs", "--replication-factor", "1") == (
        0,
        "Nothing has to move.\n",
    )
    status, said = run("delete-records", "--topic", "theirs", "--all")
    assert (status, "partition: theirs-0\tlow_watermark: 0" in said) == (0, True)
