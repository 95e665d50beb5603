"""Goal: axes end and tick at round values, and values are said as people say them. Tables."""

from __future__ import annotations

import pytest

from holdfast.lab.report.scales import Scale, duration, number, round_up, ticks


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
