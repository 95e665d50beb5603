"""The options of `format("holdfast")`, checked. Owns their names; never talks to a cluster.

Names are the JVM connector's, and like there their case does not matter, except after `kafka.`,
where librdkafka's properties are named as librdkafka names them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.pipelines.offsets import Offsets, OffsetsError, Partition, from_text
from holdfast.wire.well_known import EARLIEST, LATEST

KNOWN = (
    "subscribe",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
)
# The JVM connector's others: known to the reader of the message, so say that they are not here.
ELSEWHERE = frozenset(
    name.lower()
    for name in (
        "subscribePattern",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "groupIdPrefix",
        "includeHeaders",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    )
)
# What the source itself decides, and why a user may not.
OURS = {
    "group.id": "offsets live in Spark's checkpoint, and no consumer group is used",
    "enable.auto.commit": "offsets live in Spark's checkpoint",
    "auto.offset.reset": "use startingOffsets; a reset would skip records silently",
    "enable.auto.offset.store": "offsets live in Spark's checkpoint",
    "enable.partition.eof": "the source needs it to see the end of a partition",
    "key.deserializer": "keys are bytes; use Spark's functions",
    "value.deserializer": "values are bytes; use Spark's functions",
    "interceptor.classes": "it is a class of the JVM client",
}
POLL_TIMEOUT_MS = 120_000


class OptionError(ValueError):
    """An option is unknown, missing or has a value that makes no sense. The message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Checked options. `starting` and `ending` are LATEST, EARLIEST or offsets by partition."""

    client: tuple[tuple[str, str], ...]  # librdkafka's properties, bootstrap.servers among them
    topics: tuple[str, ...] = ()  # subscribe: all their partitions, new ones too
    partitions: tuple[Partition, ...] = ()  # assign: these and no others
    starting: int | Offsets
    ending: int | Offsets = LATEST
    rows_max: int | None = None
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = POLL_TIMEOUT_MS

    @property
    def read_committed(self) -> bool:
        return dict(self.client).get("isolation.level") == "read_committed"


def parse(options: Mapping[str, str], mode: Literal["stream", "batch"]) -> SourceOptions:
    """Check the options of one query. OptionError names the option and says what to do."""
    given: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith("kafka."):
            client[lower.removeprefix("kafka.")] = str(value)
        else:
            given[lower] = str(value)
    _refuse_unknown(given)
    _check_client(client)
    topics, partitions = _which(given)
    stream = mode == "stream"
    if stream and "endingoffsets" in given:
        raise OptionError("endingOffsets: a stream has no end; leave it out, or use read")
    starting = _offsets(given, "startingOffsets", "latest" if stream else "earliest")
    if not stream and starting == LATEST:
        raise OptionError("startingOffsets: a batch query can't start at latest")
    ending = _offsets(given, "endingOffsets", "latest")
    if ending == EARLIEST or (isinstance(ending, dict) and EARLIEST in ending.values()):
        raise OptionError("endingOffsets: a query can't end at earliest (-2)")
    return SourceOptions(
        client=tuple(sorted({"isolation.level": "read_uncommitted", **client}.items())),
        topics=topics,
        partitions=partitions,
        starting=starting,
        ending=ending,
        rows_max=_positive(given, "maxOffsetsPerTrigger"),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in KNOWN}
    for lower in sorted(given):
        if lower in ELSEWHERE:
            raise OptionError(
                f"{lower}: an option of the JVM connector that this source does not have; "
                f"it has {', '.join(KNOWN)} and kafka.*"
            )
        if lower not in known:
            raise OptionError(f"{lower}: unknown option; known are {', '.join(KNOWN)} and kafka.*")


def _check_client(client: Mapping[str, str]) -> None:
    if not client.get("bootstrap.servers"):
        raise OptionError('kafka.bootstrap.servers: missing; give it as "host:port,host:port"')
    for name in sorted(client.keys() & OURS.keys()):
        raise OptionError(f"kafka.{name}: can't be set: {OURS[name]}")
    isolation = client.get("isolation.level", "read_uncommitted")
    if isolation not in {"read_uncommitted", "read_committed"}:
        raise OptionError(
            f"kafka.isolation.level: {isolation!r}; use read_uncommitted or read_committed"
        )


def _which(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[Partition, ...]]:
    if ("subscribe" in given) == ("assign" in given):
        raise OptionError('one of subscribe ("topic,topic") and assign (\'{"topic":[0,1]}\')')
    if "subscribe" in given:
        topics = tuple(sorted({name.strip() for name in given["subscribe"].split(",")} - {""}))
        if not topics:
            raise OptionError("subscribe: no topic is named")
        return topics, ()
    return (), _assigned(given["assign"])


def _assigned(text: str) -> tuple[Partition, ...]:
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"assign: not JSON: {error}") from error
    well_formed = isinstance(value, dict) and all(
        isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
        for numbers in value.values()
    )
    partitions = {Partition(t, n) for t, ns in value.items() for n in ns} if well_formed else set()
    if not partitions:
        raise OptionError(f'assign: {text!r} is not of the form {{"topic":[0,1]}}')
    return tuple(sorted(partitions))


def _offsets(given: Mapping[str, str], name: str, default: str) -> int | Offsets:
    text = given.get(name.lower(), default).strip()
    if text.lower() == "earliest":
        return EARLIEST
    if text.lower() == "latest":
        return LATEST
    try:
        return from_text(text)
    except OffsetsError as error:
        raise OptionError(
            f'{name}: {error}; use earliest, latest or {{"topic":{{"0":17,"1":-2}}}}'
        ) from error


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(f"{name}: {text!r} is no positive whole number")
    return int(text)


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in {"true", "false"}:
        raise OptionError(f"{name}: {text!r}; use true or false")
    return text == "true"
