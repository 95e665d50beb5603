"""A producer that writes down every send and what became of it; a process of its own.

`python -m holdfast.clients.verifiable_producer --help`. Made of confluent-kafka, so of a real
client with its own retries and back-offs. A send's line is in the file before the record can be
in the log. SIGTERM and SIGINT: no more sends, wait for the outcomes, end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.clients.outcomes import is_certain
from holdfast.clients.payload import digest_of, key_for, partition_for, value_for
from holdfast.clients.recorder import Recorder
from holdfast.judge.history import Acknowledged, Note, Refused, Send, Unknown

TICK_S = 0.005
QUEUE_FULL_WAIT_S = 5.0


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


class VerifiableProducer:
    """Sends at a steady rate until told to stop."""

    def __init__(self, options: Options, recorder: Recorder) -> None:
        import confluent_kafka  # noqa: PLC0415 - `Options` is for the lab, cheaply

        self._kafka = confluent_kafka
        self._options = options
        self._recorder = recorder
        self._producer = confluent_kafka.Producer(options.client_config(), logger=None)
        self._number = 0
        self._stopping = False

    def stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> int:
        """Send until stopped or done; return how many records have no outcome."""
        options = self._options
        begin = time.monotonic()
        while not self._stopping:
            elapsed = time.monotonic() - begin
            if options.duration_s and elapsed >= options.duration_s:
                break
            due = self._due(elapsed)
            if due:
                self._send(due)
            self._producer.poll(0 if due and not options.rate else TICK_S)
            self._recorder.flush()
            if options.messages and self._number >= options.messages:
                break
        left = int(self._producer.flush(options.flush_timeout_s))
        self._recorder.flush()
        return left

    def _due(self, elapsed: float) -> int:
        options = self._options
        due = 500 if not options.rate else int(elapsed * options.rate) - self._number + 1
        if options.messages:
            due = min(due, options.messages - self._number)
        return max(0, min(due, 500))

    def _send(self, count: int) -> None:
        options = self._options
        batch: list[tuple[str, int, str, bytes]] = []
        for _ in range(count):
            number = self._number
            self._number += 1
            value = value_for(options.process, number, options.size)
            key = key_for(number, options.keys, options.topic)
            partition = options.partition
            if partition is None:
                partition = partition_for(number, options.keys, options.partitions)
            name = f"{options.process}:{number}"
            batch.append((name, partition, key, value))
            self._recorder.record(
                Send,
                topic=options.topic,
                partition=partition,
                id=name,
                digest=digest_of(value),
                size=len(value),
                key=key,
                timestamp=options.timestamp,
            )
        self._recorder.flush()
        for name, partition, key, value in batch:
            self._produce(name, partition, key, value)

    def _produce(self, name: str, partition: int, key: str, value: bytes) -> None:
        topic = self._options.topic
        given = {} if self._options.timestamp is None else {"timestamp": self._options.timestamp}

        def answered(error: Any, message: Any) -> None:
            self._answered(name, partition, error, message)

        deadline = time.monotonic() + QUEUE_FULL_WAIT_S
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=answered, **given)
            except BufferError:
                if time.monotonic() < deadline:
                    self._producer.poll(TICK_S)
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


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="verifiable_producer", description=__doc__)
    add = parser.add_argument
    add("--bootstrap-server", required=True)
    add("--topic", required=True)
    add("--history", type=Path, required=True, help="file of JSON lines, made anew")
    add("--process", default="producer", help="name in the history and in every value")
    add("--partitions", type=int, required=True)
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
    add("--timestamp", type=int, help="of every record, in ms; it can't be without one here")
    add("--config", action="append", default=[], metavar="KEY=VALUE", help="for librdkafka")
    found = vars(parser.parse_args(arguments))
    pairs = tuple(
        (key, value) for key, _, value in (item.partition("=") for item in found.pop("config"))
    )
    return Options(
        bootstrap=found.pop("bootstrap_server"),
        config=pairs,
        flush_timeout_s=found["delivery_timeout_ms"] / 1000 + 10,
        **found,
    )


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with Recorder(options.history, options.process) as recorder:
        producer = VerifiableProducer(options, recorder)
        signal.signal(signal.SIGTERM, producer.stop)
        signal.signal(signal.SIGINT, producer.stop)
        left = producer.run()
        recorder.record(Note, text=f"{options.process} ended, {left} sends without an outcome")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
