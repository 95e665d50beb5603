"""A cluster of unmodified nodes on the virtual-time loop: controllers and brokers.

Owns starting, killing and restarting them. Must never tell a node anything but through its ports
and its configuration; a test may look at `nodes`, for its oracle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.image import MetadataImage
from holdfast.log.errors import CorruptFileError, DirectoryError, StorageError
from holdfast.log.log import Log
from holdfast.node.broker.lifecycle import RegistrationError
from holdfast.node.controller.storage_format import (
    Beginning,
    FormatError,
    format_directories,
    random_cluster_id,
)
from holdfast.node.door.server import StartError
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.node.node import Node
from holdfast.node.quorum.quorum_member import QuorumMember
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.loop import SimulationError
from holdfast.testing.ground.runtime import Machine, World
from holdfast.testing.simulated_client import ClusterClient

CONTROLLER = 100
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
DIRECTORY = "/data"
_READY_S = 120.0
_LOOK_S = 0.01

# What a process ends with before it serves; `node.__main__` prints these.
_NO_START = (
    CorruptFileError, DirectoryError, FormatError, MetadataLogError, OSError, StartError,
    StorageError,
)  # fmt: skip

_LOCAL: Mapping[str, str] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.request.timeout.ms": "1000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "replica.socket.timeout.ms": "3000",
    "request.timeout.ms": "3000",
}


class SimulatedCluster:
    """Brokers 0, 1, ... on machines broker-0, broker-1, ...; controllers on others of their own.

    Controllers are the nodes 100, 101, ... on machines controller, controller-101, ...; with
    `combined` they are the first brokers instead, which then have both roles.
    """

    def __init__(
        self,
        world: World,
        *,
        brokers: int = 3,
        controllers: int = 1,
        combined: bool = False,
        config: Mapping[str, str] | None = None,
        config_of: Callable[[int], Mapping[str, str]] = lambda _: {},
        make_log: Callable[[int], Callable[..., Log]] = lambda _: Log,
        features: Mapping[str, int] | None = None,
        loaded: Callable[[int], None] = lambda _: None,
        dynamic: bool = False,
    ) -> None:
        """`config` is every node's, `config_of` one's own; `make_log` as `Node` takes it.

        `features` are levels that the cluster begins with in place of the usual ones. `loaded` is
        told of each node that has opened its logs and serves nobody yet. With `dynamic` the first
        controller begins as the only voter; the others read its log until they are added (KIP-853).
        """
        self._features: Final = features
        self._dynamic: Final = dynamic
        self.world: Final = world
        self.brokers: Final = list(range(brokers))
        assert not combined or controllers <= brokers, "each controller is one of the brokers"
        first = 0 if combined else CONTROLLER
        self.controllers: Final = list(range(first, first + controllers))
        self._config_of: Final = config_of
        self._make_log: Final = make_log
        self._loaded: Final = loaded
        self.nodes: dict[int, Node] = {}  # of the processes that run or ran last
        self._config = {**_LOCAL, **(config or {})}
        self.exits: list[str] = []  # of nodes that gave up by themselves, each with its reason
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._client_runtime = world.machine("client").boot()
        self._cluster_id = random_cluster_id(self._client_runtime.random)

    def machine(self, node: int) -> Machine:
        return self.world.machine(self._machine_name(node))

    def client(self, client_id: str = "client") -> ClusterClient:
        """Make a client on a machine that never fails."""
        return ClusterClient(
            self._client_runtime,
            [(self.machine(broker).name, BROKER_PORT) for broker in self.brokers],
            client_id=client_id,
        )

    async def start(self) -> None:
        """Start every node at once; return when all brokers serve."""
        for node in dict.fromkeys([*self.controllers, *self.brokers]):
            self.start_node(node)
        await self.until_ready(*self.brokers)

    def start_node(self, node: int) -> None:
        """Start a node's process on what its disk holds."""
        self.nodes.pop(node, None)
        machine = self.machine(node)
        settings = self._settings(node, machine.name)
        process, runtime = machine.begin()
        self._serving[node] = process.start(self._run(node, settings, runtime), name="serve")

    def quorum_of(self, node: int) -> QuorumMember | None:
        """The part in the quorum that a node has, or had when its process died."""
        made = self.nodes.get(node)
        return None if made is None or made.controller is None else made.controller.quorum

    def active_controller(self) -> int | None:
        """The controller that runs and decides, the one of the newest epoch; None: nobody does."""
        found: dict[int, int] = {}
        for each in self.controllers:
            node = self.nodes.get(each)
            controller = None if node is None else node.controller
            if controller is not None and controller.active and self.is_up(each):
                found[controller.epoch] = each
        return found[max(found)] if found else None

    async def until_ready(self, *brokers: int) -> None:
        """Wait until these brokers serve clients."""
        await self.until(
            lambda: all(self.is_ready(broker) for broker in brokers),
            f"brokers {brokers} ready",
            seconds=_READY_S,
        )

    def crash(self, node: int) -> None:
        """SIGKILL: its page cache stays."""
        self.machine(node).crash()

    def power_cut(self, node: int, *, torn: bool = False) -> None:
        """Its machine loses power: what was not synced is gone, and nobody is told."""
        self.machine(node).power_cut(torn=torn)

    async def stop(self, node: int) -> None:
        """Stop a node as SIGTERM does, and wait until it is down."""
        machine = self.machine(node)
        assert machine.process is not None
        self._serving[node].cancel()
        await machine.process.start(self.nodes[node].stop(), name="stop")
        machine.exited()

    def logs(self, topic: str, partition: int) -> dict[int, Log | None]:
        """Every broker's replica of a partition that is assigned to it; None: not there."""
        return {
            broker: self.nodes[broker].directories.get(topic, partition)
            for broker in self.image.topics[topic].partitions[partition].replicas
        }

    @property
    def image(self) -> MetadataImage:
        """The newest image that a broker that runs has."""
        images = [
            self.nodes[broker].broker.image  # type: ignore[union-attr]
            for broker in self.brokers
            if self.is_ready(broker)
        ]
        return max(images, key=lambda image: image.offset)

    def bytes_of(self, broker: int, topic: str, partition: int, end: int) -> bytes:
        """What a replica holds on its disk below an offset, whole batches."""
        log = self.nodes[broker].directories.get(topic, partition)
        assert log is not None, f"broker {broker} has no {topic}-{partition}"
        parts = []
        offset = log.start
        while offset < end:
            part = log.read(offset, 1 << 20, end)
            parts.append(bytes(part.records))
            offset = part.next_offset
        return b"".join(parts)

    async def until(
        self, condition: Callable[[], bool], what: str, *, seconds: float = 60.0
    ) -> None:
        """Wait for a condition in virtual time; SimulationError when it never comes."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while not condition():
            if loop.time() >= give_up:
                raise SimulationError(f"{what}: not within {seconds} s")
            await asyncio.sleep(_LOOK_S)

    def is_up(self, node: int) -> bool:
        """Whether a node's process runs."""
        process = self.machine(node).process
        return process is not None and process.alive

    def is_ready(self, broker: int) -> bool:
        """Whether a broker's process runs and serves clients."""
        ready = self.nodes[broker].ready if broker in self.nodes else None
        return ready is not None and ready.done() and not ready.cancelled() and self.is_up(broker)

    def failure(self, node: int) -> BaseException | None:
        """What a node's process died of without meaning to; None: nothing so far."""
        serving = self._serving.get(node)
        if serving is None or not serving.done() or serving.cancelled():
            return None
        return serving.exception()

    async def _run(self, node: int, settings: NodeSettings, runtime: Runtime) -> None:
        machine = self.machine(node)
        try:
            format_directories(
                runtime.disk,
                runtime.random,
                settings,
                self._cluster_id,
                Beginning(self._features, self._dynamic and node == self.controllers[0]),
                ignore_formatted=True,
            )
            made = self.nodes[node] = Node(
                runtime, settings, machine_name=machine.name, make_log=self._make_log(node)
            )
            await made.start()
            self._loaded(node)
        except _NO_START as error:
            self.exits.append(f"{machine.name}: {error}")
            machine.exited()
            return
        try:
            await made.serve()
        except (MetadataLogError, RegistrationError, StorageError) as error:
            # As `node.__main__` does: stop as cleanly as it can be done, then exit.
            self.exits.append(f"{machine.name}: {error}")
            await made.stop()
            machine.exited()

    def _machine_name(self, node: int) -> str:
        if node in self.brokers:
            return f"broker-{node}"
        return "controller" if node == CONTROLLER else f"controller-{node}"

    def _settings(self, node: int, name: str) -> NodeSettings:
        addresses = [f"{self._machine_name(each)}:{CONTROLLER_PORT}" for each in self.controllers]
        properties = {
            "node.id": str(node),
            "log.dirs": DIRECTORY,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        if self._dynamic:
            properties["controller.quorum.bootstrap.servers"] = ",".join(addresses)
        else:
            properties["controller.quorum.voters"] = ",".join(
                f"{each}@{at}" for each, at in zip(self.controllers, addresses, strict=True)
            )
        roles = {}
        if node in self.brokers:
            roles["broker"] = f"PLAINTEXT://{name}:{BROKER_PORT}"
        if node in self.controllers:
            roles["controller"] = f"CONTROLLER://{name}:{CONTROLLER_PORT}"
        properties["process.roles"] = ",".join(roles)
        properties["listeners"] = ",".join(roles.values())
        settings, _ = NodeSettings.from_properties(
            {**properties, **self._config, **self._config_of(node)}
        )
        return settings
