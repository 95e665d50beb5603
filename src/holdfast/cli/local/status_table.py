"""How a cluster's state looks in a terminal. Loads rich; only what prints a table imports it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from holdfast.cluster import LocalCluster
from holdfast.cluster.nodes import ClusterStatus, NodeStatus
from holdfast.cluster.processes import State
from holdfast.config.figures import (
    LOG_DIRS_OFFLINE,
    LOGS_NOT_COMPACTED,
    LOOP_LAG_MS_MAX,
    REPLICAS_SET_ASIDE,
)

if TYPE_CHECKING:
    from holdfast.cli.local.looking import Look
    from holdfast.cluster.networked import Trouble

WIDTH_OF_FILES = 200
WIDTH_OF_ALL = 107  # less has no room for what a narrow terminal leaves out
LEFT_OUT = {"PROCESS", "MEMORY", "LOOP LAG", "PLACE"}
WHOLE = {"NODE", "ROLE", "ADDRESS", "ZONE"}
OF_A_NETWORK = ("PLACE", "ZONE")
UNSEEN = "Who leads, which controller is active and what is in sync can't be seen from here."
NUMBERS = {"MEMORY", "LOOP LAG", "LEADERS", "IN SYNC"}
_STYLES = {State.RUNNING: "green", State.STOPPED: "yellow", State.DEAD: "red"}


def render(
    seen: ClusterStatus, width: int = WIDTH_OF_FILES, troubles: Sequence[Trouble] = ()
) -> Group:
    """Return the table of nodes and a line on partitions. A narrow one has fewer columns.

    Above it, which processes of its network do not serve: all else is to be read in that light.
    """
    is_blind = any(each.blinds for each in troubles)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = [_row(node, is_blind=is_blind) for node in seen.nodes]
    for row, each in zip(rows, seen.nodes, strict=True):
        if each.node.is_controller and seen.keeper_serves is not None:
            row["ROLE"] = "zookeeper"
    # Columns of a network are there where a node is in one, and need room of their own.
    of_network = [each for each in OF_A_NETWORK if any(row[each] for row in rows)]
    room = sum(2 + max(len(each), *(len(row[each]) for row in rows)) for each in of_network)
    titles = [
        each
        for each in rows[0]
        if (width >= WIDTH_OF_ALL + room or each not in LEFT_OUT)
        and (each not in OF_A_NETWORK or each in of_network)
    ]
    for title in titles:
        # An address that is cut off is of no use; a state or a lag still says something.
        whole = max(len(row[title]) for row in rows) if title in WHOLE else None
        side: JustifyMethod = "right" if title in NUMBERS else "left"
        table.add_column(title, justify=side, no_wrap=True, min_width=whole)
    for row in rows:
        table.add_row(*(row[title] for title in titles))
    first = [Text(str(each), style="red") for each in troubles]
    last = [Text(UNSEEN, style="red")] if is_blind else _whole(seen)
    return Group(
        *first,
        *([Text()] if first else []),
        table,
        Text(),
        *_troubles(seen),
        *_network(seen),
        *last,
    )


def _row(status: NodeStatus, *, is_blind: bool = False) -> dict[str, str | Text]:
    """Cells by their column's title, in the order of the columns."""
    node = status.node
    state = Text(str(status.state), style=_STYLES[status.state])
    if status.state is State.RUNNING and not status.serving and not is_blind:
        state = Text("running, not serving", style="yellow")
    in_sync = "" if status.in_sync is None else f"{status.in_sync}/{status.replicas}"
    memory = status.resident_bytes
    loop_lag = status.figures.get(LOOP_LAG_MS_MAX)
    return {
        "NODE": str(node.id),
        "ROLE": "+".join(node.roles),
        "ADDRESS": node.outside_address,
        "PLACE": "" if node.outside_address == node.address else node.host,
        "ZONE": node.rack or "",
        "PROCESS": "-" if status.state is State.DEAD else str(node.pid),
        "STATE": state,
        "MEMORY": "" if memory is None else f"{memory / 1e6:.0f} MB",
        "LOOP LAG": "" if loop_lag is None else f"{loop_lag} ms",
        "LEADERS": "" if status.leaders is None else str(status.leaders),
        "IN SYNC": in_sync,
        "CONTROLLER": _controller(status),
    }


def _controller(status: NodeStatus) -> str:
    if status.active:
        return "active"
    if not status.node.is_controller or status.lag is None:
        return ""
    return "in sync" if status.lag == 0 else f"{status.lag} records behind"


def _troubles(seen: ClusterStatus) -> list[Text]:
    """Return what nodes say of why they ended, of disks and of replicas, a line each."""
    troubles = []
    for status in seen.nodes:
        if status.ended_with is not None:
            troubles.append(f"node {status.node.id} ended: {status.ended_with}")
        if offline := status.figures.get(LOG_DIRS_OFFLINE):
            troubles.append(f"node {status.node.id} has log directories offline: {offline}")
        if apart := status.figures.get(LOGS_NOT_COMPACTED):
            troubles.append(f"node {status.node.id} does not compact all logs: {apart}")
        if aside := status.figures.get(REPLICAS_SET_ASIDE):
            troubles.append(f"node {status.node.id} has set replicas aside: {aside}")
    return [Text(text, style="red") for text in troubles]


def _network(seen: ClusterStatus) -> list[Text]:
    """Return a line on a network of its own, where there is one and something is to be said."""
    if seen.network_stands is None:
        return []
    if not seen.network_stands:
        if not seen.running:
            return []
        text = "its network has gone: `holdfast down` and `holdfast up` start all anew"
        return [Text(text, style="red")]
    if seen.broken_links is None:
        text = "network: which links are broken is not known, since who keeps them does not answer"
        return [Text(text, style="red")]
    if not seen.broken_links:
        return [Text("network: all links are whole", style="green")]
    links = "1 link is" if seen.broken_links == 1 else f"{seen.broken_links} links are"
    text = f"network: {links} broken (`holdfast status --links`)"
    return [Text(text, style="yellow")]


def _whole(seen: ClusterStatus) -> list[Text]:
    """Return the lines on controllers and partitions, or how to have any."""
    if not seen.running:
        return [Text("Nothing of it runs: `holdfast up` starts it.", style="red")]
    return [_quorum(seen), _summary(seen)]


def _quorum(seen: ClusterStatus) -> Text:
    if seen.keeper_serves is not None:
        if seen.keeper_serves:
            return Text("ZooKeeper serves; one of the brokers is its controller")
        return Text("ZooKeeper does not serve: metadata can't change", style="red")
    if seen.active_controller is None:
        return Text("no controller is active: metadata can't change", style="red")
    return Text(f"controller {seen.active_controller} is active, epoch {seen.controller_epoch}")


def _summary(seen: ClusterStatus) -> Text:
    if seen.partitions is None:
        return Text("No broker answers.", style="red")
    text = Text(f"{_count(seen.topics, 'topic')}, {_count(seen.partitions, 'partition')}")
    if seen.under_replicated is None:
        text.append(
            ", as they were when a controller was last active; who leads and which replicas are "
            "in sync nobody knows",
            style="yellow",
        )
        return text
    trouble = [(seen.under_replicated, "under-replicated"), (seen.leaderless, "without a leader")]
    for count, name in trouble:
        if count:
            text.append(f", {count} {name}", style="yellow")
    if not any(count for count, _ in trouble) and seen.partitions:
        text.append(", all replicas in sync", style="green")
    return text


def _count(number: int | None, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def print_status(cluster: LocalCluster, look: Look) -> None:
    """Print the state of a cluster once."""
    seen = look.status
    # A file or a pipe has no width: nothing is cut off there.
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = Console(highlight=False, soft_wrap=True, width=width)
    console.print(f"Cluster {seen.cluster_id} in {cluster.directory}", markup=False)
    console.print(f"bootstrap servers {seen.bootstrap_servers}\n", markup=False)
    console.print(render(seen, console.width, look.troubles))
