"""`holdfast cluster`: kafka-cluster's commands, on any Kafka."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import CommandError
from holdfast.cli.options import BootstrapServer, bootstrap_servers
from holdfast.clients.driver import Driver, UnsupportedError
from holdfast.wire.errors import ErrorCode, error_name
from holdfast.wire.messages.unregister_broker import UnregisterBrokerRequest

ANSWER_S = 35.0

cluster = typer.Typer(
    help="The cluster's id; brokers that are gone for good.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cluster.command("cluster-id")
def cluster_id(bootstrap_server: BootstrapServer = None) -> None:
    """Print the cluster's id."""
    with Driver(bootstrap_servers(bootstrap_server), timeout_s=ANSWER_S) as driver:
        print(f"Cluster ID: {driver.metadata([]).cluster_id}")


@cluster.command()
def unregister(
    broker: Annotated[int, typer.Option("--id", metavar="N", help="The broker's id.", min=0)],
    bootstrap_server: BootstrapServer = None,
) -> None:
    """Take a broker out of the cluster's metadata: one that is down, and won't come back.

    Empty it first (`holdfast reassign-partitions`): replicas that it still has stay without it.
    """
    with Driver(bootstrap_servers(bootstrap_server), timeout_s=ANSWER_S) as driver:
        if broker in driver.nodes():
            raise CommandError(
                f"Broker {broker} is alive and would register again. Stop it first; "
                "one that was killed counts as alive until its session ends."
            )
        try:
            answer = driver.send(UnregisterBrokerRequest(broker_id=broker))
        except UnsupportedError:
            raise CommandError("This cluster can't unregister brokers.") from None
    if answer.error_code != ErrorCode.NONE:
        name = error_name(answer.error_code)
        raise CommandError(f"Broker {broker}: {answer.error_message or 'refused'} ({name})")
    print(f"Broker {broker} is no longer registered.")
