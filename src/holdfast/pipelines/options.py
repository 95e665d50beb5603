"""The options of `format("holdfast")`, checked. Owns their names; never talks to a cluster.

Names are the JVM connector's, and like there their case does not matter. What stands behind
`kafka.` is a client's property, under Java's name or librdkafka's (`client_options`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast.pipelines.intake import bounds, client_options
from holdfast.pipelines.intake.bounds import Bound, Mode
from holdfast.pipelines.intake.gone_data import FAIL, GoneData, gone_data, refuse_unread
from holdfast.pipelines.intake.option_values import (
    Given,
    OptionError,
    boolean,
    interval_ms,
    nearest,
    partitions,
    whole,
)
from holdfast.pipelines.intake.split import TASKS_MAX
from holdfast.pipelines.intake.topic_pattern import matcher
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.progress.group import ProgressGroup, connecting, uses_kerberos
from holdfast.wire.well_known import LATEST

KNOWN = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "failOnDataLoss",
    "goneData",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxBytesPerFetch",
    "progressGroup",
)
# Known to who has used another source or the JVM connector, and without a meaning for this one.
ELSEWHERE = {
    "topic": "it says where the JVM connector writes; to read, use subscribe",
    "path": "a log has none; leave load() empty, and use subscribe",
}
POLL_TIMEOUT_MS = 120_000
FETCH_BYTES = 4 * 1024 * 1024  # more leaves the caches before it is decoded
NUMBER_MAX = 2**31 - 1  # of milliseconds and retries: clocks and sleeps take no more
_ADDRESSES = 'give it as "host:port,host:port"'
_PORT_MAX = 65_535
_NAME_LENGTH_MAX = 249
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{_NAME_LENGTH_MAX}}}")
FETCH_BYTES_MAX = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Checked options. It is pickled to workers, so secrets in `client` are references."""

    client: tuple[tuple[str, str], ...]  # librdkafka's properties, bootstrap.servers among them
    topics: tuple[str, ...] = ()  # subscribe: all their partitions, new ones too
    pattern: str | None = None  # subscribePattern: all topics that match, new ones too
    partitions: tuple[Partition, ...] = ()  # assign: these and no others
    starting: Bound
    ending: Bound = LATEST
    rows_max: int | None = None  # a batch's offsets
    rows_min: int | None = None
    wait_ms_max: int = 900_000  # for rows_min of them
    tasks_min: int | None = None
    task_rows_max: int | None = None
    headers: bool = False
    gone: GoneData = FAIL
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    fetch_bytes: int = FETCH_BYTES  # a task asks for at once
    offset_retries: int | None = None  # None: as often as fits into a minute
    offset_pause_ms: int | None = None
    progress: ProgressGroup | None = None  # progressGroup: is told what a table has

    @property
    def read_committed(self) -> bool:
        return dict(self.client).get("isolation.level") == "read_committed"


def parse(options: Mapping[str, str], mode: Mode) -> SourceOptions:
    """Check the options of one query. OptionError names the option and says what to do.

    Without a mode only what is wrong in a stream and in a batch query is refused.
    """
    given: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if "\0" in str(value):  # where C takes it for the end
            raise OptionError(f"{name}: has a character that no name has, a NUL; leave it out")
        if lower.startswith("kafka."):
            client[lower.removeprefix("kafka.")] = str(value)
        else:
            given[lower] = str(value)
    _refuse_unknown(given)
    topics, pattern, assigned = _which(given)
    starting = bounds.starting(given, mode)
    ending = bounds.ending(given, mode)
    bounds.in_order(starting, ending)
    rows_max, rows_min = _rows(given)
    properties = _client(given, client)
    gone = gone_data(given, mode, starting)
    named = {*topics, *(partition.topic for partition in assigned)}
    refuse_unread(gone, named.__contains__ if pattern is None else matcher(pattern))
    return SourceOptions(
        client=properties,
        topics=topics,
        pattern=pattern,
        partitions=assigned,
        starting=starting,
        ending=ending,
        rows_max=rows_max,
        rows_min=rows_min,
        wait_ms_max=interval_ms(given, "maxTriggerDelay", "15m"),
        tasks_min=_tasks(given),
        task_rows_max=whole(given, "maxRecordsPerPartition"),
        headers=boolean(given, "includeHeaders", default=False),
        gone=gone,
        poll_timeout_ms=whole(given, "kafkaConsumer.pollTimeoutMs", most=NUMBER_MAX)
        or POLL_TIMEOUT_MS,
        fetch_bytes=_fetch_bytes(given),
        offset_retries=whole(given, "fetchOffset.numRetries", least=0, most=NUMBER_MAX),
        offset_pause_ms=whole(given, "fetchOffset.retryIntervalMs", least=0, most=NUMBER_MAX),
        progress=_progress(given, dict(properties), mode),
    )


def _refuse_unknown(given: Given) -> None:
    known = {name.lower(): name for name in KNOWN}
    for lower in sorted(given):
        if lower in ELSEWHERE:
            raise OptionError(f"{lower}: can't be set: {ELSEWHERE[lower]}")
        if lower in known:
            continue
        meant = nearest(lower, known)
        # A property of the client without its prefix is a common slip.
        meant = meant or nearest(lower, {name: f"kafka.{name}" for name in client_options.USUAL})
        known_ones = f"known are {', '.join(KNOWN)} and kafka.*"
        raise OptionError(
            f"{lower}: unknown option; "
            + (f"the nearest that is known is {meant}" if meant else known_ones)
        )


def _client(given: Given, properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return librdkafka's properties, checked as far as they can be without librdkafka."""
    _refuse_no_addresses(properties.get("bootstrap.servers", ""))
    client = client_options.translate(properties)
    isolation = client.setdefault("isolation.level", "read_uncommitted")
    if isolation not in {"read_uncommitted", "read_committed"}:
        raise OptionError(
            f"kafka.isolation.level: {isolation!r}; use read_uncommitted or read_committed"
        )
    # Names that connections carry; no group is joined. The one that is whole counts, as in Spark.
    prefix = given.get("groupidprefix")
    for name, value in (("kafka.group.id", client.get("group.id")), ("groupIdPrefix", prefix)):
        if value is not None and not value.strip():
            raise OptionError(f"{name}: is empty; give a name, or leave it out")
    if prefix is not None:
        client.setdefault("group.id", f"{prefix}-reader")
    return tuple(sorted(client.items()))


def _refuse_no_addresses(text: str) -> None:
    """OptionError: what librdkafka would pass over, and then wait for brokers that nobody named."""
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise OptionError(f"kafka.bootstrap.servers: missing; {_ADDRESSES}")
    for part in filter(None, parts):
        host, colon, port = part.rpartition("://")[2].rpartition(":")
        is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _PORT_MAX
        alone = (not colon or part.endswith("]")) and port  # at the usual port
        if "@" in part or len(part.split()) > 1 or not (alone or (host and is_port)):
            shown = "an address" if "@" in part else repr(part)
            raise OptionError(f"kafka.bootstrap.servers: {shown} is not host:port; {_ADDRESSES}")


def _progress(given: Given, client: Mapping[str, str], mode: Mode) -> ProgressGroup | None:
    """Return the group that is told how far the query is, with how to reach it."""
    name = given.get("progressgroup")
    if name is None:
        return None
    if not name.strip():
        raise OptionError("progressGroup: is empty; give a group's name, or leave it out")
    if mode == "batch":
        raise OptionError("progressGroup: a batch query has no progress; leave it out")
    if uses_kerberos(client):
        raise OptionError(
            "progressGroup: not with Kerberos: a sink takes the connection from the checkpoint, "
            "and Kerberos would run a program that stands there; leave it out"
        )
    return ProgressGroup(name.strip(), connecting(client))


def _which(given: Given) -> tuple[tuple[str, ...], str | None, tuple[Partition, ...]]:
    """Return topics, pattern or partitions: exactly one of the three says what is read."""
    if sum(name in given for name in ("subscribe", "subscribepattern", "assign")) != 1:
        raise OptionError(
            'give exactly one of subscribe ("topic,topic"), subscribePattern ("topic-.*") and '
            "assign ('{\"topic\":[0,1]}')"
        )
    if "assign" in given:
        assigned = partitions(given, "assign")
        _refuse_no_names("assign", {partition.topic for partition in assigned})
        return (), None, assigned
    if "subscribepattern" in given:
        pattern = given["subscribepattern"].strip()
        if not pattern:
            raise OptionError("subscribePattern: is empty; give one that topics' names have")
        matcher(pattern)
        return (), pattern, ()
    topics = tuple(sorted({name.strip() for name in given["subscribe"].split(",")} - {""}))
    if not topics:
        raise OptionError("subscribe: no topic is named")
    _refuse_no_names("subscribe", topics)
    return topics, None, ()


def _refuse_no_names(option: str, topics: Collection[str]) -> None:
    """OptionError: a topic that no broker can have, which the query would wait for."""
    for name in sorted(topics):
        if not _NAME.fullmatch(name) or name in {".", ".."}:
            raise OptionError(
                f"{option}: no topic can be called {name!r}: names have letters from a to z, "
                f"digits, '.', '_' and '-', {_NAME_LENGTH_MAX} at most; commas stand between names"
            )


def _rows(given: Given) -> tuple[int | None, int | None]:
    most = whole(given, "maxOffsetsPerTrigger")
    least = whole(given, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, which is {most}"
        )
    return most, least


def _tasks(given: Given) -> int | None:
    wanted = whole(given, "minPartitions")
    if wanted is not None and wanted > TASKS_MAX:
        raise OptionError(
            f"minPartitions: {wanted} is more than {TASKS_MAX}, the most there can be"
        )
    return wanted


def _fetch_bytes(given: Given) -> int:
    asked = whole(given, "maxBytesPerFetch") or FETCH_BYTES
    if asked > FETCH_BYTES_MAX:
        raise OptionError(f"maxBytesPerFetch: {asked}; {FETCH_BYTES_MAX} at most")
    return asked
