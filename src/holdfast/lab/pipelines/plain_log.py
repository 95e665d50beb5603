"""What a topic holds, and topics of a run besides its own, by a plain client.

Owns the reading against which tables are held: it shares nothing with Spark, with the pipeline or
with its client. A side topic is one that steps may delete and make anew, which the judge of the
run's own topic knows nothing of.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from holdfast.cluster.probe import PartitionState, ask
from holdfast.lab.parameters import LabError, refuse_if
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.steps.mishaps import asking
from holdfast.wire import administration as admin

READ_S = 60.0
READ_MAX = 1_000
FLUSH_S = 60.0


class Row(NamedTuple):
    """A record, as a table has it."""

    partition: int
    offset: int
    key: str | None
    value: str | None


def read_log(bootstrap: str, topic: str, ends: Mapping[int, int]) -> list[Row]:
    """Read what there is of each partition up to its end. LabError: it can't be read."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "holdfast-plain-log",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    found: list[Row] = []
    left = {partition for partition, end in ends.items() if end}
    until_s = time.monotonic() + READ_S
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in sorted(left)])
        while left:
            refuse_if(time.monotonic() > until_s, f"{topic} can't be read to its end: {left}")
            for message in consumer.consume(READ_MAX, 0.5):
                left -= _done(message, ends)
                if message.error() is None and message.offset() < ends[message.partition()]:
                    found.append(_row(message))
    return found


def _done(message: Any, ends: Mapping[int, int]) -> set[int]:
    """Return the partition of a message that tells that all of it was read."""
    error = message.error()
    # At the end of a partition its offset is the next one.
    is_there = message.offset() + (error is None) >= ends[message.partition()]
    return {message.partition()} if is_there else set()


def _row(message: Any) -> Row:
    key, value = message.key(), message.value()
    return Row(
        message.partition(),
        message.offset(),
        None if key is None else key.decode(),
        None if value is None else value.decode(),
    )


class SideTopic:
    """A topic besides the run's own, with three copies. LabError: it can't be had."""

    def __init__(self, run: Run, name: str, partitions: int) -> None:
        self.name = name
        self._run = run
        self._bootstrap = run.cluster.bootstrap_servers
        self._producer = self._new_producer()
        self.ends: dict[int, int] = {}
        self._number = 0
        self.make(partitions)

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )

    def make(self, partitions: int) -> None:
        """Make it, also anew, and wait until every partition has a leader."""
        self._producer = self._new_producer()  # what a client knows of a deleted topic is wrong
        copies = min(3, self._run.parameters.brokers)
        self._run.ask(
            admin.create_topic(self.name, partitions=partitions, replication_factor=copies),
            f"topic {self.name} can't be made",
        )
        self.ends = dict.fromkeys(range(partitions), 0)
        self._wait_led()

    def add_partitions(self, count: int) -> None:
        """Have so many in all, and wait until each has a leader."""
        self._run.note(f"{self.name} gets {count} partitions in place of {len(self.ends)}")
        self._run.ask(
            admin.add_partitions(self.name, count), f"{self.name} can't have {count} partitions"
        )
        self.ends = {partition: self.ends.get(partition, 0) for partition in range(count)}
        self._producer = self._new_producer()  # one that runs hears of them some time later
        self._wait_led()

    def delete(self) -> None:
        """Delete it, and wait until nobody knows it any more."""
        self._run.note(f"topic {self.name} is deleted")
        self._run.ask(admin.delete_topic(self.name), f"topic {self.name} can't be deleted")
        gone = lambda: all(states == {} for states in self._told())  # noqa: E731 - a condition
        self._run.wait(f"{self.name} to be gone", gone, SETTLE_S)

    def _wait_led(self) -> None:
        """Wait until every broker says so: a client may ask whichever heard of it last."""

        def led() -> bool:
            return all(
                states is not None
                and len(states) == len(self.ends)
                and all(state.leader >= 0 for state in states.values())
                for states in self._told()
            )

        self._run.wait(f"{self.name} to be led", led, SETTLE_S)

    def _told(self) -> Iterator[Mapping[int, PartitionState] | None]:
        """Yield what each broker that runs says of its partitions; None: it does not answer."""
        cluster = self._run.cluster
        for node in cluster.nodes:
            if node.is_broker and cluster.state(node.id) == "running":
                answer = ask(node.watch_address, [self.name])
                yield None if answer is None else answer.topics.get(self.name, {})

    def write(self, count: int, partitions: Iterable[int] | None = None) -> None:
        """Write so many records to each partition. LabError: one was not acknowledged."""
        refused: list[str] = []

        def answered(error: Any, message: Any) -> None:
            if error is not None:
                refused.append(str(error))
            else:
                number = message.partition()
                self.ends[number] = max(self.ends[number], message.offset() + 1)

        try:
            for partition in sorted(self.ends if partitions is None else partitions):
                for _ in range(count):
                    self._number += 1
                    value = f"{self.name} {self._number}"
                    self._producer.produce(
                        self.name, value, f"key-{partition}", partition, on_delivery=answered
                    )
            left = self._producer.flush(FLUSH_S)
        except (BufferError, KafkaException) as error:
            raise LabError(f"{self.name} can't be written to: {error}") from error
        refuse_if(left or refused, f"{self.name}: {left} without an answer, refused: {refused[:1]}")

    def read(self) -> list[Row]:
        """Return all that it holds now."""
        with asking(f"{self.name} can't be read"):
            return read_log(self._bootstrap, self.name, self.ends)
