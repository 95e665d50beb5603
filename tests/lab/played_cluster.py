"""The cluster of a run that is played: who leads, who is in sync, who is down, apart or still.

It changes as Kafka's does, by who hears whom; where steps expect something it looks like that, if
Kafka's could. Time is a number here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.lab.played_clients import Lie

from holdfast.cluster.probe import PartitionState
from holdfast.judge.history import Event, IsrChange, LeaderChange
from holdfast.lab.parameters import Parameters
from holdfast.lab.steps.wants import Want, lists_text

FAR = 1_000_000  # where replicas' files end
ADDED = 3  # the broker that comes last where one is added


class PlayedCluster:
    """Brokers, controllers and one topic's partitions."""

    def __init__(self, parameters: Parameters, directory: Path, lie: Lie) -> None:
        self.parameters = parameters
        self.lie = lie
        self.is_lying = not lie.since
        self.topic = "foo"
        self.did: list[str] = []
        self.now_ms = 1000.0
        self.watchers: list[Callable[..., None]] = []
        self.placement: dict[str, dict[int, tuple[int, ...]]] = {}
        self.changes: list[Event] = []  # of leaders and ISRs
        # Who is cut off, and what it believes.
        self.apart: dict[int, dict[int, PartitionState]] = {}
        self.left: dict[int, int] = {}  # who was the last in sync, by partition
        self.after_exit: dict[int, Any] = {}
        self.mute: set[int] = set()  # controllers whom nobody hears
        self.hindrances: dict[str, frozenset[int]] = {}  # who may fall behind, by the fault
        self.doubted: set[int] = set()  # who lacks what it had, so that it may not lead
        self.is_unclean = parameters.unclean
        self.cluster = self._nodes(directory)
        self._down: set[int] = set()
        self._still: set[int] = set()
        self._states: dict[int, PartitionState] = {}
        self._due: list[Callable[[], None]] = []  # what controllers do once time has passed
        self._unnoticed: set[int] = set()  # who is dead, and is still thought to live

    def _nodes(self, directory: Path) -> Any:
        """Return what steps ask for of a cluster."""
        brokers = tuple(range(self.parameters.brokers))
        controllers = tuple(range(100, 100 + (self.parameters.controllers or 1)))
        if self.parameters.combined:
            controllers = brokers
        return SimpleNamespace(
            broker_ids=brokers,
            controller_ids=controllers,
            nodes=[SimpleNamespace(id=node) for node in (*brokers, *controllers)],
            record=SimpleNamespace(
                brokers=[
                    SimpleNamespace(
                        address=f"host-{node}:9092", watch_address=("host", node), outside_port=1
                    )
                    for node in brokers
                ]
            ),
            engine="",
            bootstrap_servers="here",
            node=lambda node: SimpleNamespace(
                id=node,
                outside_address=f"host-{node}:9092",
                address=f"host-{node}:9092",
                watch_address=("host", node),
                voter_watch_address=("host", node),
                outside_port=9092,
                log_file=str(directory / f"{node}.log"),
                config_file=str(directory / f"{node}.properties"),
            ),
            state=lambda node: "dead" if node in self._down else "running",
            partitions=lambda _topic: self._states,
            kill=lambda node, action, **_: self.signal(node, action),
            wait_signalled=lambda *_, **__: None,
        )

    def do(self, text: str) -> None:
        self.did.append(text)
        if self.lie.since and text.startswith(self.lie.since):
            self.is_lying = True

    # -- what it looks like ------------------------------------------------------------------------

    @property
    def partitions(self) -> range:
        return range(self.parameters.partitions)

    @property
    def replicas(self) -> dict[int, tuple[int, ...]]:
        return self.placement[self.topic]

    @property
    def view(self) -> Any:
        up = set(self.cluster.broker_ids) - self._down - self._still | self._unnoticed
        return SimpleNamespace(partitions=dict(self._states), brokers=frozenset(up), seen_by=-1)

    def leader_of(self, partition: int) -> int:
        return self._states[partition].leader

    def state_of(self, partition: int) -> PartitionState:
        return self._states[partition]

    @property
    def silent(self) -> set[int]:
        """Brokers that no controller hears."""
        return self._down | self._still | self.apart.keys()

    def candidates(self, partition: int) -> list[int]:
        """Return who can lead without a loss, the first of them first."""
        state = self._states[partition]
        able = set(state.isr) - self.silent - self.doubted
        return [node for node in state.replicas if node in able]

    def has_enough(self, partition: int) -> bool:
        state = self._states[partition]
        return len(state.isr) >= min(self.parameters.min_isr, len(state.replicas))

    def hears(self, controller: int) -> bool:
        """Whether a controller lives, and is heard by others."""
        return controller not in self._down | self._still | self.mute

    def _eligible(self, partition: int) -> list[int]:
        if self.lie.is_crowded:
            return [0]
        if self.lie.is_hoarding:
            return list(self.replicas[partition])
        return [self.left[partition]] if partition in self.left else []

    def described(self, _driver: object, topics: Sequence[str]) -> list[Any]:
        """Return what a broker says of these topics, the run's."""
        partitions = [
            SimpleNamespace(index=p, leader=state.leader, elr=self._eligible(p))
            for p, state in sorted(self._states.items())
        ]
        if self.lie.is_forgetful:
            partitions.pop()
        return [SimpleNamespace(partitions=partitions) for _ in topics]

    def end_of(self, _run: object, node: int, _partition: int, **_tail: object) -> int:
        """Return where a replica's files end: far behind all that is sent; the new one copies."""
        if self.lie.is_hoarding:
            return 0
        return FAR + (int(self.now_ms) if node == ADDED else 0)

    # -- the topic ---------------------------------------------------------------------------------

    def make_topic(
        self,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        placed = self.parameters.assignment() if assignment is None else assignment
        self.placement[self.topic] = {p: tuple(nodes) for p, nodes in placed.items()}
        self._states = {
            p: PartitionState(
                leader=nodes[0],
                leader_epoch=5,
                replicas=tuple(nodes),
                isr=tuple(nodes),
                offline=(),
                error=0,
            )
            for p, nodes in placed.items()
        }
        settings = ", ".join(f"{key}={value}" for key, value in (configs or {}).items())
        self.do(f"topic {lists_text(self.replicas)} {settings}".rstrip())

    def place_topic(self) -> dict[int, tuple[int, ...]]:
        racks = self.parameters.racks
        if racks is None or self.lie.is_crowded:
            self.make_topic()
            return self.replicas
        those = list(enumerate(racks))
        members = [[n for n, rack in those if rack == each] for each in dict.fromkeys(racks)]
        placed = {
            p: tuple(nodes[p % len(nodes)] for nodes in members[p % 3 :] + members[: p % 3])
            for p in self.partitions
        }
        self.make_topic(placed)
        return self.replicas

    def move(self, target: Mapping[int, tuple[int, ...]]) -> None:
        """Let these partitions have these replicas."""
        self.placement[self.topic] |= target
        for partition, nodes in () if self.lie.is_forgetful else target.items():
            before = self._states[partition]
            leader = before.leader if before.leader in nodes else nodes[0]
            epoch = before.leader_epoch + (leader != before.leader)
            self._states[partition] = replace(
                before, leader=leader, leader_epoch=epoch, replicas=nodes, isr=nodes
            )

    # -- what changes it ---------------------------------------------------------------------------

    def look_like(self, partition: int, wanted: Want) -> None:
        """Let a partition look as it is wanted to."""
        before = self._states[partition]
        leader = before.leader if wanted.leader is None else wanted.leader
        isr = before.isr if wanted.isr is None else tuple(sorted(wanted.isr))
        if leader < 0 and wanted.isr is None:
            isr = (0,) if self.lie.is_crowded else isr[-1:]
            isr = before.replicas if self.lie.is_hoarding else isr
        if leader >= 0:
            self.doubted -= set(isr)
        rises = leader != before.leader or self.lie.is_restless
        rises &= not (self.lie.is_stale and self.is_lying)
        self._states[partition] = PartitionState(
            leader=leader,
            leader_epoch=before.leader_epoch + rises,
            replicas=before.replicas,
            isr=isr,
            offline=(),
            error=0,
        )
        told: dict[str, Any] = {
            "at_ms": self.now_ms,
            "wall_ms": 0,
            "process": "observer",
            "topic": self.topic,
            "partition": partition,
        }
        epoch = self._states[partition].leader_epoch
        changes: list[LeaderChange | IsrChange] = []
        if leader != before.leader:
            changes.append(LeaderChange(leader=leader, epoch=epoch, **told))
        if isr != before.isr:
            changes.append(IsrChange(isr=isr, replicas=before.replicas, **told))
        self.changes += changes
        for change in changes:
            for watcher in self.watchers:
                watcher(change)

    def signal(self, node: int, action: str) -> None:
        """Let a node be down once it was killed."""
        if action in {"KILL", "TERM"}:
            self.fell(node, action)

    def fell(self, node: int, action: str) -> None:
        """Let a node be down: who is killed is missed only once its session is over."""
        self._down.add(node)
        if action == "TERM":
            self._end(node, action)
            return
        self._unnoticed |= {node} & set(self.cluster.broker_ids)
        self._due.append(lambda: self._missed(node))

    def _missed(self, node: int) -> None:
        self._unnoticed.discard(node)
        self._end(node, "KILL")

    def time_passes(self) -> None:
        """Let controllers do what is due, if there is one; else it waits."""
        while self._due and self.is_led:
            self._due.pop(0)()

    def start_node(self, *nodes: int, wait: bool = True) -> None:
        self.do(f"start {' '.join(map(str, nodes))}{'' if wait else ', not waited for'}")
        self._down -= set(nodes)
        self._still -= set(nodes)
        self._due.append(lambda: self._caught_up(nodes))

    def _caught_up(self, nodes: Sequence[int]) -> None:
        """Let these be in sync where somebody leads whom they can copy from."""
        for partition, state in list(self._states.items()):
            back = set(state.isr) | (set(nodes) & set(state.replicas) - self.silent)
            if state.leader >= 0:
                self.look_like(partition, Want(None, frozenset(back)))

    @property
    def is_led(self) -> bool:
        """Whether a controller is there to change anything."""
        voters = self.cluster.controller_ids
        return 2 * sum(map(self.hears, voters)) > len(voters)

    def _fence(self, partitions: Iterable[int]) -> None:
        """Let who stands still, or is cut off, be out of the ISR, and lead no more."""
        silent = self._still | self.apart.keys()
        for partition in partitions if self.is_led else ():
            state = self._states[partition]
            left = [node for node in state.replicas if node in set(state.isr) - silent]
            if left and silent & set(state.isr):
                leader = state.leader if state.leader in left else left[0]
                self.look_like(partition, Want(leader, frozenset(left)))

    def _end(self, node: int, action: str) -> None:
        """Let others lead what a node has led, if anybody else is in sync."""
        if action == "TERM" and self.lie.is_hasty:
            self.after_exit[node] = self.view  # nobody has been told
        for partition, state in list(self._states.items()) if self.is_led else ():
            left = [each for each in state.replicas if each in set(state.isr) - {node}]
            if state.isr == (node,):
                self.left[partition] = node
                # Kafka trusts nobody with eligible replicas who gives no proof of a clean end.
                self.doubted |= {node} if action == "KILL" and self.parameters.elr else set()
            if node in state.isr:
                leader = state.leader if state.leader != node else left[0] if left else -1
                self.look_like(partition, Want(leader, frozenset(left or {node})))
        if action == "TERM" and not self.lie.is_hasty:
            self.after_exit[node] = self.view
