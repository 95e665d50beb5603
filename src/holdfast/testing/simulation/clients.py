"""Producers and consumers of one run, and the history that they write for the judge.

Owns what each outcome means: acknowledged, certainly refused, unknown. Must never reach into a node
for anything but to ask the oracle, which changes nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Any, Final

from holdfast.clients.outcomes import CERTAIN_CODES
from holdfast.clients.workload.payload import digest_of
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    PartitionEvent,
    Position,
    ReadEnd,
    Refused,
    Send,
    Unknown,
)
from holdfast.testing.simulated_client import (
    AnswerError,
    ClusterClient,
    RefusedError,
    Stored,
    records_of,
)
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import STAMPS, ProducerPlan, ReaderPlan
from holdfast.wire.batch import Record, assign_max_timestamp, build_batch
from holdfast.wire.batch_header import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    read_header,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.well_known import EARLIEST

_BATCH_MAX = 4
_PAUSE_S = 0.1
_DELIVERY_S = 25.0  # as delivery.timeout.ms: then the outcome is unknown
_LOST_SEQUENCE_S = 5.0  # so long it may be an old leader that says so
_SEEN_MAX = 40
_LOOKS_BACK = 0.05  # how often a reader does, of its reads
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
            value = name.encode() + b"|" + b"x" * self._draw.randrange(64)
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

    async def _deliver(self, process: str, sends: Mapping[str, tuple[bytes, int | None]]) -> None:
        """Send until there is an outcome, and write it down."""
        loop = asyncio.get_running_loop()
        plan = self._plan
        give_up = loop.time() + _DELIVERY_S
        out_of_order_since: float | None = None
        sent: list[int] = []  # the CRC of each attempt: its time of writing differs
        while True:
            try:
                if plan.idempotent and self._identity is None:
                    self._identity = await self._client.producer_id()
                    self._sequence = 0
                leader = await self._client.leader(plan.topic, plan.partition)
                batch = self._batch(sends.values())
                sent.append(read_header(batch).crc)
                if read_header(batch).max_timestamp < 0 and self._number % 2:
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
                certain = failure.code in CERTAIN_CODES and len(sent) == 1 and not plan.idempotent
                if certain and (not plan.retries or isinstance(failure, RefusedError)):
                    for name in sends:
                        self._note(Refused, process, id=name, error=error)
                    return
            except OSError as failure:
                error = type(failure).__name__
            else:
                self._acknowledged(process, sends, base if base >= 0 else None, leader, sent)
                return
            lost = out_of_order_since is not None and (
                loop.time() - out_of_order_since > _LOST_SEQUENCE_S
            )
            once = not plan.idempotent and not plan.retries and sent
            if lost or once or loop.time() > give_up:
                self._unknown(process, sends, error)
                return
            await asyncio.sleep(_PAUSE_S)
            self._client.forget()

    def _batch(self, sends: Iterable[tuple[bytes, int | None]]) -> bytearray:
        now_ms = self._client.runtime.clock.wall_ms()
        records = [
            Record(value=value, timestamp=now_ms if stamp is None else stamp)
            for value, stamp in sends
        ]
        producer_id, epoch = self._identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=NO_SEQUENCE if self._identity is None else self._sequence,
        )

    def _acknowledged(
        self, process: str, names: Collection[str], base: int | None, leader: int, sent: list[int]
    ) -> None:
        plan, history = self._plan, self._history
        self._sequence += len(names)
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


class SimulatedReader:
    """Reads the partitions of a topic in turn, from the beginning, over and over."""

    def __init__(
        self,
        number: int,
        plan: ReaderPlan,
        partitions: int,
        client: ClusterClient,
        history: History,
        oracle: Oracle,
    ) -> None:
        self._plan: Final = plan
        self._process: Final = f"reader-{number}"
        self._client: Final = client
        self._history: Final = history
        self._oracle: Final = oracle
        self._next = dict.fromkeys(range(partitions), 0)
        self._nearest: dict[int, int] = {}  # partition -> the replica that the leader named
        self._draw = random.Random(f"reader/{number}/{plan.topic}/{plan.pause_ms}")
        # Some of what was delivered, for looking it up again.
        self._seen: dict[int, deque[Stored]] = {n: deque(maxlen=_SEEN_MAX) for n in self._next}
        self.from_followers = 0
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            for partition in self._next:
                try:
                    await self._read(partition)
                    if self._seen[partition] and self._draw.random() < _LOOKS_BACK:
                        await self._look_back(partition)
                except (OSError, AnswerError):
                    self._nearest.pop(partition, None)
                    self._client.forget()
            await asyncio.sleep(self._plan.pause_ms / 1000)

    async def _read(self, partition: int) -> None:
        topic, client = self._plan.topic, self._client
        leader = await client.leader(topic, partition)
        node = self._nearest.get(partition, leader)
        at = self._next[partition]
        try:
            data = await client.fetch(
                topic, partition, at,
                node=node, rack=self._plan.rack, wait_ms=100, partition_bytes=4096,
            )  # fmt: skip
        except AnswerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._out_of_range(partition, nearest=node != leader)
            return
        if data.preferred_read_replica >= 0:
            self._nearest[partition] = data.preferred_read_replica
            return
        stored = records_of(data.records or b"", at)
        self.from_followers += len(stored) if node != leader else 0
        if stored:
            truth = self._oracle.named(topic, partition)
            if truth is not None:
                truth.read(stored[0].offset, stored[0].leader_epoch)
                truth.read(stored[-1].offset, stored[-1].leader_epoch)
            deliver(self._history, self._process, topic, partition, stored, data.high_watermark)
            self._next[partition] = stored[-1].offset + 1
            self._seen[partition].append(stored[0])

    async def _look_back(self, partition: int) -> None:
        """Look up a record by its timestamp, and read on from the answer: what indexes are for."""
        topic, client = self._plan.topic, self._client
        wanted = self._draw.choice(self._seen[partition])
        if wanted.timestamp < 0:
            return  # nothing is found by it
        offset = await client.offset_at(topic, partition, wanted.timestamp)
        if offset < 0:
            return  # its leader is new, and does not know yet how much is committed
        self._oracle.counts["records looked up by timestamp"] += 1
        truth = self._oracle.named(topic, partition)
        if truth is not None:
            found = truth.committed.at(wanted.offset)
            stands = found is not None and found.epoch == wanted.leader_epoch
            if stands and offset > wanted.offset >= truth.start_max:
                self._oracle.fail(
                    Invariant.READABLE_BY_TIMESTAMP,
                    f"{topic}-{partition}: {wanted} is said to begin at {offset}\n{truth}",
                )
        self._move(partition, offset, "looked up")

    async def _out_of_range(self, partition: int, *, nearest: bool) -> None:
        """What we stood at is gone, by retention or by an unclean election; or this one lags."""
        if nearest:
            del self._nearest[partition]
            return
        begin = await self._client.end(self._plan.topic, partition, timestamp=EARLIEST)
        self._move(partition, begin, "out of range", told=True)

    def _move(self, partition: int, offset: int, reason: str, *, told: bool = False) -> None:
        self._next[partition] = offset
        where = self._process, self._plan.topic, partition
        self._history.note(Position, *where, offset=offset, reason=reason, told=told)


def deliver(
    history: History,
    process: str,
    topic: str,
    partition: int,
    stored: list[Stored],
    high_watermark: int | None,
) -> None:
    """Write down what a reader was given."""
    for one in stored:
        history.note(
            Delivered, process, topic, partition,
            offset=one.offset, id=name_of(one.value), digest=digest_of(one.value or b""),
            epoch=one.leader_epoch, committed_end=high_watermark,
        )  # fmt: skip


async def read_whole(
    cluster: SimulatedCluster, history: History, topic: str, partitions: Iterable[int]
) -> None:
    """Read partitions of a topic to their ends, as the judge's last word."""
    with closing(cluster.client("final")) as client:
        for partition in partitions:
            asked_ms, _ = history.now()
            stored = await _read_to_end(client, topic, partition)
            # Asked after the read: retention may have deleted what stood before it.
            begin = await client.end(topic, partition, timestamp=EARLIEST)
            deliver(history, "final", topic, partition, stored, None)
            end = stored[-1].offset + 1 if stored else begin
            history.note(
                ReadEnd, "final", topic, partition,
                begin=min(begin, end), end=end, asked_ms=asked_ms,
            )  # fmt: skip


async def _read_to_end(client: ClusterClient, topic: str, partition: int) -> list[Stored]:
    """Read all there is; again, when retention overtakes the reader."""
    while True:
        try:
            return await client.read(topic, partition)
        except RefusedError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
