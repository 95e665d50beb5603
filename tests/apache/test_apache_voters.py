"""Goal: Apache Kafka's own tools add and remove our controllers, and read the log that tells of it.

Method: two controllers of ours as processes, the first formatted with --standalone, the second with
--no-initial-controllers; kafka-metadata-quorum against them, kafka-dump-log on what they wrote.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until
from holdfast.cluster.quorum import QuorumState, ask_one

pytestmark = [pytest.mark.apache, pytest.mark.slow]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER_ID = "S6zsVBQdQz6WrYmHb7WaQQ"
NODE = [sys.executable, "-P", "-m", "holdfast.node"]
PATIENCE_S = 30


@pytest.fixture
def controllers(kafka_tools: Path, tmp_path: Path) -> Iterator[list[int]]:
    """Two controllers that run; their ports. The first is the only voter."""
    assert kafka_tools
    ports = free_ports(2)
    running = []
    for number, kind in enumerate(("--standalone", "--no-initial-controllers")):
        properties = tmp_path / f"{number}.properties"
        properties.write_text(
            f"process.roles=controller\nnode.id={number}\nlog.dirs={tmp_path / str(number)}\n"
            f"listeners=CONTROLLER://127.0.0.1:{ports[number]}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{ports[0]}\n"
        )
        formatted = [*NODE, "format", "--config", str(properties), "--cluster-id", CLUSTER_ID]
        subprocess.run([*formatted, kind], check=True, capture_output=True, timeout=60)
        with (tmp_path / f"{number}.log").open("wb") as log:
            running.append(
                subprocess.Popen([*NODE, "--config", str(properties)], stdout=log, stderr=log)
            )
    try:
        yield ports
    finally:
        for process in running:
            process.kill()
            process.wait()


def until_seen(port: int, observers: int) -> QuorumState:
    def seen() -> QuorumState | None:
        state = ask_one("127.0.0.1", port)
        return state if state is not None and len(state.observers) == observers else None

    return wait_until(seen, timeout_s=PATIENCE_S, what=f"a quorum with {observers} observers")


def test_a_controller_is_added_and_removed(
    kafka_tools: Path, controllers: list[int], tmp_path: Path
) -> None:
    until_seen(controllers[0], 1)
    address = ["--bootstrap-controller", f"127.0.0.1:{controllers[0]}"]
    joining = ["--command-config", str(tmp_path / "1.properties"), *address]
    tool = [str(kafka_tools), "class", QUORUM]
    subprocess.run([*tool, *joining, "add-controller"], check=True, timeout=100)
    state = until_seen(controllers[0], 0)
    assert [voter.id for voter in state.voters] == [0, 1]
    status = subprocess.run(
        [*tool, *address, "describe", "--replication"], check=True, capture_output=True, timeout=100
    ).stdout.decode()
    joined = next(line.split() for line in status.splitlines() if line.startswith("1"))
    removal = ["--controller-id", "1", "--controller-directory-id", joined[1]]
    subprocess.run([*tool, *address, "remove-controller", *removal], check=True, timeout=100)
    state = until_seen(controllers[0], 1)
    assert [voter.id for voter in state.voters] == [0]
    segment = tmp_path / "0" / "__cluster_metadata-0" / f"{0:020}.log"
    dumped = subprocess.run(
        [kafka_tools, "dump-log", "--cluster-metadata-decoder", "--files", segment],
        check=True,
        capture_output=True,
        timeout=100,
    ).stdout.decode()
    assert "KRaftVersion" in dumped
    assert dumped.count("KRaftVoters") == 3
