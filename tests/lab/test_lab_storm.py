"""Goal: a storm is its seed's, and hurts nobody in a way that its promise does not cover.

Method: plans of many seeds, by their properties.
"""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.lab.steps.storm_plan import CALM_S, OF_BROKERS, WEIGHTS, Deed, plan_storm

BROKERS, CONTROLLERS = (0, 1, 2), (100, 101, 102)


def test_the_same_seed_is_the_same_storm() -> None:
    first, again, other = (plan_storm(seed, 300, BROKERS, CONTROLLERS) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", range(20))
def test_a_storm_has_every_kind_and_ends_in_calm(seed: int) -> None:
    planned = plan_storm(seed, 600, BROKERS, CONTROLLERS)
    assert [each.at_s for each in planned] == sorted(each.at_s for each in planned)
    assert planned[-1].at_s <= 600 - CALM_S
    kinds = Counter(each.deed for each in planned)
    rounds = len(planned) // sum(WEIGHTS.values())
    assert rounds >= 4
    for deed, weight in WEIGHTS.items():
        assert rounds * weight <= kinds[deed] <= (rounds + 1) * weight
    for each in planned:
        assert each.node != each.other
        assert each.deed not in OF_BROKERS or each.node in BROKERS


def test_deeds_in_words() -> None:
    planned = plan_storm(3, 3000, BROKERS, CONTROLLERS)
    words = {each.deed: each.words for each in planned}
    assert set(words) == set(Deed)
    assert words[Deed.KILL].endswith(" is killed")
    assert words[Deed.PAUSE].endswith(" stands still")
    assert " ms apart" in words[Deed.SLOW]
    assert " % of packets between " in words[Deed.LOSE]
    assert " is not heard by " in words[Deed.ONE_WAY]


def test_a_storm_that_is_too_short_does_nothing() -> None:
    assert plan_storm(1, CALM_S, BROKERS, CONTROLLERS) == []
