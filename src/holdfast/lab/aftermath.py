"""What is reckoned from a finished history beside the judgement: recovery, exact loss."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.judge.history import Acknowledged, Event, Fault, Refused, Send, Unknown
from holdfast.judge.timeline import DOWN_ACTIONS, Timeline
from holdfast.judge.verdict import Anomaly, Judgement
from holdfast.lab.report import Check, Table
from holdfast.lab.report.scales import duration

FAULTS_MAX = 12  # in the table


def lost_check(expected: int, judgement: Judgement) -> Check:
    lost = judgement.count(Anomaly.LOST)
    return Check(
        name="acknowledged events lost",
        expected=f"exactly {expected}",
        seen=str(lost),
        kept=lost == expected,
    )


class _Recovery:
    """One fault: when each process was first acknowledged again, by partition."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.first: dict[tuple[str, int], float] = {}


def recovery_table(events: Iterable[Event], timeline: Timeline) -> Table | None:
    """From each fault to the first acknowledgement of an event sent after it."""
    hurts = (DOWN_ACTIONS | {"TERM"}) - {"exit"}
    faults = [fault for fault in timeline.faults if fault.action in hurts][:FAULTS_MAX]
    if not faults:
        return None
    recoveries = [_Recovery(fault) for fault in faults]
    sent: dict[str, float] = {}
    partitions: set[int] = set()
    processes: set[str] = set()
    current = -1
    for event in events:
        while current + 1 < len(recoveries) and recoveries[current + 1].fault.at_ms <= event.at_ms:
            current += 1
        if isinstance(event, Send):
            sent[event.id] = event.at_ms
            continue
        if not isinstance(event, Acknowledged | Refused | Unknown):
            continue
        sent_ms = sent.pop(event.id, 0.0)
        if not isinstance(event, Acknowledged) or current < 0:
            continue
        recovery = recoveries[current]
        if sent_ms >= recovery.fault.at_ms:
            partitions.add(event.partition)
            processes.add(event.process)
            recovery.first.setdefault((event.process, event.partition), event.at_ms)
    rows = []
    columns = sorted(partitions)
    for recovery in recoveries:
        for process in sorted(processes):
            cells = []
            for partition in columns:
                at_ms = recovery.first.get((process, partition))
                cells.append("-" if at_ms is None else duration(at_ms - recovery.fault.at_ms))
            rows.append([f"SIG{recovery.fault.action} {recovery.fault.node}", process, *cells])
    return Table(
        title="From the fault to the first acknowledgement of an event sent after it",
        header=["fault", "client", *(f"P{partition}" for partition in columns)],
        rows=rows,
        note=(
            "The raw client has no back-off of its own; the other is librdkafka, which waits "
            "between its attempts. A dash: none before the next fault."
        ),
    )
