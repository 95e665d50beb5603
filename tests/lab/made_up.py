"""A history as a run would write it, made up: one topic, one SIGKILL, and what is planted in it.

Node 1 is killed at KILLED_MS; until its session ends at SESSION_MS, P1 has no leader, and P0, which
it follows, has one and acknowledges nothing. Then the backlog comes in at once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from holdfast.judge.checker import Evidence, judge
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Fault,
    IsrChange,
    LeaderChange,
    Note,
    ReadEnd,
    Send,
)
from holdfast.lab.report import Check, Curve, Lag, PartReport, ReportData, Series, Spot, Table
from holdfast.lab.report.standstill import Standstill, Standstills

BEGIN_MS, KILLED_MS, SESSION_MS, STARTED_MS, END_MS = 1000.0, 5000.0, 8000.0, 9000.0, 14000.0
WALL_MS = 1_700_000_000_000
REPLICAS = {0: (0, 1), 1: (1, 2), 2: (2, 0)}
SETTINGS = {"acks": "all", "broker.session.timeout.ms": "3000"}


class MadeUp:
    """Collects events, in whatever order; `evidence` judges them."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: type[Event], at_ms: float, process: str, **values: Any) -> None:
        wall_ms = WALL_MS + int(at_ms)
        self.events.append(kind(at_ms=at_ms, wall_ms=wall_ms, process=process, **values))

    def of(self, kind: type[Event], at_ms: float, partition: int, **values: Any) -> None:
        process = values.pop("process", "observer")
        self.add(kind, at_ms, process, topic="foo", partition=partition, **values)

    def evidence(self) -> Evidence:
        return judge(sorted(self.events, key=lambda event: event.at_ms))

    def still(self) -> tuple[Standstill, ...]:
        """Where partitions with a leader stand still."""
        found = Standstills()
        for event in sorted(self.events, key=lambda event: event.at_ms):
            found.feed(event)
        return found.finish(max(event.at_ms for event in self.events))


@cache
def run(*, lost: int = 0) -> Evidence:
    return story(lost=lost).evidence()


def story(*, lost: int = 0, pause_ms: float = 40.0, isr_at_kill: bool = True) -> MadeUp:
    """Build the history; so many of P1's events, acknowledged just before the kill, are lost.

    `isr_at_kill`: the ISR still names the dead node until the session's end.
    """
    story = MadeUp()
    story.add(Note, BEGIN_MS, "lab", text="3 brokers serve")
    story.add(Fault, KILLED_MS, "lab", action="KILL", node=1)
    story.add(Fault, STARTED_MS, "lab", action="start", node=1)
    for partition, replicas in REPLICAS.items():
        _metadata(story, partition, replicas, SESSION_MS if isr_at_kill else KILLED_MS)
        _traffic(story, partition, replicas, lost if partition == 1 else 0, pause_ms)
    return story


def _metadata(story: MadeUp, partition: int, replicas: tuple[int, ...], shrunk_ms: float) -> None:
    story.of(LeaderChange, BEGIN_MS, partition, leader=replicas[0], epoch=0)
    story.of(IsrChange, BEGIN_MS, partition, isr=replicas, replicas=replicas)
    if 1 not in replicas:
        return
    rest = tuple(node for node in replicas if node != 1)
    if replicas[0] == 1:
        story.of(LeaderChange, SESSION_MS, partition, leader=rest[0], epoch=1)
    story.of(IsrChange, shrunk_ms + 1, partition, isr=rest, replicas=replicas)
    story.of(IsrChange, STARTED_MS + 500, partition, isr=replicas, replicas=replicas)


def _traffic(
    story: MadeUp, partition: int, replicas: tuple[int, ...], lost: int, pause_ms: float
) -> None:
    kept: list[tuple[int, str]] = []
    sent_ms, offset = BEGIN_MS + 100, 0
    while sent_ms < END_MS:
        name = f"p{partition}:{offset}"
        waits = 1 in replicas and KILLED_MS - 5 < sent_ms < SESSION_MS
        done_ms = SESSION_MS + 10 + offset / 1000 if waits else sent_ms + 3
        story.of(Send, sent_ms, partition, process=f"p{partition}", id=name, digest="d", size=10)
        story.of(Acknowledged, done_ms, partition, process=f"p{partition}", id=name, offset=offset)
        if not (lost and KILLED_MS - 5 - lost * pause_ms <= sent_ms < KILLED_MS - 5):
            kept.append((offset, name))
        sent_ms, offset = sent_ms + pause_ms, offset + 1
    for place, name in kept:
        at_ms = END_MS + 100 + place / 100
        story.of(Delivered, at_ms, partition, process="final", offset=place, id=name, digest="d")
    story.of(ReadEnd, END_MS + 900, partition, process="final", begin=0, end=offset)


def lag() -> Lag:
    """A table that falls behind while its driver is dead."""
    steps = [(BEGIN_MS + 100 * step, max(0, 40 * (step - 20) if step < 60 else 0))
             for step in range(120)]  # fmt: skip
    return Lag(title="Table behind its log", points=steps, marks=[(3000.0, "driver killed")])


def curves() -> list[Curve]:
    """Over six sizes, values of four decades; over five moments, values of one."""
    sizes = (100, 1_000, 10_000, 100_000, 900_000, 5_000_000)
    rates = (20_000, 15_000, 4_000, 900, 110, 12.5)
    return [
        Curve(
            title="By size",
            x="bytes of an event",
            y="events a second",
            series=[
                Series(
                    "up", [Spot(x, y, y * 0.8, y * 1.3) for x, y in zip(sizes, rates, strict=True)]
                ),
                Series(
                    "down",
                    [Spot(x, y / 2, y / 2, y / 2) for x, y in zip(sizes, rates, strict=True)],
                ),
            ],
            note="the mean of both ways.",
        ),
        Curve(
            title="By time",
            x="seconds since the very first event",
            y="MB a second",
            series=[Series("all", [Spot(0.7 * n, 40 + n, 40 + n, 40 + n) for n in range(12)])],
        ),
    ]


@cache
def report(*, lost: int = 0) -> ReportData:
    """A whole proof: a part to prove, and a control that loses twenty."""
    return ReportData(
        title="one-broker-down",
        summary="One of three brokers stops and comes back.",
        text="Only leadership moves.",
        kept=not lost,
        verdict=f"Broken: {lost} lost." if lost else "Kept. None lost. The control failed.",
        promise="Nothing acknowledged is lost: each event is on every in-sync replica.",
        command="holdfast prove one-broker-down --config 'a=<b>'",
        parts=[
            PartReport(
                title="One broker down",
                headline="All is well.",
                kept=not lost,
                evidence=run(lost=lost),
                still=story(lost=lost).still(),
                checks=[
                    Check(name="1 is down", expected="leader 2", seen="leader none", kept=False),
                    Check(name="1 is back", expected="<whole>", seen="whole", kept=True),
                ],
                lag=lag(),
                also_broken="SIGKILL of the Spark driver",
                tables=[
                    Table(
                        title="Rows",
                        header=["name", "count"],
                        rows=[["<i>x</i>", "1,200"]],
                        curves=curves(),
                    )
                ],
                settings=SETTINGS,
            ),
            PartReport(
                title="Control: acks=1",
                headline="Twenty were lost.",
                kept=False,
                control="It must be broken, with lost events, or the run proves nothing.",
                evidence=run(lost=20),
                settings={**SETTINGS, "acks": "1"},
            ),
        ],
        forbidden=frozenset({"lost"}),
    )
