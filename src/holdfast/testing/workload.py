"""Writers and a reader on one topic, and what must hold of what they saw.

Owns what was acknowledged and what was read. Must never forgive: an acknowledged value is there
once, at its offset and in its writer's order, and no offset ever shows two values.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from holdfast.testing.client import AnswerError, Producer
from holdfast.testing.cluster import SimulatedCluster

_BATCH_MAX = 4
_SETTLE_S = 120.0


class BrokenPromiseError(AssertionError):
    """The cluster lost, repeated, reordered or changed something."""


@dataclass(slots=True)
class _Written:
    """What one partition's writer knows."""

    acknowledged: list[bytes] = field(default_factory=list)
    offsets: dict[int, bytes] = field(default_factory=dict)
    uncertain: list[bytes] = field(default_factory=list)  # the last batch, never acknowledged


class Workload:
    """One idempotent acks=all writer for each partition, one reader that never stops looking."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        topic: str = "t",
        *,
        partitions: int = 3,
        pause_s: float = 0.05,
    ) -> None:
        self.topic: Final = topic
        self.written = [_Written() for _ in range(partitions)]
        self.seen: list[dict[int, bytes | None]] = [{} for _ in range(partitions)]
        self._cluster = cluster
        self._pause_s = pause_s
        self._draw = random.Random(f"workload/{cluster.world.seed}/{topic}")
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Create the topic and begin."""
        client = self._cluster.client("creator")
        await client.create_topic(self.topic, partitions=len(self.written))
        client.close()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._write(n)) for n in range(len(self.written))]
        self._tasks.append(loop.create_task(self._watch()))

    async def stop(self) -> None:
        """Let every writer finish its batch, which needs a cluster that can acknowledge it."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    @property
    def acknowledged(self) -> int:
        """Values acknowledged so far."""
        return sum(len(written.acknowledged) for written in self.written)

    async def check(self) -> None:
        """BrokenPromiseError, unless what all replicas hold is what was promised.

        All brokers must be up: waits until every replica has what is committed.
        """
        client = self._cluster.client("checker")
        for partition, written in enumerate(self.written):
            stored = await client.read(self.topic, partition)
            values = [one.value for one in stored]
            self._compare(partition, written, values)
            for one in stored:
                self._note(partition, one.offset, one.value)
            for offset, value in written.offsets.items():
                if self.seen[partition].get(offset) != value:
                    self._fail(partition, f"acknowledged at {offset}, but that is another record")
            await self._compare_replicas(partition, stored[-1].offset + 1 if stored else 0)
        client.close()

    def _compare(self, partition: int, written: _Written, values: list[bytes | None]) -> None:
        promised = written.acknowledged
        if values in (promised, promised + written.uncertain):
            return
        counts = {value: values.count(value) for value in set(values)}
        lost = [value for value in promised if value not in counts]
        repeated = sorted(str(value) for value, count in counts.items() if count > 1)
        known = {*promised, *written.uncertain}
        strange = sorted(str(value) for value in counts if value not in known)
        self._fail(
            partition,
            f"{len(promised)} acknowledged, {len(values)} there; lost {lost[:5]}, repeated"
            f" {repeated[:5]}, never sent {strange[:5]}, or else they are in another order",
        )

    async def _compare_replicas(self, partition: int, end: int) -> None:
        cluster = self._cluster
        await cluster.until(
            lambda: all(
                log is not None and log.end >= end and log.high_watermark >= end
                for log in cluster.logs(self.topic, partition).values()
            ),
            f"every replica of {self.topic}-{partition} holds offset {end - 1}",
            seconds=_SETTLE_S,
        )
        copies = {
            broker: cluster.bytes_of(broker, self.topic, partition, end)
            for broker in cluster.logs(self.topic, partition)
        }
        if len(set(copies.values())) > 1:
            sizes = {broker: len(copy) for broker, copy in copies.items()}
            self._fail(partition, f"replicas differ below offset {end}: bytes {sizes}")

    async def _write(self, partition: int) -> None:
        producer = Producer(self._cluster.client(f"writer-{partition}"), self.topic)
        written = self.written[partition]
        number = 0
        while not self._stopping:
            count = self._draw.randint(1, _BATCH_MAX)
            values = [f"{partition}/{number + n}".encode() for n in range(count)]
            written.uncertain = values
            base = await producer.send(partition, values, seconds=_SETTLE_S)
            written.uncertain = []
            written.acknowledged += values
            if base >= 0:
                written.offsets |= {base + n: value for n, value in enumerate(values)}
            number += count
            await asyncio.sleep(self._pause_s * self._draw.random())

    async def _watch(self) -> None:
        """Read on and on, each time from a random offset that was there before."""
        client = self._cluster.client("watcher")
        while not self._stopping:
            partition = self._draw.randrange(len(self.seen))
            seen = self.seen[partition]
            offset = self._draw.randint(max(0, len(seen) - 50), len(seen))
            try:
                for one in await client.peek(self.topic, partition, offset):
                    self._note(partition, one.offset, one.value)
            except (OSError, AnswerError):
                client.forget()
            await asyncio.sleep(self._pause_s)

    def _note(self, partition: int, offset: int, value: bytes | None) -> None:
        before = self.seen[partition].setdefault(offset, value)
        if before != value:
            self._fail(partition, f"offset {offset} showed {before!r} and then {value!r}")

    def _fail(self, partition: int, what: str) -> None:
        seed = self._cluster.world.seed
        raise BrokenPromiseError(f"seed {seed}, {self.topic}-{partition}: {what}")
