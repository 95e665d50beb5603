"""What a report draws of a network: which places could not reach which, and when.

Links that were broken and healed together share a row: a split is one row, however many links it
cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.judge.timeline import CUT, Timeline
from holdfast.lab.report.drawing import BOTTOM, TOP, Drawing, Layout, fitted
from holdfast.lab.report.scales import duration
from holdfast.lab.report.scene import Figure, Key, Scene, drawn

ROW, NAME = 16, 15
ROWS_MAX = 12
NAMED_MAX = 4  # places that a row names; more are counted
CUT_KIND, ONE_WAY_KIND, WHOLE_KIND = "link-cut", "link-one-way", "link-whole"

Pair = tuple[str, str]
Spans = tuple[tuple[float, float], ...]


class Band(NamedTuple):
    """Links with one history: from each of `sources` to each of `targets`, and mostly back."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    both_ways: bool
    cut: Spans

    @property
    def name(self) -> str:
        sign = "↔" if self.both_ways else "→"
        return f"{_names(self.sources)} {sign} {_names(self.targets)}"


def links(scene: Scene) -> Figure | None:
    """Draw what could not reach what; nothing where no link was cut."""
    bands = bands_of(scene.timeline)
    if not bands:
        return None
    shown = bands[:ROWS_MAX]
    left_out = len(bands) - len(shown)

    def draw(layout: Layout) -> Drawing:
        height = TOP + len(shown) * (NAME + ROW + 4) + BOTTOM
        said = "; ".join(f"{band.name} cut {_times(scene, band.cut)}" for band in shown)
        drawing = Drawing(scene.frame, layout, height, f"Links over time: {said}")
        y = float(TOP)
        for band in shown:
            drawing.text(2, y + NAME - 4, fitted(band.name, layout), "name")
            _draw_band(drawing, band, y + NAME)
            y += NAME + ROW + 4
        drawing.time_axis(y)
        return drawing

    legend = [Key("whole", WHOLE_KIND), Key("cut both ways", CUT_KIND)]
    if any(not band.both_ways for band in shown):
        legend.append(Key("cut one way", ONE_WAY_KIND))
    return Figure(
        title="Links",
        note="who could not reach whom; what was cut together is one row"
        + (f"; {left_out} more rows are not drawn" if left_out else ""),
        legend=legend,
        drawings=drawn(draw),
    )


def _draw_band(drawing: Drawing, band: Band, y: float) -> None:
    kind = CUT_KIND if band.both_ways else ONE_WAY_KIND
    drawing.box(drawing.left, y, drawing.right, y + ROW, WHOLE_KIND)
    for begin, end in band.cut:
        title = f"{band.name}: cut for {duration(end - begin)}"
        drawing.box(drawing.x(begin), y, drawing.x(end), y + ROW, kind, title)


def bands_of(timeline: Timeline) -> list[Band]:
    """Return the links that were cut, those together that were cut and healed together."""
    together: dict[Spans, list[Pair]] = {}
    for pair, cut in cuts_of(timeline).items():
        together.setdefault(cut, []).append(pair)
    bands = [band for cut, pairs in together.items() for band in bands_between(pairs, cut)]
    return sorted(bands, key=lambda band: (band.cut, not band.both_ways))


def bands_between(pairs: Sequence[Pair], cut: Spans = ()) -> list[Band]:
    """Return links as what can't reach what, each split once, and both ways where it is so."""
    both = [pair for pair in pairs if pair[::-1] in pairs]
    one_way = [pair for pair in pairs if pair[::-1] not in pairs]
    # Each split is found from either side: the smaller one is named first.
    halves = sorted(_sides(both), key=lambda sides: (len(sides[0]), sides))
    splits = {frozenset(map(frozenset, sides)): sides for sides in reversed(halves)}
    return [
        *(Band(*sides, both_ways=True, cut=cut) for sides in reversed(splits.values())),
        *(Band(*sides, both_ways=False, cut=cut) for sides in _sides(one_way)),
    ]


def cuts_of(timeline: Timeline) -> dict[Pair, Spans]:
    """Return when each link was cut, of those that ever were."""
    since: dict[Pair, float] = {}
    found: dict[Pair, list[tuple[float, float]]] = {}
    for change in timeline.links:
        for pair in change.pairs:
            if change.state == CUT:
                since.setdefault(pair, change.at_ms)
            elif pair in since:
                found.setdefault(pair, []).append((since.pop(pair), change.at_ms))
    for pair, begin in since.items():
        found.setdefault(pair, []).append((begin, timeline.end_ms))
    return {pair: tuple(spans) for pair, spans in found.items()}


def _sides(pairs: Sequence[Pair]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Gather links into sources that are cut from the same targets, and those."""
    targets: dict[str, list[str]] = {}
    for source, target in pairs:
        targets.setdefault(source, []).append(target)
    alike: dict[tuple[str, ...], list[str]] = {}
    for source, others in targets.items():
        alike.setdefault(tuple(sorted(others)), []).append(source)
    return [(tuple(sources), others) for others, sources in alike.items()]


def _names(places: Sequence[str]) -> str:
    if len(places) <= NAMED_MAX:
        return ", ".join(places)
    return f"{len(places)} places"


def _times(scene: Scene, cut: Iterable[tuple[float, float]]) -> str:
    return ", ".join(
        f"from {scene.frame.said(begin)} to {scene.frame.said(end)}" for begin, end in cut
    )
