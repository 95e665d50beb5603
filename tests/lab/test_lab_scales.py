"""Goal: axes end and tick at round values, hold all data or leave out what can be named. Tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.judge.series import Point
from holdfast.lab.report.bins import bins_of, highest, peaks_above, rates_of
from holdfast.lab.report.scales import (
    Scale,
    axis_end,
    decades,
    duration,
    number,
    round_up,
    ticks,
)


def point(index: int, *rates: float) -> Point:
    """A tenth of a second of acknowledgements, one rate a partition."""
    return Point(
        at_ms=1000 + 100 * index,
        sent=0.0,
        refused=0.0,
        unknown=0.0,
        acknowledged={("foo", number): rate for number, rate in enumerate(rates)},
        latency_ms_p50=None,
        latency_ms_p99=None,
        latency_ms_max=None,
    )


@pytest.mark.parametrize(
    ("low", "high", "about", "expected"),
    [
        (0, 10, 5, [0, 2, 4, 6, 8, 10]),
        (0, 17.8, 10, [0, 2, 4, 6, 8, 10, 12, 14, 16]),
        (0, 1, 4, [0, 0.5, 1]),
        (0.3, 0.9, 3, [0.4, 0.6, 0.8]),
        (5, 5, 4, [5]),
    ],
)
def test_ticks(low: float, high: float, about: int, expected: list[float]) -> None:
    assert ticks(low, high, about) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 1), (0.7, 0.8), (1, 1), (137, 150), (171, 200), (2001, 3000)]
)
def test_an_axis_ends_above_its_values(value: float, expected: float) -> None:
    assert round_up(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("usual", "greatest", "expected"),
    [
        ([], 0.0, 1.0),
        ([100] * 20, 120.0, 150.0),
        ([100] * 20, 490.0, 500.0),  # high, and the rest can still be seen
        ([1300] * 20, 12_460.0, 3000.0),
        ([0] * 90 + [100] * 10, 400.0, 400.0),  # silence says nothing of what is usual
    ],
)
def test_an_axis_ends_below_a_peak_only_when_that_would_flatten_the_rest(
    usual: list[float], greatest: float, expected: float
) -> None:
    assert axis_end(usual, greatest) == pytest.approx(expected)


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=2, max_size=2),
        min_size=1,
        max_size=60,
    )
)
def test_every_value_is_inside_the_axis_or_under_a_peak_that_is_named(
    values: list[list[float]],
) -> None:
    points = [point(index, *rates) for index, rates in enumerate(values)]
    rates = rates_of(points)
    bins, _width = bins_of(points, 100.0, rates)
    found = highest(points, rates)
    assert (found.value if found else 0.0) == max(max(each) for each in values)
    top = axis_end((reach.mean for each in bins for reach in each.rates),
                   found.value if found else 0.0)  # fmt: skip
    peaks = peaks_above(points, rates, top)
    assert (peaks[0] if peaks else None) == (found if found and found.value > top else None)
    for rate in rates:
        for each in points:
            if rate.of(each) > top:
                near = [p for p in peaks if p.name == rate.name and p.value >= rate.of(each)]
                assert near, (rate.name, each.at_ms)


def test_a_stretch_above_the_axis_is_one_peak_with_its_place() -> None:
    values = [10.0] * 20 + [50.0, 90.0, 70.0] + [10.0] * 20 + [60.0] + [10.0] * 15 + [31.0]
    points = [point(index, value, 5.0) for index, value in enumerate(values)]
    peaks = peaks_above(points, rates_of(points), 30.0)
    assert [(peak.name, peak.value, peak.at_ms) for peak in peaks] == [
        ("P0", 90.0, 1000 + 100 * 21),
        ("P0", 60.0, 1000 + 100 * 43),
        ("P0", 31.0, 1000 + 100 * 59),
    ]


def test_a_bin_keeps_the_extremes_of_its_points() -> None:
    points = [point(index, rate) for index, rate in enumerate([10.0, 30.0, 0.0, 50.0, 40.0])]
    bins, width_ms = bins_of(points, 100.0, rates_of(points))
    assert width_ms == 200.0
    reaches = [each.rates[0] for each in bins]
    assert [(each.mean, each.low, each.high) for each in reaches] == [
        (20.0, 10.0, 30.0),
        (25.0, 0.0, 50.0),
        (40.0, 40.0, 40.0),  # the last one is shorter, and no lower for that
    ]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (3, 20, [1, 10, 100]),
        (1, 10, [1, 10]),
        (5, 5, [1, 10]),
        (0.02, 4_000_000, [10.0**power for power in range(-2, 8)]),
    ],
)
def test_a_logarithmic_axis_holds_all_its_values(
    low: float, high: float, expected: list[float]
) -> None:
    assert decades(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0.53, "0.53 ms"), (5.28, "5.3 ms"), (870.4, "870 ms"), (3064, "3.06 s"), (17_800, "17.8 s"),
     (75_000, "1 min 15 s")],
)  # fmt: skip
def test_durations(ms: float, words: str) -> None:
    assert duration(ms) == words


@pytest.mark.parametrize(
    ("value", "words"), [(1234567, "1,234,567"), (0.25, "0.25"), (12.34, "12.3"), (3.0, "3")]
)
def test_numbers(value: float, words: str) -> None:
    assert number(value) == words


def test_scales_map_and_do_not_leave_the_drawing() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(value) for value in (-5, 0, 5, 10, 99)] == [100, 100, 150, 200, 200]
    logarithmic = Scale(1, 100, 0, 2, logarithmic=True)
    assert logarithmic(10) == pytest.approx(1)
    assert Scale(3, 3, 7, 9)(3) == 7
