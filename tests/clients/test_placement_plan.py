"""Goal: plans move little, keep racks apart and end even. Method: tables, and random clusters."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.clients.placement_plan import Assignment, PlanError, Planner

PLAIN = dict.fromkeys(range(4))
RACKED = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}


def test_more_replicas_go_to_other_racks_and_to_who_has_least() -> None:
    planner = Planner({("t", 0): [0], ("t", 1): [1], ("u", 0): [4]}, RACKED)
    planner.set_factor(3)
    for nodes in planner.planned.values():
        assert {RACKED[node] for node in nodes} == {"a", "b", "c"}
    assert [nodes[0] for nodes in planner.planned.values()] == [0, 1, 4]


def test_fewer_replicas_keep_the_first_and_the_racks() -> None:
    planner = Planner({("t", 0): [0, 1, 2]}, RACKED)
    planner.set_factor(2)
    assert planner.changes == {("t", 0): [0, 2]}


def test_a_broker_is_emptied_in_place() -> None:
    brokers = {node: rack for node, rack in RACKED.items() if node != 2}
    planner = Planner({("t", 0): [2, 0], ("t", 1): [0, 4]}, brokers)
    planner.leave([2])
    assert planner.changes == {("t", 0): [3, 0]}


def test_what_an_emptied_broker_led_others_lead_evenly() -> None:
    brokers = dict.fromkeys(range(3))
    planner = Planner({("t", n): [3, n % 3] for n in range(6)}, brokers)
    planner.leave([3])
    leads = Counter(nodes[0] for nodes in planner.planned.values())
    assert leads == {0: 2, 1: 2, 2: 2}


def test_what_is_on_a_broker_that_is_only_down_stays_there() -> None:
    planner = Planner({("t", 0): [9, 0]}, PLAIN)
    planner.leave([7])
    planner.spread()
    assert planner.planned["t", 0] == [9, 0]


def test_a_new_broker_gets_its_share() -> None:
    current: Assignment = {("t", n): [n % 3, (n + 1) % 3] for n in range(6)}
    planner = Planner(current, PLAIN)
    planner.spread()
    held = Counter(node for nodes in planner.planned.values() for node in nodes)
    assert set(held.values()) == {3}
    moved = sum(len(set(nodes) - set(current[key])) for key, nodes in planner.planned.items())
    assert moved == 3, "no more than its share"


def test_too_few_brokers() -> None:
    planner = Planner({("t", 0): [0]}, {0: None, 1: None})
    with pytest.raises(PlanError, match="t-0 needs 3 brokers, and there are 2 to use: 0, 1"):
        planner.set_factor(3)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Assignment, dict[int, str | None]]:
    racks = draw(
        st.dictionaries(
            st.integers(0, 8), st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=7
        )
    )
    nodes = st.lists(st.sampled_from(sorted(racks)), unique=True, min_size=1, max_size=3)
    lists = draw(st.lists(nodes, min_size=1, max_size=12))
    return {("t", n): each for n, each in enumerate(lists)}, racks


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(clusters())
def test_spreading_loses_no_replica_and_no_rack(
    given_: tuple[Assignment, dict[int, str | None]],
) -> None:
    current, racks = given_
    planner = Planner(current, racks)
    planner.spread()
    for key, nodes in planner.planned.items():
        assert len(set(nodes)) == len(nodes) == len(current[key])
        before = {racks[node] for node in current[key]}
        assert len({racks[node] for node in nodes}) >= len(before)
    again = Planner(planner.planned, racks)
    again.spread()
    held = Counter(node for nodes in again.planned.values() for node in nodes)
    assert held == Counter(node for nodes in planner.planned.values() for node in nodes)
