"""Consumers of one run, and what they write down for the judge: what they were given, and where.

Owns what a reader does with each answer. Must never reach into a node but to ask the oracle, which
changes nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing
from math import inf
from typing import Final

from holdfast.clients.workload.payload import digest_of
from holdfast.judge.history import Delivered, Position, ReadEnd
from holdfast.testing.simulated_client import (
    AnswerError,
    ClusterClient,
    RefusedError,
    Stored,
    behind,
    records_of,
)
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.clients import History, name_of
from holdfast.testing.simulation.ends import Ends, ends_at, is_same, what_is_wrong
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import ReaderPlan
from holdfast.testing.simulation.readable import is_refused_rightly, true_leader
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import PartitionData
from holdfast.wire.well_known import EARLIEST, LATEST

_SEEN_MAX = 40
_LOOKS_BACK = 0.05  # how often a reader does, of its reads
_ASKS_ENDS = 0.1  # how often it asks where the log begins and ends
FETCH_BYTES: Final = 4096  # of a partition


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
        self._goals: dict[int, int] = {}  # what it has still to come to, by partition
        self.from_followers = 0
        self.stopping = False

    def __str__(self) -> str:
        return f"{self._process} of {self._plan.topic}"

    async def run(self) -> None:
        while not self.stopping:
            await self._turn()
            await asyncio.sleep(self._plan.pause_ms / 1000)

    async def _turn(self) -> None:
        """Read some of each partition."""
        for partition in self._next:
            try:
                await self._read(partition)
                if self._seen[partition] and self._draw.random() < _LOOKS_BACK:
                    await self._look_back(partition)
                if self._draw.random() < _ASKS_ENDS:
                    await self._ask_ends(partition)
            except (OSError, AnswerError):
                self._nearest.pop(partition, None)
                self._client.forget()

    async def _read(self, partition: int) -> None:
        topic, client = self._plan.topic, self._client
        leader = await client.leader(topic, partition)
        node = self._nearest.get(partition, leader)
        at = self._next[partition]
        before = self.true_leader(partition, node)
        try:
            data = await client.fetch(
                topic, partition, at,
                node=node, rack=self._plan.rack, wait_ms=100, partition_bytes=FETCH_BYTES,
            )  # fmt: skip
        except AnswerError as error:
            self.refused(partition, node, before, error.code)
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._out_of_range(partition, nearest=node != leader)
            return
        if data.preferred_read_replica >= 0:
            self._nearest[partition] = data.preferred_read_replica
            return
        stored = self.take(partition, data)
        self.from_followers += stored if node != leader else 0

    def take(self, partition: int, data: PartitionData) -> int:
        """Write down what an answer has for a partition; return how many records."""
        topic = self._plan.topic
        stored = records_of(data.records or b"", self._next[partition])
        self._oracle.counts["batches larger than a fetch's limit"] += (
            len(data.records or b"") > FETCH_BYTES
        )
        if stored:
            truth = self._oracle.named(topic, partition)
            if truth is not None:
                truth.read(stored[0].offset, stored[0].leader_epoch)
                truth.read(stored[-1].offset, stored[-1].leader_epoch)
            deliver(self._history, self._process, topic, partition, stored, data.high_watermark)
            self._seen[partition].append(stored[0])
        # Behind what compaction left without records as well.
        self._next[partition] = max(self._next[partition], behind(data.records or b""))
        self.came(partition)
        return len(stored)

    def expect(self, ends: Mapping[int, int]) -> None:
        """From now on wait for some of each partition, or for an answer where it ends.

        Not for all that there is: where more is written than it reads at a time, it is far behind.
        """
        self._goals = {n: min(end, self._next[n] + 1) for n, end in ends.items()}

    def came(self, partition: int) -> None:
        """It was answered, and not refused, where it stands now."""
        if self._next[partition] >= self._goals.get(partition, inf):
            del self._goals[partition]

    def behind(self) -> list[str]:
        """Tell which partitions it was not given anything of since it was to read them."""
        return [
            f"{self} does not come on in {partition}: at {self._next[partition]}, to pass {goal}"
            for partition, goal in self._goals.items()
        ]

    def true_leader(self, partition: int, node: int) -> Ends | None:
        """What a node has that leads and knows it, before it is asked."""
        return true_leader(self._oracle, self._plan.topic, partition, node)

    def refused(self, partition: int, node: int, before: Ends | None, code: int) -> None:
        """Hold an error of a fetch against what it was asked for."""
        topic, at = self._plan.topic, self._next[partition]
        if not is_refused_rightly(
            self._oracle, topic, partition, node, before=before, at=at, code=code
        ):
            self._oracle.fail(
                Invariant.READ_RIGHTLY,
                f"{self}: node {node} answered {ErrorCode(code).name} for {topic}-{partition} at"
                f" {at}, {before}\n{self._oracle.named(topic, partition)}",
            )

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
            stands = stands and not truth.is_gone(wanted.leader_epoch, [wanted.offset])
            if stands and offset > wanted.offset >= truth.start_max:
                self._oracle.fail(
                    Invariant.READABLE_BY_TIMESTAMP,
                    f"{topic}-{partition}: {wanted} is said to begin at {offset}\n{truth}",
                )
        self._move(partition, offset, "looked up")

    async def _ask_ends(self, partition: int) -> None:
        """Ask where the log begins or ends, and hold the answer against what is true."""
        topic, client = self._plan.topic, self._client
        leader = await client.leader(topic, partition)
        truth = self._oracle.named(topic, partition)
        before = None if truth is None else ends_at(truth, leader)
        which = self._draw.choice((LATEST, LATEST, EARLIEST))
        offset = await client.offset_at(topic, partition, which)
        if truth is None or before is None or not is_same(truth, leader, before):
            return
        if (wrong := what_is_wrong(truth, before, which, offset)) is not None:
            self._oracle.fail(*wrong)
        name = "LATEST" if which == LATEST else "EARLIEST"
        self._oracle.counts[f"{name} answers judged"] += 1

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
    """Write down what a reader was given. What deletes a key nobody has promised anything of."""
    for one in stored:
        if one.value is None:
            continue
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
            end = max(begin, await client.end(topic, partition))
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
