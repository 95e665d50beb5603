"""What a partition must look like: said, compared, and made from an assignment."""

from __future__ import annotations

import pytest

from holdfast.lab.steps.wants import (
    Want,
    lists_text,
    matches,
    names,
    preferred,
    want,
    whole,
    without,
)

ASSIGNMENT = {0: (1, 2), 1: (2, 3)}


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (want(), "anything"),
        (want(0), "leader 0"),
        (want(-1), "leader none"),
        (want(isr=[]), "ISR {}"),
        (want(2, (3, 1)), "leader 2, ISR {1,3}"),
    ],
)
def test_a_want_in_words(wanted: Want, text: str) -> None:
    assert str(wanted) == text


@pytest.mark.parametrize(
    ("wanted", "is_met"),
    [
        (want(), True),
        (want(1), True),
        (want(2), False),
        (want(isr={1, 2}), True),
        (want(isr={1}), False),
        (want(1, {2, 1}), True),
        (want(1, {1}), False),
        (want(2, {1, 2}), False),
    ],
)
def test_a_want_is_met_by_all_that_it_names(wanted: Want, is_met: bool) -> None:
    assert matches(wanted, want(1, {1, 2})) is is_met


def test_wants_of_an_assignment() -> None:
    assert whole(ASSIGNMENT) == {0: Want(None, frozenset({1, 2})), 1: Want(None, frozenset({2, 3}))}
    assert preferred(ASSIGNMENT) == {0: want(1, {1, 2}), 1: want(2, {2, 3})}


def test_who_is_left_leads_and_the_isr_keeps_its_last_member() -> None:
    assert without(ASSIGNMENT, {1}) == {0: want(2, {2}), 1: want(2, {2, 3})}
    assert without(ASSIGNMENT, {1, 2}) == {0: Want(-1, None), 1: want(3, {3})}


def test_names_and_lists() -> None:
    assert names([2, 0]) == "P2, P0"
    assert lists_text({1: [2, 3], 0: [1]}) == "1, 2:3"
