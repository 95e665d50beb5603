"""Members of groups, of each client the same to a test.

Owns how each client is asked; what it answers is in plain values. A member is used by one thread.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, Queue
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer, KafkaException, TopicPartition

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator import assignors as kafka_assignors
    from kafka.coordinator.assignors import (  # noqa: F401 - modules of it
        cooperative_sticky,
        range,  # noqa: A004
        roundrobin,
    )

T = TypeVar("T")
Partition = tuple[str, int]

# What each client raises when something is refused.
REFUSALS: Final = (KafkaException, kafka.errors.KafkaError, aiokafka.errors.KafkaError)
BOUND_S: Final = 40.0
SESSION_MS: Final = 6000
POLL_S: Final = 0.1


class Record(NamedTuple):
    """What a member was given."""

    topic: str
    partition: int
    offset: int
    value: bytes | None


class Committed(NamedTuple):
    """What a group has committed of a partition."""

    offset: int
    metadata: str


class Member(ABC):
    """A consumer that has a group. Errors of a client are its own kinds."""

    @abstractmethod
    def subscribe(self, *topics: str) -> None: ...

    @abstractmethod
    def assign(self, *partitions: Partition) -> None:
        """Read these, as no member of the group."""

    @abstractmethod
    def poll(self, seconds: float = POLL_S) -> list[Record]: ...

    @abstractmethod
    def assignment(self) -> set[Partition]: ...

    @abstractmethod
    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        """Commit these, or all that was given, and wait for the answer."""

    @abstractmethod
    def committed(self, partition: Partition) -> Committed | None: ...

    @abstractmethod
    def close(self) -> None:
        """Leave."""


class Client(NamedTuple):
    """A client, and the protocol of groups that it speaks."""

    name: str
    make: Callable[..., Member]
    protocol: str = "classic"

    def member(self, bootstrap: str, group: str, **settings: object) -> Member:
        return self.make(bootstrap, group, self.protocol, settings)


class Librdkafka(Member):
    """confluent-kafka."""

    def __init__(
        self, bootstrap: str, group: str, protocol: str, settings: Mapping[str, object]
    ) -> None:
        values: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": settings.get("reset", "earliest"),
            "enable.auto.commit": bool(settings.get("auto_commit")),
            "topic.metadata.refresh.interval.ms": 500,
        }
        if protocol == "classic":
            values |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
            if "assignor" in settings:
                values["partition.assignment.strategy"] = settings["assignor"]
        elif "assignor" in settings:
            values["group.remote.assignor"] = settings["assignor"]
        if "instance" in settings:
            values["group.instance.id"] = settings["instance"]
        self.consumer = Consumer(values)

    def subscribe(self, *topics: str) -> None:
        self.consumer.subscribe(list(topics))

    def assign(self, *partitions: Partition) -> None:
        self.consumer.assign([TopicPartition(*partition) for partition in partitions])

    def poll(self, seconds: float = POLL_S) -> list[Record]:
        found = []
        for message in self.consumer.consume(500, seconds):
            if message.error():
                raise KafkaException(message.error())
            found.append(
                Record(message.topic(), message.partition(), message.offset(), message.value())
            )
        return found

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        if offsets is None:
            self.consumer.commit(asynchronous=False)
            return
        asked = [
            TopicPartition(*partition, committed.offset, committed.metadata)
            for partition, committed in offsets.items()
        ]
        for each in self.consumer.commit(offsets=asked, asynchronous=False):
            if each.error:
                raise KafkaException(each.error)

    def committed(self, partition: Partition) -> Committed | None:
        (found,) = self.consumer.committed([TopicPartition(*partition)], timeout=BOUND_S)
        if found.error:
            raise KafkaException(found.error)
        return Committed(found.offset, found.metadata or "") if found.offset >= 0 else None

    def close(self) -> None:
        self.consumer.close()


class KafkaPython(Member):
    """kafka-python."""

    ASSIGNORS: ClassVar[Mapping[str, Any]] = {
        "range": kafka_assignors.range.RangePartitionAssignor,
        "roundrobin": kafka_assignors.roundrobin.RoundRobinPartitionAssignor,
        "cooperative-sticky": kafka_assignors.cooperative_sticky.CooperativeStickyAssignor,
    }

    def __init__(
        self, bootstrap: str, group: str, protocol: str, settings: Mapping[str, object]
    ) -> None:
        assert protocol == "classic"
        values: dict[str, Any] = {}
        if "instance" in settings:
            values["group_instance_id"] = settings["instance"]
        if "assignor" in settings:
            values["partition_assignment_strategy"] = [self.ASSIGNORS[str(settings["assignor"])]]
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset=settings.get("reset", "earliest"),
            enable_auto_commit=bool(settings.get("auto_commit")),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=500,
            **values,
        )

        # It joins while it polls, and begins anew where a poll ends before that: so a thread polls.
        self._asked: Queue[tuple[Callable[[], Any], Future[Any]]] = Queue()
        self._given: Queue[Record] = Queue()
        self._is_open = True
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - whoever polls hears of it
            self._failed = error

    def _serve(self) -> None:
        while self._is_open:
            with suppress(Empty):
                call, answer = self._asked.get_nowait()
                try:
                    answer.set_result(call())
                except Exception as error:  # noqa: BLE001 - whoever asked hears of it
                    answer.set_exception(error)
                continue
            if not self.consumer.subscription() and not self.consumer.assignment():
                time.sleep(POLL_S)
                continue
            for messages in self.consumer.poll(timeout_ms=1000).values():
                for one in messages:
                    self._given.put(Record(one.topic, one.partition, one.offset, one.value))

    def _ask(self, call: Callable[[], T]) -> T:
        if self._failed is not None:
            raise self._failed
        answer: Future[T] = Future()
        self._asked.put((call, answer))
        return answer.result(BOUND_S)

    def subscribe(self, *topics: str) -> None:
        self._ask(lambda: self.consumer.subscribe(list(topics)))

    def assign(self, *partitions: Partition) -> None:
        self._ask(lambda: self.consumer.assign([kafka.TopicPartition(*one) for one in partitions]))

    def poll(self, seconds: float = POLL_S) -> list[Record]:
        if self._failed is not None:
            raise self._failed
        found: list[Record] = []
        with suppress(Empty):
            found.append(self._given.get(timeout=seconds))
            while True:
                found.append(self._given.get_nowait())
        return found

    def assignment(self) -> set[Partition]:
        return {(one.topic, one.partition) for one in self._ask(self.consumer.assignment)}

    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        asked = offsets and {
            kafka.TopicPartition(*partition): kafka.OffsetAndMetadata(*committed, -1)
            for partition, committed in offsets.items()
        }
        self._ask(lambda: self.consumer.commit(asked))

    def committed(self, partition: Partition) -> Committed | None:
        asked = kafka.TopicPartition(*partition)
        found = self._ask(lambda: self.consumer.committed(asked, metadata=True))
        return None if found is None else Committed(found.offset, found.metadata or "")

    def close(self) -> None:
        if not self._is_open:
            return

        def end() -> None:
            self._is_open = False
            self.consumer.close(autocommit=False)

        self._ask(end)
        self._thread.join(BOUND_S)


class _Loop:
    """A loop in a thread of its own, for clients that need one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result(BOUND_S)


_LOOP = _Loop()


class Aiokafka(Member):
    """aiokafka."""

    ASSIGNORS: ClassVar[Mapping[str, Any]] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    def __init__(
        self, bootstrap: str, group: str, protocol: str, settings: Mapping[str, object]
    ) -> None:
        assert protocol == "classic"
        values: dict[str, Any] = {}
        if "instance" in settings:
            values["group_instance_id"] = settings["instance"]
        if "assignor" in settings:
            values["partition_assignment_strategy"] = [self.ASSIGNORS[str(settings["assignor"])]]

        async def make() -> aiokafka.AIOKafkaConsumer:
            made = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset=settings.get("reset", "earliest"),
                enable_auto_commit=bool(settings.get("auto_commit")),
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=500,
                metadata_max_age_ms=500,
                **values,
            )
            await made.start()
            return made

        self.consumer = _LOOP.run(make())

    def subscribe(self, *topics: str) -> None:
        async def subscribe() -> None:
            self.consumer.subscribe(list(topics))

        _LOOP.run(subscribe())

    def assign(self, *partitions: Partition) -> None:
        async def assign() -> None:
            self.consumer.assign([aiokafka.TopicPartition(*each) for each in partitions])

        _LOOP.run(assign())

    def poll(self, seconds: float = POLL_S) -> list[Record]:
        found = _LOOP.run(self.consumer.getmany(timeout_ms=int(1000 * seconds)))
        return [
            Record(message.topic, message.partition, message.offset, message.value)
            for messages in found.values()
            for message in messages
        ]

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        asked: Any = offsets and {
            aiokafka.TopicPartition(*partition): (committed.offset, committed.metadata)
            for partition, committed in offsets.items()
        }
        _LOOP.run(self.consumer.commit(asked))

    def committed(self, partition: Partition) -> Committed | None:
        found = _LOOP.run(self.consumer.committed(aiokafka.TopicPartition(*partition)))
        return None if found is None else Committed(found, "")

    def close(self) -> None:
        _LOOP.run(self.consumer.stop())


CLIENTS: Final[Sequence[Client]] = (
    Client("librdkafka", Librdkafka),
    Client("librdkafka-consumer", Librdkafka, protocol="consumer"),
    Client("kafka-python", KafkaPython),
    Client("aiokafka", Aiokafka),
)


def until(
    condition: Callable[[], bool], members: Iterable[Member], what: str
) -> dict[Member, list[Record]]:
    """Poll all members until the condition holds; what each was given meanwhile."""
    deadline = time.monotonic() + BOUND_S
    given: dict[Member, list[Record]] = {member: [] for member in members}
    while not condition():
        assert time.monotonic() < deadline, f"waited {BOUND_S:.0f} s for {what}"
        for member, records in given.items():
            records.extend(member.poll())
    return given


def read(members: Sequence[Member], count: int) -> dict[Member, list[Record]]:
    """Poll until all of them together were given so many records."""
    given: dict[Member, list[Record]] = {member: [] for member in members}
    deadline = time.monotonic() + BOUND_S
    while sum(map(len, given.values())) < count:
        got = sum(map(len, given.values()))
        assert time.monotonic() < deadline, f"{got} of {count} records in {BOUND_S:.0f} s"
        for member, records in given.items():
            records.extend(member.poll())
    return given


def share(
    members: Sequence[Member], partitions: Iterable[Partition], *, evenly: bool = True
) -> dict[Member, list[Record]]:
    """Poll until these members have these partitions among them, each one owner.

    Returns what each was given meanwhile.
    """
    wanted = sorted(partitions)

    def shared() -> bool:
        owned = [member.assignment() for member in members]
        if evenly and max(map(len, owned)) - min(map(len, owned)) > 1:
            return False
        return sorted(one for each in owned for one in each) == wanted

    return until(shared, members, f"{len(wanted)} partitions among {len(members)} members")


def close_all(members: list[Member]) -> None:
    """Let all leave, and forget them; one that has left already may say so."""
    leaves_sockets = any(isinstance(member, KafkaPython) for member in members)
    while members:
        with suppress(Exception):
            members.pop().close()
    if leaves_sockets:
        with warnings.catch_warnings():
            # Now and then it leaves one of its sockets to the collector; no other test's fault.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
