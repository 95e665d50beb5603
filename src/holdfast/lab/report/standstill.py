"""Finds where a partition has a leader and acknowledges nothing, because its ISR names the dead.

With acks=all a record is acknowledged once every in-sync replica has it. A replica that died
stays in the ISR until the controller takes it out, when the broker's session ends, or the leader
does, when it has lagged for too long; until then the high watermark stands still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Fault,
    IsrChange,
    LeaderChange,
    ReplicaBatch,
    ReplicaRecord,
    Send,
)
from holdfast.judge.timeline import BACK_ACTIONS, DOWN_ACTIONS, TopicPartition
from holdfast.lab.report.scales import duration

SHORT_MS = 300.0  # a standstill as short as that is not worth a word
SESSION = "broker.session.timeout.ms"
LAG = "replica.lag.time.max.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """[begin_ms, end_ms) in which `leader` led `partition`, and nothing was acknowledged there.

    It begins with the first event that was sent for which nobody had an answer.

    `absent`: those of the ISR that were down, each with what was done to it.
    """

    partition: TopicPartition
    begin_ms: float
    end_ms: float
    leader: int
    absent: tuple[tuple[int, str], ...]


State = tuple[int, tuple[tuple[int, str], ...]]  # a leader, and who of its ISR is down


@dataclass(slots=True)
class _Stretch:
    """A time in which a leader is alive and its ISR names nodes that are not."""

    state: State
    silent_ms: float | None = None  # since when somebody has waited for an acknowledgement


class Standstills:
    """Finds all standstills. Fed with a whole history in the order of its clock, however long."""

    def __init__(self) -> None:
        self._leaders: dict[TopicPartition, int] = {}
        self._isrs: dict[TopicPartition, frozenset[int]] = {}
        self._down: dict[int, str] = {}
        self._hindered: dict[TopicPartition, _Stretch] = {}
        self._found: list[Standstill] = []

    def feed(self, event: Event) -> None:
        kind = type(event)
        if kind is Delivered or kind is ReplicaBatch or kind is ReplicaRecord:
            return  # by the million, and of no interest
        if kind is Send or kind is Acknowledged:
            if self._hindered:
                self._take(event)  # type: ignore[arg-type]
        elif isinstance(event, LeaderChange):
            partition = (event.topic, event.partition)
            self._leaders[partition] = event.leader
            self._look(partition, event.at_ms)
        elif isinstance(event, IsrChange):
            partition = (event.topic, event.partition)
            self._isrs[partition] = frozenset(event.isr)
            self._look(partition, event.at_ms)
        elif isinstance(event, Fault):
            if event.action in DOWN_ACTIONS:
                self._down[event.node] = event.action
            elif event.action in BACK_ACTIONS:
                self._down.pop(event.node, None)
            for partition in self._leaders:
                self._look(partition, event.at_ms)

    def finish(self, end_ms: float) -> tuple[Standstill, ...]:
        """Return all of them, in the order of time; the history ends here."""
        for partition, stretch in self._hindered.items():
            self._say(partition, stretch, end_ms)
        return tuple(sorted(self._found, key=lambda each: (each.begin_ms, each.partition)))

    def _take(self, event: Send | Acknowledged) -> None:
        partition = (event.topic, event.partition)
        stretch = self._hindered.get(partition)
        if stretch is None:
            return
        if isinstance(event, Acknowledged):
            self._say(partition, stretch, event.at_ms)
            stretch.silent_ms = None
        elif stretch.silent_ms is None:
            stretch.silent_ms = event.at_ms

    def _look(self, partition: TopicPartition, at_ms: float) -> None:
        """Begin or end a stretch where leader, ISR and the dead are not what they were."""
        state = self._state(partition)
        stretch = self._hindered.get(partition)
        if stretch is not None and stretch.state != state:
            self._say(partition, self._hindered.pop(partition), at_ms)
            stretch = None
        if stretch is None and state is not None:
            self._hindered[partition] = _Stretch(state)

    def _state(self, partition: TopicPartition) -> State | None:
        leader = self._leaders.get(partition, -1)
        isr = self._isrs.get(partition, frozenset())
        absent = tuple((node, self._down[node]) for node in sorted(isr & self._down.keys()))
        return (leader, absent) if leader >= 0 and leader not in self._down and absent else None

    def _say(self, partition: TopicPartition, stretch: _Stretch, at_ms: float) -> None:
        """Note a silence that ends, if it was a long one."""
        begin_ms = stretch.silent_ms
        if begin_ms is None or at_ms - begin_ms < SHORT_MS:
            return
        leader, absent = stretch.state
        self._found.append(
            Standstill(
                partition=partition, begin_ms=begin_ms, end_ms=at_ms, leader=leader, absent=absent
            )
        )


def explained(found: Sequence[Standstill], settings: Mapping[str, str]) -> Sequence[Standstill]:
    """Return those that the dead explain: with fewer acks nobody waits for them."""
    return found if settings.get("acks") == "all" else ()


WORDS = {"KILL": "had been killed", "STOP": "had been stopped", "exit": "had left"}


def why(settings: Mapping[str, str]) -> str:
    """Say why a partition with a leader stands still, with this run's own times."""

    def given(key: str) -> str:
        value = settings.get(key, "")
        return f"{key}, here {duration(float(value))}" if value.isdigit() else key

    return (
        "With acks=all an event is acknowledged only when every in-sync replica has it, and a "
        "broker that is gone stays in the ISR for a while: the high watermark waits for it, "
        "although the leader is well. It goes on when the controller takes the dead one out of "
        f"the ISR at the end of its session ({given(SESSION)}), or the leader does, when that "
        f"replica has lagged for too long ({given(LAG)})."
    )


def where(each: Standstill, place: str, begin_ms: float) -> str:
    """Say of one standstill when it was, who led, and for whom the partition waited."""
    first, last = (f"{(ms - begin_ms) / 1000:,.1f}" for ms in (each.begin_ms, each.end_ms))
    absent = " and ".join(f"node {node}, which {WORDS[how]}" for node, how in each.absent)
    return (
        f"{place}: led by node {each.leader}, nothing acknowledged from {first} "
        f"to {last} s ({duration(each.end_ms - each.begin_ms)}), "
        f"while the ISR named {absent}."
    )
