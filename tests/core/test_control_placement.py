"""Goal: replicas are spread over racks and brokers, leaders evenly, the same for the same seed.

Method: tables and properties over generated clusters (rules: topics.md#placement).
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.controller.placement import PlacementError, Site, place


@st.composite
def clusters(draw: st.DrawFn) -> list[Site]:
    count = draw(st.integers(1, 9))
    sites = [
        Site(
            broker_id,
            draw(st.sampled_from([None, "a", "b", "c"])),
            draw(st.booleans()) or broker_id == 0,
        )
        for broker_id in range(count)
    ]
    return draw(st.permutations(sites))


@pytest.mark.slow
@settings(derandomize=True, max_examples=200, deadline=None)
@given(clusters(), st.integers(1, 30), st.integers(0, 2**64 - 1), st.data())
def test_what_holds_for_every_cluster(
    sites: list[Site], partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(sites)))
    usable = {site.broker_id for site in sites if site.usable}
    racks = {site.broker_id: site.rack for site in sites}
    lists = place(sites, partitions, factor, seed)
    assert lists == place(sorted(sites, key=lambda site: site.broker_id), partitions, factor, seed)
    assert len(lists) == partitions
    for replicas in lists:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in usable, "only a broker that is up may lead"
        spread = {racks[node] for node in replicas}
        assert len(spread) == min(factor, len(set(racks.values()))), "racks come before brokers"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "racks",
    [[None] * 3, ["a", "b", "c"], ["a", "a", "b", "b"], ["a", "a", "b", "b", "c", "c"]],
)
def test_leaders_and_replicas_are_even_over_whole_rounds(
    racks: list[str | None], seed: int
) -> None:
    sites = [Site(broker_id, rack) for broker_id, rack in enumerate(racks)]
    count = len(sites)
    lists = place(sites, count * 2, 2, seed)
    assert set(Counter(replicas[0] for replicas in lists).values()) == {2}
    if len(set(racks)) in (1, count):
        assert set(Counter(node for each in lists for node in each).values()) == {4}


def test_topics_of_one_partition_are_spread_by_their_seeds() -> None:
    sites = [Site(0), Site(1), Site(2)]
    leaders = Counter(place(sites, 1, 2, seed)[0][0] for seed in range(300))
    assert all(70 < leaders[node] < 130 for node in (0, 1, 2)), leaders


def test_a_lone_broker_in_its_rack_gets_a_replica_of_everything() -> None:
    sites = [Site(0, "a"), Site(1, "b"), Site(2, "b"), Site(3, "b")]
    assert all(0 in replicas for replicas in place(sites, 12, 2, 7))


def test_fenced_brokers_fill_up_but_never_lead() -> None:
    sites = [Site(0), Site(1, usable=False), Site(2, usable=False)]
    for replicas in place(sites, 6, 3, 3):
        assert replicas[0] == 0


def test_followers_of_one_leader_vary() -> None:
    """Were they always the same two, they would carry everything when it dies."""
    sites = [Site(node) for node in range(6)]
    followers = {replicas[1] for replicas in place(sites, 60, 2, 1) if replicas[0] == 0}
    assert len(followers) >= 4


@pytest.mark.parametrize(
    ("sites", "factor", "text"),
    [
        ([Site(0), Site(1)], 3, "only 2 broker"),
        ([Site(0)], 0, "larger than 0"),
        ([Site(0, usable=False)], 1, "fenced"),
        ([], 1, "only 0 broker"),
    ],
)
def test_what_can_not_be_placed(sites: list[Site], factor: int, text: str) -> None:
    with pytest.raises(PlacementError, match=text):
        place(sites, 1, factor, 0)
