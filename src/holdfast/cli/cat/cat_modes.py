"""What `holdfast cat` does, on librdkafka: produce, and consume by assignment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from confluent_kafka import (
    OFFSET_END,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from holdfast.cli.cat import cat_format as formats
from holdfast.cli.exit_status import EXIT_USAGE, CommandError, InterruptedCommandError, refuse_if
from holdfast.cli.shared_options import did_you_mean

CHUNK_BYTES = 1 << 16
MESSAGE_BYTES_MAX = 1 << 30
BATCH = 500
POLL_S = 0.2
FLUSH_S = 1.0
LAST_FLUSH_S = 5.0  # after Ctrl-C: what has been read is still sent
DEFAULT_CLIENT_ID = "holdfast-cat"
# Of no meaning where nothing is committed, but librdkafka's consumer insists on one.
NO_GROUP = "holdfast-cat"
TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "logappend"}
Settings = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """What to produce, and how input becomes messages."""

    topic: str
    partition: int
    key: bytes | None
    key_delimiter: bytes | None
    delimiter: bytes
    empty_is_null: bool
    headers: Sequence[tuple[str, bytes | None]]
    count: int | None
    tee: bool
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When to stop consuming, and what is said meanwhile."""

    stop_ms: int | None
    count: int | None
    exit_at_end: bool
    quiet: bool
    unbuffered: bool
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What to consume, from where, and when to stop. Partition None: all."""

    topic: str
    partition: int | None
    start: formats.Start
    until: Until


def client_settings(settings: Settings) -> dict[str, Any]:
    """Add what is ours to what the user set; his own wins."""
    return {"client.id": DEFAULT_CLIENT_ID, "log_level": 2} | settings


def made(factory: Any, settings: dict[str, Any]) -> Any:
    """Make a client. A property that librdkafka refuses is the user's mistake, and named so."""
    try:
        return factory(settings)
    except KafkaException as error:
        raise CommandError(f"-X: {error.args[0].str()}", code=EXIT_USAGE) from None


def unreachable(settings: Settings, error: KafkaException) -> CommandError:
    servers = settings.get("bootstrap.servers") or settings.get("metadata.broker.list")
    # Librdkafka was told which APIs are served there. In spite of its underscore it is public.
    if error.args[0].code() == KafkaError._UNSUPPORTED_FEATURE:  # noqa: SLF001 - see above
        return CommandError(
            f"-b {servers}: who answers there serves no clients ({error.args[0].str()}). "
            "Is it a controller? Name a broker."
        )
    return CommandError(
        f"-b {servers}: nobody answers there ({error.args[0].str()}). Is the address right, and is "
        "it running? -m SECONDS waits longer."
    )


# Producing


def produce(
    settings: Settings, production: Production, *, files: Sequence[Path], lines: bool
) -> None:
    """Send the input and wait for all acknowledgements. CommandError: one message failed."""
    producer = made(Producer, client_settings(settings))
    try:  # a message would be tried for five minutes where nobody is
        producer.list_topics(production.topic, timeout=production.timeout_s)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    failures: list[str] = []
    sent = 0

    def delivered(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failures.append(error.str())

    try:
        for key, value in _messages(production, files, lines=lines):
            _send(producer, production, key, value, delivered)
            sent += 1
            if production.tee:
                sys.stdout.buffer.write((value or b"") + production.delimiter)
            if failures or sent == production.count:
                break
        while producer.flush(FLUSH_S):
            pass  # librdkafka's own delivery time-out is the bound
    except KeyboardInterrupt:
        left = producer.flush(LAST_FLUSH_S)
        done = sent - left - len(failures)
        raise InterruptedCommandError(f"{done} of {sent} messages are acknowledged.") from None
    finally:
        sys.stdout.flush()
    if failures:
        raise CommandError(f"-t {production.topic}: {len(failures)} not delivered: {failures[0]}")


def _send(
    producer: Any, production: Production, key: bytes | None, value: bytes | None, delivered: Any
) -> None:
    while True:
        try:
            producer.produce(
                production.topic,
                value=value,
                key=key,
                partition=production.partition,
                headers=list(production.headers),
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(POLL_S)  # the queue is full: wait for acknowledgements
        except KafkaException as error:
            raise CommandError(f"-t {production.topic}: {error.args[0].str()}") from None
        else:
            producer.poll(0)
            return


def _messages(
    production: Production, files: Sequence[Path], *, lines: bool
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values of the input. Empty lines are no messages, as in kcat."""
    if files and not lines:
        inputs: Iterable[bytes] = (_content(path) for path in files)
    elif files:
        inputs = split_file(files[0], production.delimiter)
    else:
        inputs = split(sys.stdin.buffer, production.delimiter)
    for data in inputs:
        if not data and not files:
            continue
        key, value = formats.split_key(data, production.key_delimiter)
        if key is None or not key:
            key = production.key if production.key is not None else key
        yield _null_if_empty(production, key), _null_if_empty(production, value)


def _null_if_empty(production: Production, data: bytes | None) -> bytes | None:
    return None if production.empty_is_null and not data else data


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"FILE {path}: {error.strerror}.", code=EXIT_USAGE) from None


def split_file(path: Path, delimiter: bytes) -> Iterator[bytes]:
    """Yield the messages of a file."""
    try:
        with path.open("rb") as file:
            yield from (data for data in split(file, delimiter) if data)
    except OSError as error:
        raise CommandError(f"-l {path}: {error.strerror}.", code=EXIT_USAGE) from None


def split(file: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """Yield what stands between delimiters, as soon as it is read."""
    rest = bytearray()
    searched = 0
    while chunk := file.read1(CHUNK_BYTES):  # type: ignore[attr-defined] # buffered files have it
        rest += chunk
        at = 0
        while (end := rest.find(delimiter, max(at, searched))) >= 0:
            yield bytes(rest[at:end])
            at = end + len(delimiter)
        del rest[:at]
        # A delimiter may have begun at the end of what was searched.
        searched = max(0, len(rest) - len(delimiter) + 1)
        if len(rest) > MESSAGE_BYTES_MAX:
            raise CommandError(f"No delimiter within {MESSAGE_BYTES_MAX} bytes of input; see -D.")
    if rest:
        yield bytes(rest)


# Consuming


def consume(settings: Settings, consumption: Consumption, write: formats.Write) -> None:
    """Write messages until the end, the count, the time, or Ctrl-C is reached."""
    refuse_if(
        consumption.start.stored and "group.id" not in settings,
        "-o stored needs -X group.id=GROUP: whose offsets?",
    )
    ours = {
        "group.id": NO_GROUP,
        "enable.auto.commit": "true" if consumption.start.stored else "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "earliest",
    }
    consumer = made(Consumer, ours | client_settings(settings))
    try:
        leaders = _leaders(consumer, settings, consumption)
        consumer.assign([_started(consumer, consumption, partition) for partition in leaders])
        _Reading(consumer, consumption, write, leaders).run()
    except KafkaException as error:
        raise CommandError(f"-t {consumption.topic}: {error.args[0].str()}") from None
    except KeyboardInterrupt:
        return  # how one ends a consumer
    finally:
        sys.stdout.flush()
        consumer.close()


def _leaders(consumer: Any, settings: Settings, consumption: Consumption) -> dict[int, int]:
    """Return the partitions to read, with the brokers that lead them."""
    try:
        found = consumer.list_topics(consumption.topic, timeout=consumption.until.timeout_s)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    topic = found.topics[consumption.topic]
    if topic.error is not None:
        known = consumer.list_topics(timeout=consumption.until.timeout_s).topics
        advice = did_you_mean(consumption.topic, [*known])
        raise CommandError(f"-t {consumption.topic}: {topic.error.str()}.{advice}")
    wanted = sorted(topic.partitions)
    if consumption.partition is not None:
        if consumption.partition not in topic.partitions:
            raise CommandError(
                f"-p {consumption.partition}: {consumption.topic} has partitions "
                f"{wanted[0]} to {wanted[-1]}."
            )
        wanted = [consumption.partition]
    return {partition: topic.partitions[partition].leader for partition in wanted}


def _started(consumer: Any, consumption: Consumption, partition: int) -> TopicPartition:
    if consumption.start.stored:
        # Asked for now, with a bound: a consumer that has to find it out would wait for ever where
        # the cluster has no groups.
        try:
            consumer.committed(
                [TopicPartition(consumption.topic, partition)], consumption.until.timeout_s
            )
        except KafkaException as error:
            raise CommandError(
                f"-o stored: the group's offsets can't be had: {error.args[0].str()}. "
                "Has this cluster groups (holdfast's own has none yet)? -m SECONDS waits longer."
            ) from None
    key = (consumption.topic, partition)
    return started(
        consumer, consumption.start, key, consumption.until.timeout_s, quiet=consumption.until.quiet
    )


def started(
    consumer: Any,
    start: formats.Start,
    partition: tuple[str, int],
    timeout_s: float,
    *,
    quiet: bool,
) -> TopicPartition:
    """Return a partition with the offset that a start means there. KafkaException: nobody tells."""
    topic, number = partition
    if start.stored:
        return TopicPartition(topic, number, OFFSET_STORED)
    if start.timestamp_ms is not None:
        asked = TopicPartition(topic, number, start.timestamp_ms)
        (found,) = consumer.offsets_for_times([asked], timeout=timeout_s)
        if found.error is not None:
            raise KafkaException(found.error)
        return TopicPartition(topic, number, found.offset if found.offset >= 0 else OFFSET_END)
    assert start.offset is not None, "a start has an offset, a time, or is stored"
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout_s)
    if start.offset == formats.END:
        offset = high
    elif start.offset < 0:
        offset = max(low, high + start.offset)
    else:
        # Out of range librdkafka would begin anew at the first record there is.
        offset = min(max(low, start.offset), high)
        if offset != start.offset > 0 and not quiet:
            print(
                f"% {topic} [{number}] holds offsets {low} to {high}, not "
                f"{start.offset}: reading from {offset}",
                file=sys.stderr,
            )
    return TopicPartition(topic, number, offset)


class _Reading:
    """One run of a consumer: what is finished, and what has been counted."""

    def __init__(
        self,
        consumer: Any,
        consumption: Consumption,
        write: formats.Write,
        leaders: Mapping[int, int],
    ) -> None:
        self._consumer = consumer
        self._topic = consumption.topic
        self._until = consumption.until
        self._write = write
        self._leaders = leaders
        self._open = set(leaders)  # not yet at their ends
        self._count = 0

    def run(self) -> None:
        output = sys.stdout.buffer
        batch = 1 if self._until.unbuffered else BATCH
        while True:
            messages = self._consumer.consume(batch, POLL_S)
            for message in messages:
                if message.error() is not None:
                    self._failed(message)
                elif self._is_late(message):
                    self._finish(message.partition())
                else:
                    leader = self._leaders[message.partition()]
                    output.write(self._write(read(message, leader)))
                    self._count += 1
                if self._count == self._until.count or not self._open:
                    return
            if messages:
                output.flush()

    def _is_late(self, message: Any) -> bool:
        return self._until.stop_ms is not None and message.timestamp()[1] >= self._until.stop_ms

    def _failed(self, message: Any) -> None:
        error = message.error()
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            raise KafkaException(error)
        if self._until.exit_at_end:
            self._open.discard(message.partition())
        if not self._until.quiet:
            sys.stdout.flush()
            suffix = "" if self._open else ": exiting"
            print(
                f"% Reached end of topic {message.topic()} [{message.partition()}] "
                f"at offset {message.offset()}{suffix}",
                file=sys.stderr,
            )

    def _finish(self, partition: int) -> None:
        self._open.discard(partition)
        self._consumer.pause([TopicPartition(self._topic, partition)])


def read(message: Any, leader: int) -> formats.Message:
    """Return a message of librdkafka's in our form. `leader`: the broker it came from."""
    kind, timestamp_ms = message.timestamp()
    return formats.Message(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms,
        timestamp_type=TIMESTAMP_TYPES.get(kind, "unknown"),
        broker=leader,
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
    )
