"""What is measured: the floor, our clusters, and Apache Kafka where `make apache` brought it.

Owns their processes and topics. Every engine listens on loopback, keeps its files in a temporary
directory, and starts with its defaults but for the few keys named here, the same on both sides.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster.local import LocalCluster
from holdfast.wire.administration import AdminError, create_topic, delete_topic

ROOT = Path(__file__).resolve().parent.parent
KAFKA = str(ROOT / "scripts" / "apache" / "kafka.sh")
_START_S = 60.0
_CLUSTER_ID = "holdfast-apache-kafka1"

Target = tuple[str, int, int]

# Deleted topics leave the disk soon. Sessions are Kafka's, which bear a busy machine.
STEADY = {
    "log.segment.delete.delay.ms": "1000",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
}
# As in our local profile: a dead broker is found soon.
ALERT = STEADY | {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


class Engine(Protocol):
    """Something that serves Produce and Fetch on loopback."""

    name: str
    brokers: int

    def start(self) -> None:
        """Start, and return when requests are served."""
        ...

    def stop(self) -> None:
        """Stop, and remove the files."""
        ...

    def pids(self) -> list[int]:
        """Processes whose CPU and memory count: the brokers."""
        ...

    def create(self, topic: str, partitions: int) -> list[Target]:
        """Make a topic on all brokers and return where its partitions' leaders are."""
        ...

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        ...


class Floor:
    """bench/floor.py: one process, one file."""

    name = "floor"
    brokers = 1

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "floor"

    def start(self) -> None:
        self.directory.mkdir(parents=True)
        command = [sys.executable, str(ROOT / "bench" / "floor.py"), "0"]
        self.process = subprocess.Popen(
            [*command, str(self.directory / "log")], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        word, _, port = self.process.stdout.readline().partition(" ")
        if word != "ready":
            raise RuntimeError("bench/floor.py did not start")
        self.port = int(port)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory)

    def pids(self) -> list[int]:
        return [self.process.pid]

    def create(self, topic: str, partitions: int) -> list[Target]:
        del topic, partitions
        return [("127.0.0.1", self.port, 0)]

    def delete(self, topic: str) -> None:
        del topic


class Cluster:
    """What the engines that are Kafka clusters share."""

    name = "kafka"
    brokers = 1
    bootstrap: str

    def __init__(self, directory: Path, config: dict[str, str] | None = None) -> None:
        self.config = STEADY if config is None else config
        self.directory = directory / f"{self.name}-{self.brokers}"

    def create(self, topic: str, partitions: int) -> list[Target]:
        asked = create_topic(
            topic,
            partitions=partitions,
            replication_factor=self.brokers,
            configs={"min.insync.replicas": "2"} if self.brokers > 2 else None,
            timeout_ms=30_000,
        )
        with Driver(self.bootstrap) as driver:
            try:
                driver.perform(asked)
            except AdminError as error:
                raise RuntimeError(f"{self.name}: {error}") from error
            return self._targets(driver, topic, partitions)

    def delete(self, topic: str) -> None:
        with Driver(self.bootstrap) as driver:
            driver.send(delete_topic(topic, 30_000).message)

    def _targets(self, driver: Driver, topic: str, partitions: int) -> list[Target]:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            answer = driver.metadata([topic])
            hosts = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            found = [
                (*hosts[partition.leader_id], partition.partition_index)
                for partition in answer.topics[0].partitions
                if partition.leader_id in hosts and len(partition.isr_nodes) == self.brokers
            ]
            if len(found) == partitions:
                return found
            time.sleep(0.02)
        raise RuntimeError(f"{self.name}: {topic} got no leaders")


class Holdfast(Cluster):
    """Our own nodes."""

    name = "holdfast"

    def start(self) -> None:
        self.cluster = LocalCluster.create(
            self.directory,
            brokers=self.brokers,
            combined=self.brokers == 1,
            port=0,
            config=self.config,
        )
        self.cluster.start()
        self.bootstrap = self.cluster.bootstrap_servers

    def stop(self) -> None:
        self.cluster.down()
        shutil.rmtree(self.directory)

    def pids(self) -> list[int]:
        return [node.pid for node in self.cluster.record.brokers if node.pid is not None]

    def kill(self, broker: int) -> None:
        """SIGKILL one broker."""
        self.cluster.kill(broker)


class Apache(Cluster):
    """Apache Kafka: the first broker is the controller too."""

    name = "apache"

    def start(self) -> None:
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.ports = [free_port() for _ in range(self.brokers)]
        voter = f"0@127.0.0.1:{free_port()}"
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        for node, port in enumerate(self.ports):
            self._start_node(node, port, voter)
        self._wait()

    def _start_node(self, node: int, port: int, voter: str) -> None:
        home = self.directory / str(node)
        home.mkdir(parents=True)
        controller = f",CONTROLLER://{voter.partition('@')[2]}" if node == 0 else ""
        properties = {
            "process.roles": "broker,controller" if node == 0 else "broker",
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": voter,
            "log.dirs": str(home / "data"),
            **self.config,
        }
        file = home / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [KAFKA, "format", "--cluster-id", _CLUSTER_ID, "--config", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with (home / "log").open("wb") as log:
            self.processes[node] = subprocess.Popen(
                [KAFKA, "run", str(file)], stdout=log, stderr=log
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            try:
                with Driver(self.bootstrap, timeout_s=2) as driver:
                    if len(driver.nodes()) == self.brokers:
                        return
            except DriverError:
                pass
            time.sleep(0.1)
        raise RuntimeError("Apache Kafka did not start; its log is in " + str(self.directory))

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.directory)

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values() if process.poll() is None]

    def kill(self, broker: int) -> None:
        """SIGKILL one broker."""
        self.processes[broker].kill()
        self.processes[broker].wait()


class HoldfastThree(Holdfast):
    """Three of our brokers, and the controller in a process of its own."""

    brokers = 3


class ApacheThree(Apache):
    """Three brokers of Apache Kafka."""

    brokers = 3


def apache_available() -> bool:
    """Whether `make apache` was done and there is Java."""
    return subprocess.run([KAFKA, "available"], check=False).returncode == 0


def free_port(beside: Iterable[int] = ()) -> int:
    """Return a port that nobody listens on now, nor at these distances from it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if all(_is_free(port + distance) for distance in beside):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def memory_mb(pids: list[int]) -> dict[str, float]:
    """Resident and proportional memory of a process, in MB, on average."""
    totals = {"Rss": 0.0, "Pss": 0.0}
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in totals:
                totals[name] += int(rest.split()[0]) * 1024 / 1e6 / len(pids)
    return {"rss_mb": totals["Rss"], "pss_mb": totals["Pss"]}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cpus": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
        "commit": commit.stdout.strip(),
    }
