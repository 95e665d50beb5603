"""One drawing as inline SVG: lines, boxes, words, axes, and the marks that all drawings share.

A chart is drawn once for each layout, and the page shows the one that fits: text that is scaled
down with its drawing is not text any more. All drawings of one layout share one time axis, so that
a fault stands in one line through all of them. Colours and patterns are the page's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from holdfast.lab.report.scales import Scale, duration, number, ticks

TOP, BOTTOM = 14, 26
NARROW = 0.5  # of a drawing's points: what is narrower can't be told from its neighbours
TITLES_MAX = 4  # of states that share a shape; more are counted
# What states are called, the gravest first: a shape that holds several looks like that one.
WORDS = {
    "leaderless": "without leader",
    "noleader": "without leader",
    "standstill": "standing still",
    "node-down": "down",
    "node-stopped": "stopped",
    "node-cut": "cut off",
    "link-cut": "cut both ways",
    "link-one-way": "cut one way",
    "link-swallowed": "answers swallowed",
    "link-lossy": "packets lost",
    "link-slow": "slowed",
    "claims": "taking itself for the leader",
    "outsync": "out of sync",
    "leads": "leader",
    "insync": "in sync",
    "node-up": "up",
}
GRAVEST = tuple(WORDS)
LETTER = 7.6  # how wide a letter of a drawing is at most, about; fonts differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A width to draw for. The page shows it from where it is as wide as that, or nearly."""

    name: str  # of the class in the page's style
    width: int
    left: int
    right: int
    time_ticks: int


LAYOUTS = (
    Layout(name="wide", width=1040, left=78, right=16, time_ticks=12),
    Layout(name="middle", width=640, left=68, right=12, time_ticks=8),
    Layout(name="narrow", width=340, left=60, right=10, time_ticks=5),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """The time that all drawings of one part show, in monotonic milliseconds."""

    begin_ms: float
    end_ms: float

    def said(self, at_ms: float) -> str:
        """A moment in words: since the beginning, as the axis counts."""
        return f"{(at_ms - self.begin_ms) / 1000:,.1f} s"


@dataclass(frozen=True, slots=True)
class State:
    """What a row of a drawing shows from one moment to another."""

    begin_ms: float
    end_ms: float
    kind: str  # of the page's style
    title: str = ""


class Drawing:
    """One SVG of one layout. `label` says in words what is seen, for whoever can't see it."""

    def __init__(self, frame: Frame, layout: Layout, height: float, label: str) -> None:
        self.frame = frame
        self.layout = layout
        self.height = height
        self.left, self.right = layout.left, layout.width - layout.right
        self.x = Scale(frame.begin_ms, frame.end_ms, self.left, self.right)
        self._parts: list[str] = []
        self._label = label

    def text(self, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'
        )

    def box(self, x1: float, y1: float, x2: float, y2: float, kind: str, title: str = "") -> None:
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<rect x="{x1:.1f}" y="{y1:.1f}" width="{max(0.0, x2 - x1):.1f}" '
            f'height="{max(0.0, y2 - y1):.1f}" class="{kind}">{inside}</rect>'
        )

    def row(self, y1: float, y2: float, states: Iterable[State], least: float = NARROW) -> None:
        """Draw states of one row, in order; none is drawn narrower than `least`.

        Neighbours that can't be told apart share a shape, which says how many it holds, and looks
        like the gravest of them. Those of a kind that have nothing to say are one shape, too: in an
        hour there are thousands. The gravest are drawn last: a short one is widened, and reaches
        into what follows it.
        """
        plain: dict[str, list[str]] = {}
        boxes: dict[str, list[tuple[float, float, str]]] = {}
        for group in self._grouped(_joined(states)):
            x1 = self.x(group[0].begin_ms)
            x2 = max(self.x(group[-1].end_ms), x1 + least)
            kind = min((each.kind for each in group), key=_rank)
            title = group[0].title if len(group) == 1 else _said_of(group)
            if title:
                boxes.setdefault(kind, []).append((x1, x2, title))
            else:
                around = f"M{x1:.1f} {y1:.1f}H{x2:.1f}V{y2:.1f}H{x1:.1f}Z"
                plain.setdefault(kind, []).append(around)
        for kind in sorted({**plain, **boxes}, key=_rank, reverse=True):
            if kind in plain:
                self._parts.append(f'<path d="{"".join(plain[kind])}" class="{kind}"/>')
            for x1, x2, title in boxes.get(kind, []):
                self.box(x1, y1, x2, y2, kind, title)

    def _grouped(self, states: Iterable[State]) -> Iterator[list[State]]:
        """Yield states that are drawn as one: narrower than half a point each, a point together."""
        group: list[State] = []
        for state in states:
            begin, end = self.x(state.begin_ms), self.x(state.end_ms)
            is_narrow = end - begin < NARROW
            if group and is_narrow:
                first, last = self.x(group[0].begin_ms), self.x(group[-1].end_ms)
                if begin - last < NARROW and end - first < 2 * NARROW:
                    group.append(state)
                    continue
            if group:
                yield group
            group = []
            if is_narrow:
                group = [state]
            else:
                yield [state]
        if group:
            yield group

    def lines(self, places: Iterable[float], y1: float, y2: float, kind: str) -> None:
        """Upright lines at these places, as one shape: they are many."""
        commands = "".join(f"M{x:.1f} {y1:.1f}V{y2:.1f}" for x in places)
        if commands:
            self._parts.append(f'<path d="{commands}" class="{kind}"/>')

    def path(self, places: Sequence[tuple[float, float] | None], kind: str) -> None:
        """A line through these places, interrupted where there is none."""
        commands = []
        for before, place, after in zip([None, *places], places, [*places[1:], None], strict=False):
            if place is None:
                continue
            commands.append(f"{'M' if before is None else 'L'}{place[0]:.1f} {place[1]:.1f}")
            if before is None and after is None:
                commands.append("m-1.5 0h3")  # alone between gaps: a dot, or nothing is seen
        if commands:
            self._parts.append(f'<path d="{" ".join(commands)}" class="{kind}"/>')

    def band(
        self, upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], kind: str
    ) -> None:
        """The area between two lines."""
        around = [*upper, *reversed(lower)]
        if around:
            places = " ".join(f"{x:.1f} {y:.1f}" for x, y in around)
            self._parts.append(f'<path d="M{places}Z" class="{kind}"/>')

    def cross(self, x: float, y: float, kind: str, title: str = "") -> None:
        """A mark of something wrong: a cross, so that it is seen without its colour, too."""
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" class="cross {kind}">{inside}</path>'
        )

    def dot(self, x: float, y: float, kind: str, title: str) -> None:
        """A value that a pointer finds: it is wider than it looks."""
        self._parts.append(
            f'<g class="{kind}"><title>{escape(title)}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" class="hit"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4"/></g>'
        )

    def pointer(self, x: float, y: float, kind: str) -> None:
        """A small triangle that points up: there is more above."""
        self._parts.append(f'<path d="M{x:.1f} {y:.1f}l-5 8h10z" class="{kind}"/>')

    def time_axis(self, bottom: float) -> None:
        total_s = (self.frame.end_ms - self.frame.begin_ms) / 1000
        self.line(self.left, bottom, self.right, bottom, "axis")
        for tick in ticks(0, total_s, self.layout.time_ticks):
            at = self.x(self.frame.begin_ms + tick * 1000)
            self.line(at, bottom, at, bottom + 4, "axis")
            # The last one would stand half out of a drawing that ends there.
            anchor = "end" if at > self.layout.width - 3 * LETTER else "middle"
            self.text(at, bottom + 18, f"{number(tick)} s", "tick", anchor)

    def value_axis(self, scale: Scale, marks: Sequence[float]) -> None:
        for mark in marks:
            at = scale(mark)
            self.line(self.left, at, self.right, at, "grid")
            self.text(self.left - 7, at + 4, number(mark), "tick", "end")

    def render(self) -> str:
        width, height = self.layout.width, self.height
        return (
            f'<svg class="chart {self.layout.name}" viewBox="0 0 {width} {height:.0f}" role="img" '
            f'aria-label="{escape(self._label)}" data-left="{self.left}" '
            f'data-right="{self.right}">{"".join(self._parts)}</svg>'
        )


def _joined(states: Iterable[State]) -> Iterator[State]:
    """Yield states; what goes on without a change, and has nothing to say, is one of them."""
    before: State | None = None
    for state in states:
        if (
            before is not None
            and not before.title
            and not state.title
            and (before.kind, before.end_ms) == (state.kind, state.begin_ms)
        ):
            before = State(before.begin_ms, state.end_ms, state.kind)
            continue
        if before is not None:
            yield before
        before = state
    if before is not None:
        yield before


def _rank(kind: str) -> int:
    return GRAVEST.index(kind) if kind in GRAVEST else len(GRAVEST)


def _said_of(group: Sequence[State]) -> str:
    """Say what one shape holds: each state if they are few and have words, else how many."""
    took = duration(group[-1].end_ms - group[0].begin_ms)
    counts = Counter(WORDS.get(each.kind, each.kind) for each in group)
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    titles = list(dict.fromkeys(each.title for each in group if each.title))
    shown = f": {'; '.join(titles)}" if len(titles) == len(group) <= TITLES_MAX else f": {told}"
    return f"{len(group)} states in {took}{shown}"


@dataclass(frozen=True, slots=True)
class Label:
    """Words at a line: the room that they take, and where they are anchored in it."""

    begin: float
    end: float
    x: float
    anchor: str


def beside(x: float, words: str, layout: Layout) -> Label:
    """Put words to the right of a line, or to the left of it near the drawing's end."""
    width = LETTER * len(words) + 10
    if x + width <= layout.width:
        return Label(x, x + width, x + 4, "start")
    if x >= width:
        return Label(x - width, x, x - 4, "end")
    return Label(0.0, width, 4.0, "start")


def fitted(words: str, layout: Layout) -> str:
    """As many of these words as a drawing has room for."""
    most = int((layout.width - 14) / LETTER)
    return words if len(words) <= most else f"{words[: most - 1]}…"


class Lanes:
    """Puts labels into rows in which they don't overlap; None where no row has room."""

    def __init__(self, count_max: int) -> None:
        self._ends: list[float] = []
        self._count_max = count_max

    def place(self, begin: float, end: float) -> int | None:
        for index, occupied in enumerate(self._ends):
            if occupied <= begin:
                self._ends[index] = end
                return index
        if len(self._ends) == self._count_max:
            return None
        self._ends.append(end)
        return len(self._ends) - 1

    @property
    def count(self) -> int:
        return len(self._ends)


def in_lanes(
    names: Iterable[tuple[float, str]], frame: Frame, layout: Layout, lanes_max: int
) -> tuple[int, list[tuple[float, Label, int, str]]]:
    """Place names of moments in rows in which none overlap: how many rows, and each one's place.

    That is its line's x, its label, its row, and its words; none where no row has room.
    """
    x = Scale(frame.begin_ms, frame.end_ms, layout.left, layout.width - layout.right)
    lanes = Lanes(lanes_max)
    placed = []
    for at_ms, name in names:
        words = fitted(name, layout)
        label = beside(x(at_ms), words, layout)
        lane = lanes.place(label.begin, label.end)
        placed.append((x(at_ms), label, lane or 0, words if lane is not None else ""))
    return lanes.count, placed


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as these spans, without overlaps, in order."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined
