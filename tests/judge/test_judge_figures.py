"""Goal: what is promised, and what is drawn and counted over time, is exact.

Method: whole sentences, and figures that can be reckoned by hand, compared whole.
"""

from __future__ import annotations

from dataclasses import astuple

import pytest
from tests.judge.histories import WALL_MS, Story
from tests.judge.judge_stories import three

from holdfast.judge.checker import judge
from holdfast.judge.history import (
    Acknowledged,
    Event,
    Fault,
    IsrChange,
    LeaderChange,
    Note,
    Refused,
    Send,
    Unknown,
)
from holdfast.judge.promise import promise_for
from holdfast.judge.series import BUCKETS_MAX, Point, Sample, Series, Step, percentile
from holdfast.judge.timeline import Span, Timeline
from holdfast.judge.verdict import Availability, Counts

# -- what is promised ------------------------------------------------------------------------------

STAYS = " What a consumer has read stays in the log."
VANISHES = " What a consumer has read may vanish."
IDEMPOTENT = " Nothing is doubled or reordered: the producer is idempotent."
ONCE = " Nothing is doubled or reordered: the producer never sends twice."
RETRIES = " A retry may double or reorder records: the producer isn't idempotent."


def kept(copies: str, factor: int, min_isr: int) -> str:
    return (
        f"Nothing acknowledged is lost: each event is on every in-sync replica, at least {copies} "
        f"(acks=all, RF {factor}, min ISR {min_isr}), before it is acknowledged."
    )


@pytest.mark.parametrize(
    ("acks", "factor", "min_isr", "idempotent", "retries", "unclean", "text"),
    [
        ("all", 3, 2, True, 5, False, kept("2 copies", 3, 2) + STAYS + IDEMPOTENT),
        ("all", 3, 1, False, 0, False, kept("1 copy", 3, 1) + STAYS + ONCE),
        ("all", 2, 1, False, 1, False, kept("1 copy", 2, 1) + STAYS + RETRIES),
        (
            *("all", 1, 1, True, 0, False),
            "Nothing acknowledged is lost while the only copy's disk is kept (acks=all, RF 1)."
            + STAYS
            + IDEMPOTENT,
        ),
        (
            *("all", 3, 2, True, 5, True),
            "Unclean election is on: a replica that lacks acknowledged events may lead, and they "
            "are lost; losses are counted." + VANISHES + IDEMPOTENT,
        ),
        (
            *("1", 3, 2, False, 5, False),
            "An event is acknowledged by its leader alone (acks=1): it is lost if the leader dies "
            "before a follower has it; losses are counted." + STAYS + RETRIES,
        ),
        (
            *("0", 3, 2, False, 0, True),
            "Nothing is acknowledged (acks=0), so any event may be lost; losses are counted."
            + VANISHES
            + ONCE,
        ),
    ],
)
def test_a_promise_is_said_in_whole_sentences(
    acks: str, factor: int, min_isr: int, idempotent: bool, retries: int, unclean: bool, text: str
) -> None:
    promise = promise_for(
        acks=acks, replication_factor=factor, min_isr=min_isr, idempotent=idempotent,
        retries=retries, unclean=unclean,
    )  # fmt: skip
    assert promise.text == text


def test_elections_are_clean_unless_somebody_says_otherwise() -> None:
    promise = promise_for(acks="all", replication_factor=3, min_isr=2, idempotent=True, retries=5)
    assert promise.text == kept("2 copies", 3, 2) + STAYS + IDEMPOTENT


# -- what is counted -------------------------------------------------------------------------------


def test_counts_are_added_one_by_one() -> None:
    names = Counts.__dataclass_fields__
    left = Counts(**{name: 10 + place for place, name in enumerate(names)})
    right = Counts(**{name: 100 * place for place, name in enumerate(names)})
    assert left + right == Counts(**{name: 10 + 101 * place for place, name in enumerate(names)})
    assert Counts() + Counts() == Counts()
    assert set(astuple(Counts())) == {0}


def test_what_expired_is_told_with_thousands_apart() -> None:
    story = Story()
    for number in range(1200):
        story.send(number).ack(number, number)
    story.delete(1200).final(begin=1200)
    expected = "1,200 expired as allowed (1,200 by DeleteRecords before offset 1,200)"
    assert judge(story.events).judgement.expired_text == expected


def test_what_expired_by_one_rule_in_two_partitions_is_told_once() -> None:
    story = three().retention(ms=0).final(2, begin=2)
    story.retention(ms=0, partition=1).send(7, partition=1).ack(7, 0, partition=1).pause(9)
    judgement = judge(story.final(begin=1, partition=1).events).judgement
    assert judgement.expired == {"retention.ms=0": 3}
    assert judgement.expired_text == "3 expired as allowed (3 by retention.ms=0)"


# -- rates and latencies ---------------------------------------------------------------------------

P, Q = ("foo", 0), ("foo", 1)


def test_a_percentile_is_of_nearest_rank_and_within_the_sequence() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.25, 0.5, 0.625, 1.0)] == [
        *(1.0, 1.0, 2.0, 3.0, 4.0)
    ]
    assert percentile([7.0], 0.01) == 7.0
    assert percentile([1.0, 2.0], 1.6) == 2.0


def test_a_sample_keeps_every_second_one_when_it_is_full() -> None:
    sample = Sample(size_max=4)
    for value in (5.0, 1.0, 2.0):
        sample.add(value)
    assert (sample.ordered(), sample.greatest) == ([1.0, 2.0, 5.0], 5.0)
    sample.add(3.0)
    assert sample.ordered() == [2.0, 5.0]
    for value in (8.0, 6.0, 7.0):
        sample.add(value)
    assert sample.ordered() == [2.0, 5.0, 6.0]
    sample.add(4.0)
    assert sample.ordered() == [5.0, 6.0]
    for value in (1.0, 2.0, 3.0, 7.5):  # of four one by now
        sample.add(value)
    assert sample.ordered() == [5.0, 6.0, 7.5]
    assert sample.greatest == 8.0


def test_samples_are_joined() -> None:
    left, right = Sample(size_max=100), Sample(size_max=100)
    for value in (5.0, 1.0):
        left.add(value)
    right.add(3.0)
    left.merge(right)
    assert (left.ordered(), left.greatest) == ([1.0, 3.0, 5.0], 5.0)
    right.merge(left)
    assert right.greatest == 5.0


def point(at_ms: float, **values: object) -> Point:
    empty = {
        "sent": 0.0, "refused": 0.0, "unknown": 0.0, "acknowledged": {},
        "latency_ms_p50": None, "latency_ms_p99": None, "latency_ms_max": None,
    }  # fmt: skip
    return Point(at_ms=at_ms, **{**empty, **values})  # type: ignore[arg-type]


def latencies(p50: float, p99: float, most: float) -> dict[str, float]:
    return {"latency_ms_p50": p50, "latency_ms_p99": p99, "latency_ms_max": most}


def sent(at_ms: float) -> Step:
    return Send, at_ms, at_ms, P


def acknowledged(key: tuple[str, int], at_ms: float, sent_ms: float) -> Step:
    return Acknowledged, at_ms, sent_ms, key


def refused(at_ms: float) -> Step:
    return Refused, at_ms, at_ms, P


def unknown(at_ms: float) -> Step:
    return Unknown, at_ms, at_ms, P


def test_points_show_each_slice_of_time() -> None:
    series = Series()
    assert series.points() == []
    for at_ms in (1000.0, 1000.0, 1099.0, 1100.0):
        series.take([sent(at_ms)])
    series.take([acknowledged(P, 1050.0, 1000.0)])
    series.take([acknowledged(P, 1150.0, 1000.0)])
    series.take([acknowledged(Q, 1150.0, 1099.0)])
    series.take([refused(1300.0)])
    series.take([unknown(1399.0)])
    series.take([unknown(1320.0)])
    assert series.points() == [
        point(1050.0, sent=30.0, acknowledged={P: 10.0}, **latencies(51.0, 150.0, 150.0)),
        point(1150.0, sent=10.0, acknowledged={P: 10.0, Q: 10.0}),
        point(1250.0),
        point(1350.0, refused=10.0, unknown=20.0),
    ]


def test_slices_are_joined_when_there_are_too_many() -> None:
    series = Series()
    for number in range(BUCKETS_MAX):
        series.take([sent(number * 100.0)])
        series.take([unknown(number * 100.0)])
        series.take([refused(number * 100.0)])
        series.take([acknowledged(P, number * 100.0 + 1, number * 100.0)])
    assert (series.width_ms, len(series.points())) == (100.0, BUCKETS_MAX)
    assert series.points()[-1] == point(
        BUCKETS_MAX * 100.0 - 50.0,
        sent=10.0, refused=10.0, unknown=10.0, acknowledged={P: 10.0}, **latencies(1.0, 1.0, 1.0),
    )  # fmt: skip
    series.take([sent(BUCKETS_MAX * 100.0)])
    assert (series.width_ms, len(series.points())) == (200.0, BUCKETS_MAX // 2 + 1)
    assert series.points()[0] == point(
        100.0,
        sent=10.0, refused=10.0, unknown=10.0, acknowledged={P: 10.0}, **latencies(1.0, 1.0, 1.0),
    )  # fmt: skip
    assert series.points()[-1] == point(BUCKETS_MAX * 100.0 + 100.0, sent=5.0)
    series.take([sent(BUCKETS_MAX * 100.0 + 199.0)])  # in the slice that was made last
    series.take([sent(BUCKETS_MAX * 100.0 + 200.0)])
    assert [each.sent for each in series.points()[-2:]] == [10.0, 5.0]
    series.take([sent(BUCKETS_MAX * 800.0)])  # four times as long at once
    assert series.width_ms == 1600.0
    assert series.points()[-1] == point(BUCKETS_MAX * 800.0 + 800.0, sent=0.625)


def test_a_moment_that_no_clock_tells_is_soon_counted() -> None:
    """Method: so far away that a slice's ends are one number; more steps would never end."""
    series = Series()
    key = ("foo", 0)
    series.take([(Send, at_ms, at_ms, key) for at_ms in (0.0, 1e25, 1e300)])
    assert sum(point.sent * series.width_ms for point in series.points()) == pytest.approx(3000)


def test_availability_of_nothing_is_nothing() -> None:
    assert judge(Story().final().events).judgement.availability == Availability()
    assert Availability().share == 1.0


# -- the cluster -----------------------------------------------------------------------------------


def leads(at_ms: float, leader: int, epoch: int, partition: int = 0) -> LeaderChange:
    return LeaderChange(
        at_ms=at_ms, wall_ms=0, process="lab", topic="foo", partition=partition, leader=leader,
        epoch=epoch,
    )  # fmt: skip


def fault(at_ms: float, action: str, node: int) -> Fault:
    return Fault(at_ms=at_ms, wall_ms=0, process="lab", action=action, node=node)


def in_sync(at_ms: float, *nodes: int, partition: int = 0) -> IsrChange:
    return IsrChange(
        at_ms=at_ms, wall_ms=0, process="lab", topic="foo", partition=partition, isr=nodes,
        replicas=nodes,
    )  # fmt: skip


def timeline(*events: Event) -> Timeline:
    return judge(events).timeline


def test_a_timeline_begins_with_the_first_event_and_ends_with_the_latest() -> None:
    empty = timeline()
    assert (empty.begin_ms, empty.end_ms, empty.begin_wall_ms) == (0.0, 0.0, 0)
    told = judge(Story().send(0).send(1).events).timeline
    assert (told.begin_ms, told.end_ms, told.begin_wall_ms) == (1001.0, 1002.0, WALL_MS + 1001)
    assert timeline(fault(9.0, "KILL", 1), fault(5.0, "start", 1)).end_ms == 9.0


@pytest.mark.parametrize(
    ("events", "spans"),
    [
        ([fault(5.0, "KILL", 1)], []),
        ([leads(0.0, 1, 3)], []),
        ([leads(0.0, 1, 3), fault(9.0, "start", 7)], [Span(0.0, 9.0, 1, 3)]),
        (  # who was down before it was named
            [fault(0.0, "KILL", 1), leads(2.0, 1, 3), fault(5.0, "start", 1), leads(9.0, 1, 3)],
            [Span(2.0, 5.0, -1, 3), Span(5.0, 9.0, 1, 3)],
        ),
        (  # of two words at once the later one counts
            [leads(0.0, 1, 3), leads(0.0, 2, 4), fault(5.0, "TERM", 2)],
            [Span(0.0, 5.0, 2, 4)],
        ),
        (  # another epoch of the same leader
            [leads(0.0, 1, 3), leads(4.0, 1, 5), leads(6.0, -1, 5), leads(9.0, -1, 5)],
            [Span(0.0, 4.0, 1, 3), Span(4.0, 6.0, 1, 5), Span(6.0, 9.0, -1, 5)],
        ),
        (  # a disk and another partition are of no interest
            [leads(0.0, 1, 3), fault(4.0, "DISK", 1), leads(5.0, 2, 9, 1), leads(8.0, 1, 3)],
            [Span(0.0, 8.0, 1, 3)],
        ),
    ],
)
def test_who_led(events: list[Event], spans: list[Span]) -> None:
    assert timeline(*events).spans(P) == spans


def test_stretches_without_a_leader_are_joined_where_they_touch() -> None:
    story = timeline(
        leads(0.0, -1, 0),
        leads(2.0, -1, 1),
        leads(4.0, 0, 2),
        fault(6.0, "STOP", 0),
        fault(7.0, "CONT", 0),
        fault(8.0, "exit", 0),
        leads(9.0, 1, 3),
        fault(10.0, "start", 9),
    )
    assert story.leaderless(P) == [(0.0, 4.0), (6.0, 7.0), (8.0, 9.0)]
    assert story.leaderless(Q) == []


def test_what_happened_to_the_cluster_is_told_in_order() -> None:
    note = Note(at_ms=3.0, wall_ms=0, process="lab", text="so")
    events: list[Event] = [
        leads(0.0, 1, 0, 1),
        in_sync(0.0, 1, 2, partition=1),
        leads(1.0, 1, 0),
        in_sync(2.0, 1, 2),
        note,
        fault(4.0, "KILL", 1),
        leads(5.0, 2, 1),
        in_sync(6.0, 2),
        in_sync(7.0, 2, 1, partition=2),
    ]
    told = timeline(*events)
    assert told.moments() == [note, *events[5:8]]
    assert told.partitions == [("foo", 0), ("foo", 1), ("foo", 2)]
    assert told.faults == [events[5]]
    assert told.notes == [note]
