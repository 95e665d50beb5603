"""Goal: gaps, shares, latencies and leaderless time are those of the history.

Method: small histories whose figures can be reckoned by hand.
"""

from __future__ import annotations

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import Checker, judge
from holdfast.judge.history import Event, Fault, IsrChange, LeaderChange
from holdfast.judge.series import BUCKETS_MAX, Sample, percentile


def test_the_longest_gap_is_the_longest_wait_for_an_acknowledgement() -> None:
    story = Story().send(0).ack(0, 0).send(1).pause(498).refuse(1).send(2).pause(99).ack(2, 1)
    availability = judge(story.events).judgement.availability
    assert availability.gap_ms_longest == pytest.approx(600)  # send 1 until ack 2
    assert availability.gap_at_ms == pytest.approx(1003)
    assert availability.share == pytest.approx(2 / 3)
    assert availability.latency_ms_max == pytest.approx(100)


def test_a_producer_at_rest_makes_no_gap() -> None:
    story = Story().send(0).ack(0, 0).pause(10_000).send(1).ack(1, 1)
    assert judge(story.events).judgement.availability.gap_ms_longest == pytest.approx(1)


@pytest.mark.parametrize(
    ("rest_ms", "gap_ms"),
    [(999, 1008), (1000, 7), (3_600_000, 7)],  # it sends again after a millisecond more
)
def test_a_refused_producer_that_rests_makes_no_gap(rest_ms: float, gap_ms: float) -> None:
    story = Story().send(0).pause(6).refuse(0).pause(rest_ms).send(1).ack(1, 0)
    availability = judge(story.events).judgement.availability
    assert availability.gap_ms_longest == pytest.approx(gap_ms)
    assert availability.gap_at_ms == pytest.approx(1001)


def test_a_rest_behind_an_acknowledgement_leaves_the_longest_gap() -> None:
    story = Story().send(0).pause(49).ack(0, 0).pause(5_000).send(1).ack(1, 1)
    availability = judge(story.events).judgement.availability
    assert (availability.gap_ms_longest, availability.gap_at_ms) == pytest.approx((50, 1001))


def test_a_wait_that_never_ends_counts_to_the_last_outcome() -> None:
    story = Story().send(0).ack(0, 0).send(1).pause(999).doubt(1)
    assert judge(story.events).judgement.availability.gap_ms_longest == pytest.approx(1000)


def test_gaps_are_per_partition() -> None:
    story = Story().send(0).send(1, partition=1)
    for number in range(2, 50):
        story.send(number).ack(number, number).pause(9)
    story.ack(0, 0).ack(1, 0, partition=1)
    judgement = judge(story.events).judgement
    gaps = [each.availability.gap_ms_longest for each in judgement.partitions]
    assert gaps[0] < 20
    assert gaps[1] > 400


def test_nothing_sent_is_wholly_available() -> None:
    assert judge(Story().final().events).judgement.availability.share == 1.0


def test_rates_are_per_second_and_empty_stretches_are_there() -> None:
    story = Story()
    for number in range(50):
        story.send(number).ack(number, number)
    story.pause(300).send(50).ack(50, 50)
    evidence = judge(story.events)
    assert evidence.point_ms == 100.0
    acknowledged = [sum(point.acknowledged.values()) for point in evidence.points]
    assert sum(acknowledged) / 10 == 51
    assert 0 in acknowledged
    assert any(point.latency_ms_p50 is None for point in evidence.points)


def test_points_are_bounded_however_long_the_run() -> None:
    story = Story()
    for number in range(3000):
        story.send(number).ack(number, number).pause(1000)
    evidence = judge(story.events)
    assert len(evidence.points) <= BUCKETS_MAX
    total = sum(sum(point.acknowledged.values()) for point in evidence.points)
    assert total * evidence.point_ms / 1000 == pytest.approx(3000)


def test_percentiles_are_of_nearest_rank() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [percentile(ordered, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([], 0.5) == 0.0


@pytest.mark.parametrize("per_mille", [500, 990, 999])
@pytest.mark.parametrize("count", [1, 2, 3, 160, 199, 1000, 1400])
def test_so_many_are_no_greater_than_a_percentile_and_no_fewer(count: int, per_mille: int) -> None:
    """Seen to fail: of 160 latencies the 158th was told for p99, which two are above."""
    told = percentile([float(number) for number in range(1, count + 1)], per_mille / 1000)
    assert told == -(-count * per_mille // 1000)


def test_a_sample_is_thinned_and_keeps_the_greatest() -> None:
    sample = Sample(size_max=100)
    for value in range(10_000):
        sample.add(float(value % 1000))
    assert len(sample.ordered()) < 100
    assert sample.greatest == 999.0
    assert percentile(sample.ordered(), 0.5) == pytest.approx(500, abs=60)


def cluster(*moments: tuple[float, str, int]) -> list[Event]:
    """Leaders and faults of foo-0: (time, "leader" or a fault's action, node)."""
    events: list[Event] = []
    for at_ms, what, node in moments:
        common = {"at_ms": at_ms, "wall_ms": 0, "process": "lab"}
        if what == "leader":
            epoch = sum(isinstance(event, LeaderChange) for event in events)
            events.append(
                LeaderChange(**common, topic="foo", partition=0, leader=node, epoch=epoch)  # type: ignore[arg-type]
            )
        else:
            events.append(Fault(**common, action=what, node=node))  # type: ignore[arg-type]
    return events


@pytest.mark.parametrize(
    ("moments", "leaderless"),
    [
        ([(0, "leader", 1), (10, "STOP", 1), (20, "CUT", 1), (30, "HEAL", 1)], [(10, 50)]),
        ([(0, "leader", 1), (10, "CUT", 1), (20, "STOP", 1), (30, "CONT", 1)], [(20, 30)]),
        ([(0, "leader", 1), (10, "KILL", 1), (40, "leader", 2)], [(10, 40)]),
        ([(0, "leader", 1), (10, "KILL", 2), (40, "leader", 2)], [(40, 50)]),
        ([(0, "leader", 1), (10, "KILL", 1), (20, "leader", -1), (30, "start", 1)], [(10, 50)]),
        ([(0, "leader", 1), (10, "KILL", 1), (20, "leader", -1), (40, "leader", 1)], [(10, 50)]),
        ([(0, "leader", 1), (10, "STOP", 1), (15, "CONT", 1)], [(10, 15)]),
        ([(0, "leader", 1), (8, "TERM", 1), (10, "leader", 2), (11, "exit", 1)], []),
        ([(0, "leader", 1), (8, "TERM", 1), (10, "exit", 1), (11, "leader", 2)], [(10, 11)]),
    ],
)
def test_leaderless_time(
    moments: list[tuple[float, str, int]], leaderless: list[tuple[float, float]]
) -> None:
    checker = Checker()
    checker.feed(cluster(*moments, (50, "start", 9)))
    assert checker.finish().timeline.leaderless(("foo", 0)) == leaderless


def test_spans_carry_leader_and_epoch() -> None:
    timeline = judge(cluster((0, "leader", 1), (10, "leader", 2), (30, "start", 9))).timeline
    spans = [(s.begin_ms, s.end_ms, s.leader, s.epoch) for s in timeline.spans(("foo", 0))]
    assert spans == [(0, 10, 1, 0), (10, 30, 2, 1)]


def test_replicas_are_all_who_ever_held_the_partition() -> None:
    moved = [
        IsrChange(at_ms=at_ms, wall_ms=0, process="lab", topic="foo", partition=0,
                  isr=replicas[:1], replicas=replicas)
        for at_ms, replicas in ((1, (1, 0)), (2, (3, 1, 0)), (3, (3, 1)))
    ]  # fmt: skip
    assert judge(moved).timeline.replicas(("foo", 0)) == (1, 0, 3)
    assert judge(moved).timeline.replicas(("foo", 1)) == ()


def test_moments_leave_out_the_state_at_the_beginning() -> None:
    events: list[Event] = cluster((0, "leader", 1), (10, "KILL", 1), (20, "leader", 2))
    events.insert(1, IsrChange(at_ms=1, wall_ms=0, process="lab", topic="foo", partition=0,
                               isr=(1, 2), replicas=(1, 2)))  # fmt: skip
    moments = judge(events).timeline.moments()
    assert [event.KIND for event in moments] == ["fault", "leader"]
