"""`holdfast node` and `holdfast storage`: one node by hand, with Kafka's own keys.

The node and its formatting run in the node's own program, which takes this process over.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.groups import Command, group
from holdfast.cli.shared_options import key_values
from holdfast.cluster import own_code
from holdfast.cluster.nodes import new_cluster_id
from holdfast.wire.uuids import parse_uuid

ConfigFile = Annotated[
    Path,
    typer.Option("--config", "-c", metavar="FILE", help="The node's server.properties."),
]


def node(
    config: ConfigFile,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", metavar="KEY=VALUE", help="Replaces what the file says."),
    ] = None,
) -> None:
    """Run one node in the foreground. Several of them, on several machines, make a cluster.

    It has Kafka's defaults, not the local profile of `holdfast up`, and writes its log to standard
    error. Its directories must have been formatted: `holdfast storage format`.
    """
    arguments = ["--config", _readable(config)]
    for key, value in key_values(override or [], "--override").items():
        arguments += ["--override", f"{key}={value}"]
    _become_node(arguments)


storage = group("Make cluster ids; format the directories of a node that is run by hand.")


@storage.command("random-uuid", cls=Command)
def random_uuid() -> None:
    """Print a random id for a new cluster, in Kafka's form."""
    print(new_cluster_id())


@storage.command("format", cls=Command)
def format_storage(
    config: ConfigFile,
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id", "-t", metavar="ID", help="Same for every node: see random-uuid."
        ),
    ],
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted", "-g", help="Go on where a directory has been formatted already."
        ),
    ] = False,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature",
            "-f",
            metavar="NAME=LEVEL",
            help="Level that a new cluster begins with: 0 or 1 of eligible.leader.replicas.version "
            "and of group.version. "
            "The same for every controller.",
        ),
    ] = None,
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", "-s", help="This is the first controller of a quorum that can change."
        ),
    ] = False,
    initial_controllers: Annotated[
        str,
        typer.Option(
            "--initial-controllers",
            "-I",
            metavar="ID@HOST:PORT:DIRECTORY_ID,...",
            help="The first controllers of a quorum that can change.",
        ),
    ] = "",
    no_initial_controllers: Annotated[
        bool,
        typer.Option(
            "--no-initial-controllers",
            "-N",
            help="This controller joins later: holdfast metadata-quorum add-controller.",
        ),
    ] = False,
) -> None:
    """Format the log directories of a node: write there which cluster and node they belong to."""
    try:
        parse_uuid(cluster_id)
    except ValueError as error:
        raise CommandError(
            f"--cluster-id {cluster_id}: {error}. `holdfast storage random-uuid` makes one; it is "
            "the same for every node of a cluster.",
            code=EXIT_USAGE,
        ) from None
    arguments = ["format", "--config", _readable(config), "--cluster-id", cluster_id]
    if ignore_formatted:
        arguments.append("--ignore-formatted")
    if standalone:
        arguments.append("--standalone")
    if initial_controllers:
        arguments += ["--initial-controllers", initial_controllers]
    if no_initial_controllers:
        arguments.append("--no-initial-controllers")
    for name, level in key_values(feature or [], "--feature").items():
        arguments += ["--feature", f"{name}={level}"]
    _become_node(arguments)


def _readable(config: Path) -> str:
    refuse_if(not config.is_file(), f"--config {config}: there is no such file.")
    return str(config)


def _become_node(arguments: list[str]) -> None:
    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", "holdfast.node", *arguments]
    environment = {**os.environ, **own_code.environment()}
    os.execve(sys.executable, command, environment)  # noqa: S606 - no shell is what is wanted
