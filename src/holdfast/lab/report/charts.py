"""What a report draws: rates, latencies, and the state of the cluster, from one history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Fault
from holdfast.judge.series import Point
from holdfast.judge.timeline import DOWN_ACTIONS, UP_ACTIONS, Timeline
from holdfast.lab.report.drawing import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Drawing
from holdfast.lab.report.scales import Scale, duration, number, round_up, ticks
from holdfast.lab.report.words import ACTION_WORDS

BINS_MAX = 220
BIN_MS_MIN = 250.0
PARTITIONS_DRAWN_MAX = 12
LINES_MAX = 6
ROW, BLOCK_GAP = 13, 9


@dataclass(frozen=True, slots=True)
class Bin:
    """Several points together; rates are means, latencies the worst of their kind."""

    at_ms: float
    sent: float
    refused: float
    unknown: float
    acknowledged: dict[tuple[str, int], float]
    p50: float | None
    p99: float | None
    worst: float | None


def _greatest(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _bins(points: Sequence[Point], width_ms: float) -> tuple[list[Bin], float]:
    """At most BINS_MAX of them, none shorter than BIN_MS_MIN."""
    size = max(1, round(BIN_MS_MIN / width_ms), -(-len(points) // BINS_MAX))
    bins = []
    for begin in range(0, len(points), size):
        group = points[begin : begin + size]
        acknowledged: dict[tuple[str, int], float] = {}
        for point in group:
            for key, rate in point.acknowledged.items():
                acknowledged[key] = acknowledged.get(key, 0.0) + rate / size
        medians = sorted(p.latency_ms_p50 for p in group if p.latency_ms_p50 is not None)
        bins.append(
            Bin(
                at_ms=group[0].at_ms + (size - 1) / 2 * width_ms,
                sent=sum(point.sent for point in group) / size,
                refused=sum(point.refused for point in group) / size,
                unknown=sum(point.unknown for point in group) / size,
                acknowledged=acknowledged,
                p50=medians[len(medians) // 2] if medians else None,
                p99=_greatest(point.latency_ms_p99 for point in group),
                worst=_greatest(point.latency_ms_max for point in group),
            )
        )
    return bins, size * width_ms


def fault_strip(timeline: Timeline) -> str:
    """What was done to nodes, in words, above all other drawings; labels never overlap."""
    rows: list[float] = []
    placed: list[tuple[Fault, float, int, str]] = []
    x = Scale(timeline.begin_ms, timeline.end_ms, LEFT, WIDTH - RIGHT)
    for fault in timeline.faults:
        words = f"{ACTION_WORDS.get(fault.action, fault.action)} {fault.node}"
        width = 6.6 * len(words) + 10
        at = min(x(fault.at_ms), WIDTH - RIGHT - width)
        row = next((i for i, end in enumerate(rows) if end <= at), len(rows))
        if row == len(rows):
            rows.append(0.0)
        rows[row] = at + width
        placed.append((fault, at, row, words))
    if not placed or len(rows) > 8:
        return ""
    drawing = Drawing(timeline, 16 * len(rows) + 6, "faults")
    for fault, at, row, words in placed:
        kind = "up" if fault.action in UP_ACTIONS else "down"
        y = 16 * row + 14
        drawing.line(x(fault.at_ms), y - 10, x(fault.at_ms), drawing.height, f"mark mark-{kind}")
        drawing.text(at + 4, y, words, f"fault fault-{kind}")
    return drawing.render()


def throughput(evidence: Evidence) -> str:
    """Acknowledged events a second, by partition; refusals and doubts below them."""
    bins, _width = _bins(evidence.points, evidence.point_ms)
    keys = sorted({key for each in bins for key in each.acknowledged})
    height = 230
    drawing = Drawing(evidence.timeline, height, "acknowledged events a second over time")
    top, bottom = TOP, height - BOTTOM
    lines = _throughput_lines(keys)
    rates = [get(each) for each in bins for _name, get in lines]
    rates += [rate for each in bins for rate in (each.refused, each.unknown)]
    ceiling = _ceiling(rates)
    scale = Scale(0, round_up(ceiling), bottom, top)
    drawing.leaderless(top, bottom)
    drawing.value_axis(scale, ticks(0, scale.high, 4), "events/s")
    width = max(1.0, drawing.x(evidence.timeline.begin_ms + _width) - LEFT - 1)
    for each in bins:
        at = drawing.x(each.at_ms)
        for rate, kind in ((each.refused, "refused"), (each.unknown, "unknown")):
            if rate:
                drawing.box(at - width / 2, scale(rate), at + width / 2, bottom, kind)
    for index, (_name, get) in enumerate(lines):
        places = [(drawing.x(each.at_ms), scale(get(each))) for each in bins]
        drawing.path(places, "line", f"stroke:var(--c{index % 6})")
    drawing.faults(top, bottom)
    drawing.time_axis(bottom)
    legend = [
        (name, f"background:var(--c{index % 6})", "") for index, (name, _g) in enumerate(lines)
    ]
    if any(each.refused for each in bins):
        legend.append(("refused or not sent", "", "key-refused"))
    if any(each.unknown for each in bins):
        legend.append(("unknown outcome", "", "key-unknown"))
    rows = [
        [
            round(each.at_ms - evidence.timeline.begin_ms),
            *(round(get(each), 1) for _n, get in lines),
        ]
        for each in bins
    ]
    return _figure(
        "Throughput",
        "acknowledged events a second",
        _with_legend(legend),
        drawing.render(),
        {"unit": "/s", "names": [name for name, _ in lines], "rows": rows},
    )


def _ceiling(rates: Sequence[float]) -> float:
    """Where the axis ends: a backlog that comes in at once must not flatten all the rest."""
    ordered = sorted(rate for rate in rates if rate)
    if not ordered:
        return 1.0
    usual = ordered[int(len(ordered) * 0.9)]
    return min(ordered[-1], usual * 2.2) * 1.05


def _label_peak(
    drawing: Drawing,
    bins: Sequence[Bin],
    lines: Sequence[tuple[str, Callable[[Bin], float]]],
    scale: Scale,
) -> None:
    """Write the height of the highest peak beside it when the axis ends below."""
    peak, at_ms = max(((get(b), b.at_ms) for b in bins for _n, get in lines), default=(0.0, 0.0))
    if peak <= scale.high:
        return
    x = drawing.x(at_ms)
    left = x > WIDTH * 0.75
    drawing.text(
        x - 8 if left else x + 8,
        TOP + 9,
        f"up to {number(peak)}/s",
        "tick",
        "end" if left else "start",
    )


def _throughput_lines(
    keys: Sequence[tuple[str, int]],
) -> list[tuple[str, Callable[[Bin], float]]]:
    if not keys or len(keys) > LINES_MAX:
        return [("all partitions", lambda each: sum(each.acknowledged.values()))]
    one_topic = len({topic for topic, _ in keys}) == 1

    def rate_of(key: tuple[str, int]) -> Callable[[Bin], float]:
        return lambda each: each.acknowledged.get(key, 0.0)

    return [
        (f"partition {key[1]}" if one_topic else f"{key[0]}-{key[1]}", rate_of(key)) for key in keys
    ]


def latency(evidence: Evidence) -> str:
    """From send to acknowledgement, drawn where the send was, on a logarithmic axis."""
    bins, _width = _bins(evidence.points, evidence.point_ms)
    known = [value for each in bins for value in (each.p50, each.worst) if value is not None]
    if not known:
        return ""
    height = 200
    drawing = Drawing(evidence.timeline, height, "latency over time")
    top, bottom = TOP, height - BOTTOM
    marks = [mark for power in range(-1, 7) for mark in (10.0**power,)]
    low = max((mark for mark in marks if mark <= max(0.1, min(known))), default=0.1)
    high = min((mark for mark in marks if mark >= max(known)), default=marks[-1])
    scale = Scale(low, max(high, low * 10), bottom, top, logarithmic=True)
    drawing.leaderless(top, bottom)
    drawing.value_axis(scale, [m for m in marks if low <= m <= scale.high], "milliseconds")
    kinds: list[tuple[str, str, Callable[[Bin], float | None]]] = [
        ("max", "--c3", lambda each: each.worst),
        ("p99", "--c1", lambda each: each.p99),
        ("p50", "--c0", lambda each: each.p50),
    ]
    for _name, colour, get in kinds:
        places = []
        for each in bins:
            value = get(each)
            places.append(None if value is None else (drawing.x(each.at_ms), scale(value)))
        drawing.path(places, "line", f"stroke:var({colour})")
    drawing.faults(top, bottom)
    drawing.time_axis(bottom)
    rows = [
        [
            round(each.at_ms - evidence.timeline.begin_ms),
            *(None if (v := get(each)) is None else round(v, 1) for _n, _c, get in kinds),
        ]
        for each in bins
    ]
    return _figure(
        "Latency",
        "from send to acknowledgement, at the time of the send",
        _with_legend(
            [(name, f"background:var({colour})", "") for name, colour, _ in reversed(kinds)]
        ),
        drawing.render(),
        {"unit": " ms", "names": [name for name, _c, _g in kinds], "rows": rows},
    )


def cluster_state(evidence: Evidence) -> str:
    """Each partition's replicas: in sync or not, who leads, and where nobody does."""
    timeline = evidence.timeline
    partitions = list(timeline.partitions)[:PARTITIONS_DRAWN_MAX]
    if not partitions:
        return ""
    rows = sum(max(1, len(timeline.replicas(partition))) for partition in partitions)
    height = TOP + rows * ROW + len(partitions) * BLOCK_GAP + BOTTOM
    drawing = Drawing(timeline, height, "leaders and in-sync replicas over time")
    y = float(TOP)
    one_topic = len({topic for topic, _ in partitions}) == 1
    for partition in partitions:
        name = f"P{partition[1]}" if one_topic else f"{partition[0]}-{partition[1]}"
        y = _draw_partition(drawing, partition, name, y) + BLOCK_GAP
    drawing.faults(TOP - 6, y)
    drawing.time_axis(y)
    left_out = len(timeline.partitions) - len(partitions)
    note = f"; {left_out} more partitions are not drawn" if left_out else ""
    legend = [
        ("leader", "", "key-leader"),
        ("in sync", "", "key-insync"),
        ("out of sync", "", "key-out"),
        ("no leader", "", "key-leaderless"),
    ]
    return _figure(
        "Leaders and in-sync replicas",
        f"one row a replica, in the order of the replica list{note}",
        _with_legend(legend),
        drawing.render(),
        None,
    )


def _draw_partition(drawing: Drawing, partition: tuple[str, int], name: str, top: float) -> float:
    """Draw one partition's block; return where it ends."""
    timeline = drawing.timeline
    replicas = timeline.replicas(partition) or (-1,)
    bottom = top + ROW * len(replicas)
    drawing.text(8, top + ROW * len(replicas) / 2 + 4, name, "name")
    changes = timeline.isrs.get(partition, [])
    spans = timeline.spans(partition)
    for index, replica in enumerate(replicas):
        y1, y2 = top + index * ROW + 1, top + (index + 1) * ROW - 1
        drawing.text(LEFT - 8, y2 - 1.5, str(replica), "tick", "end")
        for change, following in zip(changes, [*changes[1:], None], strict=True):
            if change.replicas and replica not in change.replicas:
                continue  # it doesn't hold the partition then
            end_ms = following.at_ms if following else timeline.end_ms
            x1, x2 = drawing.x(change.at_ms), drawing.x(end_ms)
            kind = "insync" if replica in change.isr else "outsync"
            drawing.box(x1, y1, x2, y2, kind)
        for span in spans:
            if span.leader == replica:
                drawing.box(
                    drawing.x(span.begin_ms),
                    y1,
                    drawing.x(span.end_ms),
                    y2,
                    "leads",
                    f"{name}: {replica} leads in epoch {span.epoch} for "
                    f"{duration(span.end_ms - span.begin_ms)}",
                )
    for begin, end in timeline.leaderless(partition):
        drawing.box(
            drawing.x(begin),
            top,
            max(drawing.x(end), drawing.x(begin) + 1.5),
            bottom,
            "noleader",
            f"{name}: no leader for {duration(end - begin)}",
        )
    return bottom


def broker_state(timeline: Timeline) -> str:
    """When each node was up, stopped or down; nothing when no fault was done."""
    nodes = sorted(
        {fault.node for fault in timeline.faults}
        | {replica for partition in timeline.partitions for replica in timeline.replicas(partition)}
    )
    if not timeline.faults or not nodes:
        return ""
    drawing = Drawing(timeline, TOP + len(nodes) * (ROW + 3) + BOTTOM, "nodes over time")
    y = float(TOP)
    for node in nodes:
        drawing.text(LEFT - 8, y + ROW - 3, f"node {node}", "tick", "end")
        since, kind = timeline.begin_ms, "node-up"
        for fault in [f for f in timeline.faults if f.node == node]:
            drawing.box(drawing.x(since), y, drawing.x(fault.at_ms), y + ROW, kind)
            since = fault.at_ms
            if fault.action in DOWN_ACTIONS:
                kind = "node-stopped" if fault.action == "STOP" else "node-down"
            elif fault.action in UP_ACTIONS:
                kind = "node-up"
        drawing.box(drawing.x(since), y, drawing.x(timeline.end_ms), y + ROW, kind)
        y += ROW + 3
    drawing.time_axis(y)
    legend = [("up", "", "key-up"), ("stopped", "", "key-stopped"), ("down", "", "key-down")]
    return _figure("Nodes", "processes, by what was done to them", _with_legend(legend),
                   drawing.render(), None)  # fmt: skip


def _with_legend(entries: Sequence[tuple[str, str, str]]) -> str:
    items = "".join(
        f'<span class="key"><i class="{kind}" style="{style}"></i>{escape(name)}</span>'
        for name, style, kind in entries
    )
    return f'<div class="legend">{items}</div>'


def _figure(title: str, note: str, legend: str, svg: str, data: dict[str, object] | None) -> str:
    payload = ""
    if data is not None:
        text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
        payload = f'<script type="application/json" class="data">{text}</script>'
    return (
        f'<figure><figcaption><b>{escape(title)}</b> <span class="muted">{escape(note)}</span>'
        f"{legend}</figcaption>{svg}{payload}</figure>"
    )


def charts(evidence: Evidence) -> str:
    """All drawings of one history, one below the other."""
    timeline = evidence.timeline
    if timeline.end_ms <= timeline.begin_ms:
        return ""
    total_ms = timeline.end_ms - timeline.begin_ms
    parts = [fault_strip(timeline)]
    if evidence.points:
        parts += [throughput(evidence), latency(evidence)]
    parts += [cluster_state(evidence), broker_state(timeline)]
    drawn = "".join(part for part in parts if part)
    return f'<div class="charts" data-total="{total_ms:.0f}">{drawn}</div>' if drawn else ""
