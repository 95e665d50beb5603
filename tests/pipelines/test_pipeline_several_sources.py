"""Goal: of a query that reads a partition more than once each source goes on where it was, whenever
each learns of a partition, in another checkpoint, and with what tables of before remember.

Method: batches as values; and random stories, in which each source's rows are counted one by one.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from holdfast.pipelines.due import Last, Memory, Rows, Stored, decide
from holdfast.pipelines.offsets import Offsets, Partition, Position
from holdfast.pipelines.planned import Batch, PlanError, Reader, places, planned_ranges
from holdfast.pipelines.sinks.remembered import moved

T0, T1, U0 = Partition("t", 0), Partition("t", 1), Partition("u", 0)


class Story:
    """A query, its table, and each row that the table was given, with the source it came from."""

    def __init__(self, *sources: Offsets) -> None:
        self.memory = Memory()
        self.written: Counter[tuple[int, Partition, int]] = Counter()
        self._checkpoints = 0
        self.begin(*sources)

    def begin(self, *sources: Offsets) -> None:
        """Start in a fresh checkpoint: batch 0 writes down where each source begins."""
        self._checkpoints += 1
        self.entries: list[list[Offsets]] = []
        self.batch(*sources)

    def batch(self, *ends: Offsets, names: tuple[int, ...] | None = None) -> Rows:
        """Plan and write a batch; `names` says which source of the story stands at each place."""
        before = [Position(dict(o)) for o in self.entries[-1]] if self.entries else None
        self.entries.append([dict(offsets) for offsets in ends])
        after = [Position(dict(offsets)) for offsets in ends]
        what = Batch(
            number=len(self.entries) - 1,
            checkpoint=str(self._checkpoints),
            plan=f"{self._checkpoints} {len(self.entries)}",
            stateful=False,
            ranges=planned_ranges(before, after),
            known=places(before or ()),
        )
        work = decide(what, self.memory, (), "q")
        if work.rows is not Rows.NONE:
            begins = {move.reader: move.begin for move in work.moves}
            for planned in what.ranges:
                source = planned.reader.source if names is None else names[planned.reader.source]
                start = planned.start if work.rows is Rows.ALL else begins.get(planned.reader)
                for offset in range(planned.end if start is None else start, planned.end):
                    self.written[source, planned.reader.partition, offset] += 1
        last = Last(what.checkpoint, what.number, what.plan)
        self.memory = Memory(moved("q", self.memory.offsets, work), last)
        return work.rows

    def remember_as_before(self) -> None:
        """Have the memory of the version before: sources counted among those that know it."""
        offsets = {}
        for partition in {reader.partition for reader in self.memory.offsets}:
            known = sorted(r for r in self.memory.offsets if r.partition == partition)
            for rank, reader in enumerate(known):
                offsets[Reader(partition, rank)] = self.memory.offsets[reader]
        assert self.memory.last is not None
        self.memory = Memory(offsets, replace(self.memory.last, by_place=False))

    def assert_each_once(self, *ends: Offsets) -> None:
        expected = {
            (source, partition, offset)
            for source, offsets in enumerate(ends)
            for partition, end in offsets.items()
            for offset in range(end)
        }
        assert self.written.keys() == expected
        assert set(self.written.values()) <= {1}


def test_the_second_source_learns_of_a_partition_first() -> None:
    """Seen to fail: the first one's rows were taken for those of the second, and passed over."""
    story = Story({T0: 0}, {T0: 0})
    story.batch({T0: 2}, {T0: 2, T1: 0})
    story.batch({T0: 2, T1: 0}, {T0: 2, T1: 5})
    story.batch({T0: 2, T1: 5}, {T0: 2, T1: 5})
    story.assert_each_once({T0: 2, T1: 5}, {T0: 2, T1: 5})


@pytest.mark.parametrize("second_first", [False, True])
def test_what_a_table_of_before_remembers_goes_on(second_first: bool) -> None:
    story = Story({T0: 0}, {T0: 0})
    early, late = {T0: 3, T1: 0}, {T0: 2}
    story.batch(*((late, early) if second_first else (early, late)))
    early[T1] = 4
    story.batch(*((late, early) if second_first else (early, late)))
    story.remember_as_before()
    story.batch({T0: 3, T1: 0 if second_first else 4}, {T0: 3, T1: 4 if second_first else 0})
    story.batch({T0: 5, T1: 7}, {T0: 6, T1: 7})
    story.assert_each_once({T0: 5, T1: 7}, {T0: 6, T1: 7})


def test_another_order_of_other_topics_in_a_fresh_checkpoint() -> None:
    story = Story({T0: 0}, {U0: 0})
    story.batch({T0: 4}, {U0: 3})
    story.begin({U0: 0}, {T0: 0})
    assert story.batch({U0: 3}, {T0: 4}) is Rows.NONE
    story.batch({U0: 5}, {T0: 4}, names=(1, 0))
    story.assert_each_once({T0: 4}, {U0: 5})


def test_a_topic_that_is_read_again_later_goes_on_at_whatever_place() -> None:
    story = Story({T0: 0}, {U0: 0})
    story.batch({T0: 4}, {U0: 3})
    story.begin({T0: 0})
    story.batch({T0: 4, U0: 0})
    assert story.batch({T0: 4, U0: 3}) is Rows.NONE
    story.begin({U0: 0}, {T0: 0})
    assert story.batch({U0: 3}, {T0: 4}) is Rows.NONE


def test_a_partition_that_one_source_alone_had_learnt_of_in_a_fresh_checkpoint() -> None:
    """The others tell which one that was; a table of before can't."""
    story = Story({T0: 0}, {T0: 0})
    story.batch({T0: 2}, {T0: 2, T1: 0})
    story.batch({T0: 2}, {T0: 2, T1: 5})
    older = Story({T0: 0}, {T0: 0})
    older.memory = story.memory
    story.begin({T0: 0, T1: 0}, {T0: 0, T1: 0})
    story.batch({T0: 2, T1: 0}, {T0: 2, T1: 5})
    story.batch({T0: 2, T1: 5}, {T0: 2, T1: 5})
    story.assert_each_once({T0: 2, T1: 5}, {T0: 2, T1: 5})
    older.remember_as_before()
    with pytest.raises(
        PlanError, match=r"t-1: .* another number of sources reads it.*another name"
    ):
        older.begin({T0: 0, T1: 0}, {T0: 0, T1: 0})


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2)])
def test_another_number_of_sources_is_refused(before: int, after: int) -> None:
    story = Story(*[{T0: 0}] * before)
    story.batch(*[{T0: 2}] * before)
    with pytest.raises(PlanError, match="which of them goes on where can't be told"):
        story.begin(*[{T0: 0}] * after)


def test_a_topic_that_another_of_the_sources_reads_now_is_refused() -> None:
    """The first one had read it: for the second it would begin anew, and its rows come again."""
    story = Story({T0: 0, U0: 0}, {T0: 0})
    story.batch({T0: 2, U0: 3}, {T0: 2})
    with pytest.raises(PlanError, match=r"u-0: .* which of them goes on where can't be told"):
        story.begin({T0: 0}, {T0: 0, U0: 0})


def test_a_source_may_be_split_where_none_is_like_another() -> None:
    story = Story({T0: 0, U0: 0})
    story.batch({T0: 4, U0: 3})
    story.begin({U0: 0}, {T0: 0})
    assert story.batch({U0: 3}, {T0: 4}) is Rows.NONE


def test_what_waits_can_be_forgotten_with_its_topic_and_another_source_s_can_not() -> None:
    """A topic is made anew; the second source has not come to the new one yet."""
    first, second = Reader(T0, 0), Reader(T0, 1)
    gone = Reader(T1, -1)
    memory = Memory(
        {first: Stored(5, "old"), second: Stored(5, "old"), gone: Stored(3, "old")},
        Last("here", 3, "plan"),
    )
    before = [Position({T0: 5}, {"t": "old"}), Position({T0: 5}, {"t": "old"})]
    after = [Position({T0: 0}, {"t": "new"}), Position({T0: 5}, {"t": "old"})]
    ranges = planned_ranges(before, after)
    batch = Batch(number=4, checkpoint="here", plan="4", stateful=False, ranges=ranges)
    assert decide(batch, memory, {"old"}, "q").forget == (first, gone)


@pytest.mark.parametrize("seed", range(40))
def test_random_stories(seed: int) -> None:
    """Partitions appear, sources learn of them when they like, checkpoints and versions go."""
    dice = random.Random(seed)
    count = dice.randint(2, 3)
    ends: list[Offsets] = [{T0: 0} for _ in range(count)]
    there = [T0]
    story = Story(*ends)
    for _ in range(30):
        if dice.random() < 0.2:
            there.append(Partition("t", len(there)))
        for offsets in ends:
            for partition in there:
                if partition in offsets:
                    offsets[partition] += dice.randint(0, 3)
                elif dice.random() < 0.4:
                    offsets[partition] = 0
        story.batch(*ends)
        if dice.random() < 0.1:
            story.remember_as_before()
        elif dice.random() < 0.1:
            story.begin(*[dict.fromkeys(there, 0) for _ in ends])
            for offsets in ends:
                offsets |= {p: offsets.get(p, 0) for p in there}
            assert story.batch(*ends) is Rows.NONE
    story.assert_each_once(*ends)
