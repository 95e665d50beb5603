"""A steady workload for tests that break a cluster by hand: what it was promised must be kept.

Goal: the simulator's own producers, reader and judge serve here, too. Method: one idempotent
acks=all producer for each partition of a topic, and one reader; nothing may be lost, doubled,
reordered or changed, and all replicas must hold the same.
"""

from __future__ import annotations

from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation import verdict
from holdfast.testing.simulation.plan import Plan, ProducerPlan, ReaderPlan, TopicPlan
from holdfast.testing.simulation.workload import Workload

SETTLE_S = 120.0


class Promises(Workload):
    """A workload over one topic of three replicas that is forgiven nothing."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        topic: str = "t",
        *,
        partitions: int = 3,
        pause_ms: int = 25,
    ) -> None:
        producers = [
            ProducerPlan(
                topic=topic, partition=n, acks=-1, idempotent=True, retries=True, pause_ms=pause_ms
            )
            for n in range(partitions)
        ]
        plan = Plan(
            seed=cluster.world.seed,
            brokers=len(cluster.brokers),
            controllers=len(cluster.controllers),
            combined=False,
            elr=False,
            topics=(TopicPlan(name=topic, partitions=partitions, replication_factor=3),),
            producers=tuple(producers),
            readers=(ReaderPlan(topic=topic, pause_ms=50),),
        )
        super().__init__(plan, cluster)
        self.topic = topic
        self.partitions = range(partitions)
        self._simulated = cluster

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return len(self.history.epochs)

    async def check(self) -> None:
        """Wait until every replica has all that is committed, and judge. All brokers must be up."""
        for partition in self.partitions:
            await self._simulated.until(
                lambda at=partition: self._is_everywhere(at),  # type: ignore[misc]
                f"every replica of {self.topic}-{partition} holds what is committed",
                seconds=SETTLE_S,
            )
        await self.read_whole(self.topic, self.partitions)
        judgement, broken = self.judge()
        assert not broken, f"seed {self.plan.seed}\n{verdict.describe(broken)}"
        assert judgement.counts.acknowledged, "nothing was promised"

    def _is_everywhere(self, partition: int) -> bool:
        logs = self._simulated.logs(self.topic, partition).values()
        held = [log for log in logs if log is not None]
        ends = {number for log in held for number in (log.end, log.high_watermark)}
        return len(held) == len(logs) and len(ends) == 1
