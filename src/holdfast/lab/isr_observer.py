"""Watches a topic's leaders and in-sync replicas, and writes every change into the history.

It asks one broker at a time, as long as that one answers, so that two brokers' views are never
mixed. Another broker's view may be older: a leader epoch that it puts back is passed over. The same
broker's goes back only if the cluster's metadata do, and that is written down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.clients.workload.recorder import Recorder
from holdfast.cluster.any_cluster import Cluster
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.probe import PartitionState, ask
from holdfast.judge.history import IsrChange, LeaderChange, LeaderClaim
from holdfast.lab.parameters import LabError

POLL_S = 0.05
ASK_S = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """One moment: a topic's partitions, and which brokers are unfenced."""

    partitions: dict[int, PartitionState]
    brokers: frozenset[int]
    seen_by: int


NOTHING_SEEN = View({}, frozenset(), -1)


class Watcher:
    """A thread of its own from `start` to `stop`. Whoever relies on it asks whether it has ended.

    What it watches stands still then, and so does all that is expected of it.
    """

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it. LabError: it had ended before, by itself."""
        self._stopping.set()
        self._thread.join()
        try:
            self._close()
        finally:
            self.refuse_ended()

    def refuse_ended(self) -> None:
        """LabError: it has ended by itself, and what it showed says nothing any more."""
        if self._failure is not None:
            text = f"the {self._thread.name} ended early: {self._failure!r}"
            raise LabError(text) from self._failure

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - whoever relies on it raises it again
            self._failure = error

    def _watch(self) -> None:
        """Look until `_stopping` is set."""
        raise NotImplementedError

    def _close(self) -> None:
        """Let go of what it looks and writes with."""
        raise NotImplementedError


class Observer(Watcher):
    """What a topic looks like; `view` may be read at any time."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        history: Path,
        changed: Callable[[LeaderChange | IsrChange | LeaderClaim], None],
    ) -> None:
        """`changed` is called in the observer's thread."""
        super().__init__(f"observer of {topic}")
        self._addresses = {node.id: node.watch_address for node in cluster.record.brokers}
        self._topic = topic
        self._recorder = Recorder(history, "observer")
        self._changed = changed
        self.avoided: set[int] = set()  # nodes that are down, stopped or cut off
        # What each of those says that are asked alone: by partition leader and epoch.
        self._claims: dict[int, dict[int, tuple[int, int]]] = {}
        # The latest leader epoch of each partition that each broker has shown; a broker that was
        # down may begin with an older view.
        self._shown: dict[int, dict[int, int]] = {}
        self._asked = next(iter(self._addresses))
        self.view = NOTHING_SEEN

    def _close(self) -> None:
        self._recorder.close()

    def avoid(self, node: int) -> None:
        """Do not ask this node: it is down or stopped."""
        self.avoided.add(node)

    def ask_alone(self, node: int) -> None:
        """Write down, too, whom this node alone takes for the leader.

        Until it is not avoided any more, and says what the others say.
        """
        self._claims.setdefault(node, {})

    def allow(self, node: int) -> None:
        """Ask it again; what it showed before says nothing of what it may show now."""
        self._shown.pop(node, None)
        self.avoided.discard(node)

    def _watch(self) -> None:
        while not self._stopping.wait(POLL_S):
            view = self.look()
            if view is not None:
                self._compare(view)
                self._recorder.flush()
            for node in list(self._claims):
                self._listen(node)

    def look(self) -> View | None:
        """Ask now, from any thread. None: no broker answers that isn't avoided."""
        for node in [self._asked, *(node for node in self._addresses if node != self._asked)]:
            if node in self.avoided:
                continue
            try:
                answer = ask(self._addresses[node], [self._topic], timeout_s=ASK_S)
            except ClusterError:
                continue
            if answer is not None and node in answer.brokers:
                self._asked = node
                return View(answer.topics.get(self._topic, {}), frozenset(answer.brokers), node)
        return None

    def _listen(self, node: int) -> None:
        """Ask one node alone; write down what has changed of what it says."""
        try:
            answer = ask(self._addresses[node], [self._topic], timeout_s=ASK_S)
        except ClusterError:
            return
        if answer is None:
            return
        known, states = self._claims[node], answer.topics.get(self._topic, {})
        for number, state in states.items():
            said = state.leader, state.leader_epoch
            if known.get(number) != said:
                known[number] = said
                leader, epoch = said
                self._record(LeaderClaim, number, node=node, leader=leader, epoch=epoch)
        self._recorder.flush()
        agreed = {n: (s.leader, s.leader_epoch) for n, s in self.view.partitions.items()}
        if node not in self.avoided and known == agreed:
            del self._claims[node]  # or it would be waited for when it stands still

    def _compare(self, view: View) -> None:
        partitions = dict(view.partitions)
        shown = self._shown.setdefault(view.seen_by, {})
        for number, state in view.partitions.items():
            before = self.view.partitions.get(number)
            goes_back = state.leader_epoch < shown.get(number, state.leader_epoch)
            shown[number] = state.leader_epoch
            if before is not None and state.leader_epoch < before.leader_epoch and not goes_back:
                partitions[number] = before
                continue
            if before is None or (before.leader, before.leader_epoch) != (
                state.leader,
                state.leader_epoch,
            ):
                self._record(LeaderChange, number, leader=state.leader, epoch=state.leader_epoch)
            if before is None or set(before.isr) != set(state.isr):
                self._record(
                    IsrChange, number, isr=tuple(state.isr), replicas=tuple(state.replicas)
                )
        self.view = View(partitions, view.brokers, view.seen_by)

    def _record(
        self, kind: type[LeaderChange | IsrChange | LeaderClaim], partition: int, **values: Any
    ) -> None:
        self._changed(self._recorder.record(kind, topic=self._topic, partition=partition, **values))
