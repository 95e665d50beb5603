"""Producers and consumers of one run, and the history that they write for the judge.

Owns what each outcome means: acknowledged, certainly refused, unknown. Must never reach into a node
for anything but to ask the oracle, which changes nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from holdfast.clients.outcomes import CERTAIN_CODES
from holdfast.clients.workload.payload import digest_of
from holdfast.judge.history import (
    Acknowledged,
    Event,
    PartitionEvent,
    Refused,
    Send,
    Unknown,
)
from holdfast.testing.simulated_client import (
    AnswerError,
    ClusterClient,
    RefusedError,
)
from holdfast.testing.simulation.chain import content_of
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import STAMPS, ProducerPlan
from holdfast.wire.batch import Record, assign_max_timestamp, build_batch
from holdfast.wire.batch_header import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Codec,
    read_header,
)
from holdfast.wire.errors import ErrorCode

_BATCH_MAX = 4
_OVERSIZED = 1_500  # more than a topic of small batches takes
_SEQUENCES = 1 << 31  # then they start over
_BEFORE_WRAP = 40
_REFUSED_ALWAYS = {  # by whoever leads, whenever it is sent
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP,
}  # fmt: skip
_PAUSE_S = 0.1
_DELIVERY_S = 25.0  # as delivery.timeout.ms: then the outcome is unknown
_LOST_SEQUENCE_S = 5.0  # so long it may be an old leader that says so
_EPOCH_START_MS = 1_767_225_600_000


class History:
    """All events of one run, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.epochs: dict[str, int | None] = {}  # id -> leader epoch in which it was acknowledged
        self.places: dict[str, int] = {}  # id -> offset at which it was acknowledged, where known

    def now(self) -> tuple[float, int]:
        now_ms = asyncio.get_running_loop().time() * 1000
        return now_ms, _EPOCH_START_MS + int(now_ms)

    def note(
        self, kind: type[PartitionEvent], process: str, topic: str, partition: int, **values: Any
    ) -> None:
        """Append an event of now."""
        at_ms, wall_ms = self.now()
        self.events.append(
            kind(
                at_ms=at_ms, wall_ms=wall_ms, process=process, topic=topic, partition=partition,
                **values,
            )
        )  # fmt: skip


def name_of(value: bytes | None) -> str | None:
    """The id that a produced value carries."""
    return None if value is None else value.split(b"|", 1)[0].decode("ascii", "replace")


class SimulatedProducer:
    """Writes to one partition, a batch at a time, until it is told to stop."""

    def __init__(
        self, plan: ProducerPlan, client: ClusterClient, history: History, oracle: Oracle, seed: int
    ) -> None:
        self._plan: Final = plan
        self._client: Final = client
        self._history: Final = history
        self._oracle: Final = oracle
        self._draw = random.Random(f"producer/{seed}/{plan.topic}/{plan.partition}")
        self._generation = 0
        self._number = 0
        self._identity: tuple[int, int] | None = None
        self._sequence = 0
        self.waits_since: float | None = None  # when the batch in hand was first sent
        self.stopping = False

    def __str__(self) -> str:
        return f"producer of {self._plan.topic}-{self._plan.partition}"

    async def run(self) -> None:
        while not self.stopping:
            await self._write()
            await asyncio.sleep(self._plan.pause_ms / 1000 * 2 * self._draw.random())

    async def _write(self) -> None:
        plan = self._plan
        process = f"{plan.topic}-{plan.partition}.{self._generation}"
        sends: dict[str, tuple[bytes, int | None]] = {}  # id -> value and time
        now_ms, wall_ms = self._history.now()
        for _ in range(self._draw.randint(1, _BATCH_MAX)):
            name = f"{process}:{self._number}"
            self._number += 1
            value = name.encode() + b"|" + self._filling()
            stamp = STAMPS[plan.stamps](self._draw, wall_ms)
            sends[name] = value, stamp
            self._note(
                Send, process, id=name, digest=digest_of(value), size=len(value), timestamp=stamp
            )
        self.waits_since = now_ms / 1000
        try:
            await self._deliver(process, sends)
        finally:
            self.waits_since = None

    def _filling(self) -> bytes:
        """Something between little and much, some of which no codec makes smaller."""
        draw, plan = self._draw, self._plan
        if plan.oversized and draw.random() < plan.oversized:
            return draw.randbytes(_OVERSIZED).replace(b"|", b"x")
        size = draw.randrange(plan.size_max)
        return b"x" * size if size < 64 or draw.random() < 0.5 else draw.randbytes(size)

    async def _deliver(self, process: str, sends: Mapping[str, tuple[bytes, int | None]]) -> None:
        """Send until there is an outcome, and write it down."""
        loop = asyncio.get_running_loop()
        plan = self._plan
        give_up = loop.time() + _DELIVERY_S
        out_of_order_since: float | None = None
        attempts = 0
        sent: list[int] = []  # the CRC of each attempt: its time of writing differs; the content
        while True:
            try:
                if plan.idempotent and self._identity is None:
                    self._identity = await self._client.producer_id()
                    self._sequence = self._first_sequence()
                leader = await self._client.leader(plan.topic, plan.partition)
                batch = self._batch(sends.values())
                sent += [read_header(batch).crc, content_of(value for value, _ in sends.values())]
                attempts += 1
                if read_header(batch).max_timestamp == NO_TIMESTAMP and self._number % 2:
                    assign_max_timestamp(batch, 0)  # as librdkafka does
                base = await self._client.produce_batch(
                    plan.topic, plan.partition, bytes(batch), acks=plan.acks, node=leader
                )
            except AnswerError as failure:
                error = failure.code.name
                if failure.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    self._acknowledged(process, sends, None, -1, sent)
                    return
                if failure.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    out_of_order_since = out_of_order_since or loop.time()
                never = failure.code in _REFUSED_ALWAYS
                if never and attempts > 1:  # the first may have met another leader's settings
                    self._unknown(process, sends, error)
                    return
                certain = failure.code in CERTAIN_CODES and attempts == 1 and not plan.idempotent
                if never or (certain and (not plan.retries or isinstance(failure, RefusedError))):
                    self._oracle.counts[f"batches refused: {error}"] += 1
                    for name in sends:
                        self._note(Refused, process, id=name, error=error)
                    return
            except OSError as failure:
                error = type(failure).__name__
            else:
                if plan.acks:
                    self._acknowledged(process, sends, base if base >= 0 else None, leader, sent)
                else:  # nobody ever says what became of it
                    self._oracle.counts["records sent with acks=0"] += len(sends)
                    self._unknown(process, sends, "acks=0")
                return
            lost = out_of_order_since is not None and (
                loop.time() - out_of_order_since > _LOST_SEQUENCE_S
            )
            once = not plan.idempotent and not plan.retries and attempts
            if lost or once or loop.time() > give_up:
                self._unknown(process, sends, error)
                return
            await asyncio.sleep(_PAUSE_S)
            self._client.forget()

    def _first_sequence(self) -> int:
        """A log that knows nothing of a producer takes any."""
        return _SEQUENCES - self._draw.randint(1, _BEFORE_WRAP) if self._plan.wraps else 0

    def _batch(self, sends: Iterable[tuple[bytes, int | None]]) -> bytearray:
        now_ms = self._client.runtime.clock.wall_ms()
        records = [
            Record(value=value, timestamp=now_ms if stamp is None else stamp)
            for value, stamp in sends
        ]
        producer_id, epoch = self._identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return build_batch(
            records,
            codec=Codec(self._plan.codec),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=NO_SEQUENCE if self._identity is None else self._sequence,
        )

    def _acknowledged(
        self, process: str, names: Collection[str], base: int | None, leader: int, sent: list[int]
    ) -> None:
        plan, history = self._plan, self._history
        self._sequence += len(names)
        if self._sequence >= _SEQUENCES:
            self._sequence -= _SEQUENCES
            self._oracle.counts["sequences that started over"] += 1
        truth = self._oracle.named(plan.topic, plan.partition)
        epoch = None
        place = base
        if base is None and truth is not None:  # a duplicate: no answer said where it is
            place = truth.offset_of(sent)
        if base is not None and truth is not None:
            epoch = truth.epoch_of(leader, base)
            if plan.acks == -1:
                truth.acknowledged(leader, base + len(names) - 1, sent)
        for number, name in enumerate(names):
            history.epochs[name] = epoch
            if place is not None:
                history.places[name] = place + number
            self._note(
                Acknowledged, process, id=name, offset=None if base is None else base + number
            )

    def _unknown(self, process: str, names: Iterable[str], error: str) -> None:
        """It may arrive at any time from now on: what follows is another producer's."""
        for name in names:
            self._note(Unknown, process, id=name, error=error)
        self._generation += 1
        self._identity = None
        self._client.forget()

    def _note(self, kind: type[PartitionEvent], process: str, **values: Any) -> None:
        self._history.note(kind, process, self._plan.topic, self._plan.partition, **values)
