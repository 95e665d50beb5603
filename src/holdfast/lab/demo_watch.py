"""Watches who leads the demo's partitions and who is in sync, and writes changes down.

Owns one thread that asks the cluster's metadata. It never acts on what it sees.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from holdfast.clients.recorder import Recorder
from holdfast.cluster import LocalCluster, PartitionState
from holdfast.judge.history import IsrChange, LeaderChange

LOOK_S = 0.1
STOP_S = 10.0


class Watch:
    """Start with `with`; ask it what it saw last."""

    def __init__(self, cluster: LocalCluster, topic: str, recorder: Recorder) -> None:
        self._cluster = cluster
        self._topic = topic
        self._recorder = recorder
        self._seen: dict[int, PartitionState] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(STOP_S)

    def leader(self, partition: int) -> int:
        """Return the leader as seen last; -1 for none, or nothing seen."""
        state = self._seen.get(partition)
        return -1 if state is None else state.leader

    def leaders(self) -> dict[int, int]:
        return {number: state.leader for number, state in sorted(self._seen.copy().items())}

    def whole(self, replicas: int) -> bool:
        """Every partition has a leader and so many replicas in sync."""
        seen = self._seen.copy().values()
        return bool(seen) and all(s.leader >= 0 and len(s.isr) == replicas for s in seen)

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for number, state in (self._cluster.partitions(self._topic) or {}).items():
                self._note(number, state)
            self._recorder.flush()

    def _note(self, number: int, state: PartitionState) -> None:
        before = self._seen.get(number)
        self._seen[number] = state
        if before is None or (before.leader, before.leader_epoch) != (
            state.leader,
            state.leader_epoch,
        ):
            self._recorder.record(
                LeaderChange,
                topic=self._topic,
                partition=number,
                leader=state.leader,
                epoch=state.leader_epoch,
            )
        if before is None or set(before.isr) != set(state.isr):
            self._recorder.record(
                IsrChange,
                topic=self._topic,
                partition=number,
                isr=tuple(state.isr),
                replicas=tuple(state.replicas),
            )
