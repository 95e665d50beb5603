"""A producer that writes down every send and what became of it; a process of its own.

`python -m holdfast.clients.workload.verifiable_producer --help`. Made of confluent-kafka, so of a
real client with its own retries and back-offs. A send's line is in the file before the record can
be in the log. SIGTERM and SIGINT: no more sends, wait for the outcomes, end. What is sent is made
up here, or comes from whoever calls `run` with records of their own.

With `--gated` standard input says, line by line, how many may have been sent so far, so that
whoever drives a run can have some sent before a fault, some during it and some after; its end ends
the sending.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from holdfast.clients.outcomes import is_certain
from holdfast.clients.workload.command import GAVE_UP, client_parser, on_stop
from holdfast.clients.workload.payload import (
    Header,
    digest_of,
    headers_for,
    key_for,
    partition_for,
    value_for,
)
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.history import Acknowledged, Note, Refused, Send, Unknown

TICK_S = 0.005
QUEUE_FULL_WAIT_S = 5.0
BATCH = 500


@dataclass(frozen=True, slots=True)
class Record:
    """One record to be sent. `id` is unique in the run, and the value bears it (`payload`)."""

    id: str
    partition: int
    key: str | None
    value: bytes
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    bootstrap: str
    topic: str
    history: Path
    process: str
    partitions: int
    partition: int | None = None  # all sends go there
    acks: str = "all"
    idempotence: bool = True
    retries: int | None = None  # None: the client's own default
    rate: float = 0.0  # records a second; 0: as fast as it goes
    messages: int = 0  # 0: until stopped
    duration_s: float = 0.0  # 0: until stopped
    keys: int = 5
    size: int = 100
    delivery_timeout_ms: int = 30_000
    flush_timeout_s: float = 40.0
    timestamp: int | None = None  # of every record; None: the time of sending
    queue_wait_s: float = QUEUE_FULL_WAIT_S  # for room in the client's own queue
    gated: bool = False
    config: tuple[tuple[str, str], ...] = ()

    def client_config(self) -> dict[str, Any]:
        """What librdkafka gets. Idempotence needs acks=all, and retries."""
        values: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.process,
            "acks": self.acks,
            "enable.idempotence": self.idempotence,
            "message.timeout.ms": self.delivery_timeout_ms,
            "linger.ms": 0,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if self.retries is not None:
            values["retries"] = self.retries
        values.update(self.config)
        return values

    @property
    def retries_effective(self) -> int:
        config = dict(self.config)
        if "retries" in config:
            return int(config["retries"])
        return 1 if self.retries is None else self.retries


def made_up(options: Options) -> Iterator[Record]:
    """Yield the records that a producer sends when it is given none; they have no end."""
    number = 0
    while True:
        partition = options.partition
        if partition is None:
            partition = partition_for(number, options.keys, options.partitions)
        yield Record(
            id=f"{options.process}:{number}",
            partition=partition,
            key=key_for(number, options.keys, options.topic),
            value=value_for(options.process, number, options.size),
            headers=headers_for(number),
        )
        number += 1


class VerifiableProducer:
    """Sends records at a steady rate until told to stop, or until there are no more."""

    def __init__(
        self, options: Options, recorder: Recorder, records: Iterable[Record] | None = None
    ) -> None:
        import confluent_kafka  # noqa: PLC0415 - `Options` is for the lab, cheaply

        self._kafka = confluent_kafka
        self._options = options
        self._recorder = recorder
        self._records = iter(made_up(options) if records is None else records)
        self._producer = confluent_kafka.Producer(options.client_config(), logger=None)
        self.gave_up = ""  # why the client can send nothing any more
        self._number = 0
        self._tokens = 1.0  # sends that the rate allows by now
        self._counted_s = time.monotonic()
        self._gate = 0 if options.gated else sys.maxsize
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    def watch_gate(self) -> None:
        """Follow standard input, from a thread of its own."""
        for line in sys.stdin:
            self._gate = int(line)
        self.stop()

    def run(self) -> int:
        """Send until stopped or done; return how many records have no outcome."""
        try:
            self._send_all()
            left = int(self._producer.flush(self._options.flush_timeout_s))
        except self._kafka.KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.gave_up = f"{error.args[0].name()}: {error.args[0].str()}"
            left = len(self._producer)
        self._recorder.flush()
        return left

    def _send_all(self) -> None:
        options = self._options
        begin = time.monotonic()
        more = True
        while more and not self._stopping:
            now = time.monotonic()
            if options.duration_s and now - begin >= options.duration_s:
                break
            due = self._due(now)
            if due:
                more = self._send(due)
            self._producer.poll(0 if due and not options.rate else TICK_S)
            self._recorder.flush()
            if options.messages and self._number >= options.messages:
                break

    def _due(self, now: float) -> int:
        """Return how many to send now. What was held back is made up for by one batch at most."""
        options = self._options
        self._tokens += (now - self._counted_s) * options.rate if options.rate else BATCH
        self._tokens = min(self._tokens, BATCH)
        self._counted_s = now
        due = min(int(self._tokens), self._gate - self._number)
        if options.messages:
            due = min(due, options.messages - self._number)
        due = max(0, due)
        self._tokens -= due
        return due

    def _send(self, count: int) -> bool:
        """Send so many, history first. False: there are no more."""
        batch = list(islice(self._records, count))
        self._number += len(batch)
        sends = [
            self._recorder.record(
                Send,
                topic=self._options.topic,
                partition=record.partition,
                id=record.id,
                digest=digest_of(record.value, record.headers),
                size=len(record.value),
                key=record.key,
                timestamp=self._options.timestamp,
            )
            for record in batch
        ]
        self._recorder.flush()
        for record, send in zip(batch, sends, strict=True):
            # The time of sending is that of the event, so that a changed one is seen.
            self._produce(record, send.wall_ms if send.timestamp is None else send.timestamp)
        return len(batch) == count

    def _produce(self, record: Record, timestamp: int) -> None:
        topic, name, partition = self._options.topic, record.id, record.partition
        given: dict[str, Any] = {"timestamp": timestamp}
        if record.headers:
            given["headers"] = list(record.headers)

        def answered(error: Any, message: Any) -> None:
            self._answered(name, partition, error, message)

        deadline = time.monotonic() + self._options.queue_wait_s
        while True:
            try:
                self._producer.produce(
                    topic, record.value, record.key, partition, on_delivery=answered, **given
                )
            except BufferError:
                if time.monotonic() < deadline and not self._stopping:
                    self._producer.poll(TICK_S)
                    self._recorder.flush()
                    continue
                self._refused(name, partition, "_QUEUE_FULL", "the client's queue stayed full")
            except self._kafka.KafkaException as error:  # not queued: too large, say
                self._refused(name, partition, error.args[0].name(), error.args[0].str())
            return

    def _answered(self, name: str, partition: int, error: Any, message: Any) -> None:
        if error is None:
            offset = message.offset()
            known = offset is not None and offset >= 0
            self._recorder.record(
                Acknowledged,
                topic=self._options.topic,
                partition=partition,
                id=name,
                offset=offset if known and self._options.acks != "0" else None,
            )
        elif is_certain(error.code(), error.name(), retries=self._options.retries_effective):
            self._refused(name, partition, error.name(), error.str())
        else:
            self._recorder.record(
                Unknown,
                topic=self._options.topic,
                partition=partition,
                id=name,
                error=error.name(),
                message=error.str(),
            )

    def _refused(self, name: str, partition: int, error: str, message: str) -> None:
        self._recorder.record(
            Refused,
            topic=self._options.topic,
            partition=partition,
            id=name,
            error=error,
            message=message,
        )


def make_parser(program: str = "verifiable_producer") -> argparse.ArgumentParser:
    """Return the parser of this producer's options; who has records of their own may add to it."""
    parser = client_parser(
        program, __doc__, process="producer", named="name in the history and in every value"
    )
    add = parser.add_argument
    add("--partition", type=int, help="send to this one only")
    add("--acks", choices=["0", "1", "all"], default="all")
    add("--no-idempotence", dest="idempotence", action="store_false")
    add("--retries", type=int)
    add("--rate", type=float, default=0.0, help="records a second; 0: as fast as it goes")
    add("--max-messages", dest="messages", type=int, default=0)
    add("--duration", dest="duration_s", type=float, default=0.0, help="seconds")
    add("--keys", type=int, default=5)
    add("--size", type=int, default=100, help="bytes of a value")
    add("--delivery-timeout-ms", type=int, default=30_000)
    add("--timestamp", type=int, help="of every record, in ms; -1: it carries none")
    add(
        "--queue-wait",
        dest="queue_wait_s",
        type=float,
        default=QUEUE_FULL_WAIT_S,
        help="seconds to wait for room in the client's queue before a record counts as refused",
    )
    add("--gated", action="store_true", help="standard input says how many may be sent")
    add("--config", action="append", default=[], metavar="KEY=VALUE", help="for librdkafka")
    return parser


def options_of(parsed: argparse.Namespace) -> Options:
    """Return the options out of what such a parser has found, without what was added to it."""
    found = vars(parsed)
    pairs = (item.partition("=") for item in found["config"])
    return Options(
        bootstrap=found["bootstrap_server"],
        config=tuple((key, value) for key, _, value in pairs),
        flush_timeout_s=found["delivery_timeout_ms"] / 1000 + 10,
        **{name: found[name] for name in PARSED},
    )


# Options that the parser gives by their own names.
PARSED = tuple(
    field.name
    for field in fields(Options)
    if field.name not in {"bootstrap", "config", "flush_timeout_s"}
)


def parse(arguments: list[str]) -> Options:
    return options_of(make_parser().parse_args(arguments))


def run(options: Options, records: Iterable[Record] | None = None) -> int:
    """Send these records, or made-up ones, from this process; return its exit status."""
    with Recorder(options.history, options.process) as recorder:
        producer = VerifiableProducer(options, recorder, records)
        on_stop(producer.stop)
        if options.gated:
            threading.Thread(target=producer.watch_gate, daemon=True).start()
        left = producer.run()
        recorder.record(Note, text=f"{options.process} ended, {left} sends without an outcome")
        if producer.gave_up:
            recorder.record(Note, text=f"{options.process} gave up: {producer.gave_up}")
            sys.stderr.write(f"gave up: {producer.gave_up}\n")
            return GAVE_UP
    return 0


def main(arguments: list[str]) -> int:
    return run(parse(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
