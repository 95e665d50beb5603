"""`holdfast inspect`: one partition as each of its replicas tells it, on any Kafka."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from holdfast.cli.exit_status import CommandError, refuse_if
from holdfast.cli.offsets.inspect_format import lines, to_json
from holdfast.cli.refusals import refusals_told
from holdfast.cli.shared_options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    did_you_mean,
    listed,
    target,
)
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.partition_inspection import inspect, verdict
from holdfast.clients.topic_descriptions import described, topic_names

PARTITION_DIGITS = 10

Where = Annotated[
    str, typer.Argument(metavar="TOPIC-PARTITION", help="Such as payments-0.", show_default=False)
]
Offset = Annotated[
    int | None,
    typer.Option(
        "--offset",
        metavar="N",
        help="Is this message committed, and on whom?",
        min=0,
    ),
]


def inspect_partition(
    where: Where,
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    offset: Offset = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each replica of a partition is, and what became of one message.

    All of it is asked as a client may ask it, so it works on any Kafka; what a broker doesn't tell
    is said. Each answer is of its own moment.
    """
    key = parse_partition(where)
    with refusals_told(), connected(target(bootstrap_server, data_dir_option)) as driver:
        seen = inspect(driver, key, offset)
        if seen is None:
            raise CommandError(_missing(driver, *key))
    found = None if offset is None else verdict(seen, offset)
    if as_json:
        print(json.dumps(to_json(seen, found), indent=2))
    else:
        print("\n".join(lines(seen, found)))


def parse_partition(text: str) -> tuple[str, int]:
    """Read TOPIC-PARTITION. CommandError: it isn't that."""
    topic, dash, number = text.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= PARTITION_DIGITS
    refuse_if(
        not (dash and topic and is_number),
        f"TOPIC-PARTITION {text!r}: a topic, a dash and a number are wanted, such as payments-0.",
    )
    return topic, int(number)


def _missing(driver: Driver, topic: str, partition: int) -> str:
    """Say what there is instead of a partition."""
    there = described(driver, [topic])
    if not there:
        advice = did_you_mean(topic, topic_names(driver))
        return f"There is no topic {topic}.{advice}"
    numbers = [str(each.index) for each in there[0].partitions]
    return f"{topic} has no partition {partition}; it has {_range(numbers)}."


def _range(numbers: list[str]) -> str:
    return listed(numbers) if len(numbers) < 4 else f"{numbers[0]} to {numbers[-1]}"
