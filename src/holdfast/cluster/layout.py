"""The directory of a local cluster: its description `cluster.json`, and one folder per node.

Owns names, shapes and the reading and writing of the description; decides nothing about processes.
Must never be written by a node: a node reads its own `server.properties` and nothing else of this.

    DIR/cluster.json                     who belongs to the cluster, and as which process it runs
    DIR/broker-0/server.properties       what the node is started with
    DIR/broker-0/data                    its log directory
    DIR/broker-0/node.log                what it wrote to standard error
    DIR/controller-100/...
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
_MAYBE = frozenset({"controller_port", "rack"})  # of a node; not there where there is none


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
    def voter_port(self) -> int:
        """Port of the controller listener; only a controller has one."""
        assert self.is_controller
        return self.port if self.controller_port is None else self.controller_port


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """What `cluster.json` says."""

    cluster_id: str
    nodes: tuple[NodeRecord, ...]

    @property
    def brokers(self) -> tuple[NodeRecord, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[NodeRecord, ...]:
        return tuple(node for node in self.nodes if node.is_controller)

    @property
    def is_combined(self) -> bool:
        """True if controllers share brokers' processes."""
        return any(node.is_broker and node.is_controller for node in self.nodes)

    @property
    def bootstrap_servers(self) -> str:
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
                pid=node["pid"],
                start_time=node["start_time"],
                process=node["process"],
            )
            for node in values["nodes"]
        ),
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
