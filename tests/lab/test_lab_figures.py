"""Goal: figures say no more than was seen. Method: shares and times by hand, and tables of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.lab.made_up import MadeUp

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Acknowledged, Send
from holdfast.lab.report import tables
from holdfast.lab.report.figures import percent, percentile
from holdfast.lab.report.values import Table
from holdfast.lab.report.views import cards_of
from holdfast.lab.steps.measures import figures


def acknowledged_of(count: int) -> Evidence:
    """So many are acknowledged after 5 ms each, and what is sent last is never answered."""
    story = MadeUp()
    for number in range(count + 1):
        at_ms, name = 1000.0 + 10 * number, f"p:{number}"
        story.of(Send, at_ms, 0, process="p", id=name, digest="d", size=1)
        if number < count:
            story.of(Acknowledged, at_ms + 5, 0, process="p", id=name, offset=number)
    return story.evidence()


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (None, 1, "-"),
        (1.0, 1, "100.0 %"),
        (0.0, 1, "0.0 %"),
        (0.5, 2, "50.00 %"),
        (5767 / 5769, 1, "99.97 %"),
        (99_996 / 100_000, 2, "99.996 %"),
        (1 - 1e-9, 2, "99.9999999 %"),
        (1 / 5769, 1, "0.02 %"),
        (1e-9, 2, "0.0000001 %"),
    ],
)
def test_only_all_is_a_hundred_percent_and_only_nothing_none(
    value: float | None, decimals: int, text: str
) -> None:
    assert percent(value, decimals) == text


@pytest.mark.parametrize(
    ("took", "shown"),
    [
        ([], ["0", "-", "-", "-", "-"]),
        ([7.0], ["1", "-", "-", "-", "7.0"]),
        ([1000.0, 1.0], ["2", "1.0", "-", "-", "1000.0"]),
        ([1.0] * 98 + [900.0], ["99", "1.0", "-", "-", "900.0"]),
        ([900.0] + [1.0] * 99, ["100", "1.0", "1.0", "-", "900.0"]),
        ([1.0] * 998 + [800.0], ["999", "1.0", "1.0", "-", "800.0"]),
        ([1.0] * 998 + [800.0, 900.0], ["1,000", "1.0", "1.0", "800.0", "900.0"]),
    ],
)
def test_a_percentile_is_a_time_that_was_seen_and_of_enough_events(
    took: list[float], shown: list[str]
) -> None:
    assert figures(took) == shown


@pytest.mark.parametrize(
    ("took", "waited", "shown"),
    [
        ([], [3.0], ["1", "-", "-", "-", "≥ 3.0"]),
        ([5.0] * 60, [900.0] * 40, ["100", "5.0", "≥ 900.0", "-", "≥ 900.0"]),
        ([5.0] * 99, [1.0], ["100", "5.0", "5.0", "-", "≥ 5.0"]),
        ([1.0] * 50 + [7.0] * 50, [0.5], ["101", "≥ 1.0", "7.0", "-", "≥ 7.0"]),
    ],
)
def test_a_percentile_that_a_wait_without_answer_may_move_is_told_at_least(
    took: list[float], waited: list[float], shown: list[str]
) -> None:
    assert figures(took, waited) == shown
    view = tables.table_view(Table(title="", header=[""] * 5, rows=[shown]))
    assert {cell.kind for cell in view.header} == {"n"}, "a column of numbers is still one"


def test_a_percentile_needs_as_many_events_as_make_one_beyond_it() -> None:
    assert percentile([1.0], 500) is None
    assert percentile([1.0, 2.0], 500) == 1.0
    assert percentile([1.0] * 99, 990) is None
    assert percentile([1.0] * 99 + [2.0], 990) == 1.0


@pytest.mark.parametrize(
    ("acknowledged", "shown", "card"),
    [
        (0, ["-", "-", "-"], None),
        (1, ["-", "-", "5.0 ms"], ("latency max", "5.0 ms")),
        (99, ["5.0 ms", "-", "5.0 ms"], ("latency max", "5.0 ms")),
        (100, ["5.0 ms", "5.0 ms", "5.0 ms"], ("latency p99", "5.0 ms")),
    ],
)
def test_a_report_has_no_percentile_of_too_few_events(
    acknowledged: int, shown: list[str], card: Any
) -> None:
    evidence = acknowledged_of(acknowledged)
    table = tables.availability(evidence)
    assert table is not None
    for row in table.rows:
        assert [cell.text for cell in row.cells[5:]] == shown
    found = [(c.name, c.value) for c in cards_of(evidence, frozenset(), control=False)]
    assert [each for each in found if "latency" in each[0]] == ([] if card is None else [card])


def test_a_gap_that_nothing_ended_is_no_gap_of_no_time() -> None:
    table = tables.availability(acknowledged_of(0))
    assert table is not None
    assert [cell.text for cell in table.rows[0].cells[1:4]] == ["0.00 %", "-", "-"]
