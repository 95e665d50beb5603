"""`holdfast metadata-quorum`: kafka-metadata-quorum's flags and text, on any Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.groups import Command, either, group
from holdfast.cli.quorum import voters
from holdfast.cli.quorum.quorum_format import replication_lines, status_lines
from holdfast.cli.shared_options import (
    ANSWER_S,
    CONNECT_S,
    AsJson,
    BootstrapServer,
    ClusterDir,
    Target,
    connected,
    target,
    unanswered,
)
from holdfast.clients.blocking_driver import DriverError, UnreachableError, parse_addresses
from holdfast.cluster.quorum import QuorumReplica, QuorumState, RefusedError, describe
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_cluster import DescribeClusterRequest
from holdfast.wire.uuids import uuid_text

CONTROLLERS = 2  # which endpoints DescribeCluster speaks of
# Who looked for an active controller for so long has asked them all: the next one knows no more.
LONG_S = 20.0

BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT,...",
        help="Controllers to ask, instead of brokers.",
    ),
]

metadata_quorum = group("Show and change the controllers' quorum.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Whom to ask. Controllers and brokers tell a cluster's id in answers of their own."""

    target: Target
    controllers: bool


@metadata_quorum.callback()
def whom(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    data_dir_option: ClusterDir = None,
) -> None:
    """Show the controllers' quorum, with kafka-metadata-quorum's flags."""
    context.obj = (bootstrap_server, bootstrap_controller, data_dir_option)


@metadata_quorum.command("describe", cls=Command)
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
    data_dir_option: ClusterDir = None,
    as_json: AsJson = False,
) -> None:
    """Describe the quorum: --status or --replication, or both as JSON."""
    refuse_if(
        status == replication and not as_json, "Say what to describe: --status or --replication."
    )
    refuse_if(
        human_readable and (as_json or not replication),
        "--human-readable goes with --replication, and not with --json.",
    )
    asked = _whom(context, bootstrap_server, bootstrap_controller, data_dir_option)
    state = _state(asked)
    if as_json:
        print(json.dumps(_to_json(_cluster_id(asked), state), indent=2))
    elif status:
        print("\n".join(status_lines(_cluster_id(asked), state)))
    else:
        now_ms = int(time.time() * 1000)
        print("\n".join(replication_lines(state, now_ms=now_ms, human_readable=human_readable)))


@metadata_quorum.command("add-controller", cls=Command)
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
    data_dir_option: ClusterDir = None,
) -> None:
    """Make a controller that runs beside the quorum a voter of it."""
    voter = voters.read_voter(command_config)
    if dry_run:
        print(voter.sentence("DRY RUN of adding"))
        return
    asked = _whom(context, bootstrap_server, bootstrap_controller, data_dir_option)
    voters.add(_servers(asked), _cluster_id(asked), voter)
    print(voter.sentence("Added"))


@metadata_quorum.command("remove-controller", cls=Command)
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
    data_dir_option: ClusterDir = None,
) -> None:
    """Take a voter out of the quorum; its process may go on or end."""
    directory_id = voters.parse_directory_id(controller_directory_id)
    text = f"KRaft controller {controller_id} with directory id {controller_directory_id}"
    if dry_run:
        print(f"DRY RUN of removing  {text}")
        return
    asked = _whom(context, bootstrap_server, bootstrap_controller, data_dir_option)
    voters.remove(_servers(asked), _cluster_id(asked), controller_id, directory_id)
    print(f"Removed  {text}")


def _whom(
    context: typer.Context, server: str | None, controller: str | None, directory: Path | None
) -> Asked:
    """Return brokers or controllers to ask: named before or behind the command, or ours."""
    earlier_server, earlier_controller, earlier_directory = context.obj
    server = either(earlier_server, server, "--bootstrap-server")
    controller = either(earlier_controller, controller, "--bootstrap-controller")
    directory = either(earlier_directory, directory, "--data-dir")
    if server and controller:
        raise CommandError(
            "--bootstrap-server and --bootstrap-controller: name one of them.", code=EXIT_USAGE
        )
    if controller:
        option = "--bootstrap-controller"
        return Asked(target=target(controller, directory, option=option), controllers=True)
    return Asked(target=target(server, directory), controllers=False)


def _servers(asked: Asked) -> str:
    """Return who was named; of controllers also the active one, whose address each of them has."""
    servers = asked.target.servers
    if not asked.controllers:
        return servers
    try:
        with connected(asked.target) as driver:
            answer = driver.send(DescribeClusterRequest(endpoint_type=CONTROLLERS))
    except (CommandError, DriverError):
        return servers  # what is wrong is said by whoever asks them next
    active = [
        f"{node.host}:{node.port}"
        for node in answer.brokers
        if node.broker_id == answer.controller_id
    ]
    return ",".join(dict.fromkeys([*servers.split(","), *active]))


def _state(asked: Asked) -> QuorumState:
    """Ask one after another until one knows. A controller that isn't active says so."""
    whom = asked.target
    reasons = []
    reached = False
    began = time.monotonic()
    for host, port in parse_addresses(_servers(asked)):
        if reached and time.monotonic() - began > LONG_S:
            break
        try:
            return describe(host, port, timeout_s=ANSWER_S, connect_s=CONNECT_S)
        except UnreachableError as error:
            reasons.append(str(error))
        except (DriverError, RefusedError) as error:
            reached = True
            reasons.append(f"{host}:{port}: {error}")
    if not reached:
        raise unanswered(whom, "; ".join(reasons))
    raise CommandError(
        f"Nobody describes the quorum. {'; '.join(reasons)}. The active controller does, "
        "and every broker asks it: name more of them."
    )


def _cluster_id(asked: Asked) -> str:
    with connected(asked.target) as driver:
        if not asked.controllers:
            return driver.metadata([]).cluster_id or ""
        answer = driver.send(DescribeClusterRequest(endpoint_type=CONTROLLERS))
        if answer.error_code != ErrorCode.NONE:
            raise CommandError(
                f"{asked.target.named}: {answer.error_message} "
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
