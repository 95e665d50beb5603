"""What a report draws over time from the clients' side: rates, latencies, a table's lag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from holdfast.judge.checker import Evidence
from holdfast.lab.report.bins import (
    Bin,
    Peak,
    Rate,
    bins_of,
    highest,
    peaks_above,
    rates_of,
)
from holdfast.lab.report.drawing import (
    BOTTOM,
    LETTER,
    TOP,
    Drawing,
    Layout,
    in_lanes,
)
from holdfast.lab.report.scales import Scale, axis_end, decades, duration, number, round_up, ticks
from holdfast.lab.report.scene import Figure, Key, Scene, drawn
from holdfast.lab.report.values import Lag

PEAKS_SAID_MAX = 6
PEAK_LANES = 2
MARK_LANES_MAX = 8
THROUGHPUT_HEIGHT, LATENCY_HEIGHT, LAG_HEIGHT = 230, 200, 190

REFUSED = Rate(name="refused or not sent", of=lambda point: point.refused)
UNKNOWN = Rate(name="unknown outcome", of=lambda point: point.unknown)


def throughput(evidence: Evidence, scene: Scene) -> Figure:
    """Acknowledged events a second, by partition; refusals and doubts as bars below them."""
    points = evidence.points
    rates = rates_of(points)
    bars = [rate for rate in (REFUSED, UNKNOWN) if any(rate.of(point) for point in points)]
    bins, width_ms = bins_of(points, evidence.point_ms, [*rates, *bars])
    greatest = highest(points, [*rates, *bars])
    top_value = axis_end(
        (reach.mean for each in bins for reach in each.rates), greatest.value if greatest else 0.0
    )
    peaks = peaks_above(points, [*rates, *bars], top_value)
    step = duration(evidence.point_ms)

    def draw(layout: Layout) -> Drawing:
        label = "Acknowledged events a second over time. " + _peak_sentence(greatest, scene, step)
        height = THROUGHPUT_HEIGHT + (16 * PEAK_LANES + 6 if peaks else 0)
        drawing = Drawing(scene.frame, layout, height, label)
        top, bottom = height - THROUGHPUT_HEIGHT + TOP, height - BOTTOM
        scale = Scale(0, top_value, bottom, top)
        scene.leaderless(drawing, top, bottom)
        drawing.value_axis(scale, ticks(0, top_value, 4))
        half = max(1.0, drawing.x(scene.frame.begin_ms + width_ms) - drawing.left - 1) / 2
        for index, bar in enumerate(bars, start=len(rates)):
            kind = "refused" if bar is REFUSED else "unknown"
            for each in bins:
                if each.rates[index].mean:
                    at, high = drawing.x(each.at_ms), scale(each.rates[index].mean)
                    drawing.box(at - half, high, at + half, bottom, kind)
        for index in range(len(rates)):
            _rate_line(drawing, bins, index, scale)
        scene.lines(drawing, top, bottom)
        _name_peaks(drawing, peaks, top)
        drawing.time_axis(bottom)
        return drawing

    legend = [Key(rate.name, f"line s{index % 6}") for index, rate in enumerate(rates)]
    legend += [Key(bar.name, "refused" if bar is REFUSED else "unknown") for bar in bars]
    return Figure(
        title="Throughput",
        note=f"acknowledged events a second: a line of means over {duration(width_ms)}, in a band "
        f"from the lowest to the highest {step}. {_peak_sentence(greatest, scene, step)}",
        legend=legend,
        drawings=drawn(draw),
        said=_peaks_said(peaks, top_value, scene),
        data=_throughput_data(scene, bins, rates),
    )


def _rate_line(drawing: Drawing, bins: Sequence[Bin], index: int, scale: Scale) -> None:
    places = [(drawing.x(each.at_ms), each.rates[index]) for each in bins]
    drawing.band(
        [(x, scale(reach.high)) for x, reach in places],
        [(x, scale(reach.low)) for x, reach in places],
        f"band s{index % 6}",
    )
    drawing.path([(x, scale(reach.mean)) for x, reach in places], f"line s{index % 6}")


def _throughput_data(scene: Scene, bins: Sequence[Bin], rates: Sequence[Rate]) -> dict[str, object]:
    return {
        "unit": "/s",
        "names": [rate.name for rate in rates],
        "rows": [
            [
                round(each.at_ms - scene.frame.begin_ms),
                *(round(reach.mean, 1) for reach in each.rates[: len(rates)]),
            ]
            for each in bins
        ],
    }


def _peak_sentence(peak: Peak | None, scene: Scene, step: str) -> str:
    if peak is None:
        return "None was acknowledged."
    at = scene.frame.said(peak.at_ms)
    return f"Highest: {number(peak.value)}/s in {step}, {peak.name}, at {at}."


def _name_peaks(drawing: Drawing, peaks: Sequence[Peak], top: float) -> None:
    """Mark where a line stands out of the axis, with the number; the highest are named first.

    What finds no room is in the list under the chart.
    """
    taken: list[list[tuple[float, float]]] = [[] for _ in range(PEAK_LANES)]
    for peak in peaks:
        x = drawing.x(peak.at_ms)
        drawing.pointer(x, top - 2, "peak")
        words = f"{number(peak.value)}/s {peak.name}"
        width = LETTER * len(words)
        begin = min(max(x - width / 2, 0.0), drawing.layout.width - width)
        for lane, spans in enumerate(taken):
            if all(begin + width + 8 <= left or right + 8 <= begin for left, right in spans):
                spans.append((begin, begin + width))
                drawing.text(begin, top - 11 - 15 * lane, words, "peak-name")
                break


def _peaks_said(peaks: Sequence[Peak], top: float, scene: Scene) -> list[str]:
    if not peaks:
        return []
    shown = ", ".join(
        f"{number(peak.value)}/s ({peak.name}, at {scene.frame.said(peak.at_ms)})"
        for peak in peaks[:PEAKS_SAID_MAX]
    )
    more = len(peaks) - PEAKS_SAID_MAX
    rest = f", and {more:,} lower" if more > 0 else ""
    ends = f"The axis ends at {number(top)}/s, or nothing else could be seen."
    return [f"{ends} Out of it stand: {shown}{rest}."]


def latency(evidence: Evidence, scene: Scene) -> Figure | None:
    """From send to acknowledgement, drawn where the send was, on a logarithmic axis."""
    bins, _width_ms = bins_of(evidence.points, evidence.point_ms, [])
    known = [value for each in bins for value in (each.p50, each.worst) if value is not None]
    if not known:
        return None
    marks = decades(max(0.01, min(known)), max(0.01, *known))
    kinds: list[tuple[str, str, Callable[[Bin], float | None]]] = [
        ("max", "s3", lambda each: each.worst),
        ("p99", "s1", lambda each: each.p99),
        ("p50", "s0", lambda each: each.p50),
    ]
    worst, at_ms = max((each.worst or 0.0, each.at_ms) for each in bins)
    highest_text = f"Highest: {duration(worst)}, sent at {scene.frame.said(at_ms)}."

    def draw(layout: Layout) -> Drawing:
        label = f"Latency over time, on a logarithmic axis. {highest_text}"
        drawing = Drawing(scene.frame, layout, LATENCY_HEIGHT, label)
        top, bottom = TOP, LATENCY_HEIGHT - BOTTOM
        scale = Scale(marks[0], marks[-1], bottom, top, logarithmic=True)
        scene.leaderless(drawing, top, bottom)
        for mark in marks:
            drawing.line(drawing.left, scale(mark), drawing.right, scale(mark), "grid")
            drawing.text(drawing.left - 7, scale(mark) + 4, _time_mark(mark), "tick", "end")
        for _name, kind, get in kinds:
            values = [(drawing.x(each.at_ms), get(each)) for each in bins]
            places = [None if value is None else (x, scale(value)) for x, value in values]
            drawing.path(places, f"line {kind}")
        scene.lines(drawing, top, bottom)
        drawing.time_axis(bottom)
        return drawing

    return Figure(
        title="Latency",
        note="from send to acknowledgement, at the time of the send; the axis is logarithmic. "
        + highest_text,
        legend=[Key(name, f"line {kind}") for name, kind, _get in reversed(kinds)],
        drawings=drawn(draw),
        data={
            "unit": " ms",
            "names": [name for name, _kind, _get in kinds],
            "rows": [
                [
                    round(each.at_ms - scene.frame.begin_ms),
                    *(None if (v := get(each)) is None else round(v, 1) for _n, _k, get in kinds),
                ]
                for each in bins
            ],
        },
    )


def _time_mark(ms: float) -> str:
    return f"{number(ms / 1000)} s" if ms >= 1000 else f"{number(ms)} ms"


def lag_chart(lag: Lag, scene: Scene) -> Figure | None:
    """How far a table is behind: steps, whose highest is always inside the axis."""
    if not lag.points:
        return None
    at_ms, greatest = max(lag.points, key=lambda point: point[1])
    at, last = scene.frame.said(at_ms), lag.points[-1][1]
    highest_text = f"Highest: {greatest:,} events, at {at}; at the end {last:,}."
    top_value = round_up(greatest)

    def draw(layout: Layout) -> Drawing:
        label = f"{lag.title} over time. {highest_text}"
        lanes, placed = in_lanes(lag.marks, scene.frame, layout, MARK_LANES_MAX)
        height = LAG_HEIGHT + 16 * lanes
        drawing = Drawing(scene.frame, layout, height, label)
        top, bottom = TOP + 16 * lanes, height - BOTTOM
        scale = Scale(0, top_value, bottom, top)
        drawing.value_axis(scale, ticks(0, top_value, 4))
        points = [(drawing.x(moment_ms), scale(value)) for moment_ms, value in lag.points]
        places = points[:1]
        for (_, before), (x, y) in pairwise(points):
            places += [(x, before), (x, y)]
        drawing.path([*places, (drawing.right, points[-1][1])], "line s0")
        scene.lines(drawing, top, bottom)
        for x, place, lane, words in placed:
            y = 16 * lane + 14
            drawing.line(x, y - 10, x, bottom, "mark moment")
            drawing.text(place.x, y, words, "moment-name", place.anchor)
        drawing.time_axis(bottom)
        return drawing

    return Figure(
        title=lag.title,
        note=". ".join(filter(None, (lag.note.rstrip("."), highest_text))),
        legend=[Key("events behind", "line s0")],
        drawings=drawn(draw),
        data={
            "unit": " events behind",
            "names": [""],
            "rows": [[round(at - scene.frame.begin_ms), value] for at, value in lag.points],
        },
    )
