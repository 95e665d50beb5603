"""`holdfast up`: make or resume a cluster, start it, and stay beside it until Ctrl-C.

Nodes are spawned before anything slow is loaded: what they need to start is what a user waits for.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from holdfast.cli.exit_status import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    STARTED,
    refuse_if,
)
from holdfast.cli.shared_options import DataDir, data_dir, feature_levels, key_values, unknown_keys
from holdfast.cluster import ClusterError, LocalCluster, layout, plan
from holdfast.cluster.layout import NETWORK_VARIABLE, ClusterRecord, NodeRecord
from holdfast.cluster.processes import State
from holdfast.config import registry

if TYPE_CHECKING:
    from holdfast.cluster.network.possible import Possibility

REFRESH_S = 1.0


Brokers = Annotated[
    int | None,
    typer.Option("--brokers", metavar="N", help="Brokers, with ids from 0.", show_default="3"),
]
Controllers = Annotated[
    int | None,
    typer.Option(
        "--controllers",
        metavar="N",
        help="Controllers, with ids from 100: 3 go on without one of them, 5 without two.",
        show_default="3; 1 with fewer than 3 brokers",
    ),
]
Combined = Annotated[
    bool, typer.Option("--combined", help="Run the controllers inside the first brokers.")
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        help="Port of broker 0; the others count up. 0: any free ports.",
        show_default="9092",
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="KEY=VALUE", help="A setting for every node; may be repeated."
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--feature",
        metavar="NAME=LEVEL",
        help="Level that a new cluster begins with, such as eligible.leader.replicas.version=1; "
        "may be repeated.",
    ),
]
WithNetwork = Annotated[
    bool,
    typer.Option(
        "--network",
        help="Give each node a place of its own in a network whose links can be cut, slowed, and "
        "made to lose packets: `holdfast cut`, `isolate`, `slow`, `lose`.",
    ),
]
Zones = Annotated[
    str | None,
    typer.Option(
        "--zones",
        metavar="a,b,c",
        help="Zones of that network, which nodes take in turn; a broker's is its rack.",
    ),
]
Detach = Annotated[
    bool,
    typer.Option("--detach", "-d", help="Return when the cluster serves requests."),
]


def up(
    *,
    brokers: Brokers = None,
    controllers: Controllers = None,
    combined: Combined = False,
    data_dir_option: DataDir = None,
    port: Port = None,
    config: Config = None,
    feature: Features = None,
    network: WithNetwork = False,
    zones: Zones = None,
    detach: Detach = False,
) -> None:
    """Start a cluster on this machine: brokers on ports from 9092 on, controllers from 9192 on.

    Without --detach it stays in the foreground with a live status; Ctrl-C stops the cluster
    cleanly. A directory that holds a cluster already is resumed with its data and its ports;
    --config and --port then change it. Everything listens on 127.0.0.1 only.
    """
    directory = data_dir(data_dir_option)
    make = _opened if layout.exists(directory) else _created
    settings = key_values(config or [], "--config")
    features = feature_levels(feature or [])
    names = None if zones is None else _zones(zones, network)
    wanted = _Wanted(brokers, controllers, combined, port, settings, features, network, names)
    _interrupt_on_signals()  # first of all: to look for a network is to make one
    cluster = make(directory, wanted)
    try:
        cluster.start(wait=False)
        _announce(cluster, new=make is _created)
        if settings:
            _warn(cluster, settings)
        _wait(cluster)
        if not detach:
            _stay(cluster)
    except KeyboardInterrupt:
        _stop(cluster)
        if detach:  # who waits for a cluster didn't get one
            raise typer.Exit(EXIT_INTERRUPTED) from None
        return
    if detach:
        print(f"Stop it with `holdfast down{_data_dir_flag(data_dir_option)}`.")


def _wait(cluster: LocalCluster) -> None:
    try:
        cluster.wait_ready()
    except ClusterError:
        cluster.down()
        raise
    print(f"\nReady after {time.monotonic() - STARTED:.2f} s: {cluster.bootstrap_servers}")
    sys.stdout.flush()
    for node in cluster.nodes:  # brokers serve without one of three controllers
        if cluster.state(node.id) is State.DEAD:
            print(f"warning: node {node.id} has ended; why, says {node.log_file}", file=sys.stderr)


class _Wanted(NamedTuple):
    """The options that say what cluster is wanted; None: whatever there is, or the usual."""

    brokers: int | None
    controllers: int | None
    combined: bool
    port: int | None
    settings: dict[str, str]
    features: dict[str, int]
    network: bool
    zones: tuple[str, ...] | None


def _zones(given: str, network: bool) -> tuple[str, ...]:
    """Read --zones. CommandError: there is nothing to have them in, or a name is empty."""
    names = tuple(name.strip() for name in given.split(","))
    refuse_if(not all(names), f"--zones {given!r}: names with commas between, such as a,b,c.")
    refuse_if(not network, f"--zones {given} are those of a network: add --network.")
    return names


def _created(directory: Path, wanted: _Wanted) -> LocalCluster:
    network: bool | Possibility = False
    if wanted.network:
        from holdfast.cluster.network import possible  # noqa: PLC0415 - only with a network

        network = possible.look()
        if network.reason:
            print(network.reason)
    return LocalCluster.create(
        directory,
        brokers=3 if wanted.brokers is None else wanted.brokers,
        controllers=wanted.controllers,
        combined=wanted.combined,
        port=plan.PORT if wanted.port is None else wanted.port,
        config=wanted.settings,
        features=wanted.features,
        network=network,
        zones=wanted.zones or (),
    )


def _opened(directory: Path, wanted: _Wanted) -> LocalCluster:
    """Open the cluster that is there. An option that contradicts it is an error, not ignored."""
    cluster = LocalCluster.open(directory)
    record = cluster.record
    contradiction = None
    advice = "Leave the option out to resume it, or name another --data-dir."
    if wanted.brokers not in (None, len(record.brokers)):
        contradiction = f"--brokers {wanted.brokers}, but it has {len(record.brokers)}"
    elif wanted.controllers not in (None, len(record.controllers)):
        contradiction = f"--controllers {wanted.controllers}, but it has {len(record.controllers)}"
    elif wanted.combined and not record.is_combined:
        contradiction = "--combined, but its controllers are processes of their own"
    elif wanted.network and record.network is None:
        contradiction = "--network, but it was made without, and gets none any more"
        where = quote(str(directory))
        advice = (
            "Leave the option out to resume it. A new one stands elsewhere: name another "
            "--data-dir in each command, or `export XDG_STATE_HOME=/tmp/other` in each terminal. "
            f"Or remove this one with all its data: `holdfast down --data-dir {where}`, "
            f"`rm -r {where}`."
        )
    elif record.network and os.environ.get(NETWORK_VARIABLE, record.network) != record.network:
        how = os.environ[NETWORK_VARIABLE]
        contradiction = f"{NETWORK_VARIABLE}={how}, but its network was made with {record.network}"
    elif wanted.zones not in {None, record.zones}:
        zones = f"its zones are {','.join(record.zones)}" if record.zones else "it has no zones"
        contradiction = f"--zones {','.join(wanted.zones or ())}, but {zones}"
    elif wanted.features:
        contradiction = "--feature is for a new one; `holdfast features` changes its levels"
    refuse_if(
        contradiction,
        f"{directory} holds a cluster already: {contradiction}. {advice}",
    )
    if any(cluster.state(node.id) is not State.DEAD for node in record.nodes):
        cluster.start()  # says that it runs already
    cluster.configure(wanted.settings)
    now = int(record.brokers[0].outside_address.rpartition(":")[2])
    if wanted.port not in {None, 0, now}:
        cluster.move(wanted.port)
    return cluster


def _announce(cluster: LocalCluster, *, new: bool) -> None:
    record = cluster.record
    verb = "Starting a new cluster" if new else "Resuming the cluster"
    print(f"{verb} in {cluster.directory}")
    print(f"  cluster id     {record.cluster_id}")
    for node in record.nodes:
        name = f"node {node.id}"
        where = f"{'+'.join(node.roles)} on {node.outside_address}{_place(record, node)}"
        print(f"  {name:<14} {where}, process {node.pid}")
    if record.network is not None:
        _announce_network(record)
    local = plan.profile_in(Path(record.nodes[0].config_file).read_text())
    voters = len(record.controllers)
    if voters % 2 == 0:
        print(
            f"  note           {voters} controllers survive no more failures than {voters - 1} do"
        )
    print("  local profile  " + ", ".join(f"{key}={value}" for key, value in local.items()))
    sys.stdout.flush()


def _place(record: ClusterRecord, node: NodeRecord) -> str:
    """Return where a node stands in the cluster's network; nothing without one."""
    if record.network is None:
        return ""
    address = "" if node.is_behind_proxy else node.host
    zone = f"in {node.rack}" if node.rack else ""
    words = " ".join(word for word in (address, zone) if word)
    return f" ({words})" if words else ""


def _announce_network(record: ClusterRecord) -> None:
    from holdfast.cluster.network import possible  # noqa: PLC0415 - only with a network

    zones = f"zones {', '.join(record.zones)}" if record.zones else "no zones"
    if record.network == plan.NAMESPACES:
        print(f"  network        a place of its own for each node, {zones}; `holdfast cut --help`")
    else:
        print(f"  network        proxies, {zones}. {possible.WITH_PROXIES}")


def _warn(cluster: LocalCluster, settings: dict[str, str]) -> None:
    """Say which of these settings do nothing: a misspelt key would go unnoticed in a log."""
    text = Path(cluster.nodes[0].config_file).read_text()
    for warning in plan.refuse_unusable(text):
        key = warning.partition(" ")[0]
        if key in settings:
            advice = unknown_keys([key], registry.NODE)
            stop = "." if advice else ""
            print(f"warning: --config {warning}{stop}{advice}", file=sys.stderr)


def _data_dir_flag(given: Path | None) -> str:
    return "" if given is None else f" --data-dir {given}"


def _interrupt_on_signals() -> None:
    """Stop as cleanly as on Ctrl-C when a supervisor says so, or the terminal goes."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup it stays ignored
            signal.signal(number, interrupt)


def _stop(cluster: LocalCluster) -> None:
    from holdfast.cli.local.local_cluster import namespaces_of, print_left_inside  # noqa: PLC0415

    print("\nStopping the cluster; once more Ctrl-C kills it.")
    sys.stdout.flush()
    namespaces = namespaces_of(cluster)
    try:
        killed = cluster.down()
    except KeyboardInterrupt:
        killed = cluster.down(timeout_s=0.0)
    names = ", ".join(map(str, killed))
    print(f"Nodes {names} were killed." if killed else "All nodes have ended.")
    print_left_inside(namespaces)
    print(f"The data stays in {cluster.directory}.")


def _stay(cluster: LocalCluster) -> None:
    """Show what becomes of the nodes until Ctrl-C, or until none is left."""
    print("Ctrl-C stops the cluster.\n")
    sys.stdout.flush()
    if sys.stdout.isatty():
        _show_live(cluster)
    else:
        _show_changes(cluster)
    if all(node.pid is None for node in cluster.nodes):
        print("Another command has stopped the cluster.")
        return
    if cluster.record.network is not None:
        cluster.down()  # its network would stay
    print("No node of the cluster is left.", file=sys.stderr)
    raise typer.Exit(EXIT_FAILED)


def _show_live(cluster: LocalCluster) -> None:
    from rich.live import Live  # noqa: PLC0415 - the nodes start while this loads

    from holdfast.cli.local.looking import look  # noqa: PLC0415
    from holdfast.cli.local.status_table import render  # noqa: PLC0415

    seen = look(cluster)
    with Live(auto_refresh=False) as live:
        live.update(render(seen.status, live.console.width, seen.troubles), refresh=True)
        while seen.status.running:
            time.sleep(REFRESH_S)
            seen = look(cluster)
            live.update(render(seen.status, live.console.width, seen.troubles), refresh=True)


def _show_changes(cluster: LocalCluster) -> None:
    """Print a line when a node's state changes: what a log file wants."""
    states = {node.id: State.RUNNING for node in cluster.nodes}
    while any(state is not State.DEAD for state in states.values()):
        time.sleep(REFRESH_S)
        for node in cluster.nodes:
            state = cluster.state(node.id)
            if state is not states[node.id]:
                print(f"{time.strftime('%H:%M:%S')} node {node.id} is {state}")
                sys.stdout.flush()
                states[node.id] = state
