"""Where a log begins and ends: what a leader may answer, and what it may not.

Goal: LATEST never goes back below what was committed, and never says what is not. Method: a
partition of two replicas made up by hand; one answer at each edge, and one beyond it. Seen to fail:
`committed_before` that returns its `least` lets the answer pass that a new leader gives too early.
"""

from __future__ import annotations

import pytest
from tests.simulate.test_simulate_truth import World

from holdfast.testing.simulation.chain import Entry
from holdfast.testing.simulation.ends import ends_at, is_same, what_is_wrong
from holdfast.testing.simulation.invariants import Invariant
from holdfast.wire.well_known import EARLIEST, LATEST

FIRST, SECOND = Entry(0, 3, 0, 1), Entry(4, 5, 0, 2)


@pytest.fixture
def elected() -> World:
    """Node 0 has committed two batches; node 1, whose watermark lags, leads after it."""
    world = World(0, 1)
    world.elect(0, 0, (0, 1))
    world.truth.led(world.replicas[0], 0)
    for entry in (FIRST, SECOND):
        world.truth.appended(world.replicas[0], entry, leads=True)
        world.truth.appended(world.replicas[1], entry, leads=False)
    world.truth.committed_until(world.replicas[0], 6, 6)
    world.truth.committed_until(world.replicas[1], 4, 6)
    world.elect(1, 1, (1,))
    world.truth.led(world.replicas[1], 1)
    assert not world.told
    return world


@pytest.mark.parametrize(("offset", "good"), [(4, False), (5, False), (6, True), (7, False)])
def test_a_new_leader_says_no_end_before_what_was_committed(
    elected: World, offset: int, good: bool
) -> None:
    before = ends_at(elected.truth, 1)
    assert before is not None
    wrong = what_is_wrong(elected.truth, before, LATEST, offset)
    assert (wrong is None) == good
    assert wrong is None or wrong[0] is Invariant.END_AS_COMMITTED


def test_a_leader_that_is_cut_off_may_lag(elected: World) -> None:
    third = Entry(6, 7, 1, 3)
    elected.truth.appended(elected.replicas[1], third, leads=True)
    elected.truth.committed_until(elected.replicas[1], 8, 8)
    before = ends_at(elected.truth, 0)
    assert before is not None
    assert before.committed == 6
    assert what_is_wrong(elected.truth, before, LATEST, 6) is None


def test_the_beginning_is_where_the_log_begins(elected: World) -> None:
    before = ends_at(elected.truth, 1)
    assert before is not None
    assert what_is_wrong(elected.truth, before, EARLIEST, 0) is None
    wrong = what_is_wrong(elected.truth, before, EARLIEST, 1)
    assert wrong is not None
    assert wrong[0] is Invariant.BEGIN_AS_STARTED


def test_another_log_or_epoch_answers_for_itself(elected: World) -> None:
    before = ends_at(elected.truth, 1)
    assert before is not None
    assert is_same(elected.truth, 1, before)
    elected.elect(2, 1, (1,))
    elected.truth.led(elected.replicas[1], 2)
    assert not is_same(elected.truth, 1, before)
    elected.truth.died(1)
    assert ends_at(elected.truth, 1) is None
