"""The demo's report: a verdict put into words and figures for `write_report`. Draws nothing."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import sqlalchemy as sql

from holdfast.judge.history import Acknowledged
from holdfast.lab.demo.demo_check import DemoVerdict
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.demo.spark import Words
from holdfast.lab.evidence import events_of, history_files
from holdfast.lab.report import Lag, PartReport, ReportData
from holdfast.lab.report.page import write_report

LAG_POINTS_MAX = 400
DRIVER_KILLED = "the Spark driver was killed with SIGKILL"  # begins the note of the step that does


def report_demo(places: Places, verdict: DemoVerdict, command: str) -> None:
    """Write the run's report.html."""
    write_report(places.report, report_data(places, verdict, command))


def report_data(places: Places, verdict: DemoVerdict, command: str) -> ReportData:
    plan = verdict.plan
    groups = plan.parameters.group_promise
    if plan.database:
        command = command.replace(plan.database, _shown(plan.database))
    return ReportData(
        title="demo",
        summary=_summary(verdict),
        kept=verdict.exit.kept,
        verdict=verdict.sentence,
        promise=f"{verdict.plan.parameters.promise_text} Each event is in the table exactly once.",
        command=command,
        parts=[
            PartReport(
                title="Log and table",
                headline=verdict.sentence,
                kept=verdict.exit.kept,
                also_broken="SIGKILL of the Spark driver" if _driver_killed(verdict) else "",
                text=_table_text(plan),
                evidence=verdict.evidence,
                still=verdict.still,
                checks=verdict.checks,
                lag=lag(places, verdict),
                tables=verdict.tables,
                settings=_configuration(plan),
            )
        ],
        forbidden=frozenset(str(each) for each in verdict.promise.forbids),
        forbidden_groups=frozenset() if groups is None else groups.forbids,
    )


def _summary(verdict: DemoVerdict) -> str:
    """What was done, as far as the run came."""
    plan, timeline = verdict.plan, verdict.evidence.timeline
    what = "payments between accounts" if plan.kind == "payments" else "the lines of a file"
    text = f"{plan.events:,} events, {what}, for three brokers and a table that Spark keeps."
    if any(fault.action == "KILL" for fault in timeline.faults):
        text += " On the way the leader of partition 0 was killed with SIGKILL and started again."
    if _driver_killed(verdict):
        text += " Spark was killed, too, between the table's commit and its own."
    return text


def _driver_killed(verdict: DemoVerdict) -> bool:
    return any(DRIVER_KILLED in note.text for note in verdict.evidence.timeline.notes)


def lag(places: Places, verdict: DemoVerdict) -> Lag:
    """Return how many acknowledged events the table lacked, over time."""
    timeline = verdict.evidence.timeline
    commits = [
        commit
        for path in sorted(places.directory.glob("spark-*.jsonl"))
        for commit in Words(path).poll().commits
    ]
    acknowledged = (
        (event.at_ms, 1)
        for event in events_of(history_files(places.history))
        if isinstance(event, Acknowledged)
    )
    moves = heapq.merge(acknowledged, ((at, -rows) for at, rows in commits), key=itemgetter(0))
    marks = [(fault.at_ms, f"{fault.action} {fault.node}") for fault in timeline.faults]
    marks += [
        (note.at_ms, "KILL Spark")
        for note in timeline.notes
        if "Spark driver was killed" in note.text
    ]
    return Lag(
        title="How far the table is behind the log",
        points=thinned(behind(moves), timeline.begin_ms, timeline.end_ms),
        marks=sorted(marks),
        note="Events that the log has acknowledged and the table does not have. Each batch that "
        "Spark writes takes the line down; while no driver runs it rises.",
    )


def behind(moves: Iterable[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Yield the sum so far after each move.

    A batch is in the table before its driver says so, and some of its events may be before their
    acknowledgement: it is never below nothing.
    """
    total = 0
    for at_ms, change in moves:
        total += change
        yield at_ms, max(0, total)


def thinned(
    points: Iterable[tuple[float, int]], begin_ms: float, end_ms: float
) -> Sequence[tuple[float, int]]:
    """Return few enough points to draw: of each stretch of time its highest, and its last."""
    width = max(1.0, (end_ms - begin_ms) / (LAG_POINTS_MAX / 2))
    kept: list[tuple[float, int]] = [(begin_ms, 0)]
    stretch, highest, last = -1, (begin_ms, 0), (begin_ms, 0)
    for point in points:
        now = int((point[0] - begin_ms) / width)
        if now != stretch:
            kept += _both(highest, last)
            stretch, highest = now, point
        elif point[1] > highest[1]:
            highest = point
        last = point
    kept += [*_both(highest, last), (max(end_ms, last[0]), last[1])]
    return kept


def _both(highest: tuple[float, int], last: tuple[float, int]) -> list[tuple[float, int]]:
    return [last] if highest == last else [highest, last]


def _table_text(plan: DemoPlan) -> str:
    text = (
        "Rows and the next offset of each partition are committed in one transaction. The tables "
        "have no unique key: a row written twice would stand there twice, and be counted."
    )
    if plan.malformed:
        text += (
            f" {plan.malformed:,} malformed lines of the input were kept aside in malformed.jsonl."
        )
    return text


def _configuration(plan: DemoPlan) -> dict[str, str]:
    values = {
        **plan.parameters.shown(),
        "topic": plan.topic,
        "database": _shown(plan.database) if plan.database else "SQLite, table.db",
    }
    if plan.kind == "payments":
        values["payments"] = f"{plan.accounts} accounts, seed {plan.seed}"
    else:
        values["input"] = f"{plan.input}, key {plan.key or 'none'}"
        values["input SHA-256"] = plan.sha256
    return values


def _shown(database: str) -> str:
    """Return a database's URL without its password: a report is passed on."""
    return sql.make_url(database).render_as_string(hide_password=True)
