"""`holdfast down`, `status`, `kill`, `start`: what is done to a cluster that `up` made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_status import EXIT_FAILED, EXIT_USAGE, CommandError, InterruptedCommandError
from holdfast.cli.local.addressing import WHO_HELP, addressed
from holdfast.cli.local.looking import Look, is_healthy, look
from holdfast.cli.shared_options import AsJson, DataDir, data_dir, did_you_mean, listed
from holdfast.cluster import LocalCluster
from holdfast.cluster.layout import to_json
from holdfast.cluster.processes import State
from holdfast.config.figures import FIGURES, short_name

CLUSTER_FACTS = (
    *("topics", "partitions", "under_replicated", "leaderless"),
    *("active_controller", "controller_epoch"),
)
NETWORK_FACTS = ("network_stands", "broken_links")
NODE_FACTS = ("ended_with", "serving", "resident_bytes", "leaders", "in_sync", "replicas")
CONTROLLER_FACTS = ("active", "lag")
SIGNALS = ("KILL", "TERM", "STOP", "CONT")


def down(data_dir_option: DataDir = None) -> None:
    """Stop every node of the cluster: brokers first, then controllers.

    Each gets SIGTERM and hands over its leaderships; one that doesn't end in time is killed.
    The data stays: `holdfast up` with the same directory goes on where this one ended. Commands
    that were started by `holdfast enter` go on, cut off; they are named.
    """
    cluster = LocalCluster.open(data_dir(data_dir_option))
    if cluster.is_down:
        print(f"The cluster in {cluster.directory} is not running.")
        return
    namespaces = namespaces_of(cluster)
    try:
        killed = cluster.down()
    except KeyboardInterrupt:
        left = [node.id for node in cluster.nodes if cluster.state(node.id) is not State.DEAD]
        text = f"{nodes_text(left)} may still run. `holdfast down` again goes on."
        raise InterruptedCommandError(text) from None
    print(f"The cluster in {cluster.directory} is down.")
    print_left_inside(namespaces)
    if killed:
        raise CommandError(f"{nodes_text(killed)} didn't end in time, and had to be killed.")


def namespaces_of(cluster: LocalCluster) -> frozenset[Path]:
    """Return the namespaces of a cluster's network; they are not known once it has ended."""
    return frozenset() if cluster.record.network is None else cluster.network().namespaces()


def print_left_inside(namespaces: frozenset[Path]) -> None:
    """Say which processes still stand in places of a network that has ended.

    They are somebody's, such as a shell: to end them is not ours.
    """
    if not namespaces:
        return
    from holdfast.cluster.networked import inside  # noqa: PLC0415 - only with a network

    left = inside(namespaces)
    for pid, command in left.items():
        print(f"Process {pid} still runs in its network, and reaches nobody: {command}")
    if left:
        print(f"`kill {' '.join(map(str, left))}` ends what is left there.")


def nodes_text(ids: Sequence[int]) -> str:
    """Return "Node 1" or "Nodes 1 and 2"; "No node" for none."""
    if not ids:
        return "No node"
    return f"Node{'' if len(ids) == 1 else 's'} {listed([str(each) for each in ids])}"


def status(
    data_dir_option: DataDir = None,
    as_json: AsJson = False,
    links: Annotated[
        bool,
        typer.Option("--links", help="Show what is wrong with which link of its network instead."),
    ] = False,
) -> None:
    """Show each node's process, address and share of the partitions.

    While no controller is active, nobody knows who leads and who is in sync: nothing is said of it.
    Exit status: 0 if every node serves, 1 if one doesn't or has a log directory offline, if no
    controller is active, if partitions lack replicas or a leader, or if a process of its network
    does not serve. With --links: 0 if all links are whole, 1 if one is not.
    """
    cluster = LocalCluster.open(data_dir(data_dir_option))
    if links:
        from holdfast.cli.links.links_table import show_links  # noqa: PLC0415 - only with a network

        show_links(cluster, as_json=as_json)
        return
    seen = look(cluster)
    if as_json:
        print(json.dumps(status_to_json(cluster, seen), indent=2))
    else:
        from holdfast.cli.local.status_table import print_status  # noqa: PLC0415 - rich is slow to load

        print_status(cluster, seen)
    if not is_healthy(seen.status, seen.troubles):
        raise typer.Exit(EXIT_FAILED)


def status_to_json(cluster: LocalCluster, look: Look) -> dict[str, Any]:
    """Return the description of the cluster with what was seen of it. Absent facts are null."""
    seen = look.status
    values = to_json(cluster.record)
    values["directory"] = str(cluster.directory)
    values["healthy"] = is_healthy(seen, look.troubles)
    if cluster.record.network:
        values["network_troubles"] = [str(each) for each in look.troubles]
    for key in CLUSTER_FACTS + (NETWORK_FACTS if cluster.record.network else ()):
        values[key] = getattr(seen, key)
    for node, found in zip(values["nodes"], seen.nodes, strict=True):
        node["state"] = str(found.state)
        for key in NODE_FACTS + (CONTROLLER_FACTS if found.node.is_controller else ()):
            node[key] = getattr(found, key)
        for name in FIGURES:
            node[short_name(name)] = found.figures.get(name)
    values["nodes"] = values.pop("nodes")  # last: it is the longest
    return values


def kill(
    who: Annotated[list[str], typer.Argument(metavar="NODE...", help=WHO_HELP)],
    signal: Annotated[
        str, typer.Option("--signal", "-s", metavar="|".join(SIGNALS), help="What to send.")
    ] = "KILL",
    data_dir_option: DataDir = None,
) -> None:
    """Send a signal to nodes, and wait until it has taken effect.

    KILL is a crash, TERM a controlled shutdown, STOP freezes the process, CONT lets it go on.
    """
    name = signal.upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise CommandError(
            f"--signal {signal} is not one of {', '.join(SIGNALS)}.{did_you_mean(name, SIGNALS)}",
            code=EXIT_USAGE,
        )
    cluster = LocalCluster.open(data_dir(data_dir_option))
    suited = {"CONT": (State.STOPPED,)}.get(name, (State.RUNNING, State.STOPPED))
    nodes = addressed(cluster, who, suited)
    reached: list[int] = []
    try:
        for node in nodes:  # all at once, so that they go together
            reached.append(node)
            cluster.kill(node, name, wait=False)
        for node in nodes:
            cluster.wait_signalled(node, name)
            print(f"Node {node}: SIG{name} sent; it is {cluster.state(node)} now.")
    except KeyboardInterrupt:
        whom = nodes_text(reached).lower()
        text = f"SIG{name} has been sent to {whom}; `holdfast status` shows what comes of it."
        raise InterruptedCommandError(text) from None


def start(
    who: Annotated[list[str], typer.Argument(metavar="NODE...", help=WHO_HELP)],
    data_dir_option: DataDir = None,
) -> None:
    """Start nodes that were killed or ended, and wait until they serve."""
    cluster = LocalCluster.open(data_dir(data_dir_option))
    nodes = addressed(cluster, who, (State.DEAD,))
    try:
        for node in nodes:
            cluster.start_node(node, wait=False)
        for node in nodes:
            cluster.wait_serving(node)
            started = cluster.node(node)
            print(f"Node {node} serves on {started.outside_address} as process {started.pid}.")
    except KeyboardInterrupt:
        text = "What was started goes on; `holdfast status` shows it."
        raise InterruptedCommandError(text) from None
