"""`holdfast metadata-quorum`: kafka-metadata-quorum's flags and text, on any Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import EXIT_USAGE, CommandError, voters
from holdfast.cli.options import AsJson, BootstrapServer, addresses, bootstrap_servers
from holdfast.cli.quorum_format import replication_lines, status_lines
from holdfast.clients.driver import Driver, DriverError, parse_addresses
from holdfast.cluster.quorum import QuorumReplica, QuorumState, RefusedError, describe
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_cluster import DescribeClusterRequest
from holdfast.wire.uuids import uuid_text

ANSWER_S = 35.0
CONTROLLERS = 2  # which endpoints DescribeCluster speaks of

BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT,...",
        help="Controllers to ask, instead of brokers.",
    ),
]

metadata_quorum = typer.Typer(
    help="Show and change the controllers' quorum.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@metadata_quorum.callback()
def whom(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
) -> None:
    """Show the controllers' quorum, with kafka-metadata-quorum's flags."""
    context.obj = (bootstrap_server, bootstrap_controller)


@metadata_quorum.command("describe")
def describe_quorum(
    context: typer.Context,
    *,
    status: Annotated[
        bool, typer.Option("--status", "-s", help="Who is active, and who is in the quorum.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", "-r", help="How far each member's log is.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="With --replication: times as how long ago.")
    ] = False,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    as_json: AsJson = False,
) -> None:
    """Describe the quorum: --status or --replication, or both as JSON."""
    if status == replication and not as_json:
        raise CommandError("Say what to describe: --status or --replication.", code=EXIT_USAGE)
    if human_readable and not replication:
        raise CommandError("--human-readable goes with --replication.", code=EXIT_USAGE)
    servers, controllers = _whom(context, bootstrap_server, bootstrap_controller)
    state = _asked(controllers or servers)
    if as_json:
        cluster_id = _cluster_id(servers, controllers)
        print(json.dumps(_to_json(cluster_id, state), indent=2))
    elif status:
        print("\n".join(status_lines(_cluster_id(servers, controllers), state)))
    else:
        now_ms = int(time.time() * 1000)
        lines = replication_lines(state, now_ms=now_ms, human_readable=human_readable)
        print("\n".join(lines))


@metadata_quorum.command("add-controller")
def add_controller(
    context: typer.Context,
    *,
    command_config: Annotated[
        Path,
        typer.Option("--command-config", metavar="FILE", help="The new controller's properties."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
) -> None:
    """Make a controller that runs beside the quorum a voter of it."""
    voter = voters.read_voter(command_config)
    if dry_run:
        print(voter.sentence("DRY RUN of adding"))
        return
    servers, controllers = _whom(context, bootstrap_server, bootstrap_controller)
    voters.add(controllers or servers, _cluster_id(servers, controllers), voter)
    print(voter.sentence("Added"))


@metadata_quorum.command("remove-controller")
def remove_controller(
    context: typer.Context,
    *,
    controller_id: Annotated[int, typer.Option("--controller-id", "-i", metavar="ID", min=0)],
    controller_directory_id: Annotated[
        str,
        typer.Option("--controller-directory-id", "-d", metavar="ID", help="Of its metadata log."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
) -> None:
    """Take a voter out of the quorum; its process may go on or end."""
    directory_id = voters.parse_directory_id(controller_directory_id)
    text = f"KRaft controller {controller_id} with directory id {controller_directory_id}"
    if dry_run:
        print(f"DRY RUN of removing  {text}")
        return
    servers, controllers = _whom(context, bootstrap_server, bootstrap_controller)
    cluster_id = _cluster_id(servers, controllers)
    voters.remove(controllers or servers, cluster_id, controller_id, directory_id)
    print(f"Removed  {text}")


def _whom(
    context: typer.Context, server: str | None, controller: str | None
) -> tuple[str, str | None]:
    """Return brokers and controllers to ask: named before or after the command, or ours."""
    earlier_server, earlier_controller = context.obj
    server, controller = server or earlier_server, controller or earlier_controller
    if server and controller:
        raise CommandError(
            "--bootstrap-server and --bootstrap-controller: name one of them.", code=EXIT_USAGE
        )
    if controller:
        return "", addresses(controller, "--bootstrap-controller")
    return bootstrap_servers(server), None


def _asked(bootstrap: str) -> QuorumState:
    """Ask one after another until one knows. A controller that isn't active says so."""
    reasons = []
    for host, port in parse_addresses(bootstrap):
        try:
            return describe(host, port, timeout_s=ANSWER_S)
        except (DriverError, RefusedError) as error:
            reasons.append(f"{host}:{port}: {error}")
    raise CommandError(
        f"Nobody describes the quorum. {'; '.join(reasons)}. The active controller does, "
        "and every broker asks it: name more of them."
    )


def _cluster_id(servers: str, controllers: str | None) -> str:
    with Driver(controllers or servers, timeout_s=ANSWER_S) as driver:
        if controllers is None:
            return driver.metadata([]).cluster_id or ""
        answer = driver.send(DescribeClusterRequest(endpoint_type=CONTROLLERS))
        if answer.error_code != ErrorCode.NONE:
            raise CommandError(
                f"--bootstrap-controller {controllers}: {answer.error_message} "
                "Brokers are named with --bootstrap-server.",
                code=EXIT_USAGE,
            )
        return str(answer.cluster_id)


def _to_json(cluster_id: str, state: QuorumState) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "leader": state.leader,
        "epoch": state.epoch,
        "high_watermark": state.high_watermark,
        "voters": _replicas_to_json(state, state.voters),
        "observers": _replicas_to_json(state, state.observers),
    }


def _replicas_to_json(
    state: QuorumState, replicas: Sequence[QuorumReplica]
) -> list[dict[str, Any]]:
    return [
        {
            "id": each.id,
            "directory_id": uuid_text(each.directory_id),
            "log_end": each.log_end,
            "lag": state.lag(each.id),
            "last_fetch_ms": each.last_fetch_ms,
            "last_caught_up_ms": each.last_caught_up_ms,
            "endpoints": list(each.endpoints),
        }
        for each in replicas
    ]
