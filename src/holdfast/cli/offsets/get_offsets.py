"""`holdfast get-offsets`: kafka-get-offsets' flags and lines, on any Kafka.

Rules: tools.md#offsets-of-partitions.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import typer

from holdfast.cli.exit_status import EXIT_FAILED, EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.shared_options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    did_you_mean,
    target,
)
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.log_offsets import Found, LogOffset, offsets_at
from holdfast.clients.topic_descriptions import topic_names
from holdfast.wire.administration import AdminError, TopicPartition
from holdfast.wire.well_known import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

TIMES: Mapping[str, int] = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}
TIME_MAX = (1 << 63) - 1
RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|([0-9]*)-([0-9]*)))?", re.ASCII)
PARTITION_DIGITS = 10

Pick = Callable[[str, int], bool]

TopicPattern = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="A name or a regular expression."),
]
Partitions = Annotated[
    str | None, typer.Option("--partitions", metavar="N,...", help="These partitions alone.")
]
TopicPartitions = Annotated[
    str | None,
    typer.Option(
        "--topic-partitions",
        metavar="RULE,...",
        help="NAME, NAME:3, NAME:0-3 (without 3), NAME:5-, NAME:-3, :0; NAME may be a regular "
        "expression.",
    ),
]
Time = Annotated[
    str,
    typer.Option(
        "--time",
        metavar="TIME",
        help="latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4), latest-tiered "
        "(-5), earliest-pending-upload (-6), or milliseconds: the first record of then or later.",
    ),
]
ExcludeInternal = Annotated[
    bool,
    typer.Option("--exclude-internal-topics", help="Without topics such as __consumer_offsets."),
]


def get_offsets(
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    topic: TopicPattern = None,
    partitions: Partitions = None,
    topic_partitions: TopicPartitions = None,
    time: Time = "latest",
    exclude_internal_topics: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """Print TOPIC:PARTITION:OFFSET of partitions of any Kafka, with kafka-get-offsets' flags.

    A partition that has no such offset, as an empty one has none of a time, is left out.
    """
    for option, value in (("--topic", topic), ("--partitions", partitions)):
        refuse_if(
            topic_partitions is not None and value is not None,
            f"--topic-partitions says which already: leave out {option}.",
        )
    timestamp = parse_time(time)
    if topic_partitions is None:
        pick = picked_by_name(topic, partitions)
    else:
        pick = picked_by_rules(topic_partitions)
    with connected(target(bootstrap_server, data_dir_option)) as driver:
        wanted = _matching(driver, pick, exclude_internal=exclude_internal_topics)
        if not wanted:
            advice = did_you_mean(topic or "", topic_names(driver)) if topic else ""
            raise CommandError(f"No partition matches.{advice}")
        found = offsets_at(driver, dict.fromkeys(wanted, timestamp))
    refusals = [str(answer) for _, answer in _in_order(found) if isinstance(answer, AdminError)]
    if as_json:
        print(json.dumps(to_json(found), indent=2))
    else:
        for line in lines(found):
            print(line)
    for why in refusals:
        print(f"holdfast: {why}: left out", file=sys.stderr)
    if refusals:
        raise typer.Exit(EXIT_FAILED)


def parse_time(text: str) -> int:
    """Read --time: a word, its number, or milliseconds. CommandError: it is none of them."""
    if text in TIMES:
        return TIMES[text]
    if re.fullmatch(r"-[1-6]|\d{1,19}", text, re.ASCII) and int(text) <= TIME_MAX:
        return int(text)
    raise CommandError(
        f"--time {text}: {', '.join(TIMES)}, -1 to -6, or milliseconds since 1970 are wanted."
        f"{did_you_mean(text, TIMES)}",
        code=EXIT_USAGE,
    )


def picked_by_name(topic: str | None, partitions: str | None) -> Pick:
    """Read --topic and --partitions. CommandError: one of them can't be read."""
    pattern = _pattern(".*" if topic is None else topic, "--topic")
    if not partitions:
        return lambda name, _: pattern.fullmatch(name) is not None
    numbers: set[int] = set()
    for text in partitions.split(","):
        numbers.add(_number(text, f"--partitions {partitions}"))
    return lambda name, number: number in numbers and pattern.fullmatch(name) is not None


def picked_by_rules(text: str) -> Pick:
    """Read --topic-partitions: what any of its rules picks is picked. CommandError: no rule."""
    rules = [_rule(part, f"--topic-partitions {text}") for part in text.split(",")]
    return lambda name, number: any(rule(name, number) for rule in rules)


def _rule(text: str, named: str) -> Pick:
    found = RULE.fullmatch(text)
    if found is None:
        raise CommandError(
            f"{named}: {text!r} is no rule; NAME, NAME:3, NAME:0-3, NAME:5-, NAME:-3 and :3 are.",
            code=EXIT_USAGE,
        )
    pattern = _pattern(found[1] or ".*", "--topic-partitions")
    low, high = 0, None
    if found[2]:
        low = _number(found[2], named)
        high = low + 1
    else:
        low = _number(found[3], named) if found[3] else 0
        high = _number(found[4], named) if found[4] else None
    return lambda name, number: (
        low <= number and (high is None or number < high) and pattern.fullmatch(name) is not None
    )


def _number(text: str, named: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= PARTITION_DIGITS
    refuse_if(not is_number, f"{named}: {text!r} is not the number of a partition.")
    return int(text)


def _pattern(text: str, option: str) -> re.Pattern[str]:
    """Read a regular expression as Kafka's tools do: commas are alternatives, quotes go."""
    try:
        return re.compile(text.strip().replace(",", "|").replace(" ", "").strip("\"'"))
    except re.error as error:
        raise CommandError(
            f"{option} {text!r} is not a regular expression: {error}.", code=EXIT_USAGE
        ) from None


def _matching(driver: Driver, pick: Pick, *, exclude_internal: bool) -> list[TopicPartition]:
    return [
        (topic.name or "", one.partition_index)
        for topic in driver.metadata().topics
        if not topic.error_code and not (exclude_internal and topic.is_internal)
        for one in topic.partitions
        if pick(topic.name or "", one.partition_index)
    ]


def _in_order(found: Found) -> list[tuple[TopicPartition, LogOffset | AdminError]]:
    """Sort as Kafka's tool does: by the text, so that t-10 stands before t-2."""
    return sorted(found.items(), key=lambda item: f"{item[0][0]}-{item[0][1]}")


def lines(found: Found) -> Sequence[str]:
    """Return what is printed: topic, partition and offset with colons between. Pure."""
    return [
        f"{topic}:{partition}:{answer.offset}"
        for (topic, partition), answer in _in_order(found)
        if isinstance(answer, LogOffset) and answer.offset >= 0
    ]


def to_json(found: Found) -> list[dict[str, object]]:
    """Return the same for machines, with null where there is no such offset."""
    entries: list[dict[str, object]] = []
    for (topic, partition), answer in _in_order(found):
        entry: dict[str, object] = {"topic": topic, "partition": partition}
        if isinstance(answer, AdminError):
            entry["error"] = str(answer)
        else:
            told = answer.offset >= 0
            entry["offset"] = answer.offset if told else None
            entry["timestamp_ms"] = answer.timestamp_ms if answer.timestamp_ms >= 0 else None
            entry["leader_epoch"] = answer.leader_epoch if answer.leader_epoch >= 0 else None
        entries.append(entry)
    return entries
