"""Producers and consumers of one run, and the history that they write for the judge.

Owns what each outcome means: acknowledged, certainly refused, unknown. Must never reach into a node
for anything but to ask the oracle, which changes nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final
from zlib import crc32

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
from holdfast.testing.simulation.replica_seen import Asked
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
_KEYS = 7
_OVERSIZED = 1_500  # more than a topic of small batches takes
_SEQUENCES = 1 << 31  # then they start over
_BEFORE_WRAP = 40
_REFUSED_ALWAYS = {  # by whoever leads, whenever it is sent
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP,
}  # fmt: skip
PAUSE_S = 0.1
_DELIVERY_S = 25.0  # as delivery.timeout.ms: then the outcome is unknown
_LOST_SEQUENCE_S = 5.0  # so long it may be an old leader that says so
_EPOCH_START_MS = 1_767_225_600_000


class History:
    """All events of one run, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        # id -> leader epochs in which what was acknowledged may have been written
        self.epochs: dict[str, tuple[int, ...]] = {}
        self.places: dict[str, int] = {}  # id -> offset at which it was acknowledged, where known
        # id -> the number of its batch: the records of one have their outcome together.
        self.batches: dict[str, int] = {}
        # Ids whose last answer came from a broker that no longer led, which it may not have heard.
        self.told_by_deposed: set[str] = set()

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


def key_of(name: str) -> bytes:
    """The key of a record with this id: one of a few, and at each attempt the same."""
    return b"k%d" % (crc32(name.encode()) % _KEYS)


def name_of(value: bytes | None) -> str | None:
    """The id that a produced value carries."""
    return None if value is None else value.split(b"|", 1)[0].decode("ascii", "replace")


@dataclass(slots=True)
class Batch:
    """What one batch says, and what has become of it so far."""

    process: str
    sends: Mapping[str, tuple[bytes, int | None]]  # id -> value and time
    give_up_s: float
    sequence: int = 0
    attempts: int = 0
    out_of_order_since: float | None = None
    # The CRC of each attempt, whose time of writing differs, and the content.
    sent: list[int] = field(default_factory=list)
    asked: Asked | None = None  # the leader, as the last attempt has found him


class SimulatedProducer:
    """Writes to one partition, a batch at a time, until it is told to stop."""

    def __init__(
        self, plan: ProducerPlan, client: ClusterClient, history: History, oracle: Oracle, seed: int
    ) -> None:
        self._plan: Final = plan
        self.partition: Final = plan.partition
        self._client: Final = client
        self._history: Final = history
        self._oracle: Final = oracle
        self._draw = random.Random(f"producer/{seed}/{plan.topic}/{plan.partition}")
        self.generation = 0  # grows with each doubt
        self._number = 0
        self._identity: tuple[int, int] | None = None
        self._sequence = 0
        self.served_s = -inf  # when it was last told what it should be, whatever was in doubt since
        # Most of its batches are such as nobody has to take: a refusal serves it, too.
        self._is_mostly_refused = plan.stamps == "wild" or (
            plan.oversized > 0 and plan.size_max > _OVERSIZED
        )
        self.stopping = False

    def __str__(self) -> str:
        return f"producer of {self._plan.topic}-{self._plan.partition}"

    async def run(self) -> None:
        while not self.stopping:
            await self._write()
            await asyncio.sleep(self._plan.pause_ms / 1000 * 2 * self._draw.random())

    async def _write(self) -> None:
        batch = self.draw_batch()
        while not await self._attempt(batch):
            await asyncio.sleep(PAUSE_S)
            self._client.forget()

    def draw_batch(self) -> Batch:
        """Make a batch of records that nobody has sent yet, and write down that it is to be."""
        plan = self._plan
        process = f"{plan.topic}-{plan.partition}.{self.generation}"
        sends: dict[str, tuple[bytes, int | None]] = {}
        now_ms, wall_ms = self._history.now()
        number = len(self._history.batches)
        for _ in range(self._draw.randint(1, _BATCH_MAX)):
            name = f"{process}:{self._number}"
            self._number += 1
            value = name.encode() + b"|" + self._filling()
            stamp = STAMPS[plan.stamps](self._draw, wall_ms)
            sends[name] = value, stamp
            self._history.batches[name] = number
            self._note(
                Send, process, id=name, digest=digest_of(value), size=len(value), timestamp=stamp
            )
        return Batch(process, sends, now_ms / 1000 + _DELIVERY_S)

    def _filling(self) -> bytes:
        """Something between little and much, some of which no codec makes smaller."""
        draw, plan = self._draw, self._plan
        if plan.oversized and draw.random() < plan.oversized:
            return draw.randbytes(_OVERSIZED).replace(b"|", b"x")
        size = draw.randrange(plan.size_max)
        return b"x" * size if size < 64 or draw.random() < 0.5 else draw.randbytes(size)

    async def _attempt(self, batch: Batch) -> bool:
        """Send once. True: there is an outcome, and it is written down."""
        plan, leader = self._plan, -1
        outcome: int | OSError | AnswerError
        try:
            await self.identify()
            leader = await self._client.leader(plan.topic, plan.partition)
            data = self.build(batch, leader)
            outcome = await self._client.produce_batch(
                plan.topic, plan.partition, data, acks=plan.acks, node=leader
            )
        except (OSError, AnswerError) as failure:
            outcome = failure
        return self.settle(batch, leader, outcome)

    async def identify(self) -> None:
        """Have a producer id, if one is wanted. OSError, AnswerError: nobody gives one now."""
        if self._plan.idempotent and self._identity is None:
            self._identity = await self._client.producer_id()
            self._sequence = self._first_sequence()

    def build(self, batch: Batch, leader: int, *, ahead: int = 0) -> bytes:
        """Make the bytes of one attempt, with `ahead` records of this producer before it."""
        truth = self._oracle.named(self._plan.topic, self._plan.partition)
        batch.asked = None if truth is None else truth.asked(leader)
        batch.sequence = (self._sequence + ahead) % _SEQUENCES
        data = self._batch(batch)
        values = (value for value, _ in batch.sends.values())
        batch.sent += [read_header(data).crc, content_of(values)]
        batch.attempts += 1
        if read_header(data).max_timestamp == NO_TIMESTAMP and self._number % 2:
            assign_max_timestamp(data, 0)  # as librdkafka does
        return bytes(data)

    def settle(self, batch: Batch, leader: int, outcome: int | OSError | AnswerError) -> bool:
        """Say what an attempt has come to; True: it is the outcome, and it is written down.

        `outcome`: the offset of the first record, -1 when nobody says one, or the failure.
        """
        plan = self._plan
        if isinstance(outcome, int):
            if plan.acks:
                self._acknowledged(batch, outcome if outcome >= 0 else None, leader)
            else:  # nobody ever says what became of it
                self._oracle.counts["records sent with acks=0"] += len(batch.sends)
                self.served_s = asyncio.get_running_loop().time()
                self.doubt(batch, "acks=0")
            return True
        now = asyncio.get_running_loop().time()
        error = type(outcome).__name__
        self._note_who_answered(batch, leader)
        if isinstance(outcome, AnswerError):
            error = outcome.code.name
            if outcome.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._acknowledged(batch, None, -1)
                return True
            if outcome.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                batch.out_of_order_since = batch.out_of_order_since or now
            if self._is_refused(batch, outcome):
                self._oracle.counts[f"batches refused: {error}"] += 1
                if outcome.code in _REFUSED_ALWAYS and self._is_mostly_refused:
                    self.served_s = now
                for name in batch.sends:
                    self._note(Refused, batch.process, id=name, error=error)
                return True
            if outcome.code in _REFUSED_ALWAYS:  # and what an earlier attempt has met nobody knows
                self.doubt(batch, error)
                return True
        since = batch.out_of_order_since
        lost = since is not None and now - since > _LOST_SEQUENCE_S
        once = not plan.idempotent and not plan.retries and batch.attempts
        if lost or once or now > batch.give_up_s:
            self.doubt(batch, error)
            return True
        return False

    def _note_who_answered(self, batch: Batch, leader: int) -> None:
        """What its successor has taken in a deposed leader does not know."""
        deposed = not self._oracle.leads(leader, self._plan.topic, self._plan.partition)
        told = self._history.told_by_deposed
        (told.update if deposed else told.difference_update)(batch.sends)

    def _is_refused(self, batch: Batch, failure: AnswerError) -> bool:
        """Whether it is in no log, and will not be sent again."""
        if batch.attempts > 1:
            return False
        if failure.code in _REFUSED_ALWAYS:
            return True
        certain = failure.code in CERTAIN_CODES and batch.attempts == 1
        last = not self._plan.retries or isinstance(failure, RefusedError)
        return certain and last and not self._plan.idempotent

    def _first_sequence(self) -> int:
        """A log that knows nothing of a producer takes any."""
        return _SEQUENCES - self._draw.randint(1, _BEFORE_WRAP) if self._plan.wraps else 0

    def _batch(self, batch: Batch) -> bytearray:
        now_ms = self._client.runtime.clock.wall_ms()
        records = [
            Record(
                key=key_of(name) if self._plan.keyed else None,
                value=value,
                timestamp=now_ms if stamp is None else stamp,
            )
            for name, (value, stamp) in batch.sends.items()
        ]
        producer_id, epoch = self._identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return build_batch(
            records,
            codec=Codec(self._plan.codec),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=NO_SEQUENCE if self._identity is None else batch.sequence,
        )

    def _acknowledged(self, batch: Batch, base: int | None, leader: int) -> None:
        plan, history, names, sent = self._plan, self._history, batch.sends, batch.sent
        self._sequence = (batch.sequence + len(names)) % _SEQUENCES
        counts = self._oracle.counts
        counts["sequences that started over"] += self._sequence < batch.sequence
        counts[f"batches stamped {plan.stamps}"] += 1
        truth = self._oracle.named(plan.topic, plan.partition)
        epochs: tuple[int, ...] = ()
        place = base
        if base is None and truth is not None:  # a duplicate: no answer said where it is
            place = truth.offset_of(sent)
            stands = None if place is None else truth.committed.at(place)
            epochs = () if stands is None else (stands.epoch,)
        if base is not None and truth is not None:
            epochs = truth.epochs_of(leader, base, sent, batch.asked)
            if plan.acks == -1:
                truth.acknowledged(leader, base + len(names) - 1, sent, batch.asked)
        self.served_s = asyncio.get_running_loop().time()
        for number, name in enumerate(names):
            history.epochs[name] = epochs
            if place is not None:
                history.places[name] = place + number
            offset = None if base is None else base + number
            self._note(Acknowledged, batch.process, id=name, offset=offset)

    def doubt(self, batch: Batch, error: str) -> None:
        """It may arrive at any time from now on: what follows is another producer's."""
        for name in batch.sends:
            self._note(Unknown, batch.process, id=name, error=error)
        self.generation += 1
        self._identity = None
        self._client.forget()

    def _note(self, kind: type[PartitionEvent], process: str, **values: Any) -> None:
        self._history.note(kind, process, self._plan.topic, self._plan.partition, **values)
