"""The workload of a simulation: producers and readers as a plan names them, and the judge's word.

Owns its clients' tasks and the history that they write. With an oracle of a run it looks up there
what may be lost; with none nothing may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import closing
from typing import Final
from zlib import crc32

from holdfast.judge.history import Expected, Replica, ReplicaBatch, Retention
from holdfast.judge.verdict import Finding, Judgement
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation import verdict
from holdfast.testing.simulation.clients import History, SimulatedProducer
from holdfast.testing.simulation.eraser import Eraser
from holdfast.testing.simulation.metadata import RETENTION
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.pipelined import Pipeline
from holdfast.testing.simulation.plan import Plan, ProducerPlan, TopicPlan
from holdfast.testing.simulation.readers import SimulatedReader, read_whole
from holdfast.testing.simulation.session_reader import SessionReader
from holdfast.testing.simulation.watch import WatchedLog
from holdfast.wire.batch import batches

WIDE: Final = "wide"
_WIDE_FACTOR: Final = 3
STOP_S: Final = 90.0  # within which every request must have been answered


class Workload:
    """All clients of one plan, on one cluster."""

    def __init__(self, plan: Plan, cluster: SimulatedCluster, oracle: Oracle | None = None) -> None:
        self.plan: Final = plan
        self.history: Final = History()
        self._cluster: Final = cluster
        self._oracle: Final = oracle or Oracle()
        self._tasks: list[asyncio.Task[None]] = []
        self._running: list[SimulatedProducer | Pipeline | SimulatedReader | Eraser] = []
        self.producers: list[SimulatedProducer] = []
        self.readers: list[SimulatedReader] = []

    async def start(self) -> None:
        """Create the topics and begin."""
        for topic in self.plan.topics:
            self._expect(topic)
        with closing(self._cluster.client("creator")) as client:
            for topic in self.plan.topics:
                await client.create_topic(
                    topic.name,
                    partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=topic.configs,
                )
            if self.plan.wide:
                await client.create_topic(
                    WIDE, partitions=self.plan.wide, replication_factor=_WIDE_FACTOR
                )
        plan, cluster, seen = self.plan, self._cluster, (self.history, self._oracle)
        partitions = {topic.name: topic.partitions for topic in plan.topics}
        self.producers += [
            SimulatedProducer(
                one, cluster.client(f"producer-{one.topic}-{one.partition}"), *seen, plan.seed
            )
            for one in plan.producers
        ]
        self.readers += [
            (SessionReader if one.in_sessions else SimulatedReader)(
                number, one, partitions[one.topic], cluster.client(f"reader-{number}"), *seen
            )
            for number, one in enumerate(plan.readers)
        ]
        self._running += [
            one
            for one, its in zip(self.producers, plan.producers, strict=True)
            if not its.pipelined
        ]
        self._running += self._pipelines()
        self._running += self.readers
        self._running += [
            Eraser(topic, cluster.client(f"eraser-{topic.name}"), self._oracle, plan.seed)
            for topic in plan.topics
            if topic.is_compacted
        ]
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(one.run()) for one in self._running]

    def _pipelines(self) -> list[Pipeline]:
        """One for each topic and each `acks` of producers that share requests."""
        groups: dict[tuple[str, int], list[tuple[ProducerPlan, SimulatedProducer]]] = {}
        for one, its in zip(self.producers, self.plan.producers, strict=True):
            if its.pipelined:
                groups.setdefault((its.topic, its.acks), []).append((its, one))
        return [
            Pipeline(
                group[0][0],
                [one for _, one in group],
                self._cluster.client(f"pipeline-{topic}"),
                self._oracle,
                self.plan.seed,
            )
            for (topic, _), group in groups.items()
        ]

    def _expect(self, topic: TopicPlan) -> None:
        """Note what is to be judged, and how long it is to be kept."""
        limits = [int(topic.configs.get(key, default)) for key, default in RETENTION.items()]
        kept_ms, kept_bytes = (
            None if limit < 0 or not topic.expires else limit for limit in limits
        )
        for partition in range(topic.partitions):
            where = "operator", topic.name, partition
            self.history.note(Expected, *where)
            self.history.note(Retention, *where, retention_ms=kept_ms, retention_bytes=kept_bytes)

    async def stop(self) -> list[str]:
        """Let every request get its answer; return who still waits after `STOP_S`."""
        for client in self._running:
            client.stopping = True
        done, late = await asyncio.wait(self._tasks, timeout=STOP_S)
        for task in done:
            task.result()
        running = zip(self._running, self._tasks, strict=True)
        return [str(client) for client, task in running if task in late]

    def cancel(self) -> None:
        """End all clients, whatever they wait for."""
        for task in self._tasks:
            task.cancel()

    async def read_whole(self, topic: str, partitions: Iterable[int]) -> None:
        """Read partitions to their ends, as the last word about what is there."""
        await read_whole(self._cluster, self.history, topic, partitions)

    def judge(self) -> tuple[Judgement, list[Finding]]:
        """Note what every replica holds now; return the judge's word and what nothing excuses."""
        for topic in self.plan.topics:
            for partition in range(topic.partitions):
                if topic.is_compacted:
                    self._note_appended(topic.name, partition)
                else:
                    self._note_replicas(topic.name, partition)
        return verdict.unforgiven(self.plan, self.history, self._oracle)

    def _note_appended(self, topic: str, partition: int) -> None:
        """Note what replicas hold that compact each on its own: what was appended to each.

        That each file has that, less what may be gone, the oracle says.
        """
        truth = self._oracle.named(topic, partition)
        for node, log in self._cluster.logs(topic, partition).items():
            held = None if truth is None else truth.replicas.get(node)
            if log is None or held is None:
                continue
            assert isinstance(log, WatchedLog)
            log.check_stored(log.end)
            where = "replicas", topic, partition
            self.history.note(Replica, *where, node=node, begin=log.start, end=log.end)
            for entry in held.chain.between(log.start, log.end):
                self.history.note(
                    ReplicaBatch,
                    *where,
                    node=node,
                    offset=entry.base,
                    last_offset=entry.last,
                    epoch=entry.epoch,
                    digest=f"{entry.crc:08x}",
                    size=1,
                )

    def _note_replicas(self, topic: str, partition: int) -> None:
        for node, log in self._cluster.logs(topic, partition).items():
            if log is None:
                continue
            where = "replicas", topic, partition
            self.history.note(Replica, *where, node=node, begin=log.start, end=log.end)
            data = self._cluster.bytes_of(node, topic, partition, log.end)
            for at, header in batches(memoryview(data)):
                self.history.note(
                    ReplicaBatch,
                    *where,
                    node=node,
                    offset=header.base_offset,
                    last_offset=header.last_offset,
                    epoch=header.leader_epoch,
                    digest=f"{crc32(data[at : at + header.size]):08x}",
                    size=header.size,
                )
