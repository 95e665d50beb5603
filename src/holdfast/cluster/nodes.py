"""Single nodes of a local cluster: their ports, their processes, what can be seen of them.

Works on `NodeRecord`s only; which nodes belong together, and `cluster.json`, are `local.py`'s.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal as signals
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cluster import layout, own_code, probe, processes
from holdfast.cluster.layout import (
    LOOPBACK,
    ClusterError,
    ClusterRecord,
    NodeRecord,
    UsageError,
    WaitError,
)
from holdfast.cluster.ports import is_free
from holdfast.cluster.probe import PartitionState
from holdfast.cluster.processes import State

if TYPE_CHECKING:
    from holdfast.cluster.quorum import QuorumState

STOP_TIMEOUT_S = 15.0
KILL_TIMEOUT_S = 5.0
PORT_PATIENCE_S = 2.0  # with a node that was killed just now
NODE_ERROR = "error: "  # how a node's program begins the sentence with which it refuses


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """What is known of one node now.

    Counts are None when no broker could be asked, and when no controller is active: what brokers
    then say of leaders and of replicas in sync is what once was.
    """

    node: NodeRecord
    state: State
    resident_bytes: int | None = None
    serving: bool | None = None  # a broker: unfenced, in metadata; a controller: it accepts
    leaders: int | None = None
    in_sync: int | None = None
    replicas: int | None = None
    active: bool | None = None  # a controller: it is the active one; None: nobody says who is
    lag: int | None = None  # a controller: records that the active one has and it hasn't
    # What it tells of itself, by the names in `config.figures`; empty when it does not answer.
    figures: Mapping[str, int | str] = field(default_factory=dict)
    ended_with: str | None = None  # one that ended by itself: the sentence in which it says why


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """What is known of the whole. Counts are None as in `NodeStatus`.

    Topics and partitions can't change while no controller is active, so they are counted then, too.
    """

    cluster_id: str
    bootstrap_servers: str
    nodes: tuple[NodeStatus, ...]
    topics: int | None = None
    partitions: int | None = None
    under_replicated: int | None = None
    leaderless: int | None = None
    active_controller: int | None = None  # None: there is none, or nobody says
    controller_epoch: int | None = None
    keeper_serves: bool | None = None  # ZooKeeper, in the place of controllers; None: there is none
    network_stands: bool | None = None  # None: it has no network of its own
    broken_links: int | None = None  # with which something is wrong; None: nobody says

    @property
    def running(self) -> bool:
        """True if any node's process is alive."""
        return any(node.state is not State.DEAD for node in self.nodes)


@dataclass(frozen=True, slots=True)
class WayIn:
    """What stands before a node's command, and what is laid over its environment."""

    prefix: Sequence[str] = ()
    environment: Mapping[str, str] | None = None


def check_ports(node: NodeRecord, *, patience_s: float = 0.0, own: bool = False) -> None:
    """Raise ClusterError when a node's port is taken, and is not let go of within the patience.

    A node that was killed a moment ago counts as dead as soon as its first thread is: the others
    may still be about to end, and until then its ports are not free. `own`: of a node in a network
    that stands, and has ports of its own.
    """
    for host, port in _ports(node, own):
        try:
            processes.wait_until(
                lambda host=host, port=port: is_free(port, host),  # type: ignore[misc]
                timeout_s=patience_s,
                what=f"port {port}",
            )
        except WaitError:
            raise ClusterError(
                f"Port {port} of node {node.id} ({', '.join(node.roles)}) is in use by another "
                "process. Stop that one, or choose other ports with --port."
            ) from None
    if own and not node.is_behind_proxy:  # its ports are those of its place, which can't be seen
        processes.wait_until(
            lambda: processes.has_gone(node.pid, node.process),
            timeout_s=patience_s,
            what=f"the end of process {node.pid}, which was node {node.id}",
        )


def _ports(node: NodeRecord, own: bool) -> list[tuple[str, int]]:
    if node.watch_port is not None:
        return outside_ports(node, own=own)
    ports = [node.port, *([] if node.controller_port is None else [node.controller_port])]
    return [(LOOPBACK, port) for port in ports]


def outside_ports(node: NodeRecord, *, own: bool = False) -> list[tuple[str, int]]:
    """Return where something of a node in a network listens on this machine.

    `own`: what the node itself listens on, without what its network has.
    """
    if not node.is_behind_proxy:
        ports = [] if own else [node.outside_port, node.watch_port, node.watch_voter_port]
        return [(LOOPBACK, port) for port in ports if port is not None]
    relays = [] if own else [node.port, node.controller_port]
    ports = [*relays, node.watch_port, node.watch_voter_port]
    return [(node.host, port) for port in ports if port is not None]


@contextlib.contextmanager
def claimed(directory: Path, record: ClusterRecord) -> Iterator[None]:
    """Hold the directory of a new cluster while it is filled. Of one that fails nothing is left.

    It may exist, if nothing of anyone is in it. Half a cluster would be in the way of the next one,
    so that Ctrl-C counts as a failure, too.
    """
    is_new = not directory.exists()
    _make(directory)
    with layout.locked(directory):
        if layout.exists(directory):
            raise ClusterError(f"{directory} already holds a cluster.")
        try:
            yield
        except BaseException:
            for node in record.nodes:
                shutil.rmtree(Path(node.config_file).parent, ignore_errors=True)
            if is_new:
                shutil.rmtree(directory, ignore_errors=True)
            raise


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if layout.exists(directory):
            raise ClusterError(f"{directory} already holds a cluster.")
        strangers = [path.name for path in directory.iterdir() if path.name != layout.LOCK]
    except OSError as error:
        raise UsageError(
            f"--data-dir {directory} can't be used: {error.strerror}. Name another in each "
            "command, or `export XDG_STATE_HOME=/tmp/other` in each terminal."
        ) from None
    if strangers:
        raise UsageError(
            f"{directory} holds something else ({min(strangers)!r}, but no "
            f"{layout.DESCRIPTION}). --data-dir takes a new or empty directory, or a cluster's."
        )


def new_cluster_id() -> str:
    """Return a random UUID as Kafka writes them: 22 characters that don't begin with a dash."""
    from holdfast.wire.uuids import new_uuid, uuid_text  # noqa: PLC0415 - `up` loads little

    return uuid_text(new_uuid(os.urandom))


def command_of(record: ClusterRecord, node: NodeRecord) -> list[str]:
    """Return the command of a node's process; the log directory is formatted if it is new."""
    if record.kafka_home is not None:
        from holdfast.cluster import apache  # noqa: PLC0415 - only where its nodes are those

        return apache.command_of(record, node)
    return [
        *(sys.executable, "-P", "-m", "holdfast.node"),
        *("--config", node.config_file),
        *("--format-if-needed", record.cluster_id),
    ]


def ending_of(record: ClusterRecord, node: NodeRecord) -> list[str]:
    """Return with what a node's command ends, also where nothing is any more that could run it."""
    if record.kafka_home is not None:
        from holdfast.cluster import apache  # noqa: PLC0415 - only where its nodes are those

        return apache.ending_of(record, node)
    return command_of(record, node)[-4:]


def spawn(
    record: ClusterRecord,
    node: NodeRecord,
    environment: Mapping[str, str],
    way: WayIn | None = None,
) -> NodeRecord:
    """Start a node's process, in its place if there is a way into one."""
    if record.kafka_home is not None:
        from holdfast.cluster import apache  # noqa: PLC0415 - only where its nodes are those

        apache.format_if_new(record, node)
    arguments = command_of(record, node)
    if way is not None:
        arguments = [*way.prefix, *arguments]
        environment = {**environment, **(way.environment or {})}
    try:
        log_file = Path(node.log_file)
        pid = processes.spawn(
            arguments, log_file=log_file, environment=own_code.environment(environment)
        )
    except OSError as error:
        raise ClusterError(f"Node {node.id} can't be started: {error}.") from None
    return replace(
        node, pid=pid, process=processes.identify(pid), start_time=processes.start_time(pid)
    )


def with_strays(record: ClusterRecord) -> ClusterRecord:
    """Return the record with the processes of nodes that a command started and didn't write down.

    It was killed between the two: only its nodes' command lines tell whose they are.
    """
    dead = [node for node in record.nodes if state_of(node) is State.DEAD]
    for node_id, pid in processes.running({n.id: ending_of(record, n) for n in dead}):
        process = processes.identify(pid)
        if process is not None:
            start_time = processes.start_time(pid)
            node = replace(record.node(node_id), pid=pid, process=process, start_time=start_time)
            record = record.with_node(node)
    return record


def format_directories(record: ClusterRecord, features: Mapping[str, int]) -> None:
    """Format what nodes of a new cluster, which begins with these features, don't by themselves.

    UsageError in the node's own words when it knows no such feature or level.
    """
    if record.kafka_home is not None:
        from holdfast.cluster import apache  # noqa: PLC0415 - only where its nodes are those

        apache.format_nodes(record, record.nodes, features)
    elif features:
        _format_controllers(record, features)


def _format_controllers(record: ClusterRecord, features: Mapping[str, int]) -> None:
    import subprocess  # noqa: PLC0415 - costs 10 ms, and hardly anyone comes here

    flags = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    with contextlib.ExitStack() as ends:
        begun = []  # all at once: most of what one takes is Python's own start
        for node in record.controllers:
            command = [*(sys.executable, "-P", "-m", "holdfast.node"), "format", *flags]
            command += ["--config", node.config_file, "--cluster-id", record.cluster_id]
            process = ends.enter_context(
                subprocess.Popen(  # noqa: S603 - ours
                    command,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **own_code.environment()},
                )
            )
            ends.callback(process.kill)  # where another one fails, or somebody interrupts
            begun.append((node, process))
        for node, process in begun:
            _, said = process.communicate()
            if process.returncode:
                raise _refused_features(node, features, said)


def _refused_features(node: NodeRecord, features: Mapping[str, int], said: str) -> ClusterError:
    """Return the node's sentence about the features; of anything else, all that it wrote."""
    reasons = [line for line in said.splitlines() if line.startswith(NODE_ERROR)]
    reason = reasons[-1].removeprefix(NODE_ERROR) if reasons else ""
    for name, level in features.items():
        if name in reason:
            return UsageError(f"--feature {name}={level}: {reason}")
    return ClusterError(f"Node {node.id} can't be formatted: {reason or said.strip()}")


def state_of(node: NodeRecord) -> State:
    return processes.state(node.pid, node.process)


def is_serving(node: NodeRecord) -> bool:
    if node.is_broker:
        answer = probe.ask(node.watch_address)
        return answer is not None and node.id in answer.brokers
    if node.watch_port is not None:
        return _answers(node)
    with contextlib.suppress(OSError):
        socket.create_connection((node.host, node.port), timeout=1.0).close()
        return True
    return False


def _answers(node: NodeRecord) -> bool:
    """Say whether a controller answers. What accepts may be a door before it."""
    from holdfast.clients.blocking_driver import DriverError, Peer  # noqa: PLC0415 - `up` has no use

    try:
        Peer(*node.voter_watch_address, timeout_s=1.0).close()
    except DriverError:
        return False
    return True


def stop(nodes: Sequence[NodeRecord], timeout_s: float) -> list[int]:
    """Ask nodes to end, and kill those that don't. Returns the ids of the killed."""
    for node in nodes:
        processes.send(node.pid, node.process, signals.SIGTERM)
        processes.send(node.pid, node.process, signals.SIGCONT)  # a stopped one hears nothing

    def ended() -> bool:
        return all(state_of(node) is State.DEAD for node in nodes)

    with contextlib.suppress(WaitError):
        processes.wait_until(ended, timeout_s=timeout_s, what="nodes to end")
        return []
    killed = [n.id for n in nodes if processes.send(n.pid, n.process, signals.SIGKILL)]
    processes.wait_until(ended, timeout_s=KILL_TIMEOUT_S, what="killed nodes to end")
    return killed


def keeper_serves(record: ClusterRecord) -> bool | None:
    """Say whether ZooKeeper serves; None: the cluster has controllers of its own."""
    if not record.zookeeper:
        return None
    return all(state_of(n) is State.RUNNING and is_serving(n) for n in record.controllers)


def raise_if_dead(nodes: Iterable[NodeRecord]) -> None:
    for node in nodes:
        if state_of(node) is State.DEAD:
            raise with_log(ClusterError(f"Node {node.id} ended while it started."), node)


def raise_if_hopeless(record: ClusterRecord) -> None:
    """Raise ClusterError when so many nodes have ended that the cluster can't come to serve whole.

    Each broker counts. Of the controllers a majority is enough: one that refuses its disk leaves a
    user the cluster, and with it the data.
    """
    raise_if_dead(record.brokers)
    dead = [node for node in record.controllers if state_of(node) is State.DEAD]
    if 2 * len(dead) >= len(record.controllers):
        raise_if_dead(dead)


def with_log(error: ClusterError, node: NodeRecord) -> ClusterError:
    tail = processes.log_tail(Path(node.log_file))
    return ClusterError(f"{error}\nThe end of {node.log_file}:\n{tail}")


def _last_words(node: NodeRecord) -> str | None:
    last = processes.log_tail(Path(node.log_file), lines=1)
    return last.removeprefix(NODE_ERROR) if last.startswith(NODE_ERROR) else None


def node_status(
    node: NodeRecord,
    snapshot: probe.Snapshot | None,
    partitions: Sequence[PartitionState],
    quorum: QuorumState | None,
) -> NodeStatus:
    from holdfast.cluster import figures  # noqa: PLC0415 - `up` starts without our client

    state = state_of(node)
    seen = NodeStatus(
        node=node,
        state=state,
        figures=figures.ask(node) if state is State.RUNNING else {},
        ended_with=_last_words(node) if state is State.DEAD else None,
        resident_bytes=None
        if node.pid is None or state is State.DEAD
        else processes.resident_bytes(node.pid),
    )
    if node.is_controller and quorum is not None:
        # Of one that does not run the active controller knows only what it heard last.
        lag = quorum.lag(node.id) if state is State.RUNNING else None
        seen = replace(seen, active=node.id == quorum.leader, lag=lag)
    if not node.is_broker:
        return replace(seen, serving=state is State.RUNNING and is_serving(node))
    if snapshot is None:
        return seen
    if quorum is None:  # nobody takes a dead broker out of the metadata: it speaks for itself
        return replace(seen, serving=state is State.RUNNING and is_serving(node))
    return replace(
        seen,
        serving=node.id in snapshot.brokers,
        leaders=sum(partition.leader == node.id for partition in partitions),
        in_sync=sum(node.id in partition.isr for partition in partitions),
        replicas=sum(node.id in partition.replicas for partition in partitions),
    )
