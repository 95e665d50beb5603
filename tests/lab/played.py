"""A run that is played: its cluster does what it is expected to, and its clients answer by that.

Steps are run as they stand, and what they do and check is written down, in order. `Lie` is one way
in which such a cluster, or a client of it, does not do what it must. Time is a number here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.lab.played_clients import BALANCER, HONEST, Client, Lie, Worker
from tests.lab.played_cluster import PlayedCluster
from tests.lab.played_rules import why_not

from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Position,
    Refused,
    Send,
    Unknown,
)
from holdfast.lab.parameters import NotInTimeError, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.steps.usual import REFUSAL
from holdfast.lab.steps.wants import Want, names, preferred
from holdfast.wire.administration import Election
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest

LOOKS = 10  # of a wait
SLOW_MS = 60_000.0
EXPECTED_MS = 5000.0  # until what is expected comes
LOOK_S = 0.5
# How a send fails that finds nobody who leads, and one that its leader has left unanswered.
NOBODY, LOST, NO_ANSWER = "NoLeaderError", "ConnectionLostError", "AnswerTimeoutError"


class Played(PlayedCluster):
    """As much of a run as steps touch."""

    def __init__(self, parameters: Parameters, directory: Path, lie: Lie = HONEST) -> None:
        super().__init__(parameters, directory, lie)
        self.group_prefix = ""
        self.history = directory / "history"
        self.failed: list[str] = []
        self.wrong: list[str] = []  # of those, what no starved machine excuses
        self.tables: list[Table] = []
        self.told: list[str] = []
        self.lost_expected: int | None = None
        self.lost_named: Any = None
        self.expired_expected: Any = None
        self.groups_expected: Any = None
        self.ended: set[int] = set()
        self.time = SimpleNamespace(monotonic=self._monotonic, time_ns=lambda: 10**18)
        self.guard = SimpleNamespace(environment={})
        self.starvation = SimpleNamespace(mark=dict)
        self.afterwards = ExitStack()
        self._workers: list[Worker] = []
        self._clients: list[Client] = []
        self._numbers = count()
        self.broke_off: str | None = None
        self.sizes: dict[int, int] = {}  # of logs, by partition
        self.cut_clients: set[str | None] = set()  # by their places
        self.room: int | None = None  # events for which a full disk has room
        self.is_near = True  # whether readers are served by the broker in their rack
        self.slow_ms = 0.0  # how long acks=all waits for a slow follower
        self.is_zoned = False  # clients reach the broker in their zone alone
        self.swallows = 0  # answers to who never sends again
        self.lonely: set[str] = set()  # what only who is cut off has
        self.begins: dict[int, int] = {}  # where replicas' files begin
        self.checks: list[Any] = []
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
        isr = set(self._states[partition].isr)
        leads = self.leader_of(partition) == asked and not self.silent & isr
        return leads and self.has_enough(partition)

    # -- what is done ----------------------------------------------------------------------------

    def say(self, _text: str) -> None: ...

    def note(self, _text: str) -> None: ...

    def record_fault(self, action: str, node: int, detail: str = "") -> None:
        self.do(f"{action} {node} {detail}".rstrip())

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
                if wanted.leader in self.candidates(partition) and self.is_led:
                    self.look_like(partition, Want(wanted.leader, None))
        self.is_unclean |= isinstance(message, ElectLeadersRequest) and (
            message.election_type == Election.UNCLEAN
        )
        return {}

    def fault(self, action: str, *nodes: int, wait: bool = True) -> float:
        self.do(f"{action} {' '.join(map(str, nodes))}{'' if wait else ', not waited for'}")
        for node in nodes:
            if action in {"KILL", "TERM"}:
                self.now_ms += 1
                self.fell(node, action)
            elif action == "STOP":
                self._still.add(node)
            else:
                self._still.discard(node)
        self.now_ms += 1
        return self.now_ms

    @property
    def can_change(self) -> bool:
        """Whether a change of metadata is made."""
        is_frozen = self.lie.is_frozen and self.is_lying
        return self.cluster.quorum() is not None and not is_frozen

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
        self.time_passes()
        self.now_ms += LOOK_S * 1000
        for worker in self._workers:
            worker.flow()

    def wait(self, what: str, condition: Callable[[], Any], bound_s: float) -> Any:
        self.do(f"wait {bound_s:g} s for {what}")
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
        self.do(f"{seconds:g} s pass")
        self.now_ms += seconds * 1000
        self.time_passes()
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
        told = f"{' (late)' if is_late else ''}{' (if given)' if 'given' in excused else ''}"
        self.do(f"{mark}{name}: {expected}{told}")
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
        self, worker: Worker, when: str, bound_s: float, partitions: Sequence[int] | None = None
    ) -> bool:
        wanted = self.partitions if partitions is None else partitions
        kept = not self._silent(worker, wanted)
        told = f"{names(wanted)} in {bound_s:g} s"
        return self.check(f"{worker.name} flows, {when}", told, "", kept=kept, late=True)

    def _silent(self, worker: Worker, wanted: Sequence[int]) -> list[int]:
        since_ms = self.now_ms
        self._flow()
        told = worker.tail.acknowledged_ms
        return [p for p in wanted if told.get(p, 0.0) <= since_ms]

    def expect(self, when: str, wanted: Mapping[int, Want], bound_s: float = SETTLE_S) -> bool:
        self._flow()
        self.now_ms += EXPECTED_MS
        gone = self._down | self.apart.keys()
        against = {p: why for p, each in wanted.items() if (why := why_not(self, p, each, bound_s))}
        for partition, each in wanted.items():
            if partition in against:
                continue
            isr, leader = each.isr, each.leader
            if isr and leader is None and self.leader_of(partition) in {*gone, -1}:
                leader = next((n for n in self.replicas[partition] if n in isr - gone), -1)
            self.look_like(partition, Want(leader, isr))
        self._fence(set(self._states) - set(wanted))
        told = "; ".join(f"P{p}: {each}" for p, each in sorted(wanted.items()))
        told += f" in {bound_s:g} s"
        for partition, why in against.items():
            self.do(f"P{partition} does not come to look so: {why}")
        return self.check(when, told, "", kept=not against, late=bool(against))

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
