"""How a cluster's state looks in a terminal. Loads rich; only what prints a table imports it."""

from __future__ import annotations

import sys

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from holdfast.cluster import LocalCluster
from holdfast.cluster.nodes import ClusterStatus, NodeStatus
from holdfast.cluster.processes import State

WIDTH_OF_FILES = 200
_STYLES = {State.RUNNING: "green", State.STOPPED: "yellow", State.DEAD: "red"}


def render(seen: ClusterStatus) -> Group:
    """Return the table of nodes and a line on partitions."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("NODE", "ROLE", "ADDRESS", "PROCESS", "STATE"):
        table.add_column(title, no_wrap=True)
    for title in ("MEMORY", "LEADERS", "IN SYNC"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("CONTROLLER", no_wrap=True)
    for node in seen.nodes:
        table.add_row(*_row(node))
    return Group(table, Text(), _quorum(seen), _summary(seen))


def _row(status: NodeStatus) -> list[str | Text]:
    node = status.node
    state = Text(str(status.state), style=_STYLES[status.state])
    if status.state is State.RUNNING and not status.serving:
        state = Text("running, not serving", style="yellow")
    in_sync = "" if status.in_sync is None else f"{status.in_sync}/{status.replicas}"
    return [
        str(node.id),
        "+".join(node.roles),
        node.address,
        "-" if status.state is State.DEAD else str(node.pid),
        state,
        "" if status.resident_bytes is None else f"{status.resident_bytes / 1e6:.0f} MB",
        "" if status.leaders is None else str(status.leaders),
        in_sync,
        _controller(status),
    ]


def _controller(status: NodeStatus) -> str:
    if status.active:
        return "active"
    if not status.node.is_controller or status.lag is None:
        return ""
    return "in sync" if status.lag == 0 else f"{status.lag} records behind"


def _quorum(seen: ClusterStatus) -> Text:
    if seen.active_controller is None:
        return Text("no controller is active: metadata can't change", style="red")
    return Text(f"controller {seen.active_controller} is active, epoch {seen.controller_epoch}")


def _summary(seen: ClusterStatus) -> Text:
    if seen.partitions is None:
        return Text("No broker answers.", style="red")
    text = Text(f"{seen.topics} topics, {seen.partitions} partitions")
    trouble = [(seen.under_replicated, "under-replicated"), (seen.leaderless, "without a leader")]
    for count, name in trouble:
        if count:
            text.append(f", {count} {name}", style="yellow")
    if not any(count for count, _ in trouble) and seen.partitions:
        text.append(", all replicas in sync", style="green")
    return text


def print_status(cluster: LocalCluster, seen: ClusterStatus) -> None:
    """Print the state of a cluster once."""
    # A file or a pipe has no width: nothing is cut off there.
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = Console(highlight=False, soft_wrap=True, width=width)
    console.print(f"Cluster {seen.cluster_id} in {cluster.directory}", markup=False)
    console.print(f"bootstrap servers {seen.bootstrap_servers}\n", markup=False)
    console.print(render(seen))
