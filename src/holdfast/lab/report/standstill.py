"""Finds where a partition has a leader and acknowledges nothing, because its ISR names the dead.

With acks=all a record is acknowledged once every in-sync replica has it. A replica that died
stays in the ISR until the controller takes it out, when the broker's session ends, or the leader
does, when it has lagged for too long; until then the high watermark stands still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Event, Fault, IsrChange, LeaderChange
from holdfast.judge.series import Point
from holdfast.judge.timeline import DOWN_ACTIONS, UP_ACTIONS, Timeline, TopicPartition
from holdfast.lab.report.scales import duration

SHORT_MS = 300.0  # a standstill as short as that is not worth a word
SESSION = "broker.session.timeout.ms"
LAG = "replica.lag.time.max.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """[begin_ms, end_ms) in which `leader` led `partition`, and nothing was acknowledged there.

    `absent`: those of the ISR that were down, each with what was done to it.
    """

    partition: TopicPartition
    begin_ms: float
    end_ms: float
    leader: int
    absent: tuple[tuple[int, str], ...]


def standstills(evidence: Evidence, settings: Mapping[str, str]) -> list[Standstill]:
    """All of them, in the order of time; none unless acks=all."""
    if settings.get("acks") != "all":
        return []
    found = []
    for partition in evidence.timeline.partitions:
        if not any(partition in point.acknowledged for point in evidence.points):
            continue  # nobody writes there
        for begin_ms, end_ms, leader, absent in _hindered(evidence.timeline, partition):
            found += [
                Standstill(
                    partition=partition,
                    begin_ms=silent_ms,
                    end_ms=again_ms,
                    leader=leader,
                    absent=absent,
                )
                for silent_ms, again_ms in _silences(
                    evidence.points, evidence.point_ms, partition, begin_ms, end_ms
                )
            ]
    return sorted(found, key=lambda each: (each.begin_ms, each.partition))


def _hindered(
    timeline: Timeline, partition: TopicPartition
) -> Iterator[tuple[float, float, int, tuple[tuple[int, str], ...]]]:
    """Stretches in which the leader is alive and the ISR names a node that is not."""
    events: list[Event] = [
        *timeline.leaders.get(partition, ()),
        *timeline.isrs.get(partition, ()),
        *timeline.faults,
    ]
    leader, isr = -1, frozenset[int]()
    down: dict[int, str] = {}
    since: float | None = None
    state: tuple[int, tuple[tuple[int, str], ...]] = (-1, ())
    for event in [*sorted(events, key=lambda each: each.at_ms), None]:
        at_ms = timeline.end_ms if event is None else event.at_ms
        if isinstance(event, LeaderChange):
            leader = event.leader
        elif isinstance(event, IsrChange):
            isr = frozenset(event.isr)
        elif isinstance(event, Fault):
            if event.action in DOWN_ACTIONS:
                down[event.node] = event.action
            elif event.action in UP_ACTIONS:
                down.pop(event.node, None)
        absent = tuple((node, down[node]) for node in sorted(isr & down.keys()))
        hindered = leader >= 0 and leader not in down and bool(absent)
        now = (leader, absent) if hindered else (-1, ())
        if event is not None and now == state:
            continue
        if since is not None and at_ms > since:
            yield since, at_ms, *state
        since, state = (at_ms if hindered else None), now


def _silences(
    points: Sequence[Point],
    width_ms: float,
    partition: TopicPartition,
    begin_ms: float,
    end_ms: float,
) -> Iterator[tuple[float, float]]:
    """Yield every long stretch in there in which events were sent and none was acknowledged."""
    since = until = begin_ms
    sent = 0.0
    for point in points:
        first, last = point.at_ms - width_ms / 2, point.at_ms + width_ms / 2
        if begin_ms <= first and last <= end_ms and partition not in point.acknowledged:
            since = first if not sent else since
            until, sent = last, sent + point.sent
            continue
        if sent and until - since >= SHORT_MS:
            yield since, until
        sent = 0.0
    if sent and until - since >= SHORT_MS:
        yield since, until


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
