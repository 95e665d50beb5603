"""`holdfast cluster`: kafka-cluster's commands, on any Kafka."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from holdfast.cli.exit_status import CommandError
from holdfast.cli.groups import Command, group, remember_target, target_of
from holdfast.cli.refusals import refusals_told
from holdfast.cli.shared_options import AsJson, BootstrapServer, ClusterDir, connected
from holdfast.clients.blocking_driver import UnsupportedError
from holdfast.wire.administration import unregister_broker

cluster = group("The cluster's id; brokers that are gone for good.")
cluster.callback()(remember_target)


@cluster.command("cluster-id", cls=Command)
def cluster_id(
    context: typer.Context,
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the cluster's id."""
    with connected(target_of(context, bootstrap_server, data_dir_option)) as driver:
        found = driver.metadata([]).cluster_id
    print(json.dumps({"cluster_id": found}) if as_json else f"Cluster ID: {found}")


@cluster.command(cls=Command)
def unregister(
    context: typer.Context,
    *,
    broker: Annotated[int, typer.Option("--id", metavar="N", help="The broker's id.", min=0)],
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
) -> None:
    """Take a broker out of the cluster's metadata: one that is down, and won't come back.

    Empty it first (`holdfast reassign-partitions`): replicas that it still has stay without it.
    """
    whom = target_of(context, bootstrap_server, data_dir_option)
    with refusals_told(), connected(whom) as driver:
        if broker in driver.nodes():
            raise CommandError(
                f"Broker {broker} is alive and would register again. Stop it first; "
                "one that was killed counts as alive until its session ends."
            )
        try:
            driver.perform(unregister_broker(broker))
        except UnsupportedError:
            raise CommandError("This cluster can't unregister brokers.") from None
    print(f"Broker {broker} is no longer registered.")
