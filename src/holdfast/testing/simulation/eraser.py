"""Who deletes keys of a compacted topic: records without a value, of which nobody keeps count.

Owns one client. What becomes of its records the oracle knows from the logs.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from holdfast.testing.simulated_client import AnswerError, ClusterClient
from holdfast.testing.simulation.clients import key_of
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import TopicPlan
from holdfast.wire.batch import Record, build_batch

_PAUSE_S: Final = 2.0  # on average


class Eraser:
    """Writes to all partitions of one topic, now and then, until it is told to stop."""

    def __init__(self, topic: TopicPlan, client: ClusterClient, oracle: Oracle, seed: int) -> None:
        self._topic: Final = topic
        self._client: Final = client
        self._oracle: Final = oracle
        self._draw = random.Random(f"eraser/{seed}/{topic.name}")
        self.stopping = False

    def __str__(self) -> str:
        return f"eraser of {self._topic.name}"

    async def run(self) -> None:
        while not self.stopping:
            await self._erase()
            await asyncio.sleep(_PAUSE_S * 2 * self._draw.random())

    async def _erase(self) -> None:
        """Delete a key or two. Whether that comes to anything is nobody's business."""
        draw, client, name = self._draw, self._client, self._topic.name
        partition = draw.randrange(self._topic.partitions)
        keys = [key_of(str(draw.random())) for _ in range(draw.randint(1, 2))]
        stamp = client.runtime.clock.wall_ms()
        try:
            leader = await client.leader(name, partition)
            batch = build_batch([Record(key=key, timestamp=stamp) for key in keys])
            await client.produce_batch(name, partition, bytes(batch), acks=1, node=leader)
            self._oracle.counts["batches that delete keys"] += 1
        except (OSError, AnswerError):
            client.forget()
