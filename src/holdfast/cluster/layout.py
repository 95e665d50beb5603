"""The directory of a local cluster: its description `cluster.json`, and one folder per node.

Owns names, shapes and the reading and writing of the description; decides nothing about processes.
Must never be written by a node: a node reads its own `server.properties` and nothing else of this.

    DIR/cluster.json                     who belongs to the cluster, and as which process it runs
    DIR/broker-0/server.properties       what the node is started with
    DIR/broker-0/data                    its log directory
    DIR/broker-0/node.log                what it wrote to standard error
    DIR/controller-100/...
    DIR/network/                         of one with a network: what its holder writes there
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.config.properties import format_properties

DESCRIPTION = "cluster.json"
LOCK = ".cluster.lock"
FORMAT = 1

BROKER = "broker"
CONTROLLER = "controller"
FIRST_CONTROLLER = 100
# Whose nodes a cluster can have: ours, an Apache Kafka's, or those of the last one with ZooKeeper.
EMBEDDED, APACHE, OLDER = "embedded", "apache", "apache-3.9"
ENGINES = (EMBEDDED, APACHE, OLDER)
# Of a node; not there where there is none.
_MAYBE = frozenset(
    {
        "controller_port",
        "rack",
        "outside_port",
        "watch_port",
        "watch_voter_port",
        "replication_host",
    }
)
LOOPBACK = "127.0.0.1"  # a literal: librdkafka would try ::1 first for "localhost"
NETWORK_VARIABLE = "HOLDFAST_NETWORK"  # how a new cluster has a network: namespaces, proxies
PLACE_VARIABLE = "HOLDFAST_PLACE"  # set for what runs in a place of a cluster's network


class ClusterError(Exception):
    """Something about a local cluster that its user can do something about. One clear sentence."""


class UsageError(ClusterError):
    """What was asked for can't be had as it was said, and nothing was done: say it otherwise."""


class WaitError(ClusterError):
    """What was waited for did not come in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node as `cluster.json` has it, in its order. `pid`: the process last started, or None."""

    id: int
    roles: tuple[str, ...]
    host: str
    port: int  # where clients connect; for a controller of its own, where brokers do
    pid: int | None = None
    start_time: float | None = None  # seconds since 1970
    process: str | None = None  # what tells this process from a later one with the same pid
    log_file: str
    config_file: str
    controller_port: int | None = None  # only where the controller shares a broker's process
    rack: str | None = None
    # In a network of its own `host` is the address of the node's place, and the machine outside
    # reaches it at ports of its own loopback address.
    outside_port: int | None = None  # a broker's door, by which clients come
    watch_port: int | None = None  # leads to `port` by the observer's way, which nothing cuts
    watch_voter_port: int | None = None  # the same to `controller_port`
    replication_host: str | None = None  # a broker's second address, for brokers alone

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def outside_address(self) -> str:
        """Where clients on this machine find it, in whatever network it is."""
        if self.outside_port is not None:
            return f"{LOOPBACK}:{self.outside_port}"
        if self.watch_port is not None and not self.is_behind_proxy:  # a controller
            return f"{LOOPBACK}:{self.watch_port}"
        return self.address

    @property
    def voter_port(self) -> int:
        """Port of the controller listener; only a controller has one."""
        assert self.is_controller
        return self.port if self.controller_port is None else self.controller_port

    @property
    def watch_address(self) -> tuple[str, int]:
        """Where whoever watches the cluster asks this node: over a way that no fault is done to."""
        return self._watched(self.port, self.watch_port)

    @property
    def voter_watch_address(self) -> tuple[str, int]:
        """The same for its controller listener."""
        assert self.is_controller
        own = self.watch_port if self.controller_port is None else self.watch_voter_port
        return self._watched(self.voter_port, own)

    def _watched(self, port: int, watch_port: int | None) -> tuple[str, int]:
        if watch_port is None or PLACE_VARIABLE in os.environ:  # from inside doors can't be seen
            return self.host, port
        return self.host if self.is_behind_proxy else LOOPBACK, watch_port

    @property
    def is_behind_proxy(self) -> bool:
        """True where a relay has the ports that are advertised, and the node listens on others."""
        return self.watch_port is not None and self.host.startswith("127.")

    @property
    def listen_port(self) -> int:
        """The port that the node itself binds for its clients; a controller of its own: for all."""
        return self.watch_port if self.is_behind_proxy and self.watch_port else self.port

    @property
    def listen_voter_port(self) -> int:
        """The port that the node itself binds as a controller."""
        if self.is_behind_proxy:
            return self.voter_watch_address[1]
        return self.voter_port


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """What `cluster.json` says."""

    cluster_id: str
    nodes: tuple[NodeRecord, ...]
    network: str | None = None  # "namespaces" or "proxies"; None: it has none of its own
    zones: tuple[str, ...] = ()  # of its network
    kafka_home: str | None = None  # of the Apache Kafka whose nodes these are; None: they are ours
    zookeeper: bool = False  # in the place of controllers, of an Apache Kafka before 4.0

    @property
    def brokers(self) -> tuple[NodeRecord, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[NodeRecord, ...]:
        return tuple(node for node in self.nodes if node.is_controller)

    @property
    def replicates_apart(self) -> bool:
        """True if brokers have a network of their own for replication."""
        return any(node.replication_host is not None for node in self.nodes)

    @property
    def is_combined(self) -> bool:
        """True if controllers share brokers' processes."""
        return any(node.is_broker and node.is_controller for node in self.nodes)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.outside_address for node in self.brokers)

    @property
    def inside_servers(self) -> str:
        """The same for who runs in a place of its network."""
        return ",".join(node.address for node in self.brokers)

    def node(self, node_id: int) -> NodeRecord:
        for node in self.nodes:
            if node.id == node_id:
                return node
        known = ", ".join(str(node.id) for node in self.nodes)
        raise UsageError(f"There is no node {node_id} in this cluster; its nodes are {known}.")

    def with_node(self, changed: NodeRecord) -> ClusterRecord:
        """Return this record with the node of the same id replaced."""
        self.node(changed.id)
        nodes = tuple(changed if node.id == changed.id else node for node in self.nodes)
        return replace(self, nodes=nodes)


def to_json(record: ClusterRecord) -> dict[str, Any]:
    """Return the description as plain values, in the order in which a person wants to read it."""
    return {
        "format": FORMAT,
        "cluster_id": record.cluster_id,
        "bootstrap_servers": record.bootstrap_servers,
        **({"network": record.network, "zones": [*record.zones]} if record.network else {}),
        **({"kafka_home": record.kafka_home} if record.kafka_home else {}),
        **({"zookeeper": True} if record.zookeeper else {}),
        "nodes": [_node_to_json(node) for node in record.nodes],
    }


def _node_to_json(node: NodeRecord) -> dict[str, Any]:
    values = asdict(node) | {"roles": list(node.roles)}
    return {key: value for key, value in values.items() if value is not None or key not in _MAYBE}


def from_json(values: Mapping[str, Any]) -> ClusterRecord:
    """Read the description back. KeyError, TypeError or ValueError: it isn't one."""
    if values["format"] != FORMAT:
        raise ValueError(f"format {values['format']} is not known; this version writes {FORMAT}")
    record = ClusterRecord(
        cluster_id=str(values["cluster_id"]),
        nodes=tuple(
            NodeRecord(
                id=int(node["id"]),
                roles=tuple(node["roles"]),
                host=str(node["host"]),
                port=int(node["port"]),
                log_file=str(node["log_file"]),
                config_file=str(node["config_file"]),
                controller_port=node.get("controller_port"),
                rack=node.get("rack"),
                outside_port=node.get("outside_port"),
                watch_port=node.get("watch_port"),
                watch_voter_port=node.get("watch_voter_port"),
                replication_host=node.get("replication_host"),
                pid=node["pid"],
                start_time=node["start_time"],
                process=node["process"],
            )
            for node in values["nodes"]
        ),
        network=values.get("network"),
        zones=tuple(values.get("zones", ())),
        kafka_home=values.get("kafka_home"),
        zookeeper=bool(values.get("zookeeper", False)),
    )
    if not (record.brokers and record.controllers):
        raise ValueError("it needs a broker and a controller")
    return record


def exists(directory: Path) -> bool:
    """Say whether a cluster was created in this directory."""
    return (directory / DESCRIPTION).is_file()


def read(directory: Path) -> ClusterRecord:
    """Read the description of the cluster in `directory`. ClusterError when there is none."""
    path = directory / DESCRIPTION
    try:
        return from_json(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"There is no cluster in {directory} (no {DESCRIPTION}). "
            "`holdfast up` makes one; --data-dir names another directory."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"{path} can't be read as a cluster's description: {error}.") from None
    except OSError as error:
        raise ClusterError(f"{path} can't be read: {error.strerror}.") from None


def refuse_moved(directory: Path, record: ClusterRecord) -> None:
    """UsageError: this description was made elsewhere, and its nodes' files still name that place.

    Of a copy that is used, the nodes of the original would be started, and stopped.
    """
    for node in record.nodes:
        made_in = Path(node.config_file).parent.parent
        if made_in.resolve() != directory.resolve():
            raise UsageError(
                f"{directory} is a copy of the cluster in {made_in}, or was moved from there, and "
                f"its files still name that place: use it there, or move it back."
            )


def write(directory: Path, record: ClusterRecord) -> None:
    """Replace the description atomically: a reader sees the old one or the new one."""
    path = directory / DESCRIPTION
    temporary = directory / f"{DESCRIPTION}.{os.getpid()}.tmp"
    temporary.write_text(json.dumps(to_json(record), indent=2) + "\n")
    temporary.replace(path)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock for a change that reads, starts or signals, and writes.

    ClusterError when another command is in the middle of one.
    """
    with (directory / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(
                f"Another command is starting or stopping the cluster in {directory}; "
                "wait until it has finished."
            ) from None
        yield


def render_properties(sections: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """Write a properties file: each section a comment and its keys, in the order given."""
    lines: list[str] = []
    for title, values in sections:
        if not values:
            continue
        lines += [f"# {title}", *format_properties(dict(values)).splitlines(), ""]
    return "\n".join(lines)
