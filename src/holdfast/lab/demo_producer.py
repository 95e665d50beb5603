"""The demo's producer: a process of its own, a real client, every outcome in its history.

`python -m holdfast.lab.demo_producer --help`. Idempotent, acks=all. A send's line is in the file
before the record can be in the log. With `--gated` standard input says, line by line, how many
events may have been sent so far, so that whoever drives the demo can have some sent before a crash,
some during it and some after. What it has done is told on standard output.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from holdfast.clients.recorder import Recorder
from holdfast.judge.history import Acknowledged, Refused, Send, Unknown
from holdfast.lab import demo_input
from holdfast.lab.demo_events import PROCESS, DemoEvent, line_event, payment_event

TICK_S = 0.01
SAY_S = 0.1
BATCH = 500
DELIVERY_TIMEOUT_MS = 60_000


class DemoProducer:
    """Sends events at a rate, up to the gate, and keeps count of what became of them."""

    def __init__(self, bootstrap: str, topic: str, recorder: Recorder) -> None:
        self._topic = topic
        self._recorder = recorder
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": PROCESS,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "topic.metadata.refresh.interval.ms": 1000,
            },
            logger=None,
        )
        self.sent = 0
        self.acknowledged = 0
        self.unknown = 0
        self.refused = 0
        self.stopping = False
        self.gate = 0
        self._said = (0.0, "")

    def stop(self, *_: object) -> None:
        self.stopping = True

    def run(self, events: Iterator[DemoEvent], rate: float) -> bool:
        """Send everything, wait for every outcome. False: some have none."""
        tokens, last = 0.0, time.monotonic()
        exhausted = False
        while not (exhausted or self.stopping):
            now = time.monotonic()
            # What a closed gate holds back is not made up for afterwards, or it would be a burst.
            tokens = min(tokens + (now - last) * rate, BATCH)
            last = now
            count = min(int(tokens), self.gate - self.sent)
            if count > 0:
                tokens -= count
                exhausted = not self._send(list(islice(events, count)), count)
            self._producer.poll(TICK_S)
            self._recorder.flush()
            self._say()
        deadline = time.monotonic() + DELIVERY_TIMEOUT_MS / 1000 + 5
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(SAY_S)
            self._recorder.flush()
            self._say()
        left = int(self._producer.flush(1.0))
        self._recorder.flush()
        self._say(last=True)
        return left == 0

    def _send(self, batch: Sequence[DemoEvent], wanted: int) -> bool:
        """Send a batch, history first. False: it was the last."""
        for event in batch:
            self._recorder.record(
                Send,
                topic=self._topic,
                partition=event.partition,
                id=event.id,
                digest=event.digest,
                size=len(event.value),
                key=event.key,
            )
        self._recorder.flush()
        for event in batch:
            self._produce(event)
            self.sent += 1
        return len(batch) == wanted

    def _produce(self, event: DemoEvent) -> None:
        def answered(error: Any, message: Any) -> None:
            self._answered(event, error, message)

        while True:
            try:
                self._producer.produce(
                    self._topic, event.value, event.key, event.partition, on_delivery=answered
                )
            except BufferError:  # bounded: each message leaves the queue after its time-out
                self._producer.poll(TICK_S)
                self._recorder.flush()
                continue
            except KafkaException as error:  # never queued: too large, say
                self._outcome(Refused, event, error.args[0])
                self.refused += 1
            return

    def _answered(self, event: DemoEvent, error: Any, message: Any) -> None:
        if error is not None:
            # An idempotent producer retries, so no refusal is certain (KAFKA.md 9).
            self._outcome(Unknown, event, error)
            self.unknown += 1
            return
        self._recorder.record(
            Acknowledged,
            topic=self._topic,
            partition=event.partition,
            id=event.id,
            offset=message.offset(),
        )
        self.acknowledged += 1

    def _outcome(self, kind: type[Refused | Unknown], event: DemoEvent, error: Any) -> None:
        self._recorder.record(
            kind,
            topic=self._topic,
            partition=event.partition,
            id=event.id,
            error=error.name(),
            message=error.str(),
        )

    def _say(self, *, last: bool = False) -> None:
        """Tell the counts, when they changed, ten times a second at most."""
        at, text = self._said
        now = time.monotonic()
        if now - at < SAY_S and not last:
            return
        fresh = json.dumps(
            {
                "event": "done" if last else "sent",
                "sent": self.sent,
                "acknowledged": self.acknowledged,
                "unknown": self.unknown,
                "refused": self.refused,
            }
        )
        if fresh != text:
            sys.stdout.write(fresh + "\n")
            sys.stdout.flush()
        self._said = (now, fresh)


def payments(count: int, *, seed: int, accounts: int, partitions: int) -> Iterator[DemoEvent]:
    for number in range(count):
        yield payment_event(number, seed=seed, accounts=accounts, partitions=partitions)


def lines(path: Path, key: str | None, partitions: int) -> Iterator[DemoEvent]:
    for line in demo_input.read(path, key):
        if isinstance(line, demo_input.Line):
            yield line_event(line.number, line.text, line.key, partitions=partitions)


def _watch_gate(producer: DemoProducer) -> None:
    """Whoever holds the other end of standard input opens the gate; when it is gone, we stop."""
    for line in sys.stdin:
        producer.gate = int(line)
    producer.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="demo_producer", description=__doc__)
    add = parser.add_argument
    add("--bootstrap-server", required=True)
    add("--topic", required=True)
    add("--partitions", type=int, required=True)
    add("--history", type=Path, required=True)
    add("--rate", type=float, required=True, help="events a second")
    add("--events", type=int, default=0, help="how many payments")
    add("--seed", type=int, default=0)
    add("--accounts", type=int, default=20)
    add("--input", type=Path, help="a file of lines, instead of payments")
    add("--key", help="field of a line that becomes the key")
    add("--gated", action="store_true", help="standard input says how many may be sent")
    options = parser.parse_args(arguments)
    if options.input is not None:
        events = lines(options.input, options.key, options.partitions)
    else:
        events = payments(
            options.events,
            seed=options.seed,
            accounts=options.accounts,
            partitions=options.partitions,
        )
    with Recorder(options.history, PROCESS) as recorder:
        producer = DemoProducer(options.bootstrap_server, options.topic, recorder)
        signal.signal(signal.SIGTERM, producer.stop)
        if options.gated:
            threading.Thread(target=_watch_gate, args=(producer,), daemon=True).start()
        else:
            producer.gate = sys.maxsize
        return 0 if producer.run(events, options.rate) else 1


if __name__ == "__main__":
    sys.exit(main())
