"""How long three controllers are without an active one after SIGKILL of the one that was.

Both clusters have three controllers of their own and one broker, with the same timeouts: those of
our local profile. Asked are the controllers left, and a topic is created through the broker.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from engines import ALERT, KAFKA, free_port
from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster import LocalCluster, quorum
from holdfast.cluster.plan import LOCAL_PROFILE
from holdfast.wire.administration import AdminError, create_topic

NAME = "SIGKILL of the active controller of three"
CONTROLLERS = (100, 101, 102)
_BOUND_S = 60.0
_POLL_S = 0.005
_QUORUM_KEYS = {key: value for key, value in LOCAL_PROFILE.items() if "quorum" in key}

T = TypeVar("T")
Add = Callable[[str, str, dict[str, float]], None]


class Quorum(Protocol):
    """Three controllers and a broker."""

    name: str
    bootstrap: str

    def start(self) -> None:
        """Start all, and return when the broker serves."""

    def addresses(self, but: int | None = None) -> list[tuple[str, int]]:
        """Where controllers listen, without one of them."""
        ...

    def kill(self, controller: int) -> None:
        """SIGKILL."""

    def revive(self, controller: int) -> None:
        """Start it again."""

    def stop(self) -> None:
        """End all, and remove the files."""


class HoldfastQuorum:
    """Our own nodes."""

    name = "holdfast"

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "holdfast-quorum"

    def start(self) -> None:
        self.cluster = LocalCluster.create(
            self.directory, brokers=1, controllers=len(CONTROLLERS), port=0, config=ALERT
        )
        self.cluster.start()
        self.bootstrap = self.cluster.bootstrap_servers

    def addresses(self, but: int | None = None) -> list[tuple[str, int]]:
        nodes = self.cluster.record.controllers
        return [(node.host, node.voter_port) for node in nodes if node.id != but]

    def kill(self, controller: int) -> None:
        self.cluster.kill(controller)

    def revive(self, controller: int) -> None:
        self.cluster.start_node(controller)

    def stop(self) -> None:
        self.cluster.down()
        shutil.rmtree(self.directory)


class ApacheQuorum:
    """Apache Kafka's."""

    name = "apache"

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "apache-quorum"

    def start(self) -> None:
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.ports = {node: free_port() for node in (0, *CONTROLLERS)}
        self.bootstrap = f"127.0.0.1:{self.ports[0]}"
        for node in self.ports:
            home = self.directory / str(node)
            home.mkdir(parents=True)
            (home / "server.properties").write_text(self._properties(node, home))
            file = str(home / "server.properties")
            command = [KAFKA, "format", "--cluster-id", "holdfast-apache-kafka1", "--config", file]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            self.revive(node)
        _until(self._serves, "Apache Kafka to serve")

    def _properties(self, node: int, home: Path) -> str:
        role, listener = ("broker", "PLAINTEXT") if node == 0 else ("controller", "CONTROLLER")
        voters = ",".join(f"{each}@127.0.0.1:{self.ports[each]}" for each in CONTROLLERS)
        properties = {
            **ALERT,
            **_QUORUM_KEYS,
            "process.roles": role,
            "node.id": str(node),
            "listeners": f"{listener}://127.0.0.1:{self.ports[node]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": voters,
            "log.dirs": str(home / "data"),
        }
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _serves(self) -> bool:
        try:
            with Driver(self.bootstrap, timeout_s=2) as driver:
                return bool(driver.nodes())
        except DriverError:
            return False

    def addresses(self, but: int | None = None) -> list[tuple[str, int]]:
        return [("127.0.0.1", self.ports[node]) for node in CONTROLLERS if node != but]

    def kill(self, controller: int) -> None:
        self.processes[controller].kill()
        self.processes[controller].wait()

    def revive(self, controller: int) -> None:
        home = self.directory / str(controller)
        with (home / "log").open("ab") as log:
            self.processes[controller] = subprocess.Popen(
                [KAFKA, "run", str(home / "server.properties")], stdout=log, stderr=log
            )

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.directory)


def measure(directory: Path, rounds: int, add: Add, *, with_apache: bool) -> None:
    """Kill the active controller so many times, on each side."""
    clusters: list[Quorum] = [HoldfastQuorum(directory)]
    if with_apache:
        clusters.append(ApacheQuorum(directory))
    for cluster in clusters:
        cluster.start()
        try:
            for number in range(rounds):
                add(NAME, cluster.name, _failover(cluster, number))
        finally:
            cluster.stop()


def _failover(cluster: Quorum, number: int) -> dict[str, float]:
    """Kill the active one; when is there another, and when is a topic created again?"""
    before = _until(lambda: _whole(cluster), "all controllers to be in sync")
    left = cluster.addresses(before.leader)
    cluster.kill(before.leader)
    began = time.monotonic()
    created: list[float] = []
    thread = threading.Thread(target=_create, args=(cluster.bootstrap, number, created))
    thread.start()
    _until(lambda: _next(left, before), "the next active controller")
    active_s = time.monotonic() - began
    thread.join(_BOUND_S)
    if not created:
        raise RuntimeError(f"{cluster.name}: no topic was created within {_BOUND_S:.0f} s")
    cluster.revive(before.leader)
    return {"next_active_s": active_s, "topic_created_s": created[0] - began}


def _whole(cluster: Quorum) -> quorum.QuorumState | None:
    """The quorum's state, once every voter has all that is committed."""
    state = quorum.ask(cluster.addresses())
    if state is None or any(each.log_end < state.high_watermark for each in state.voters):
        return None
    return state


def _next(addresses: list[tuple[str, int]], before: quorum.QuorumState) -> bool:
    state = quorum.ask(addresses)
    return state is not None and state.epoch > before.epoch and state.leader >= 0


def _create(bootstrap: str, number: int, created: list[float]) -> None:
    """Create one topic, as often as it takes."""
    deadline = time.monotonic() + _BOUND_S
    asked = create_topic(f"after-{number}", partitions=1, replication_factor=1, timeout_ms=30_000)
    while time.monotonic() < deadline:
        try:
            with Driver(bootstrap, timeout_s=35) as driver:
                driver.perform(asked)
        except DriverError:
            time.sleep(_POLL_S)
        except AdminError:
            continue
        else:
            created.append(time.monotonic())
            return


def _until(condition: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + _BOUND_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(_POLL_S)
    raise RuntimeError(f"waited {_BOUND_S:.0f} s in vain for {what}")
