"""A client of a group in the place of librdkafka's: what it is given stands in a script."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.judge.groups.history import read_any_runs
from holdfast.judge.history import Event

Step = Callable[["FakeConsumer"], Any]


class FakeMessage:
    def __init__(self, partition: int, offset: int) -> None:
        self._where = partition, offset

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self._where[0]

    def offset(self) -> int:
        return self._where[1]

    def value(self) -> bytes:
        return f"p:{self._where[0]}-{self._where[1]} ".encode()


class FakeError:
    """A message that is none."""

    def __init__(self, code: int) -> None:
        self._error = KafkaError(code)

    def error(self) -> KafkaError:
        return self._error


class FakeConsumer:
    """`script`: what each poll does, one after the other; behind its end nothing comes."""

    def __init__(self, script: Sequence[Step], history: Path) -> None:
        self.script = deque(script)
        self.history = history
        self.member, self.epoch = "m1", 1
        self.committed_offsets: dict[int, int] = {}
        self.commit_codes: deque[int] = deque()  # of the next commits; none left: taken
        self.commits: list[dict[int, int]] = []
        self.asked: list[dict[int, int]] = []  # what it had taken when asked what is committed
        self.ask_codes: deque[int] = deque()  # of the next questions; none left: answered
        self.seek_codes: deque[int] = deque()
        self.leaders_asked: list[int] = []  # of which partitions what they hold
        self.sought: list[tuple[int, bool]] = []  # partitions, and whether its leader was asked
        self.silent: set[int] = set()  # partitions whose leader does not tell what it holds
        self.on_disk: list[list[str]] = []  # kinds of events in the history at each commit
        self.assigned: dict[int, int] = {}
        self.paused: set[int] = set()
        self.stored: list[dict[int, int]] = []
        self.closed = False
        self.listed = 0  # how often it asked for topics
        self.reaches: deque[bool] = deque()  # of the next questions for topics; none left: it does
        self.on_commit: Callable[[KafkaError | None, list[TopicPartition]], None]
        self.ended: Callable[[], object] = lambda: None  # when the script is over

    # -- the script ------------------------------------------------------------------------------

    def poll(self, _timeout: float = 0) -> Any:
        if not self.script:
            self.ended()
            return None
        return self.script.popleft()(self)

    def subscribe(self, _topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def give(self, *partitions: int) -> None:
        self.callbacks["on_assign"](self, [TopicPartition("foo", p) for p in partitions])

    def revoke(self, *partitions: int, lost: bool = False) -> None:
        name = "on_lost" if lost else "on_revoke"
        self.callbacks[name](self, [TopicPartition("foo", p) for p in partitions])
        for partition in partitions:
            self.assigned.pop(partition, None)

    # -- what a member calls ---------------------------------------------------------------------

    def consumer_group_metadata(self) -> bytes:
        names = f"g\0{self.member}\0".encode()
        return b"CGMDv2:" + struct.pack("=i", self.epoch) + names + b"\x01"

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        self.on_disk.append([event.KIND for event in self.events()])
        refuse(self.commit_codes)
        asked = {each.partition: each.offset for each in offsets}
        self.commits.append(asked)
        self.committed_offsets |= asked
        return offsets

    def store_offsets(self, *, offsets: list[TopicPartition]) -> None:
        self.stored.append({each.partition: each.offset for each in offsets})

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout
        self.asked.append(dict(self.assigned))
        refuse(self.ask_codes)
        return [
            TopicPartition("foo", p.partition, self.committed_offsets.get(p.partition, -1001))
            for p in places
        ]

    def list_topics(self, topic: str, timeout: float) -> None:
        assert (topic, timeout > 0) == ("foo", True)
        self.listed += 1
        if self.reaches and not self.reaches.popleft():
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout
        self.leaders_asked.append(place.partition)
        if place.partition in self.silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 3, 50

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = {each.partition: each.offset for each in places}

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.assigned |= {each.partition: each.offset for each in places}

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("foo", p) for p in self.assigned]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append((place.partition, place.partition in self.leaders_asked))
        refuse(self.seek_codes)
        self.assigned[place.partition] = place.offset

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused |= {each.partition for each in places}

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused -= {each.partition for each in places}

    def close(self) -> None:
        self.closed = True
        if self.assigned:
            self.revoke(*self.assigned)

    def events(self) -> list[Event]:
        return [event for run in read_any_runs([self.history.read_bytes()]) for event in run]


def refuse(codes: deque[int]) -> None:
    """Refuse, if the next of these codes says so. 0: it is done."""
    code = codes.popleft() if codes else 0
    if code:
        raise KafkaException(KafkaError(code))


def records(partition: int, *offsets: int) -> list[Step]:
    def step(offset: int) -> Step:
        return lambda _: FakeMessage(partition, offset)

    return [step(offset) for offset in offsets]


def give(*partitions: int, epoch: int | None = None, member: str | None = None) -> Step:
    """Assign partitions, perhaps to the member's next generation, or to its next life."""

    def step(consumer: FakeConsumer) -> None:
        consumer.epoch = consumer.epoch if epoch is None else epoch
        consumer.member = consumer.member if member is None else member
        consumer.give(*partitions)

    return step


def revoke(*partitions: int, lost: bool = False) -> Step:
    return lambda consumer: consumer.revoke(*partitions, lost=lost)


def nothing(_consumer: FakeConsumer) -> None:
    """Nothing comes in time: what is there is a batch."""


def told(code: int) -> Step:
    return lambda _: FakeError(code)


def install(monkeypatch: Any, consumer: FakeConsumer) -> None:
    """Let the next member have this client."""

    def make(config: dict[str, Any], **_: Any) -> FakeConsumer:
        consumer.on_commit = config["on_commit"]
        return consumer

    monkeypatch.setattr(confluent_kafka, "Consumer", make)
