"""A run that is played: its cluster does what it is expected to, and its clients answer by that.

Steps are run as they stand, and what they do and check is written down, in order. `Lie` is one way
in which such a cluster, or a client of it, does not do what it must. Time is a number here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.lab.played_clients import BALANCER, HONEST, Client, Lie, Worker

from holdfast.cluster.probe import PartitionState
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    IsrChange,
    LeaderChange,
    Position,
    Refused,
    Send,
    Unknown,
)
from holdfast.lab.parameters import NotInTimeError, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.steps.usual import REFUSAL
from holdfast.lab.steps.wants import Want, lists_text, names, preferred
from holdfast.wire.administration import Election
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest

LOOKS = 10  # of a wait
SLOW_MS = 60_000.0
EXPECTED_MS = 5000.0  # until what is expected comes
FAR = 1_000_000  # where replicas' files end
ADDED = 3  # the broker that comes last where one is added
LOOK_S = 0.5
# How a send fails that finds nobody who leads, and one that its leader has left unanswered.
NOBODY, LOST, NO_ANSWER = "NoLeaderError", "ConnectionLostError", "AnswerTimeoutError"


class Played:
    """As much of a run as steps touch."""

    def __init__(self, parameters: Parameters, directory: Path, lie: Lie = HONEST) -> None:
        self.parameters = parameters
        self.lie = lie
        self.is_lying = not lie.since
        self.topic = "foo"
        self.group_prefix = ""
        self.history = directory / "history"
        self.did: list[str] = []
        self.failed: list[str] = []
        self.wrong: list[str] = []  # of those, what no starved machine excuses
        self.tables: list[Table] = []
        self.told: list[str] = []
        self.watchers: list[Callable[..., None]] = []
        self.lost_expected: int | None = None
        self.lost_named: Any = None
        self.expired_expected: Any = None
        self.groups_expected: Any = None
        self.ended: set[int] = set()
        self.after_exit: dict[int, Any] = {}
        self.placement: dict[str, dict[int, tuple[int, ...]]] = {}
        self.now_ms = 1000.0
        self.time = SimpleNamespace(monotonic=self._monotonic, time_ns=lambda: 10**18)
        self.guard = SimpleNamespace(environment={})
        self.starvation = SimpleNamespace(mark=dict)
        self.afterwards = ExitStack()
        self._down: set[int] = set()
        self._still: set[int] = set()
        self._states: dict[int, PartitionState] = {}
        self._workers: list[Worker] = []
        self._clients: list[Client] = []
        self._numbers = count()
        self.changes: list[Event] = []  # of leaders and ISRs
        self.apart: dict[
            int, dict[int, PartitionState]
        ] = {}  # who is cut off, and what it believes
        self.left: dict[int, int] = {}  # who was the last in sync, by partition
        self.broke_off: str | None = None
        self.sizes: dict[int, int] = {}  # of logs, by partition
        self.cut_clients: set[str | None] = set()  # by their places
        self.room: int | None = None  # events for which a full disk has room
        self.is_near = True  # whether readers are served by the broker in their rack
        self.slow_ms = 0.0  # how long acks=all waits for a slow follower
        self.is_zoned = False  # clients reach the broker in their zone alone
        self.swallows = 0  # answers to who never sends again
        self.lonely: set[str] = set()  # what only who is cut off has
        self.mute: set[int] = set()  # controllers whom nobody hears
        self.begins: dict[int, int] = {}  # where replicas' files begin
        self.checks: list[Any] = []
        brokers = tuple(range(parameters.brokers))
        controllers = tuple(range(100, 100 + (parameters.controllers or 1)))
        if parameters.combined:
            controllers = brokers
        self.cluster = SimpleNamespace(
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
        self.observer = SimpleNamespace(
            avoid=lambda _node: None, allow=lambda _node: None, ask_alone=lambda _node: None
        )
        self.allowed = SimpleNamespace(
            delete=lambda _topic, partition, offset: self.do(f"delete P{partition} to {offset}")
        )
        self.driver = SimpleNamespace(
            perform=lambda asked, **_: self.ask(asked, ""),
            leader=lambda _topic, partition: self.leader_of(partition),
        )

    @property
    def as_run(self) -> Run:
        return cast("Run", self)

    def _monotonic(self) -> float:
        return self.now_ms / 1000

    # -- what the cluster looks like -------------------------------------------------------------

    @property
    def partitions(self) -> range:
        return range(self.parameters.partitions)

    @property
    def replicas(self) -> dict[int, tuple[int, ...]]:
        return self.placement[self.topic]

    @property
    def view(self) -> Any:
        up = set(self.cluster.broker_ids) - self._down - self._still
        return SimpleNamespace(partitions=dict(self._states), brokers=frozenset(up), seen_by=-1)

    def leader_of(self, partition: int) -> int:
        return self._states[partition].leader

    def asks(self, place: str | None, partition: int) -> int:
        """Return which leader a client in this place reaches; -1: none."""
        if place in self.cut_clients:
            return -1
        for node, states in self.apart.items():
            if place == f"client-{node}":
                return node if states[partition].leader == node else -1
        leader = self.leader_of(partition)
        if self.is_zoned and not self.lie.is_leaky and place != f"client-{leader}":
            return -1
        return -1 if leader in self.apart else leader

    @property
    def senders(self) -> list[Worker | Client]:
        return [*self._workers, *self._clients]

    def events_of(self, paths: Iterable[Path]) -> list[Event]:
        """Return what stands in these histories, in order of time."""
        stems = {path.stem for path in paths}
        logs = [each.log for each in self.senders if each.name in stems]
        logs += [self.changes] if "observer" in stems else []
        return sorted((event for log in logs for event in log), key=lambda event: event.at_ms)

    def sent(self, name: str, partition: int, outcome: Any) -> Send:
        return Send(
            at_ms=outcome.at_ms - self.slow_ms,
            wall_ms=0,
            process=name,
            topic=self.topic,
            partition=partition,
            id=outcome.id,
            digest="d",
            size=1,
        )

    @property
    def is_patient(self) -> bool:
        """Whether every client sends again what is not answered."""
        return not any(each.name.startswith("never") for each in self._workers)

    def unanswered(self, name: str, partition: int) -> Event:
        return Unknown(
            at_ms=self.now_ms,
            wall_ms=0,
            process=name,
            topic=self.topic,
            partition=partition,
            id=f"{name}:{next(self._numbers)}",
            error=NO_ANSWER,
        )

    def has_enough(self, partition: int) -> bool:
        state = self._states[partition]
        return len(state.isr) >= min(self.parameters.min_isr, len(state.replicas))

    def outcome(
        self, name: str, acks: str, partition: int, asked: int, *, was_enough: bool = False
    ) -> Event:
        """Return what becomes of a record that `asked` was sent, when its answer is there."""
        acknowledged = self._acknowledged(acks, partition, asked)
        if self.is_lying and name.startswith(self.lie.clients):
            lied = self.lie.acknowledges
            acknowledged = acknowledged if lied is None else lied
        told: dict[str, Any] = {
            "at_ms": self.now_ms,
            "wall_ms": 0,
            "process": name,
            "topic": self.topic,
            "partition": partition,
            "id": f"{name}:{next(self._numbers)}",
        }
        if acknowledged:
            found = Acknowledged(offset=next(self._numbers), **told)
            self.lonely |= {found.id} if asked in self.apart else set()
            return found
        if asked < 0 and not self.cut_clients:
            return Refused(error=NOBODY, **told)
        if asked in self._down | self._still or self.leader_of(partition) != asked or was_enough:
            return Unknown(error=LOST, **told)
        return Refused(error=REFUSAL, **told)

    def _acknowledged(self, acks: str, partition: int, asked: int) -> bool:
        if asked < 0 or asked in self._down:
            return False
        if self.room is not None:
            self.room -= 1
            return self.room >= 0
        if acks != "all":
            return True
        silent = self._down | self._still | self.apart.keys()
        leads = self.leader_of(partition) == asked and not silent & set(self._states[partition].isr)
        return leads and self.has_enough(partition)

    def _eligible(self, partition: int) -> list[int]:
        if self.lie.is_crowded:
            return [0]
        if self.lie.is_hoarding:
            return list(self.replicas[partition])
        return [self.left[partition]] if partition in self.left else []

    def end_of(self, _run: object, node: int, _partition: int, **_tail: object) -> int:
        """Return where a replica's files end: far behind all that is sent; the new one copies."""
        if self.lie.is_hoarding:
            return 0
        return FAR + (int(self.now_ms) if node == ADDED else 0)

    def described(self, _driver: object, topics: Sequence[str]) -> list[Any]:
        """Return what a broker says of these topics, the run's."""
        partitions = [
            SimpleNamespace(index=p, leader=state.leader, elr=self._eligible(p))
            for p, state in sorted(self._states.items())
        ]
        if self.lie.is_forgetful:
            partitions.pop()
        return [SimpleNamespace(partitions=partitions) for _ in topics]

    def move(self, target: Mapping[int, tuple[int, ...]]) -> None:
        """Let these partitions have these replicas."""
        self.placement[self.topic] |= target
        for partition, nodes in () if self.lie.is_forgetful else target.items():
            state = replace(self._states[partition], replicas=nodes, isr=nodes)
            self._states[partition] = state

    def hears(self, controller: int) -> bool:
        """Whether a controller lives, and is heard by others."""
        return controller not in self._down | self._still | self.mute

    def look_like(self, partition: int, wanted: Want) -> None:
        """Let a partition look as it is wanted to."""
        before = self._states[partition]
        leader = before.leader if wanted.leader is None else wanted.leader
        isr = before.isr if wanted.isr is None else tuple(sorted(wanted.isr))
        if leader < 0 and wanted.isr is None:
            isr = (0,) if self.lie.is_crowded else isr[-1:]
            isr = before.replicas if self.lie.is_hoarding else isr
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

    # -- what is done ----------------------------------------------------------------------------

    def do(self, text: str) -> None:
        self.did.append(text)
        if self.lie.since and text.startswith(self.lie.since):
            self.is_lying = True

    def say(self, _text: str) -> None: ...

    def note(self, _text: str) -> None: ...

    def record_fault(self, action: str, node: int, detail: str = "") -> None:
        self.do(f"{action} {node} {detail}".rstrip())

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

    def alter_topic(self, **configs: str) -> bool:
        self.do(f"alter {configs}")
        if "retention_bytes" in configs and not self.lie.is_hoarding:
            self.begins = {p: max(begin, 5) for p, begin in self.begins.items()}
        return not self.lie.is_unheard

    def ask(self, asked: Any, _otherwise: str) -> Any:
        self.do(f"ask {type(asked.message).__name__}")
        message = asked.message
        if isinstance(message, ElectLeadersRequest) and message.election_type == Election.PREFERRED:
            for partition, wanted in preferred(self.replicas).items():
                if wanted.leader in set(self._states[partition].isr) - self._down:
                    self.look_like(partition, Want(wanted.leader, None))
        return {}

    def fault(self, action: str, *nodes: int, wait: bool = True) -> float:
        self.do(f"{action} {' '.join(map(str, nodes))}{'' if wait else ', not waited for'}")
        for node in nodes:
            if action in {"KILL", "TERM"}:
                self.now_ms += 1
                self._down.add(node)
                self._end(node, action)
            elif action == "STOP":
                self._still.add(node)
            else:
                self._still.discard(node)
        self.now_ms += 1
        return self.now_ms

    def signal(self, node: int, action: str) -> None:
        """Let a node be down once it was killed."""
        if action in {"KILL", "TERM"}:
            self._down.add(node)
            self._end(node, action)

    @property
    def can_change(self) -> bool:
        """Whether a change of metadata is made."""
        is_frozen = self.lie.is_frozen and self.is_lying
        return self.cluster.quorum() is not None and not is_frozen

    def _is_led(self) -> bool:
        """Whether a controller is there to change anything."""
        voters = self.cluster.controller_ids
        return 2 * sum(map(self.hears, voters)) > len(voters)

    def _fence(self, partitions: Iterable[int]) -> None:
        """Let who stands still, or is cut off, be out of the ISR, and lead no more."""
        silent = self._still | self.apart.keys()
        for partition in partitions if self._is_led() else ():
            state = self._states[partition]
            left = [node for node in state.replicas if node in set(state.isr) - silent]
            if left and silent & set(state.isr):
                leader = state.leader if state.leader in left else left[0]
                self.look_like(partition, Want(leader, frozenset(left)))

    def _end(self, node: int, action: str) -> None:
        """Let others lead what a node has led, if anybody else is in sync."""
        if action == "TERM" and self.lie.is_hasty:
            self.after_exit[node] = self.view  # nobody has been told
        for partition, state in list(self._states.items()) if self._is_led() else ():
            left = [each for each in state.replicas if each in set(state.isr) - {node}]
            if state.isr == (node,):
                self.left[partition] = node
            if node in state.isr:
                leader = state.leader if state.leader != node else left[0] if left else -1
                self.look_like(partition, Want(leader, frozenset(left or {node})))
        if action == "TERM" and not self.lie.is_hasty:
            self.after_exit[node] = self.view

    def start_node(self, *nodes: int, wait: bool = True) -> None:
        self.do(f"start {' '.join(map(str, nodes))}{'' if wait else ', not waited for'}")
        self._down -= set(nodes)
        self._still -= set(nodes)
        for partition, state in list(self._states.items()):
            back = set(state.isr) | (set(nodes) & set(state.replicas))
            if state.leader >= 0:
                self.look_like(partition, Want(None, frozenset(back)))

    def start_producer(self, name: str = "producer", **flags: object) -> Worker:
        return self._start(name, flags)

    def start_raw(self, name: str = "raw", **flags: object) -> Worker:
        return self._start(name, flags)

    def start_readers(self, **flags: object) -> Worker:
        return self._start("consumer", flags, reads=True)

    def start_reader(self, name: str = "consumer", **flags: object) -> Worker:
        return self._start(name, flags, reads=True)

    def _start(self, name: str, flags: Mapping[str, object], *, reads: bool = False) -> Worker:
        place, most = flags.get("place"), flags.get("max_messages", 1)
        acks = str(flags.get("acks", self.parameters.acks))
        self.do(f"client {name}{f' at {place}' if place else ''}")
        told = None if place is None else str(place)
        if flags.get("bootstrap_server") == BALANCER:
            told = BALANCER
            self.cut_clients.add(BALANCER)
        self._workers.append(worker := Worker(self, name, acks, told, reads=reads))
        assert isinstance(most, int)
        worker.wanted, worker.gives_up = most, "delivery_timeout_ms" in flags
        if reads:
            self.is_near = flags.get("config") != "client.rack="
            worker.log += self._given(name)
        return worker

    def _given(self, name: str) -> list[Event]:
        """Return what a reader is given and told, as far as steps look at that."""
        told: dict[str, Any] = {
            "at_ms": self.now_ms,
            "wall_ms": 0,
            "process": name,
            "topic": self.topic,
            "partition": 0,
            "offset": 0,
        }
        ids = ["producer:0", *(["hidden:0"] if self.lie.is_leaky else [])]
        given = [] if self.lie.is_deaf else [Delivered(id=each, digest="d", **told) for each in ids]
        reasons = ["at first"] if self.lie.is_deaf else ["at first", "it is gone"]
        return [*given, *(Position(reason=each, **told) for each in reasons)]

    def raw_client(self, name: str, *, acks: str, **_sending: object) -> Client:
        self.do(f"client {name}, acks={acks}")
        self._clients.append(client := Client(self, name, acks))
        return client

    def stop_workers(self) -> None:
        self.do("clients end")
        for worker in self._workers:
            worker.stop()

    # -- what is waited for and checked ----------------------------------------------------------

    def _flow(self) -> None:
        self.now_ms += LOOK_S * 1000
        for worker in self._workers:
            worker.flow()

    def wait(self, what: str, condition: Callable[[], Any], bound_s: float) -> Any:
        self.do(f"wait for {what}")
        self.now_ms += SLOW_MS if self.lie.is_slow else 0.0
        for _ in range(min(LOOKS, int(bound_s / LOOK_S) + 1)):
            if found := condition():
                return found
            self._flow()
        raise NotInTimeError(what)

    def soon(self, condition: Callable[[], bool], bound_s: float) -> bool:
        for _ in range(min(LOOKS, int(bound_s / LOOK_S) + 1)):
            if condition():
                return True
            self._flow()
        return False

    def steady(self, worker: Worker, _seconds: float | None = None) -> None:
        self.do(f"{worker.name} runs on")
        self._flow()

    def steady_view(self, seconds: float) -> None:
        self.do("time passes")
        self.now_ms += seconds * 1000
        for worker in self._workers:
            if worker.place is not None and self.lie.is_leaky:
                worker.flow()
            if worker.gives_up:
                worker.flow()
                worker.tail.errors["_QUEUE_FULL", 0] += not self.lie.is_hoarding

    def check(self, name: str, expected: str, _seen: str, *, kept: bool, **excused: Any) -> bool:
        is_late = excused.get("late", False) is not False
        if self.lie.fails is not None and self.lie.fails in name:
            kept = False
        mark = "" if kept else "NOT SO: "
        self.do(f"{mark}{name}: {expected}{' (late)' if is_late else ''}")
        self.checks.append(name)
        if not kept:
            self.failed.append(name)
            self.wrong += [name] if not is_late and excused.get("given", True) else []
        return kept

    def must_flow(self, worker: Worker, partitions: Sequence[int] | None = None) -> None:
        wanted = self.partitions if partitions is None else partitions
        self.do(f"{worker.name} must flow in {names(wanted)}")
        if self._silent(worker, wanted):
            raise NotInTimeError(f"{worker.name} does not flow")

    def expect_flow(
        self, worker: Worker, when: str, _bound_s: float, partitions: Sequence[int] | None = None
    ) -> bool:
        wanted = self.partitions if partitions is None else partitions
        kept = not self._silent(worker, wanted)
        return self.check(f"{worker.name} flows, {when}", names(wanted), "", kept=kept, late=True)

    def _silent(self, worker: Worker, wanted: Sequence[int]) -> list[int]:
        since_ms = self.now_ms
        self._flow()
        told = worker.tail.acknowledged_ms
        return [p for p in wanted if told.get(p, 0.0) <= since_ms]

    def expect(self, when: str, wanted: Mapping[int, Want], _bound_s: float = 0.0) -> bool:
        self._flow()
        self.now_ms += EXPECTED_MS
        gone = self._down | self.apart.keys()
        stays = [p for p, each in wanted.items() if self._leads_on(p, each)]
        for partition, each in wanted.items():
            isr, leader = each.isr, each.leader
            if isr and leader is None and self.leader_of(partition) in {*gone, -1}:
                leader = next((n for n in self.replicas[partition] if n in isr - gone), -1)
            self.look_like(partition, Want(leader, isr))
        self._fence(set(self._states) - set(wanted))
        told = "; ".join(f"P{p}: {each}" for p, each in sorted(wanted.items()))
        return self.check(when, told, "", kept=not stays, late=bool(stays))

    def _leads_on(self, partition: int, wanted: Want) -> bool:
        """Whether another leader is wanted although the one that leads lives, heard and in sync."""
        leader = self.leader_of(partition)
        if wanted.leader is None or wanted.leader == leader:
            return False
        silent = self._down | self._still | self.apart.keys()
        return leader not in {-1, *silent} and leader in (wanted.isr or {leader})

    @property
    def histories(self) -> list[Path]:
        return [self.history / f"{each.name}.jsonl" for each in self.senders]

    @property
    def results(self) -> list[str]:
        """What the verdict is to be held against."""
        found = {
            "lost": self.lost_expected,
            "expired": self.expired_expected,
            "groups": self.groups_expected,
        }
        return [f"{name}: {value}" for name, value in found.items() if value is not None]
