"""`holdfast enter`: run a command in a place of a cluster's own network.

This process becomes that command, so that its exit status, its signals and its terminal are the
command's own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Container
from typing import Annotated

import typer

from holdfast.cli.exit_status import refuse_if
from holdfast.cli.groups import CONTEXT
from holdfast.cli.local.addressing import place_named
from holdfast.cli.shared_options import DataDir, data_dir
from holdfast.cluster import LocalCluster
from holdfast.cluster.network.addresses import HOST, Kind


def enter(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="What to run, with its options.")
    ],
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="As a client in this zone.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="Where this node stands.")
    ] = None,
    data_dir_option: DataDir = None,
) -> None:
    """Run a command where the cluster's clients stand, or a node: `holdfast enter --zone a bash`.

    Brokers are node-0:9092, node-1:9092, ... there. What the machine reaches otherwise is not
    reached from there. Its exit status is the command's.
    """
    refuse_if(zone and node, "--zone and --node both say where: name one of them.")
    cluster = LocalCluster.open(data_dir(data_dir_option))
    network = cluster.network()
    network.refuse_if_gone(cluster.record)
    places = network.open().plan
    refuse_place_as_command(command[0], {str(each.id) for each in cluster.nodes}, places.zones)
    if node is not None:
        name = place_named(cluster, node)
    else:
        clients = [each for each in places.places if each.kind is Kind.CLIENT]
        found = [each for each in clients if zone in {None, each.zone}]
        zones = f"its zones are {', '.join(places.zones)}" if places.zones else "it has no zones"
        refuse_if(
            bool(clients) and not found, f"--zone {zone}: there is none in this network; {zones}."
        )
        name = found[0].name if found else HOST  # behind proxies, where nobody enters
    prefix, environment = network.enter(name)
    sys.stdout.flush()
    os.execve(prefix[0], [*prefix, *command], environment)  # noqa: S606 - that is what this is for


def refuse_place_as_command(word: str, nodes: Container[str], zones: Container[str]) -> None:
    """Exit with 2 where a node or a zone stands in the command's place."""
    option = "--node" if word in nodes else "--zone" if word in zones else None
    refuse_if(
        option is not None and shutil.which(word) is None,
        f"{word} is no program. To go there: `holdfast enter {option} {word} COMMAND`.",
    )


# What stands behind the command's name is the command's, options too.
enter.context_settings = {  # type: ignore[attr-defined]
    **CONTEXT,
    "allow_interspersed_args": False,
    "ignore_unknown_options": False,
}
