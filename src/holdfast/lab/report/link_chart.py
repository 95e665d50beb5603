"""What a report draws of a network: which places could not reach which, or hardly, and when.

Links that were broken and healed together share a row: a split is one row, however many links it
cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.judge.timeline import CUT, WHOLE, Timeline
from holdfast.lab.report.drawing import BOTTOM, TOP, Drawing, Layout, State, fitted
from holdfast.lab.report.scales import duration
from holdfast.lab.report.scene import Figure, Key, Scene, drawn
from holdfast.lab.report.words import LINK_WORDS, LOSSY, SLOW, SWALLOWED

ROW, NAME = 16, 15
ROWS_MAX = 12
NAMED_MAX = 4  # places that a row names; more are counted
TOLD_MAX = 3  # rows that a sentence names
SPELLS_MAX = 5  # of a row, in words for who does not see the drawing
CUT_KIND, ONE_WAY_KIND, WHOLE_KIND = "link-cut", "link-one-way", "link-whole"
KINDS = {SLOW: "link-slow", LOSSY: "link-lossy", SWALLOWED: "link-swallowed"}

Pair = tuple[str, str]


class Spell(NamedTuple):
    """[begin_ms, end_ms) in which something was wrong with a link, the worst of what was."""

    begin_ms: float
    end_ms: float
    state: str


class Band(NamedTuple):
    """Links with one history: from each of `sources` to each of `targets`, and mostly back."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    both_ways: bool
    spells: tuple[Spell, ...] = ()

    @property
    def name(self) -> str:
        sign = "↔" if self.both_ways else "→"
        return f"{_names(self.sources)} {sign} {_names(self.targets)}"


def links(scene: Scene) -> Figure | None:
    """Draw what could not reach what; nothing where no link was ever broken."""
    bands = bands_of(scene.timeline)
    if not bands:
        return None
    shown = bands[:ROWS_MAX]
    left_out = len(bands) - len(shown)

    def draw(layout: Layout) -> Drawing:
        height = TOP + len(shown) * (NAME + ROW + 4) + BOTTOM
        said = "; ".join(f"{band.name} {_times(scene, band.spells)}" for band in shown)
        drawing = Drawing(scene.frame, layout, height, f"Links over time: {said}")
        y = float(TOP)
        for band in shown:
            drawing.text(2, y + NAME - 4, fitted(band.name, layout), "name")
            _draw_band(drawing, band, y + NAME)
            y += NAME + ROW + 4
        drawing.time_axis(y)
        return drawing

    kinds = {_kind(band, spell): spell.state for band in shown for spell in band.spells}
    words = {CUT_KIND: "cut both ways", ONE_WAY_KIND: "cut one way"}
    legend = [
        Key("whole", WHOLE_KIND),
        *(
            Key(words.get(kind) or LINK_WORDS[kinds[kind]], kind)
            for kind in (CUT_KIND, ONE_WAY_KIND, *KINDS.values())
            if kind in kinds
        ),
    ]
    return Figure(
        title="Links",
        note="who could not reach whom, or hardly; what was broken together is one row"
        + (f"; {left_out} more rows are not drawn" if left_out else ""),
        legend=legend,
        drawings=drawn(draw),
    )


def _draw_band(drawing: Drawing, band: Band, y: float) -> None:
    drawing.box(drawing.left, y, drawing.right, y + ROW, WHOLE_KIND)
    states = []
    for spell in band.spells:
        lasted = duration(spell.end_ms - spell.begin_ms)
        title = f"{band.name}: {LINK_WORDS.get(spell.state, spell.state)} for {lasted}"
        states.append(State(spell.begin_ms, spell.end_ms, _kind(band, spell), title))
    drawing.row(y, y + ROW, states)


def _kind(band: Band, spell: Spell) -> str:
    return KINDS.get(spell.state) or (CUT_KIND if band.both_ways else ONE_WAY_KIND)


def bands_of(timeline: Timeline) -> list[Band]:
    """Return the links that were broken, those together that were broken and healed together."""
    together: dict[tuple[Spell, ...], list[Pair]] = {}
    for pair, spells in spells_of(timeline).items():
        together.setdefault(spells, []).append(pair)
    bands = [band for spells, pairs in together.items() for band in bands_between(pairs, spells)]
    return sorted(bands, key=lambda band: (band.spells, not band.both_ways))


def links_hurt(timeline: Timeline) -> str:
    """What was done to links, in one line: cuts only where no node is named for them."""
    is_told = any(fault.action == CUT for fault in timeline.faults)
    told = []
    for state, word in LINK_WORDS.items():
        if state == CUT and is_told:
            continue
        pairs = {
            pair: None
            for change in timeline.links
            if change.state == state
            for pair in change.pairs
        }
        bands = bands_between(list(pairs))
        names = [band.name for band in bands[:TOLD_MAX]]
        more = [f"{len(bands) - TOLD_MAX} more"] if len(bands) > TOLD_MAX else []
        if names:
            told.append(f"{word} on {', '.join([*names, *more])}")
    return "; ".join(told)


def bands_between(pairs: Sequence[Pair], spells: tuple[Spell, ...] = ()) -> list[Band]:
    """Return links as what can't reach what, each split once, and both ways where it is so."""
    both = [pair for pair in pairs if pair[::-1] in pairs]
    one_way = [pair for pair in pairs if pair[::-1] not in pairs]
    # Each split is found from either side: the smaller one is named first.
    halves = sorted(_sides(both), key=lambda sides: (len(sides[0]), sides))
    splits = {frozenset(map(frozenset, sides)): sides for sides in reversed(halves)}
    return [
        *(Band(*sides, both_ways=True, spells=spells) for sides in reversed(splits.values())),
        *(Band(*sides, both_ways=False, spells=spells) for sides in _sides(one_way)),
    ]


def spells_of(timeline: Timeline) -> dict[Pair, tuple[Spell, ...]]:
    """Return what was wrong with each link and when, of those that ever were broken.

    A link that is cut stays so until it is whole: nothing passes that could be late or lost.
    """
    since: dict[Pair, tuple[float, str]] = {}
    found: dict[Pair, list[Spell]] = {}

    def end(pair: Pair, at_ms: float) -> None:
        begin_ms, state = since.pop(pair)
        found.setdefault(pair, []).append(Spell(begin_ms, at_ms, state))

    for change in timeline.links:
        for pair in change.pairs:
            before = since.get(pair)
            if before is not None and change.state != WHOLE and before[1] in {CUT, change.state}:
                continue
            if before is not None:
                end(pair, change.at_ms)
            if change.state != WHOLE:
                since[pair] = change.at_ms, change.state
    for pair in list(since):
        end(pair, timeline.end_ms)
    return {pair: tuple(spells) for pair, spells in found.items()}


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


def _times(scene: Scene, spells: Sequence[Spell]) -> str:
    told = [
        f"{LINK_WORDS.get(spell.state, spell.state)} from {scene.frame.said(spell.begin_ms)} "
        f"to {scene.frame.said(spell.end_ms)}"
        for spell in spells[:SPELLS_MAX]
    ]
    more = len(spells) - SPELLS_MAX
    return ", ".join([*told, f"{more} times more"] if more > 0 else told)
