"""The tables of a part: outcomes, anomalies, availability, moments, findings, the caller's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Event, Fault
from holdfast.judge.timeline import UP_ACTIONS, Timeline
from holdfast.judge.verdict import (
    MEANING,
    Anomaly,
    Availability,
    Counts,
    Finding,
    PartitionJudgement,
)
from holdfast.lab.report.curves import curve_figure
from holdfast.lab.report.figures import AT_LEAST, FEW, NONE, TO, percent, time_of
from holdfast.lab.report.scales import duration
from holdfast.lab.report.scene import Figure
from holdfast.lab.report.values import Table
from holdfast.lab.report.words import described_moments, plain

FINDINGS_SHOWN_MAX = 12
GAP_NOTE = (
    "A gap is a time in which events waited and none was acknowledged. Latency: from send to "
    "acknowledgement, with the client's own retries and back-offs in it. " + FEW
)


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    kind: str = ""  # the style's class
    title: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    cells: Sequence[Cell]
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    header: Sequence[Cell]
    rows: Sequence[Row]
    title: str = ""
    note: str = ""
    kind: str = ""
    figures: Sequence[Figure] = ()  # what is drawn of it, above it


@dataclass(frozen=True, slots=True)
class Moment:
    at: str
    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class FoundItem:
    text: str
    events: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Findings of one kind, the first of them with their events."""

    word: str
    count: str
    meaning: str
    forbidden: bool
    items: Sequence[FoundItem]
    more: int

    @property
    def tone(self) -> str:
        return "bad" if self.forbidden else "warn"

    @property
    def sign(self) -> str:
        return "✗" if self.forbidden else "!"


def table_view(table: Table) -> TableView:
    """A table of the caller's own; columns of numbers are set flush right."""
    kinds = [
        "n" if table.rows and all(_is_number(row[index]) for row in table.rows) else ""
        for index in range(len(table.header))
    ]
    return TableView(
        title=table.title,
        note=table.note,
        figures=[each for each in map(curve_figure, table.curves) if each is not None],
        header=[Cell(name, kind) for kind, name in zip(kinds, table.header, strict=True)],
        rows=[
            Row([Cell(text, kind) for kind, text in zip(kinds, row, strict=True)])
            for row in table.rows
        ],
    )


def _is_number(text: str) -> bool:
    if TO in text:
        return all(map(_is_number, text.split(TO)))
    bare = (
        text.removeprefix(AT_LEAST)
        .replace(",", "")
        .replace("%", "")
        .replace(" ms", "")
        .replace(" s", "")
        .strip()
    )
    return bare in {"", "-"} or bare.lstrip("-").replace(".", "", 1).isdigit()


def outcomes(evidence: Evidence) -> TableView | None:
    """What became of every send, partition by partition."""
    judgement = evidence.judgement
    if not judgement.partitions:
        return None
    columns = ["", "sent", "acknowledged", "refused", "unknown", "of these in the log",
               "in the log", "expired"]  # fmt: skip
    rows = [
        Row(
            [
                Cell(f"{each.topic}-{each.partition}", "name"),
                *_counts(each.counts, each.whole_read),
            ]
        )
        for each in judgement.partitions
    ]
    whole = all(each.whole_read for each in judgement.partitions)
    rows.append(Row([Cell("all"), *_counts(judgement.counts, whole)], "total"))
    return TableView(header=[Cell(name, "n" if name else "") for name in columns], rows=rows)


def _counts(counts: Counts, whole: bool) -> list[Cell]:
    known = (
        counts.sent,
        counts.acknowledged,
        counts.refused,
        counts.unknown + counts.unanswered,
    )
    read = (counts.unknown_in_log, counts.in_log, counts.expired)
    cells = [Cell(f"{count:,}", "n") for count in known]
    return cells + [Cell(f"{count:,}" if whole else "?", "n") for count in read]


def anomalies(evidence: Evidence, forbidden: frozenset[str]) -> TableView | None:
    """How many of each anomaly, partition by partition; forbidden ones stand out."""
    judgement = evidence.judgement
    if not judgement.partitions:
        return None
    rows = [
        Row(
            [
                Cell(f"{each.topic}-{each.partition}", "name"),
                *(_anomaly(a, each.anomalies.get(a, 0), forbidden) for a in Anomaly),
            ]
        )
        for each in judgement.partitions
    ]
    totals = [_anomaly(anomaly, judgement.count(anomaly), forbidden) for anomaly in Anomaly]
    rows.append(Row([Cell("all"), *totals], "total"))
    header = [Cell(""), *(Cell(each.value, "n", MEANING[each]) for each in Anomaly)]
    return TableView(header=header, rows=rows)


def _anomaly(anomaly: Anomaly, count: int, forbidden: frozenset[str]) -> Cell:
    return anomaly_cell(count, is_forbidden=anomaly.value in forbidden)


def anomaly_cell(count: int, *, is_forbidden: bool) -> Cell:
    if not count:
        return Cell("0", "n zero")
    return Cell(f"{'✗ ' if is_forbidden else ''}{count:,}", "n bad" if is_forbidden else "n warn")


def availability(evidence: Evidence) -> TableView | None:
    """How much was acknowledged, how long there was none, and how long each waited."""
    judgement, timeline = evidence.judgement, evidence.timeline
    if not judgement.partitions or not judgement.counts.sent:
        return None

    def row(name: str, available: Availability, leaderless_ms: float | None) -> list[str]:
        gap_s = (available.gap_at_ms - timeline.begin_ms) / 1000
        return [
            name,
            percent(available.share, 2),
            duration(available.gap_ms_longest) if available.gap_ms_longest else NONE,
            f"{gap_s:,.1f} s" if available.gap_ms_longest else "-",
            duration(leaderless_ms) if leaderless_ms else "-",
            time_of(available.acknowledged, 500, available.latency_ms_p50),
            time_of(available.acknowledged, 990, available.latency_ms_p99),
            time_of(available.acknowledged, 1000, available.latency_ms_max),
        ]

    rows = []
    for each in judgement.partitions:
        if each.counts.sent:
            spans = timeline.leaderless((each.topic, each.partition))
            leaderless_ms = sum(end - begin for begin, end in spans)
            rows.append(row(f"{each.topic}-{each.partition}", each.availability, leaderless_ms))
    rows.append(row("all together", judgement.availability, None))
    header = ["", "acknowledged", "longest gap", "it begins at", "no leader for",
              "latency p50", "p99", "max"]  # fmt: skip
    return table_view(Table(title="", header=header, rows=rows, note=GAP_NOTE))


def longest_gap(partitions: Iterable[PartitionJudgement]) -> PartitionJudgement | None:
    """The partition with the longest gap: all together they hide each other's."""
    found = max(partitions, key=lambda each: each.availability.gap_ms_longest, default=None)
    return found if found is not None and found.availability.gap_ms_longest else None


def moments(timeline: Timeline) -> list[Moment]:
    """Everything that happened to the cluster, in order, in words."""
    return [
        Moment(f"{(event.at_ms - timeline.begin_ms) / 1000:.3f} s", words, _tone(event))
        for event, words in described_moments(timeline)
    ]


def _tone(event: Event) -> str:
    return "up" if isinstance(event, Fault) and event.action in UP_ACTIONS else event.KIND


def findings(evidence: Evidence, forbidden: frozenset[str]) -> list[Found]:
    """What went wrong, forbidden kinds first, with the events that prove it."""
    judgement = evidence.judgement
    groups: dict[Anomaly, list[Finding]] = {}
    for finding in judgement.findings:
        groups.setdefault(finding.anomaly, []).append(finding)
    found = [
        Found(
            word=anomaly.value,
            count=f"{judgement.count(anomaly):,}",
            meaning=MEANING[anomaly],
            forbidden=anomaly.value in forbidden,
            items=[
                FoundItem(
                    f"{each.topic}-{each.partition}: {each.text}",
                    event_list(each.events, evidence.timeline),
                )
                for each in group[:FINDINGS_SHOWN_MAX]
            ],
            more=max(0, judgement.count(anomaly) - FINDINGS_SHOWN_MAX),
        )
        for anomaly, group in groups.items()
    ]
    return sorted(found, key=lambda each: not each.forbidden)


def event_list(events: Iterable[Event], timeline: Timeline) -> str:
    return "\n".join(
        f"{(event.at_ms - timeline.begin_ms) / 1000:9.3f} s  {event.process:<12} {plain(event)}"
        for event in events
    )
