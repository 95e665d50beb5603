"""Goal: a curve shows what its table's rows say: each value in its place, and how far it reached.

Method: curves by hand, as figures and as SVG; and as they come through a run's journal.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from itertools import pairwise

import msgspec
import pytest
from tests.lab import made_up

from holdfast.lab.report import Curve, Series, Spot, Table
from holdfast.lab.report.curves import Axis, curve_figure, short
from holdfast.lab.report.drawing import LAYOUTS
from holdfast.lab.report.page import render_page
from holdfast.lab.report.tables import table_view

CIRCLE = re.compile(r'<title>([^<]*)</title><circle cx="([\d.]+)" cy="([\d.]+)"')
WHISKER = re.compile(
    r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)" class="whisker (s\d)"'
)


def at(x: float, y: float, reach: float = 0.0) -> Spot:
    return Spot(x, y, y - reach, y + reach)


def curve(*series: Series) -> Curve:
    return Curve(title="t", x="copies", y="ms", series=series, note="")


def texts(drawing: str, kind: str) -> list[str]:
    return re.findall(rf'class="{kind}"[^>]*>([^<]*)<', drawing)


@pytest.mark.parametrize(
    ("values", "low", "high", "logarithmic"),
    [
        ([3.0, 1.0, 2.0], 1.0, 3.0, False),
        ([1.0, 100.0], 1.0, 100.0, False),
        ([1.0, 101.0], 1.0, 101.0, True),
        ([0.0, 1e6], 0.0, 1e6, False),
        ([5.0], 4.5, 5.5, False),
        ([0.0, 0.0], -1.0, 1.0, False),
    ],
)
def test_an_axis_begins_and_ends_where_its_values_do(
    values: list[float], low: float, high: float, logarithmic: bool
) -> None:
    assert Axis.over(values) == Axis(low, high, logarithmic)


def test_every_value_is_in_its_place_and_says_what_it_is() -> None:
    """Method: two lines; the second has a value that reached further than its dot."""
    lines = Series("p50", [at(1, 2.0), at(3, 3.0)]), Series("p99", [at(3, 4.0), at(5, 8.0, 1.5)])
    figure = curve_figure(curve(*lines))
    assert figure is not None
    assert [(key.name, key.kind) for key in figure.legend] == [
        ("p50", "line s0"),
        ("p99", "line s1"),
    ]
    for drawing, layout in zip(figure.drawings, LAYOUTS, strict=True):
        spots = {title: (float(x), float(y)) for title, x, y in CIRCLE.findall(drawing)}
        assert list(spots) == [
            "p50: 2 ms; copies: 1",
            "p50: 3 ms; copies: 3",
            "p99: 4 ms; copies: 3",
            "p99: 8 (6.5 to 9.5) ms; copies: 5",
        ]
        (x1, y2), (x3, y3), (also_x3, y4), (x5, y8) = spots.values()
        assert x1 == layout.left + 12
        assert x5 == layout.width - layout.right - 12
        assert x3 == also_x3 == pytest.approx((x1 + x5) / 2, abs=0.1)
        assert y2 - y3 == pytest.approx(y3 - y4, abs=0.2) == pytest.approx((y4 - y8) / 4, abs=0.2)
        reach, *caps = WHISKER.findall(drawing)
        assert len(caps) == 2, "only what reached further has a bar"
        assert {float(reach[0]), float(reach[2])} == {x5}
        low, high = float(reach[1]), float(reach[3])
        assert y8 - high == pytest.approx(low - y8, abs=0.2)
        assert (y2 - y4) * 1.5 / 2 == pytest.approx(y8 - high, abs=0.2)
        assert {each[4] for each in (reach, *caps)} == {"s1"}
        assert texts(drawing, "name") == ["ms", "copies"]
        assert {"1", "3", "5", "2", "9.5"} <= set(texts(drawing, "tick"))


def test_a_line_is_interrupted_where_there_is_no_value() -> None:
    """Goal: no line runs through a stretch of which nobody knows the figure."""
    gap = [at(1, 1.0), at(2, 2.0), None, at(4, 4.0), at(5, 5.0)]
    figure = curve_figure(curve(Series("a", gap), Series("b", [None])))
    assert figure is not None
    assert [key.name for key in figure.legend] == ["a"]
    for drawing in figure.drawings:
        (line,) = re.findall(r'<path d="([^"]*)" class="line s0"', drawing)
        assert re.sub(r"[^ML]", "", line) == "MLML"
        assert len(CIRCLE.findall(drawing)) == 4
    again = msgspec.convert(msgspec.json.decode(msgspec.json.encode(Series("a", gap))), Series)
    assert again == Series("a", gap)


def test_decades_lie_as_far_apart_as_decades_do() -> None:
    """Goal: what spans more than two decades is not pressed against an axis. It says so, too."""
    figure = curve_figure(curve(Series("a", [at(1, 1.0), at(10, 10.0), at(1000, 1000.0)])))
    assert figure is not None
    (_, x1, y1), (_, x2, y2), (_, x3, y3) = CIRCLE.findall(figure.drawings[0])
    assert float(x3) - float(x2) == pytest.approx(2 * (float(x2) - float(x1)), abs=0.3)
    assert float(y2) - float(y3) == pytest.approx(2 * (float(y1) - float(y2)), abs=0.3)
    assert texts(figure.drawings[0], "name") == ["ms (logarithmic)", "copies (logarithmic)"]


def test_a_line_without_values_is_none_and_a_curve_without_lines_no_figure() -> None:
    empty = Series("between", [])
    assert curve_figure(curve(empty)) is None
    figure = curve_figure(curve(empty, Series("disks", [at(1, 1.0)])))
    assert figure is not None
    assert [key.name for key in figure.legend] == ["disks"]
    assert table_view(Table(title="", header=[], rows=[], curves=[curve(empty)])).figures == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "0.25"), (1_000, "1,000"), (10_000, "10k"), (900_000, "900k"), (5_500_000, "5.5M")],
)
def test_numbers_at_an_axis_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_numbers_at_an_axis_do_not_overlap() -> None:
    """Method: sizes of which the last two lie within a word of each other, on a telephone."""
    for figure in map(curve_figure, made_up.curves()):
        assert figure is not None
        for drawing in figure.drawings:
            below = re.findall(r'<text x="([\d.]+)" y="222.0" class="tick"[^>]*>([^<]*)<', drawing)
            assert len(below) >= 3
            spans = sorted((float(x) - 3.8 * len(t), float(x) + 3.8 * len(t)) for x, t in below)
            assert all(end < begin for (_, end), (begin, _) in pairwise(spans))


def test_curves_stand_above_their_table_and_go_through_the_journal() -> None:
    page = render_page(made_up.report())
    assert page.index("<b>By size</b>") < page.index("<b>By time</b>") < page.index("<h3>Rows</h3>")
    table = Table(title="t", header=["a"], rows=[["1"]], curves=made_up.curves())
    again = msgspec.convert(msgspec.json.decode(msgspec.json.encode(asdict(table))), Table)
    assert table_view(again) == table_view(table)
