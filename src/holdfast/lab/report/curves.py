"""Figures drawn from a table's rows: one value over another, a line a series.

Owns where their axes begin and end, and what stands at them. Times and faults are other charts'.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from holdfast.lab.report.drawing import BOTTOM, LETTER, TOP, Drawing, Frame, Layout, fitted
from holdfast.lab.report.scales import Scale, number, ticks
from holdfast.lab.report.scene import Figure, Key, drawn
from holdfast.lab.report.values import Curve, Series, Spot

HEIGHT = 250
NAME = 20  # the room of an axis's name
INSET = 12  # of the first and the last value from where the drawing's lines end
LOGARITHMIC_FROM = 100.0  # the greatest by the least: two decades
SPOTS_NAMED_MAX = 8  # more values of x have round ticks instead of a tick each
SPOTS_SAID_MAX = 12  # in words for who does not see the drawing
LINE_GAP = 15  # between two numbers at the vertical axis
CAP = 4.0  # half of the width of a bar's end
THOUSANDS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
SHORT_FROM = 10_000


@dataclass(frozen=True, slots=True)
class Axis:
    """From the least of some values to the greatest, which lie in between somewhere."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def over(cls, values: Iterable[float]) -> Self:
        """Return the axis of these values; one that has no length is given some."""
        known = list(values)
        low, high = min(known), max(known)
        if low == high:
            half = abs(low) / 10 or 1.0
            return cls(low - half, high + half, logarithmic=False)
        return cls(low, high, logarithmic=low > 0 and high / low > LOGARITHMIC_FROM)

    def scale(self, start: float, end: float) -> Scale:
        return Scale(self.low, self.high, start, end, self.logarithmic)

    def marks(self, about: int) -> list[float]:
        """Return both ends, and the round values between them, ends first."""
        inside = [each for each in self._round(about) if self.low < each < self.high]
        return [self.low, self.high, *inside]

    def _round(self, about: int) -> list[float]:
        if not self.logarithmic:
            return ticks(self.low, self.high, about)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


def curve_figure(curve: Curve) -> Figure | None:
    """Draw one curve in every layout; None: there is no value."""
    series = [each for each in curve.series if each.known]
    spots = [each for one in series for each in one.known]
    if not spots:
        return None
    across = Axis.over(each.x for each in spots)
    upward = Axis.over(end for each in spots for end in (each.low, each.high))

    def draw(layout: Layout) -> Drawing:
        drawing = Drawing(Frame(0.0, 0.0), layout, HEIGHT, _in_words(curve, series))
        top, bottom = TOP + NAME, HEIGHT - BOTTOM - NAME
        drawing.x = across.scale(drawing.left + INSET, drawing.right - INSET)
        y = upward.scale(bottom - INSET / 2, top)
        drawing.text(2, TOP, fitted(_name(curve.y, upward), layout), "name")
        _numbers_upward(drawing, upward, y)
        drawing.line(drawing.left, bottom, drawing.right, bottom, "axis")
        _numbers_across(drawing, across, {each.x for each in spots}, bottom)
        name = fitted(_name(curve.x, across), layout)
        middle = (drawing.left + drawing.right) / 2
        middle = min(middle, layout.width - LETTER * len(name) / 2)
        drawing.text(middle, HEIGHT - 6, name, "name", "middle")
        for index, one in enumerate(series):
            _line(drawing, curve, one, f"s{index % 6}", y)
        return drawing

    return Figure(
        title=curve.title,
        note=f"{curve.note} Axes begin and end where the values do.".strip(),
        legend=[Key(each.name, f"line s{index % 6}") for index, each in enumerate(series)],
        drawings=drawn(draw),
    )


def _name(words: str, axis: Axis) -> str:
    return f"{words} (logarithmic)" if axis.logarithmic else words


def _line(drawing: Drawing, curve: Curve, series: Series, colour: str, y: Scale) -> None:
    """Draw one series: its line, how far measurements reached, and its values to be pointed at."""
    places = [None if one is None else (drawing.x(one.x), y(one.y)) for one in series.spots]
    drawing.path(places, f"line {colour}")
    for each in series.known:
        x = drawing.x(each.x)
        if each.low < each.high:
            drawing.line(x, y(each.low), x, y(each.high), f"whisker {colour}")
            for end in (each.low, each.high):
                drawing.line(x - CAP, y(end), x + CAP, y(end), f"whisker {colour}")
        title = f"{series.name}: {_value(each)} {curve.y}; {curve.x}: {number(each.x)}"
        drawing.dot(x, y(each.y), f"dot {colour}", title)


def _value(spot: Spot) -> str:
    reach = f" ({number(spot.low)} to {number(spot.high)})" if spot.low < spot.high else ""
    return f"{number(spot.y)}{reach}"


def _in_words(curve: Curve, series: Sequence[Series]) -> str:
    told = []
    for one in series:
        shown = [f"{_value(each)} at {number(each.x)}" for each in one.known[:SPOTS_SAID_MAX]]
        more = len(one.known) - SPOTS_SAID_MAX
        told.append(f"{one.name}: {', '.join([*shown, *([f'{more} more'] if more > 0 else [])])}")
    return f"{curve.y} over {curve.x}. {'; '.join(told)}."


def _numbers_upward(drawing: Drawing, axis: Axis, y: Scale) -> None:
    """Write numbers beside the vertical axis, its ends first: none overlap."""
    taken: list[float] = []
    for mark in axis.marks(4):
        at = y(mark)
        if all(abs(at - other) >= LINE_GAP for other in taken):
            taken.append(at)
            drawing.line(drawing.left, at, drawing.right, at, "grid")
            drawing.text(drawing.left - 7, at + 4, short(mark), "tick", "end")


def _numbers_across(drawing: Drawing, axis: Axis, values: set[float], bottom: float) -> None:
    """Write numbers below the horizontal axis, its ends first: none overlap.

    A tick stands at every value, unless they are many.
    """
    ordered = sorted(values)
    if len(ordered) <= SPOTS_NAMED_MAX:
        marks = [ordered[0], ordered[-1], *ordered[1:-1]]
    else:
        marks = axis.marks(drawing.layout.time_ticks)
    taken: list[tuple[float, float]] = []
    for mark in dict.fromkeys(marks):
        at, words = drawing.x(mark), short(mark)
        half = LETTER * len(words) / 2 + 4
        drawing.line(at, bottom, at, bottom + 4, "axis")
        # The last one would stand half out of a drawing that ends there.
        x = min(at, drawing.layout.width - half + 2)
        if all(x + half <= begin or end <= x - half for begin, end in taken):
            taken.append((x - half, x + half))
            drawing.text(x, bottom + 18, words, "tick", "middle")


def short(value: float) -> str:
    """A number for an axis: tens of thousands as 10k, millions as 1M."""
    for size, letter in THOUSANDS:
        if abs(value) >= max(size, SHORT_FROM):
            return f"{number(round(value / size, 1))}{letter}"
    return number(value)
