"""What a local cluster consists of: node ids, ports, folders, and each node's properties. Pure.

Decides only; `local.py` writes what is planned here and starts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.cluster.layout import (
    BROKER,
    CONTROLLER,
    FIRST_CONTROLLER,
    LOOPBACK,
    ClusterRecord,
    NodeRecord,
    UsageError,
    render_properties,
)
from holdfast.config.key import ConfigError
from holdfast.config.listeners import PORT_MAX
from holdfast.config.node import NodeSettings
from holdfast.config.properties import format_properties, parse_properties

HOST = LOOPBACK
PORT = 9092
CONTROLLER_PORT_DISTANCE = 100  # the controllers of a cluster on 9092 listen from 9192 on
WATCH_DISTANCE = 200  # of a cluster with a network: from a port to the one that the observer has
CONTROLLERS_MAX = 9
NAMESPACES, PROXIES = "namespaces", "proxies"  # how a cluster has a network of its own
# In a place: for clients inside, for controllers, and for those whom a door lets in.
INSIDE_PORT, INSIDE_CONTROLLER_PORT, INSIDE_DOOR_PORT = 9092, 9093, 19092
# The listener that brokers have for each other alone, at an address of its own, where a cluster's
# config names it so.
BETWEEN_BROKERS = "inter.broker.listener.name"
REPLICATION, REPLICATION_PORT = "REPLICATION", 9094
# What survives the loss of one controller; fewer where the data has no such protection either.
QUORUM_SIZE = 3

# Makes faults quick to see. A node that is started by hand has Kafka's own defaults.
OFFSETS_REPLICAS = "offsets.topic.replication.factor"
LOCAL_PROFILE: Mapping[str, str] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    # A dead active controller is replaced in little more than the first of these.
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "200",  # a start waits for it too
    "controller.quorum.election.backoff.max.ms": "250",
}
REPLICATED_PROFILE: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    OFFSETS_REPLICAS: "3",
}
REPLICATED_FROM_BROKERS = 3
# What follows from the cluster's shape and ports, and what each node must have of its own: the same
# value for all of them could not work.
SHAPE_KEYS = frozenset(
    {
        *("process.roles", "node.id", "broker.id", "controller.quorum.voters"),
        *("controller.quorum.bootstrap.servers", "listeners", "advertised.listeners"),
        *("controller.listener.names", "inter.broker.listener.name"),
        "listener.security.protocol.map",
    }
)
DIRECTORY_KEYS = frozenset({"log.dirs", "log.dir", "metadata.log.dir"})
PROFILE_TITLE = "Local profile: faults on one machine are seen soon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the user asked for. UsageError when that can't be had."""

    brokers: int = 3
    controllers: int | None = None  # None: three with three or more brokers, else one
    combined: bool = False  # controllers run inside the first brokers' processes
    racks: Sequence[str] | None = None
    network: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= FIRST_CONTROLLER:
            raise UsageError(
                f"--brokers {self.brokers}: a local cluster has 1 to {FIRST_CONTROLLER} brokers."
            )
        if not 1 <= self.voters <= CONTROLLERS_MAX:
            raise UsageError(
                f"--controllers {self.controllers}: a local cluster has 1 to {CONTROLLERS_MAX}; "
                "three go on without one of them, five without two."
            )
        if self.combined and self.voters > self.brokers:
            raise UsageError(
                f"--controllers {self.controllers} --combined: each runs inside a broker, and "
                f"there are {self.brokers} brokers."
            )
        if self.racks is not None and len(self.racks) != self.brokers:
            raise UsageError(
                f"{len(self.racks)} racks for {self.brokers} brokers: name one for each broker."
            )

    @property
    def voters(self) -> int:
        """How many controllers there are, asked for or not."""
        if self.controllers is not None:
            return self.controllers
        return QUORUM_SIZE if self.brokers >= REPLICATED_FROM_BROKERS else 1

    @property
    def ports_needed(self) -> int:
        """Ports of brokers first, then those of the controllers, then the observer's."""
        return self.brokers + self.voters + self.watched

    @property
    def watched(self) -> int:
        """How many listeners of nodes have a port for the observer beside their own.

        In namespaces controllers have no other than that.
        """
        own = {None: 0, NAMESPACES: self.brokers, PROXIES: self.brokers + self.voters}
        return own[self.network]


def standard_ports(port: int, shape: Shape) -> list[int]:
    """Return the ports of a cluster whose first broker listens on `port`."""
    first_controller = port + CONTROLLER_PORT_DISTANCE
    ports = [
        *range(port, port + shape.brokers),
        *range(first_controller, first_controller + shape.voters),
    ]
    ports += [each + WATCH_DISTANCE for each in ports[: shape.watched]]
    last_broker, last = port + shape.brokers - 1, max(ports)
    if not (port >= 1 and last <= PORT_MAX):
        raise UsageError(
            f"--port {port}: the cluster needs ports {port} to {last_broker} and "
            f"{first_controller} to {last}, which must lie between 1 and {PORT_MAX}."
        )
    return ports


def plan_nodes(
    directory: Path, cluster_id: str, shape: Shape, ports: Sequence[int]
) -> ClusterRecord:
    """Lay out brokers 0, 1, 2... and controllers: 100, 101... or inside the first brokers."""
    assert len(ports) >= shape.brokers + shape.voters
    broker_ports = ports[: shape.brokers]
    controller_ports = ports[shape.brokers : shape.brokers + shape.voters]
    shared = dict(enumerate(controller_ports)) if shape.combined else {}
    nodes = [
        _node(
            directory,
            index,
            (BROKER, CONTROLLER) if index in shared else (BROKER,),
            port,
            controller_port=shared.get(index),
            rack=None if shape.racks is None else shape.racks[index],
        )
        for index, port in enumerate(broker_ports)
    ]
    if not shape.combined:
        nodes += [
            _node(directory, FIRST_CONTROLLER + index, (CONTROLLER,), port)
            for index, port in enumerate(controller_ports)
        ]
    return ClusterRecord(cluster_id=cluster_id, nodes=tuple(nodes))


def _node(
    directory: Path,
    node_id: int,
    roles: tuple[str, ...],
    port: int,
    *,
    controller_port: int | None = None,
    rack: str | None = None,
) -> NodeRecord:
    folder = directory / f"{roles[0]}-{node_id}"
    return NodeRecord(
        id=node_id,
        roles=roles,
        host=HOST,
        port=port,
        log_file=str(folder / "node.log"),
        config_file=str(folder / "server.properties"),
        controller_port=controller_port,
        rack=rack,
    )


def profile(shape: Shape) -> dict[str, str]:
    """Return the local profile for this many brokers, without what the user's own config says."""
    values = dict(LOCAL_PROFILE)
    if shape.brokers >= REPLICATED_FROM_BROKERS:
        values |= REPLICATED_PROFILE
    else:
        values[OFFSETS_REPLICAS] = str(shape.brokers)  # no others are waited for
    return {key: value for key, value in values.items() if key not in shape.config}


def addresses(record: ClusterRecord, node: NodeRecord) -> dict[str, str]:
    """Return those keys of a node that follow from where the nodes listen."""
    voters = ",".join(f"{voter.id}@{voter.host}:{voter.voter_port}" for voter in record.controllers)
    listeners, advertised = [], []
    if node.is_broker:
        listeners.append(f"PLAINTEXT://{node.host}:{node.listen_port}")
        advertised.append(f"PLAINTEXT://{node.address}")
        if node.outside_port is not None:
            listeners.append(f"OUTSIDE://{node.host}:{INSIDE_DOOR_PORT}")
            advertised.append(f"OUTSIDE://{node.outside_address}")
        if node.replication_host is not None:
            between = f"{REPLICATION}://{node.replication_host}:{REPLICATION_PORT}"
            listeners.append(between)
            advertised.append(between)
    if node.is_controller:
        listeners.append(f"CONTROLLER://{node.host}:{node.listen_voter_port}")
        if node.is_behind_proxy:
            advertised.append(f"CONTROLLER://{node.host}:{node.voter_port}")
    keys = {"controller.quorum.voters": voters, "listeners": ",".join(listeners)}
    if advertised:
        keys["advertised.listeners"] = ",".join(advertised)
    return keys


def shape_of(record: ClusterRecord) -> Shape:
    """Return what was asked for when this cluster was made, as far as its ports follow from it."""
    return Shape(
        brokers=len(record.brokers),
        controllers=len(record.controllers),
        combined=record.is_combined,
        network=record.network,
    )


def watch_ports(ports: Sequence[int], shape: Shape) -> Sequence[int]:
    """Return those ports of a cluster that are the observer's."""
    return ports[shape.ports_needed - shape.watched :]


def moved(record: ClusterRecord, port: int) -> ClusterRecord:
    """Return the cluster with its first broker on `port` and the others where they follow.

    Of one with a network these are the ports as they would be without; `networked.placed` has the
    others.
    """
    ports = iter(standard_ports(port, shape_of(record)))
    at = {node.id: next(ports) for node in record.brokers}
    voter_at = {node.id: next(ports) for node in record.controllers}
    nodes = [
        replace(
            node,
            port=at[node.id] if node.is_broker else voter_at[node.id],
            controller_port=voter_at.get(node.id) if node.is_broker else None,
        )
        for node in record.nodes
    ]
    return replace(record, nodes=tuple(nodes))


def properties(record: ClusterRecord, node: NodeRecord, shape: Shape) -> str:
    """Return the text of one node's server.properties."""
    names = ["CONTROLLER", "PLAINTEXT"]
    if node.outside_port is not None:
        names.append("OUTSIDE")
    if node.replication_host is not None:
        names.append(REPLICATION)
    own = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        **addresses(record, node),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "log.dirs": str(Path(node.config_file).parent / "data"),
    }
    if node.is_broker:
        own[BETWEEN_BROKERS] = "PLAINTEXT" if node.replication_host is None else REPLICATION
        if node.rack is not None:
            own["broker.rack"] = node.rack
    return render_properties(
        [
            (f"Node {node.id} of cluster {record.cluster_id}, made by `holdfast up`", own),
            (PROFILE_TITLE, profile(shape)),
            ("From --config", shape.config),
        ]
    )


def replicates_apart(config: Mapping[str, str], network: str | None) -> bool:
    """Return whether a cluster of this config has a network of its own for replication.

    UsageError: it is asked for, and can't be had.
    """
    if config.get(BETWEEN_BROKERS) != REPLICATION or network is None:
        return False  # without a network the key is refused, whatever it says
    if network == PROXIES:
        raise UsageError(
            f"--config {BETWEEN_BROKERS}={REPLICATION}: a second address for each broker takes "
            "namespaces, and proxies stand in for the network here."
        )
    return True


def without_replication(config: Mapping[str, str]) -> dict[str, str]:
    """Return a config without what says that brokers replicate apart: each node's own says it."""
    return {key: v for key, v in config.items() if (key, v) != (BETWEEN_BROKERS, REPLICATION)}


def refuse_own(config: Mapping[str, str], nodes: int) -> None:
    """UsageError: a key is one that the cluster itself gives to each of its nodes."""
    for key in config:
        if key in SHAPE_KEYS:
            raise UsageError(
                f"--config {key}: each node has its own, from --brokers, --controllers, --combined "
                "and --port. A node by hand (`holdfast node`) takes it."
            )
        if key in DIRECTORY_KEYS and nodes > 1:
            raise UsageError(
                f"--config {key}: {nodes} nodes can't share a directory; --data-dir says where "
                "each gets its own."
            )


def refuse_unusable(text: str) -> list[str]:
    """Return what a node would warn of as it reads this properties file.

    UsageError if it would refuse to start: said before anything is written, so that a value that
    can't be honoured doesn't stay in a cluster's directory.
    """
    try:
        _, warnings = NodeSettings.from_properties(parse_properties(text))
    except ConfigError as error:
        raise UsageError(f"--config {error}.") from None
    return warnings


def with_config(text: str, config: Mapping[str, str]) -> str:
    """Return a properties file's text with these keys set, replacing what it says of them."""
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() not in config]
    return "\n".join([*kept, *format_properties(dict(config)).splitlines()]) + "\n"


def profile_in(text: str) -> dict[str, str]:
    """Return those keys of the local profile that a properties file sets, with its values."""
    known = LOCAL_PROFILE.keys() | REPLICATED_PROFILE.keys()
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, _, value in pairs if key in known}
