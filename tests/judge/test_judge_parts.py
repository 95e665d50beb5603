"""Goal: parts of the judge are right where a whole history seldom takes them.

Method: they are asked directly: many steps at once against a plain sum of the same, more than a
hundred latencies, whose percentiles are not their greatest, and values that are left out.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.history import Acknowledged, Event, Refused, ReplicaBatch, Send, Unknown
from holdfast.judge.replicas import ReplicaFiles
from holdfast.judge.sends import HistoryTooLargeError, Sends
from holdfast.judge.series import (
    BUCKETS_MAX,
    PARTITIONS_MAX,
    AvailabilityFold,
    Sample,
    Series,
    Step,
    percentile,
)
from holdfast.judge.sizes import Sizes
from holdfast.judge.timeline import Timeline
from holdfast.judge.verdict import Availability, Counts, Judgement, PartitionJudgement

PLACE = ("foo", 0)
RARELY = 0.02
OUTCOMES: list[type[Event]] = [Acknowledged, Acknowledged, Refused, Unknown]


def steps_of(chance: random.Random) -> list[Step]:
    """Sends, each with its outcome somewhat later; now and then a clock goes back."""
    steps: list[Step] = []
    now_ms = 5000.0
    for _ in range(chance.randrange(1, 40)):
        now_ms += chance.choice([0.0, 1.0, 50.0, 99.0, 100.0, 250.0, -40.0])
        now_ms += 100.0 * BUCKETS_MAX * (chance.random() < RARELY)
        steps.append((Send, now_ms, now_ms, PLACE))
        late_ms = now_ms + chance.choice([0.0, 7.0, 100.0, 330.0])
        late_ms += 100.0 * BUCKETS_MAX * (chance.random() < RARELY)
        kind = chance.choice(OUTCOMES)
        steps.append((kind, late_ms, now_ms, ("foo", chance.randrange(2))))
    begin, *rest = steps
    return [begin, *sorted(rest, key=lambda step: (step[1], chance.random()))]


def plainly(steps: list[Step], width_ms: float) -> dict[float, tuple[object, ...]]:
    """Return by the middle of each slice: sent, refused, unknown, by partition, latencies."""
    begin_ms = steps[0][1]
    counts: Counter[tuple[float, str]] = Counter()
    by_key: defaultdict[float, Counter[tuple[str, int]]] = defaultdict(Counter)
    latencies: defaultdict[float, list[float]] = defaultdict(list)

    def middle(at_ms: float) -> float:
        return begin_ms + ((at_ms - begin_ms) // width_ms + 0.5) * width_ms

    for kind, at_ms, sent_ms, key in steps:
        counts[middle(at_ms), kind.KIND] += 1
        if kind is Acknowledged:
            by_key[middle(at_ms)][key] += 1
            latencies[middle(sent_ms)].append(at_ms - sent_ms)
    middles = {at_ms for at_ms, _ in counts} | set(latencies)
    return {
        at_ms: (
            *(counts[at_ms, kind] for kind in ("send", "refused", "unknown")),
            dict(by_key[at_ms]),
            max(latencies[at_ms], default=None),
        )
        for at_ms in sorted(middles)
        if at_ms > begin_ms  # what a clock sets before the first is not drawn
    }


def test_steps_are_counted_where_they_belong_however_many_come_at_once() -> None:
    for seed in range(80):
        chance = random.Random(seed)
        steps = steps_of(chance)
        at_once, cut = Series(), Series()
        at_once.take(steps)
        for step in steps:
            cut.take([step])
        assert (at_once.width_ms, at_once.points()) == (cut.width_ms, cut.points()), f"seed {seed}"
        second = 1000.0 / cut.width_ms
        told = {
            point.at_ms: (
                *(round(each / second) for each in (point.sent, point.refused, point.unknown)),
                {key: round(rate / second) for key, rate in point.acknowledged.items()},
                point.latency_ms_max,
            )
            for point in cut.points()
            if point.sent or point.refused or point.unknown or point.acknowledged
            or point.latency_ms_max is not None
        }  # fmt: skip
        assert told == plainly(steps, cut.width_ms), f"seed {seed}"


def test_a_latency_whose_send_is_later_than_all_widens_the_slices() -> None:
    series = Series()
    far_ms = BUCKETS_MAX * 100.0
    series.take(
        [
            (Send, 0.0, 0.0, PLACE),
            (Acknowledged, 50.0, far_ms, PLACE),
            (Send, 60.0, 60.0, PLACE),
        ]
    )
    assert series.width_ms == 200.0
    assert series.points()[0].sent == 10.0


# What (AT - BEGIN) // 100 names 1769, and 1768 covers; what names 1342, and 1343 covers.
BEGIN_MS, AT_MS = 35914.444, 212814.444
BEGUN_MS, THERE_MS = 1009344.57, 1143644.5699999998


def at(kind: type[Event], at_ms: float, sent_ms: float | None = None) -> Step:
    return kind, at_ms, at_ms if sent_ms is None else sent_ms, PLACE


@pytest.mark.parametrize(
    ("steps", "sent", "latest"),
    [
        ([at(Send, BEGIN_MS), at(Send, AT_MS - 50), at(Send, AT_MS)], {0: 1, 1768: 2}, {}),
        ([at(Send, BEGUN_MS), at(Send, THERE_MS + 1), at(Send, THERE_MS)], {0: 1, 1343: 2}, {}),
        (
            [
                at(Send, BEGIN_MS),
                at(Send, AT_MS - 40),
                at(Acknowledged, AT_MS + 0.5, AT_MS - 50),
                at(Send, AT_MS + 120),
                at(Acknowledged, AT_MS + 120.5, AT_MS),
            ],
            {0: 1, 1768: 1, 1770: 1},
            {1768: 120.5},
        ),
        (
            [
                at(Send, BEGUN_MS),
                at(Acknowledged, THERE_MS + 2, THERE_MS + 1),
                at(Acknowledged, THERE_MS + 3, THERE_MS),
            ],
            {0: 1},
            {1343: 3.0},
        ),
        (
            [
                at(Send, BEGIN_MS),
                at(Send, AT_MS - 50),
                at(Acknowledged, AT_MS - 40, AT_MS - 150),
                at(Send, AT_MS),
            ],
            {0: 1, 1768: 2},
            {1767: 110.0},
        ),
    ],
)
def test_a_slice_is_the_same_however_its_ends_are_rounded(
    steps: list[Step], sent: dict[int, int], latest: dict[int, float]
) -> None:
    for length in (len(steps), 1):
        series = Series()
        for first in range(0, len(steps), length):
            series.take(steps[first : first + length])
        points = dict(enumerate(series.points()))
        assert {n: round(each.sent / 10) for n, each in points.items() if each.sent} == sent
        greatest = {n: each.latency_ms_max for n, each in points.items() if each.latency_ms_max}
        assert greatest == pytest.approx(latest)


def test_a_clock_may_begin_below_zero() -> None:
    fold = AvailabilityFold()
    fold.take([at(Send, -5000.0), at(Send, -4999.0), at(Acknowledged, -4990.0, -5000.0)])
    fold.take([at(Acknowledged, -4000.0, -4999.0)])
    assert fold.finish().gap_ms_longest == 990.0


def test_partitions_are_as_many_as_they_may_be() -> None:
    def judged(count: int) -> int:
        story = Story()
        for partition in range(count):
            story.expect(partition=partition)
        return len(judge(story.events).judgement.partitions)

    assert judged(PARTITIONS_MAX) == PARTITIONS_MAX == 4096
    with pytest.raises(HistoryTooLargeError):
        judged(PARTITIONS_MAX + 1)


def test_percentiles_of_many_are_not_the_greatest() -> None:
    series, fold = Series(), AvailabilityFold()
    steps: list[Step] = []
    for number in range(200):
        steps += [(Send, 0.0, 0.0, PLACE), (Acknowledged, number + 1.0, 0.0, PLACE)]
    series.take(steps)
    fold.take(steps)
    first, whole = series.points()[0], fold.finish()
    for told in (first, whole):
        assert (told.latency_ms_p50, told.latency_ms_p99, told.latency_ms_max) == (100, 198, 200)


def test_joined_samples_are_thinned_as_if_they_had_been_one() -> None:
    def thinned(size_max: int, many: int) -> Sample:
        sample = Sample(size_max)
        for number in range(many):
            sample.add(float(number))
        return sample

    left, right = thinned(4, 9), Sample()
    assert left.ordered() == [0.0, 5.0]  # one of four by now, of which one was passed over
    right.add(100.0)
    left.merge(right)
    assert left.ordered() == [0.0, 5.0, 100.0]
    left.add(50.0)
    assert left.ordered() == [0.0, 5.0, 100.0]
    left.add(51.0)  # the twelfth
    assert left.ordered() == [0.0, 100.0]


@pytest.mark.parametrize("is_thinned_last", [True, False])
def test_each_of_joined_samples_weighs_as_much_as_it_had(is_thinned_last: bool) -> None:
    """Seen to fail: where slices were joined, the one with fewer latencies counted for more."""
    many, few = Sample(64), Sample(64)
    for _ in range(6400):
        many.add(1.0)
    for _ in range(32):
        few.add(1000.0)
    one, other = (few, many) if is_thinned_last else (many, few)
    one.merge(other)
    told = one.ordered()
    assert len(told) < 64, "the bound holds behind it as well"
    assert told.count(1000.0) <= 1, "of two hundred one"
    assert one.greatest == 1000.0
    assert percentile(told, 0.95) == 1.0


def test_a_run_begins_with_its_first_event_however_often_it_is_told() -> None:
    first, second = Story().send(0).send(1).events
    timeline = Timeline()
    timeline.reach(first)
    timeline.reach(second)
    assert (timeline.begin_ms, timeline.begin_wall_ms) == (first.at_ms, first.wall_ms)
    assert timeline.end_ms == second.at_ms


def test_a_judgement_of_which_no_more_is_said_has_nothing_open() -> None:
    partition = PartitionJudgement(
        topic="foo", partition=0, counts=Counts(), anomalies={}, findings=(),
        availability=Availability(), whole_read=True,
    )  # fmt: skip
    assert (partition.expiries, partition.undecided) == ((), ())
    judgement = Judgement(partitions=(partition,), availability=Availability(), events=0)
    assert judgement.notes == ()


def test_a_batch_was_sent_when_its_first_known_record_was() -> None:
    """Method: nobody has read the log, and its first batch holds offset 0, which is gone."""
    sends, replica = Sends("foo", 0, 10), ReplicaFiles(0, "foo", 0)
    for event in Story().send(0).ack(0, 0).pause(10).send(1).ack(1, 1).batch(0, 0, 1).events:
        if isinstance(event, Send):
            sends.add(event)
        elif isinstance(event, Acknowledged):
            sends.answer(event)
        elif isinstance(event, ReplicaBatch):
            replica.add(event)
    sizes = Sizes(sends, None)
    first_ms, second_ms = sends.sent_ms
    assert sizes.in_files([replica], 1, second_ms) == (100, 100)
    assert sizes.in_files([replica], 1, first_ms) == (0, 0)
