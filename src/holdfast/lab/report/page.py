"""The report's page: puts text, tables and drawings into the frame of `report.html`.

A single HTML file that opens offline, in light and in dark; nothing in it is fetched from anywhere.
Every text from outside is escaped here; the frame brings the style and the little script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Event, Fault
from holdfast.judge.timeline import UP_ACTIONS, Timeline
from holdfast.judge.verdict import MEANING, Anomaly, Availability, Counts, Finding, Observed
from holdfast.lab.report.charts import charts
from holdfast.lab.report.scales import duration, number
from holdfast.lab.report.values import Check, PartReport, ReportData, Table
from holdfast.lab.report.words import described_moments, plain

MOMENTS_MAX = 400
FINDINGS_SHOWN_MAX = 12


def write_report(path: Path, data: ReportData) -> None:
    """Write the page to `path`, whole or not at all. OSError when it can't be written."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(render_page(data), encoding="utf-8")
    temporary.replace(path)


def render_page(data: ReportData) -> str:
    """The whole page. Pure but for reading the frame that stands beside this module."""
    frame = files("holdfast.lab.report").joinpath("report.html").read_text(encoding="utf-8")
    first = next((part.evidence for part in data.parts), None)
    return Template(frame).substitute(
        title=escape(data.title),
        summary=escape(data.summary),
        state={True: "kept", False: "broken", None: "undecided"}[data.kept],
        word={True: "Promise kept", False: "Promise broken", None: "Undecided"}[data.kept],
        verdict=escape(data.verdict),
        when=_when(first),
        promise=escape(data.promise),
        cards=_cards(first) if first is not None else "",
        main="",
        sections="".join(_section(part, data.forbidden) for part in data.parts),
        configuration=_configuration(data.parts[0].settings if data.parts else {}),
        command=escape(data.command),
    )


def _when(evidence: Evidence | None) -> str:
    if evidence is None or not evidence.timeline.started:
        return ""
    moment = datetime.fromtimestamp(evidence.timeline.begin_wall_ms / 1000, tz=UTC)
    length = duration(evidence.timeline.end_ms - evidence.timeline.begin_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC, {length}, {evidence.judgement.events:,} events"


def _cards(evidence: Evidence) -> str:
    judgement = evidence.judgement
    counts, available = judgement.counts, judgement.availability
    lost, doubled = judgement.count(Anomaly.LOST), judgement.count(Anomaly.DUPLICATED)
    tone = "good" if judgement.observed is Observed.EXACTLY_ONCE else "bad"
    cards = [
        ("observed", judgement.observed.value.partition(":")[0], tone),
        (f"acknowledged, of {counts.sent:,}", f"{counts.acknowledged:,}", ""),
        ("lost", f"{lost:,}" if judgement.decided else "?", "bad" if lost else "good"),
        ("duplicated", f"{doubled:,}" if judgement.decided else "?", "bad" if doubled else "good"),
        ("longest gap", duration(_longest_gap(evidence)), ""),
        ("latency p99", duration(available.latency_ms_p99), ""),
    ]
    return "".join(
        f'<div class="card"><span>{escape(name)}</span><b class="{kind}">{escape(value)}</b></div>'
        for name, value, kind in cards
    )


def _longest_gap(evidence: Evidence) -> float:
    """Of any one partition: together they hide each other's gaps."""
    return max(
        (each.availability.gap_ms_longest for each in evidence.judgement.partitions), default=0.0
    )


def _section(section: PartReport, forbidden: frozenset[str]) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    words = (section.control, section.headline, section.text)
    parts += [f"<p>{escape(each)}</p>" for each in words if each]
    checks = section.checks
    if section.evidence is None:
        parts.append(_checks(checks, heading=False))
    parts += [_table(table) for table in section.tables]
    if section.evidence is not None:
        parts.append(_evidence(section.evidence, forbidden, level=3, checks=checks))
    return f"<section>{''.join(parts)}</section>"


def _evidence(
    evidence: Evidence,
    forbidden: frozenset[str],
    level: int = 2,
    checks: Sequence[Check] = (),
) -> str:
    """Charts, checks, timeline, both tables and the findings of one history."""

    def part(title: str, body: str) -> str:
        return f"<section><h{level}>{title}</h{level}>{body}</section>" if body else ""

    notes = "".join(f"<p>{escape(note)}</p>" for note in evidence.judgement.notes)
    return "".join(
        (
            notes,
            part("Over time", charts(evidence)),
            _checks(checks, level=level),
            part("What happened", timeline_table(evidence.timeline)),
            part("Consistency", _consistency(evidence, forbidden)),
            part("Evidence", _findings(evidence.judgement.findings, evidence.timeline)),
            part("Availability", _availability(evidence)),
        )
    )


def _checks(checks: Sequence[Check], *, heading: bool = True, level: int = 2) -> str:
    if not checks:
        return ""
    rows = "".join(
        f'<tr><td><span class="{"yes" if check.kept else "no"}">'
        f"{'✓' if check.kept else '✗'}</span></td><td>{escape(check.name)}</td>"
        f"<td>{escape(check.expected)}</td><td>{escape(check.seen)}</td></tr>"
        for check in checks
    )
    table = (
        '<div class="scroll"><table class="checks"><thead><tr><th></th><th>what</th>'
        f"<th>must be</th><th>was</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    if not heading:
        return table
    kept = sum(check.kept for check in checks)
    count = f'<p class="muted">{kept} of {len(checks)} as they must be</p>'
    return f"<section><h{level}>What had to be seen</h{level}>{count}{table}</section>"


def _is_number(text: str) -> bool:
    bare = text.replace(",", "").replace("%", "").replace(" ms", "").replace(" s", "").strip()
    return bare in {"", "-"} or bare.lstrip("-").replace(".", "", 1).isdigit()


def _table(table: Table) -> str:
    numeric = [
        bool(table.rows) and all(_is_number(row[index]) for row in table.rows)
        for index in range(len(table.header))
    ]
    kinds = [' class="n"' if flag else "" for flag in numeric]
    head = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.header, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in table.rows
    )
    note = f'<p class="muted">{escape(table.note)}</p>' if table.note else ""
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    return (
        f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _consistency(evidence: Evidence, forbidden: frozenset[str]) -> str:
    judgement = evidence.judgement
    if not judgement.partitions:
        return ""
    anomalies = list(Anomaly)
    columns = ["sent", "acknowledged", "refused", "unknown", "of these in the log", "in the log"]
    outcomes, marks = "", ""
    for each in judgement.partitions:
        name = f"{each.topic}-{each.partition}"
        outcomes += _row(name, _cells(_count_cells(each.counts, each.whole_read)))
        marks += _row(
            name,
            "".join(_anomaly_cell(a, each.anomalies.get(a, 0), forbidden) for a in anomalies),
        )
    totals = _cells(_count_cells(judgement.counts, judgement.decided))
    outcomes += _row("all", totals, "total")
    found = "".join(_anomaly_cell(a, judgement.count(a), forbidden) for a in anomalies)
    marks += _row("all", found, "total")
    first = "".join(f'<th class="n">{name}</th>' for name in columns)
    second = "".join(
        f'<th class="n" title="{escape(MEANING[each])}">{each.value}</th>' for each in anomalies
    )
    meanings = "".join(
        f"<dt>{each.value}</dt><dd>{escape(MEANING[each])}</dd>" for each in anomalies
    )
    return (
        f'<p>Observed: <b class="observed">{judgement.observed.value}</b>.</p>'
        f'<div class="scroll"><table><thead><tr><th></th>{first}</tr></thead>'
        f"<tbody>{outcomes}</tbody></table></div><p></p>"
        f'<div class="scroll"><table><thead><tr><th></th>{second}</tr></thead>'
        f"<tbody>{marks}</tbody></table></div>"
        f"<details><summary>What the words mean</summary><dl>{meanings}</dl></details>"
    )


def _row(name: str, cells: str, kind: str = "") -> str:
    return f'<tr class="{kind}"><td>{escape(name)}</td>{cells}</tr>'


def _cells(texts: Iterable[str]) -> str:
    return "".join(f'<td class="n">{text}</td>' for text in texts)


def _count_cells(counts: Counts, whole: bool) -> list[str]:
    doubtful = counts.unknown + counts.unanswered
    return [
        f"{counts.sent:,}",
        f"{counts.acknowledged:,}",
        f"{counts.refused:,}",
        f"{doubtful:,}",
        f"{counts.unknown_in_log:,}" if whole else "?",
        f"{counts.in_log:,}" if whole else "?",
    ]


def _anomaly_cell(anomaly: Anomaly, count: int, forbidden: frozenset[str]) -> str:
    if not count:
        return '<td class="n zero">0</td>'
    kind = "bad" if anomaly.value in forbidden else "warn"
    return f'<td class="n {kind}">{count:,}</td>'


def _availability(evidence: Evidence) -> str:
    judgement, timeline = evidence.judgement, evidence.timeline
    if not judgement.partitions or not judgement.counts.sent:
        return ""

    def row(name: str, available: Availability, leaderless_ms: float | None) -> list[str]:
        gap_s = (available.gap_at_ms - timeline.begin_ms) / 1000
        return [
            name,
            f"{available.share:.2%}",
            duration(available.gap_ms_longest),
            f"{number(round(gap_s, 1))} s" if available.gap_ms_longest else "-",
            duration(leaderless_ms) if leaderless_ms else "-",
            duration(available.latency_ms_p50),
            duration(available.latency_ms_p99),
            duration(available.latency_ms_max),
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
    note = (
        "A gap is a time in which events waited and none was acknowledged. Latency: from send to "
        "acknowledgement, with the client's own retries and back-offs in it."
    )
    return _table(Table(title="", header=header, rows=rows, note=note))


def _findings(findings: Sequence[Finding], timeline: Timeline) -> str:
    if not findings:
        return ""
    shown: dict[Anomaly, list[Finding]] = {}
    for finding in findings:
        shown.setdefault(finding.anomaly, []).append(finding)
    parts = []
    for anomaly, group in shown.items():
        items = "".join(
            f"<li>{escape(f'{each.topic}-{each.partition}: {each.text}')}"
            f"{_event_list(each.events, timeline)}</li>"
            for each in group[:FINDINGS_SHOWN_MAX]
        )
        more = len(group) - FINDINGS_SHOWN_MAX
        rest = f"<li>and {more} more like these in the history</li>" if more > 0 else ""
        parts.append(
            f"<details><summary><b>{anomaly.value}</b>: {escape(MEANING[anomaly])}</summary>"
            f'<ul class="findings">{items}{rest}</ul></details>'
        )
    return "".join(parts)


def _event_list(events: Iterable[Event], timeline: Timeline) -> str:
    lines = "\n".join(
        f"{(event.at_ms - timeline.begin_ms) / 1000:9.3f} s  {event.process:<12} {plain(event)}"
        for event in events
    )
    return f"<pre>{escape(lines)}</pre>"


def timeline_table(timeline: Timeline) -> str:
    moments = described_moments(timeline)
    if not moments:
        return ""
    rows = "".join(
        f'<tr class="t-{_tone(event)}"><td class="n">'
        f"{(event.at_ms - timeline.begin_ms) / 1000:.3f} s</td><td>{escape(words)}</td></tr>"
        for event, words in moments[:MOMENTS_MAX]
    )
    more = len(moments) - MOMENTS_MAX
    note = f'<p class="muted">{more} more in the history.</p>' if more > 0 else ""
    opened = " open" if len(moments) <= 40 else ""
    return (
        f"<details{opened}><summary>{len(moments)} moments</summary>"
        f'<table class="moments"><tbody>{rows}</tbody></table>{note}</details>'
    )


def _tone(event: Event) -> str:
    return "up" if isinstance(event, Fault) and event.action in UP_ACTIONS else event.KIND


def _configuration(values: Mapping[str, str]) -> str:
    if not values:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td><code>{escape(value)}</code></td></tr>"
        for name, value in values.items()
    )
    return f'<div class="scroll"><table class="configuration"><tbody>{rows}</tbody></table></div>'
