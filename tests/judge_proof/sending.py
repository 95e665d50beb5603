"""Producers of a made run: idempotent or not, with retries, doubts, refusals, and sudden deaths.

A request travels, is appended or refused, and is answered, each at a moment of its own; each of
these may fail to happen. What a producer is told it writes down, and nothing else.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.judge_proof.journal import TOPIC, Journal
from tests.judge_proof.replicated import NO_TIMESTAMP, Batch, Partition, Record

from holdfast.judge.history import Acknowledged, Refused, Send, Unknown

DAY_MS = 86_400_000
RETRIES = 5
Outcome = Acknowledged | Refused | Unknown


@dataclass(slots=True, eq=False)
class Request:
    """One produce request, from its first attempt on."""

    producer: Producer
    partition: Partition
    records: tuple[Record, ...]
    attempts: int = 1
    travels: bool = True  # it may still reach a leader
    stored: Batch | None = None  # where the present attempt stands, if it has arrived
    stored_epoch: int = -1
    done: bool = False  # no outcome will follow


@dataclass(slots=True, eq=False)
class Producer:
    name: str
    acks: str
    idempotent: bool
    retries: int
    timestamps: str
    alive: bool = True
    number: int = 0
    requests: list[Request] = field(default_factory=list)


class Sending:
    """All producers, and what is known of each record."""

    def __init__(
        self,
        chance: random.Random,
        journal: Journal,
        partitions: Sequence[Partition],
        careful: bool,
    ) -> None:
        self._chance = chance
        self._careful = careful
        self._journal = journal
        self._partitions = partitions
        self.sends: dict[str, Send] = {}
        self.records: dict[str, Record] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.producers = [self._drawn(f"p{n}") for n in range(chance.randint(1, 4))]

    def _drawn(self, name: str) -> Producer:
        chance = self._chance
        acks = "all" if self._careful else chance.choice(["0", "1", "all", "all"])
        idempotent = self._careful or (acks == "all" and chance.random() < 0.5)
        return Producer(
            name=name,
            acks=acks,
            idempotent=idempotent,
            retries=RETRIES if idempotent else chance.choice([0, 0, 3]),
            timestamps=chance.choice(["now", "now", "absent", "past", "future", "mixed"]),
        )

    # -- moves ---------------------------------------------------------------------------------

    def send(self) -> None:
        """Hand one to three records to a client: one request."""
        producer = self._living()
        if producer is None:
            return
        partition = self._chance.choice(self._partitions)
        kind = producer.timestamps
        if kind == "mixed":  # but one request's records are stamped by one rule
            kind = self._chance.choice(["now", "absent", "past", "future"])
        count = self._chance.choice([1, 1, 2, 3])
        records = tuple(self._made(producer, kind) for _ in range(count))
        where = {"topic": TOPIC, "partition": partition.number}
        for record in records:
            assert record.name is not None
            self.records[record.name] = record
            self.sends[record.name] = self._journal.record(
                Send,
                producer.name,
                id=record.name,
                digest=record.digest,
                size=record.size,
                key=record.key,
                **where,
                timestamp=None if record.timestamp == self._journal.wall_ms else record.timestamp,
            )
        request = Request(producer, partition, records)
        if self._chance.random() < 0.08:  # too large, say: it never leaves the client
            self._refuse(request, "MSG_SIZE_TOO_LARGE")
            return
        producer.requests.append(request)
        if producer.acks == "0":
            self._acknowledge(request, None)

    def _made(self, producer: Producer, kind: str) -> Record:
        name = f"{producer.name}:{producer.number}"
        producer.number += 1
        now = self._journal.wall_ms
        moments = {
            "now": now,
            "absent": NO_TIMESTAMP,
            "past": now - self._chance.randint(1, 10 * DAY_MS),
            "future": now + self._chance.randint(1, DAY_MS),
        }
        return Record(
            name=name,
            digest=f"{zlib.crc32(name.encode()):08x}",
            key=self._chance.choice([None, "a", "b", "c"]),
            size=self._chance.randint(10, 60),
            timestamp=moments[kind],
        )

    def arrive(self) -> None:
        """Let one attempt reach the leader, if there is one."""
        travelling = [r for p in self.producers for r in p.requests if r.travels]
        if not travelling:
            return
        request = self._chance.choice(travelling)
        partition, producer = request.partition, request.producer
        if self._chance.random() < 0.95:  # one connection keeps their order
            same = (r for r in producer.requests if r.travels and r.partition is partition)
            request = next(same)
        if partition.head is None:
            self._fail(request, "_TRANSPORT")
        elif producer.idempotent and not self._is_next(request):
            return  # out of sequence: the client sends it again, later
        elif producer.acks == "all" and not partition.serves_all:
            self._fail(request, "NOT_ENOUGH_REPLICAS", certain=request.attempts == 1)
        else:
            request.travels = False
            known = partition.stored(request.records[0]) if producer.idempotent else None
            request.stored = known or partition.append(request.records, self._journal.wall_ms)
            request.stored_epoch = partition.epoch

    def _is_next(self, request: Request) -> bool:
        for other in request.producer.requests:
            if other is request:
                return True
            if other.partition is request.partition and other.travels:
                return False
        raise AssertionError("a request that its producer does not have")

    def answer(self) -> None:
        """Let one answer reach its producer, or be lost on its way."""
        stored = [
            request
            for producer in self.producers
            for request in producer.requests
            if request.stored is not None and not request.done
        ]
        if not stored:
            return
        request = self._chance.choice(stored)
        assert request.stored is not None
        partition = request.partition
        if request.producer.acks == "all" and request.stored_epoch != partition.epoch:
            self._fail(request, "NOT_LEADER_OR_FOLLOWER")
        elif request.producer.acks == "all" and partition.high_watermark < request.stored.end:
            return
        elif self._chance.random() < 0.12:
            self._fail(request, "_TRANSPORT")
        else:
            self._acknowledge(request, request.stored.base)

    def give_up(self) -> None:
        """Let a producer's patience with one request end. It may be on its way all the same."""
        waiting = [r for p in self.producers if p.alive for r in p.requests if not r.done]
        if not waiting:
            return
        request = self._chance.choice(waiting)
        if request.producer.idempotent:
            request.travels = False  # its epoch is raised, and what is late is fenced
        self._doubt(request, "_MSG_TIMED_OUT")

    def die(self) -> None:
        """Kill a producer; what it has in flight is never answered."""
        producer = self._living()
        if producer is None:
            return
        producer.alive = False
        for request in producer.requests:
            request.done = True

    def finish(self) -> None:
        """Give every living producer its outcomes, as `flush` does."""
        for _ in range(400):
            self.arrive()
            self.answer()
        for producer in self.producers:
            for request in producer.requests:
                if producer.alive and not request.done:
                    self._doubt(request, "_MSG_TIMED_OUT")
                # Something may still be on its way when everything is read back.
                request.travels &= not producer.idempotent and self._chance.random() < 0.5

    # -- what a producer is told ---------------------------------------------------------------

    def _living(self) -> Producer | None:
        living = [producer for producer in self.producers if producer.alive]
        return self._chance.choice(living) if living else None

    def _acknowledge(self, request: Request, base: int | None) -> None:
        for number, record in enumerate(request.records):
            offset = None if base is None else base + number
            self._told(Acknowledged, request, record, offset=offset)

    def _fail(self, request: Request, error: str, *, certain: bool = False) -> None:
        """End an attempt: again if there are retries left; else it is refused, or in doubt."""
        producer = request.producer
        request.stored = None
        if request.done:
            request.travels = False
        elif request.attempts <= producer.retries:
            request.attempts += 1
            request.travels = True
        elif certain:
            request.travels = False
            self._refuse(request, error)
        else:
            request.travels = False
            self._doubt(request, error)

    def _refuse(self, request: Request, error: str) -> None:
        for record in request.records:
            self._told(Refused, request, record, error=error)

    def _doubt(self, request: Request, error: str) -> None:
        for record in request.records:
            self._told(Unknown, request, record, error=error)

    def _told(
        self,
        kind: type[Acknowledged | Refused | Unknown],
        request: Request,
        record: Record,
        **values: object,
    ) -> None:
        assert record.name is not None
        assert record.name not in self.outcomes, "two outcomes"
        assert request.producer.alive
        request.done = True
        self.outcomes[record.name] = self._journal.record(
            kind,
            request.producer.name,
            topic=TOPIC,
            partition=request.partition.number,
            id=record.name,
            **values,
        )
