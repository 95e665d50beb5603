"""Goal: what the source answers Spark, call by call, also when leaders are away or Spark replays.

Method: the reader as Spark's planner drives it, without a JVM; what a cluster would say comes from
a table of facts that each test changes as it goes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from holdfast.pipelines import offsets as moves
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.intake.topic_pattern import matcher
from holdfast.pipelines.listing import UnknownTopicError
from holdfast.pipelines.offsets import (
    DataLossError,
    Known,
    Offsets,
    Partition,
    TopicMadeAnewError,
)
from holdfast.pipelines.options import parse
from holdfast.pipelines.planner import RangePartition
from holdfast.pipelines.source import BatchReader, StreamReader
from holdfast.wire.well_known import LATEST

ALL = ReadAllAvailable()


class Facts:
    """What the cluster would say: where each log begins and ends, and whose leader is away."""

    def __init__(self, **ends: int) -> None:
        self.begin = {Partition("t", int(name[1:])): 0 for name in ends}
        self.end = {Partition("t", int(name[1:])): end for name, end in ends.items()}
        self.away: set[Partition] = set()
        self.ids = {"t": "first"}
        self.epochs: dict[Partition, int] = {}
        self.epoch_ends: Offsets = {}  # where the epoch before the one of now ends
        self.successors: Offsets = {}  # where the logs of those end that follow on a cut-off leader
        self.at: Offsets = {}  # first offsets at the time that is asked for; LATEST: none that late
        self.times: dict[Partition, int] = {}
        self.deleted: set[str] = set()  # topics that no broker knows
        self.late: list[Partition] = []  # what the broker that was asked first did not know

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        assert list(topics) == ["t"]
        return sorted(p for p in self.end if p not in self.late)

    existing_of = partitions

    def known(self, topics: Iterable[str]) -> list[Partition]:
        return self.existing_of(topics)

    def existing(self, partitions: Iterable[Partition]) -> list[Partition]:
        return [p for p in partitions if p in self.end and p not in self.late]

    def matching(self, pattern: str) -> list[Partition]:
        meant = matcher(pattern)
        return sorted(p for p in self.end if meant(p.topic) and p not in self.late)

    def awaited(self, partitions: Collection[Partition]) -> list[Partition]:
        return [p for p in self.late if p in partitions]

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        self.times = dict(times)
        return {p: self.at[p] for p in times}

    def topic_ids(self, topics: Collection[str], *, all_of_them: bool = False) -> dict[str, str]:
        del all_of_them
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def gone(self, ids: dict[str, str]) -> set[str]:
        return self.deleted & ids.keys()

    def settled(
        self, before: dict[str, str], told: dict[str, str], *, all_of_them: bool = False
    ) -> dict[str, str]:
        del before, all_of_them
        return told

    def earliest(
        self,
        wanted: Collection[Partition],
        *,
        all_of_them: bool = False,
        within_s: float | None = None,
    ) -> Offsets:
        assert within_s in {None, 120.0}
        return self._known(self.begin, wanted, all_of_them=all_of_them)

    def ends(
        self,
        wanted: Collection[Partition],
        known: Mapping[Partition, int] | None = None,
        *,
        all_of_them: bool = False,
    ) -> Known:
        told = self._known(self.end, wanted, all_of_them=all_of_them)
        epochs = {p: self.epochs[p] for p in told if p in self.epochs}
        cut_off = {p for p in epochs if epochs[p] < (known or {}).get(p, -1)}
        if all_of_them and known:  # who must have all waits until the successor is found
            self.epochs |= {p: known[p] for p in cut_off}
            self.end |= {p: self.successors[p] for p in cut_off}
            return self.ends(wanted, known)
        return Known(
            {p: end for p, end in told.items() if p not in cut_off},
            {p: epoch for p, epoch in epochs.items() if p not in cut_off},
        )

    def newest(self, wanted: Collection[Partition]) -> dict[Partition, int]:
        return {p: epoch for p, epoch in self.epochs.items() if p in wanted}

    def held(
        self, read: Known, latest: Known, *, all_of_them: bool = False
    ) -> tuple[Known, Offsets]:
        del all_of_them
        newer = {p for p, e in latest.epochs.items() if 0 <= read.epochs.get(p, -1) < e}
        whole = {p for p in newer if read.offsets[p] <= latest.offsets[p]}
        return latest, moves.parted(
            read, {p: self.epoch_ends[p] for p in whole & {*self.epoch_ends}}
        )

    def reaching(self, wanted: Collection[Partition]) -> Known:
        return self.ends(wanted, all_of_them=True)

    def _known(
        self, facts: Offsets, wanted: Collection[Partition], *, all_of_them: bool
    ) -> Offsets:
        if all_of_them:
            self.away.clear()  # who must have all waits until the leaders are back
        return {p: facts[p] for p in wanted if p not in self.away}


def given(options: Mapping[str, Any]) -> dict[str, str]:
    which = {} if {"subscribePattern", "assign"} & options.keys() else {"subscribe": "t"}
    values = {"kafka.bootstrap.servers": "nowhere:1", **which, **options}
    return {name: str(value) for name, value in values.items()}


def stream(facts: Facts, **options: Any) -> StreamReader:
    reader = StreamReader(parse(given(options), "stream"))
    reader._planner._listing = facts  # type: ignore[assignment]
    return reader


def offsets(topic_id: str | None = "first", **numbers: int) -> dict[str, dict[str, Any]]:
    """Return Spark's form of a position; without an id it is an older checkpoint's."""
    told = {} if topic_id is None else {"id": topic_id}
    return {"t": told | {name[1:]: offset for name, offset in numbers.items()}}


def test_batch_0_is_empty_and_pins_where_the_query_begins() -> None:
    facts = Facts(p0=5)
    reader = stream(facts)
    begin = reader.initialOffset()
    assert begin == offsets(p0=5)
    facts.end[Partition("t", 0)] = 9
    assert reader.initialOffset() == begin, "asked again, it is the same"
    assert reader.latestOffset(begin, ALL) == begin, "batch 0"
    assert reader.partitions(begin, begin) == []
    end = reader.latestOffset(begin, ALL)
    assert end == offsets(p0=9)
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 5, 9, "first")]
    assert reader.reportLatestOffset() == offsets(None, p0=9)


def test_a_replay_of_batch_0_begins_where_the_first_run_did() -> None:
    """Spark asks for the initial offset anew: under latest it has wandered to 9 meanwhile."""
    reader = stream(Facts(p0=9))
    assert reader.initialOffset() == offsets(p0=9)
    assert reader.partitions(reader.initialOffset(), offsets(p0=5)) == []
    assert reader.latestOffset(offsets(p0=5), ALL) == offsets(p0=9), "no row is passed over"


def test_a_replay_of_batch_0_does_not_pin_a_second_time() -> None:
    """Under earliest the initial offset is the same again; AvailableNow would end for nothing."""
    reader = stream(Facts(p0=9), startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    assert reader.partitions(begin, begin) == []
    assert reader.latestOffset(begin, ALL) == offsets(p0=9)


def test_a_partition_without_leader_does_not_hold_up_the_others() -> None:
    facts = Facts(p0=9, p1=9)
    reader = stream(facts)
    facts.away = {Partition("t", 1)}
    assert reader.latestOffset(offsets(p0=3, p1=4), ALL) == offsets(p0=9, p1=4)


def test_available_now_reads_what_was_there_and_nothing_else() -> None:
    facts = Facts(p0=9, p1=9)
    reader = stream(facts)
    reader.prepareForTriggerAvailableNow()
    facts.end = {Partition("t", 0): 20, Partition("t", 1): 20, Partition("t", 2): 5}
    facts.begin[Partition("t", 2)] = 0
    facts.away = {Partition("t", 1)}
    begin = offsets(p0=3)
    end = reader.latestOffset(begin, ALL)
    assert end == offsets(p0=9, p1=0), "1 is new and enters empty, though its leader was away"
    facts.away = {Partition("t", 1)}
    assert reader.latestOffset(end, ALL) == offsets(p0=9, p1=9), "and is read to its end"


def test_a_limit_is_spark_s_to_set() -> None:
    reader = stream(Facts(p0=90), maxOffsetsPerTrigger=10)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    assert reader.latestOffset(offsets(p0=3), limit) == offsets(p0=13)
    assert reader.latestOffset(offsets(p0=3), ALL) == offsets(p0=90)


@pytest.mark.parametrize("harm", ["cut", "aged", "gone"])
def test_loss_is_an_error_or_a_note(harm: str) -> None:
    facts = Facts(p0=9, p1=9)
    if harm == "cut":
        facts.end[Partition("t", 0)] = 4
    elif harm == "aged":
        facts.begin[Partition("t", 0)] = 7
    else:
        del facts.end[Partition("t", 0)]
    begin = offsets(p0=6, p1=6)
    with pytest.raises(DataLossError, match=r"t-0: .*failOnDataLoss"):
        stream(facts).latestOffset(begin, ALL)
    end = stream(facts, failOnDataLoss="false").latestOffset(begin, ALL)
    assert end["t"]["1"] == 9
    assert end["t"]["0"] == (9 if harm == "aged" else 6), "never backwards"


def test_a_batch_query_plans_what_the_log_still_has() -> None:
    facts = Facts(p0=9)
    facts.begin[Partition("t", 0)] = 4
    explicit = batch(facts, failOnDataLoss="false", startingOffsets='{"t":{"0":2}}')
    assert explicit.partitions() == [RangePartition("t", 0, 4, 9, "first")]


def batch(facts: Facts, **options: Any) -> BatchReader:
    reader = BatchReader(parse(given(options), "batch"))
    reader._planner._listing = facts  # type: ignore[assignment]
    return reader


def test_a_start_past_the_end_is_told_once_and_is_no_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing was read up to there; what comes behind it is read."""
    facts = Facts(p0=9)
    reader = stream(facts, startingOffsets='{"t":{"0":50}}', goneData="skip")
    begin = reader.initialOffset()
    for _ in range(3):
        assert reader.latestOffset(begin, ALL) == begin == offsets(p0=50)
    assert caplog.text.count("t-0: ") == 1
    assert "startingOffsets is 50, but the log ends at 9" in caplog.text
    facts.end[Partition("t", 0)] = 60
    read = reader.latestOffset(begin, ALL)
    assert read == offsets(p0=60)
    facts.end[Partition("t", 0)] = 55
    assert reader.latestOffset(read, ALL) == read, "that is a cut"
    assert "read up to 60, but the log ends at 55" in caplog.text


def test_a_query_that_begins_past_the_end_is_told_so() -> None:
    """It would read nothing, and whoever asked would take that for an empty topic."""
    past = '{"t":{"0":50}}'
    with pytest.raises(DataLossError, match=r"t-0: startingOffsets is 50, but the log ends at 9"):
        batch(Facts(p0=9), startingOffsets=past).partitions()
    with pytest.raises(DataLossError, match=r"startingOffsets is 50, but the log ends at 9"):
        stream(Facts(p0=9), startingOffsets=past).initialOffset()
    (empty,) = batch(Facts(p0=9), startingOffsets=past, failOnDataLoss="false").partitions()
    assert empty == RangePartition("t", 0, 0, 0)
    (empty,) = batch(Facts(p0=9), startingOffsets='{"t":{"0":9}}').partitions()
    assert empty == RangePartition("t", 0, 0, 0), "at the end is not past it"
    backwards = batch(Facts(p0=9), startingOffsets='{"t":{"0":7}}', endingOffsets='{"t":{"0":3}}')
    with pytest.raises(OptionError, match="endingOffsets: t-0: 3 is before startingOffsets, 7"):
        backwards.partitions()


def test_a_topic_made_anew_is_an_error_wherever_it_is_met() -> None:
    """The new one may be longer: lengths alone would let it pass for the old one."""
    facts = Facts(p0=90)
    begin, end = offsets(p0=50), offsets(p0=70)
    facts.ids = {"t": "second"}
    for asked in (
        lambda: stream(facts).latestOffset(begin, ALL),
        lambda: stream(facts).partitions(begin, end),  # a batch that an earlier life had planned
    ):
        with pytest.raises(TopicMadeAnewError, match=r"id first.*id second.*--begin-anew first"):
            asked()


def test_told_to_go_on_the_source_reads_the_new_topic_from_its_beginning() -> None:
    """An empty range first, as for every partition that is new; the old one's rest is lost."""
    facts = Facts(p0=90)
    facts.ids = {"t": "second"}
    reader = stream(facts, failOnDataLoss="false")
    begin = offsets(p0=50, p1=70)
    assert reader.partitions(offsets(p0=40), begin) == [], "those records are gone"
    pinned = reader.latestOffset(begin, ALL)
    assert pinned == offsets("second", p0=0)
    assert reader.partitions(begin, pinned) == []
    end = reader.latestOffset(pinned, ALL)
    assert end == offsets("second", p0=90)
    assert reader.partitions(pinned, end) == [RangePartition("t", 0, 0, 90, "second")]


def test_an_id_is_kept_while_nobody_tells_it_and_learnt_when_somebody_does() -> None:
    facts = Facts(p0=9)
    facts.ids = {}
    assert stream(facts).initialOffset() == offsets(None, p0=9)
    assert stream(facts).latestOffset(offsets(p0=3), ALL) == offsets(p0=9), "not told just now"
    assert stream(facts).latestOffset(offsets(None, p0=3), ALL) == offsets(None, p0=9)
    facts.ids = {"t": "first"}
    older = stream(facts).latestOffset(offsets(None, p0=3), ALL)
    assert older == offsets(p0=9), "a checkpoint of an older version"
    (task,) = stream(facts).partitions(offsets(None, p0=3), older)
    assert task == RangePartition("t", 0, 3, 9, "first")
    (task,) = stream(facts).partitions(offsets(None, p0=3), offsets(None, p0=9))
    assert task == RangePartition("t", 0, 3, 9), "what the plan does not say is not compared"


def test_a_query_begins_at_a_time() -> None:
    facts = Facts(p0=9, p1=9)
    facts.at = {Partition("t", 0): 4, Partition("t", 1): 6}
    assert stream(facts, startingTimestamp=77).initialOffset() == offsets(p0=4, p1=6)
    assert facts.times == {Partition("t", 0): 77, Partition("t", 1): 77}
    each = '{"t":{"0":5,"1":7}}'
    assert stream(facts, startingOffsetsByTimestamp=each).initialOffset() == offsets(p0=4, p1=6)
    assert facts.times == {Partition("t", 0): 5, Partition("t", 1): 7}
    with pytest.raises(OptionError, match=r"startingOffsetsByTimestamp: name every .*: t-1"):
        stream(facts, startingOffsetsByTimestamp='{"t":{"0":5}}').initialOffset()


def test_no_record_that_late_is_an_error_unless_told_otherwise() -> None:
    facts = Facts(p0=9, p1=9)
    facts.at = {Partition("t", 0): 4, Partition("t", 1): LATEST}
    said = (
        r"startingTimestamp: no record is that late in t-1 \(from 77 ms on\); .*Strategy to latest"
    )
    with pytest.raises(OptionError, match=said):
        stream(facts, startingTimestamp=77).initialOffset()
    lenient = {"startingTimestamp": 77, "startingOffsetsByTimestampStrategy": "latest"}
    assert stream(facts, **lenient).initialOffset() == offsets(p0=4, p1=9)
    planned = batch(facts, endingTimestamp=77).partitions()
    assert planned == [
        RangePartition("t", 0, 0, 4, "first"),
        RangePartition("t", 1, 0, 9, "first"),
    ], "for an end"


def test_what_comes_while_a_time_is_asked_for_is_not_passed_over() -> None:
    """It is late enough: who begins at the end for want of such a record begins before it."""
    here = Partition("t", 0)

    class Written(Facts):
        def at_times(self, times: Mapping[Partition, int]) -> Offsets:
            found = super().at_times(times)
            self.end[here], self.at[here] = 12, 9
            return found

    facts = Written(p0=9)
    facts.at = {here: LATEST}
    lenient = {"startingTimestamp": 77, "startingOffsetsByTimestampStrategy": "latest"}
    assert stream(facts, **lenient).initialOffset() == offsets(p0=9)
    facts = Written(p0=9)
    facts.at = {here: LATEST}
    assert batch(facts, **lenient, endingTimestamp=78).partitions() == [
        RangePartition("t", 0, 0, 0)
    ], "no end before the beginning"


def test_an_end_before_the_beginning_is_refused_by_both_names() -> None:
    facts = Facts(p0=9)
    facts.at = {Partition("t", 0): 4}
    odd = batch(facts, startingOffsets='{"t":{"0":7}}', endingTimestamp=77)
    with pytest.raises(OptionError, match="endingTimestamp: t-0: 4 is before startingOffsets, 7"):
        odd.partitions()


def test_a_topic_that_comes_to_match_enters_empty_at_its_beginning() -> None:
    """As a new partition does: its beginning stands in the offset log before it is read."""
    facts = Facts(p0=9)
    facts.end[Partition("__consumer_offsets", 0)] = 5
    reader = stream(facts, subscribePattern=".*")
    begin = reader.initialOffset()
    assert begin == offsets(p0=9), "an internal topic is never meant"
    facts.begin[Partition("u", 0)], facts.end[Partition("u", 0)] = 3, 8
    facts.ids["u"] = "new"
    assert reader.latestOffset(begin, ALL) == begin, "batch 0 is what was pinned"
    pinned = reader.latestOffset(begin, ALL)
    assert pinned == {**offsets(p0=9), "u": {"id": "new", "0": 3}}
    assert reader.partitions(begin, pinned) == []
    end = reader.latestOffset(pinned, ALL)
    assert reader.partitions(pinned, end) == [RangePartition("u", 0, 3, 8, "new")]


def test_a_pattern_that_matches_nothing_waits_for_topics_or_reads_nothing() -> None:
    assert stream(Facts(), subscribePattern="x.*").initialOffset() == {}
    facts = Facts(p0=9)
    facts.begin[Partition("u", 0)], facts.end[Partition("u", 0)] = 3, 8
    assert batch(facts, subscribePattern="u").partitions() == [RangePartition("u", 0, 3, 8)]
    (empty,) = batch(facts, subscribePattern="x.*").partitions()
    assert list(batch(Facts(), subscribePattern="x.*").read(empty)) == []


def test_what_a_lagging_broker_does_not_know_yet_is_not_lost() -> None:
    """It told of t-1 a moment ago, or another one did. What is no longer asked for is."""
    facts = Facts(p0=9, p1=9)
    facts.late = [Partition("t", 1)]
    for wanted in ({}, {"subscribePattern": "t"}, {"assign": '{"t":[0,1]}'}):
        reader = stream(facts, **wanted)
        assert reader.latestOffset(offsets(p0=3, p1=4), ALL) == offsets(p0=9, p1=9)
    other = {"u": {"0": 1}}
    facts.late = [Partition("u", 0)]
    with pytest.raises(DataLossError, match="u-0: no longer exists"):
        stream(facts).latestOffset({**offsets(p0=3), **other}, ALL)


def test_a_batch_waits_until_enough_is_there() -> None:
    facts = Facts(p0=9)
    reader = stream(facts, minOffsetsPerTrigger=5, maxTriggerDelay="1d")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    assert reader.latestOffset(offsets(p0=8), limit) == offsets(p0=9), "the first waits for nothing"
    facts.end[Partition("t", 0)] = 13
    assert reader.latestOffset(offsets(p0=9), limit) == offsets(p0=9)
    facts.end[Partition("t", 1)], facts.begin[Partition("t", 1)] = 90, 70
    entered = reader.latestOffset(offsets(p0=9), limit)
    assert entered == offsets(p0=9, p1=70), "what is new enters all the same"
    facts.end = {Partition("t", 0): 14, Partition("t", 1): 70}
    assert reader.latestOffset(entered, limit) == offsets(p0=14, p1=70)
    assert reader.latestOffset(offsets(p0=13, p1=70), ALL) == offsets(p0=14, p1=70), "Trigger.Once"


def test_a_batch_waits_no_longer_than_it_may() -> None:
    facts = Facts(p0=9)
    reader = stream(facts, minOffsetsPerTrigger=5, maxTriggerDelay="0")
    for begin in (8, 8):
        end = reader.latestOffset(offsets(p0=begin), reader.getDefaultReadLimit())
        assert end == offsets(p0=9)


def test_least_and_most_go_together() -> None:
    facts = Facts(p0=9)
    reader = stream(facts, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=6, maxTriggerDelay="1d")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    assert reader.latestOffset(offsets(p0=8), limit) == offsets(p0=9)
    facts.end[Partition("t", 0)] = 13
    assert reader.latestOffset(offsets(p0=9), limit) == offsets(p0=9)
    facts.end[Partition("t", 0)] = 20
    assert reader.latestOffset(offsets(p0=9), limit) == offsets(p0=15)


def test_available_now_waits_for_nothing() -> None:
    facts = Facts(p0=9)
    reader = stream(facts, minOffsetsPerTrigger=50, maxTriggerDelay="1d")
    reader.prepareForTriggerAvailableNow()
    for begin in (3, 7):
        end = reader.latestOffset(offsets(p0=begin), reader.getDefaultReadLimit())
        assert end == offsets(p0=9)


def test_tasks_are_cut_and_offsets_are_not() -> None:
    facts = Facts(p0=9)
    reader = stream(facts, maxRecordsPerPartition=4)
    end = reader.latestOffset(offsets(p0=0), ALL)
    assert end == offsets(p0=9)
    ranges = [(task.start, task.end) for task in reader.partitions(offsets(p0=0), end)]
    assert ranges == [(0, 3), (3, 6), (6, 9)]
    assert all(task.topic_id == "first" for task in reader.partitions(offsets(p0=0), end))
    tasks = batch(facts, minPartitions=2).partitions()
    assert tasks == [
        RangePartition("t", 0, 0, 4, "first"),
        RangePartition("t", 0, 4, 9, "first"),
    ]


def epoched(epoch: int, *, gaps: list[list[int]] | None = None, **numbers: int) -> dict[str, Any]:
    """Return Spark's form of a position of which each number was told in one epoch."""
    found = offsets("first", **numbers)
    found["t"]["epochs"] = {name[1:]: epoch for name in numbers}
    if gaps is not None:
        found["t"]["gaps"] = {"0": gaps}
    return found


def test_an_offset_says_in_which_epoch_it_was_told_and_stays_while_it_stands() -> None:
    facts = Facts(p0=9)
    facts.epochs = {Partition("t", 0): 3}
    reader = stream(facts)
    begin = reader.initialOffset()
    assert begin == epoched(3, p0=9)
    assert reader.latestOffset(begin, ALL) == begin
    facts.epochs = {Partition("t", 0): 4}
    assert reader.latestOffset(begin, ALL) == begin, "or each election would be a batch"
    facts.end[Partition("t", 0)] = 12
    end = reader.latestOffset(begin, ALL)
    assert end == epoched(4, p0=12)
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 9, 12, "first", 3, 4)]
    cut = stream(facts, maxRecordsPerPartition=2)
    assert cut.partitions(begin, end) == [
        RangePartition("t", 0, 9, 10, "first", 3, 4),
        RangePartition("t", 0, 10, 12, "first", -1, 4),
    ]


@pytest.mark.parametrize("policy", ["fail", "skip", "reset"])
def test_a_log_that_ends_earlier_is_cut_only_if_a_newer_leader_says_so(policy: str) -> None:
    facts = Facts(p0=4, p1=9)
    begin = epoched(5, p0=6, p1=6)
    for epoch in (4, 5):  # a leader that was cut off; and one that can't know less than it did
        facts.epochs = dict.fromkeys(facts.end, epoch)
        end = stream(facts, goneData=policy, startingOffsets="latest").latestOffset(begin, ALL)
        assert end == epoched(5, p0=6, p1=6 if epoch == 4 else 9)
    facts.epochs = dict.fromkeys(facts.end, 6)
    asked = stream(facts, goneData=policy, startingOffsets="latest")
    if policy == "skip":
        end = asked.latestOffset(begin, ALL)
        assert (end["t"]["0"], end["t"]["1"]) == (6, 9), "never backwards"
        return
    said = "reset does not go back" if policy == "reset" else "read up to 6.*goneData"
    with pytest.raises(DataLossError, match=said):
        asked.latestOffset(begin, ALL)


def test_an_end_of_a_leader_of_before_is_not_taken_even_if_it_is_later() -> None:
    """What it has behind an unclean election is of another history; its beginning is no news."""
    facts = Facts(p0=90)
    facts.begin[Partition("t", 0)] = 8
    facts.epochs = {Partition("t", 0): 4}
    begin = epoched(5, p0=6)
    assert stream(facts).latestOffset(begin, ALL) == begin
    reader = stream(facts)
    reader.prepareForTriggerAvailableNow()
    # It may not be left out either: the job would end well, having read nothing.
    facts.successors = {Partition("t", 0): 7}
    assert reader.latestOffset(begin, ALL) == epoched(5, p0=7)


def cut_and_grown(end: int) -> Facts:
    """Return a log of which a leader of epoch 6 has lost all from 30 on, and has got others."""
    facts = Facts(p0=end)
    facts.epochs, facts.epoch_ends = {Partition("t", 0): 6}, {Partition("t", 0): 30}
    return facts


@pytest.mark.parametrize("policy", ["fail", "skip", "reset"])
@pytest.mark.parametrize("end", [40, 45])
def test_a_log_that_was_cut_and_has_grown_past_what_was_read_is_planned_as_such(
    policy: str, end: int
) -> None:
    """Offsets show nothing of it; and what it has in that place now is read by nobody."""
    begin = epoched(5, p0=40)
    reader = stream(cut_and_grown(end), goneData=policy, startingOffsets="latest")
    if policy != "skip":
        with pytest.raises(DataLossError, match="from offset 30 on, up to 40, are other records"):
            reader.latestOffset(begin, ALL)
        return
    told = reader.latestOffset(begin, ALL)
    expected = epoched(6, p0=end)
    expected["t"]["cuts"] = {"0": [[30, 40]]}
    assert told == expected, "at once, also where nothing came behind it"
    tasks = reader.partitions(begin, told)
    assert tasks == ([RangePartition("t", 0, 40, 45, "first", -1, 6)] if end == 45 else [])
    assert reader.latestOffset(told, ALL) == told, "it is told once"
    assert stream(cut_and_grown(end), goneData="skip").partitions(begin, told) == tasks, "replayed"


def test_a_topic_that_was_made_anew_is_no_log_that_was_cut() -> None:
    """Its leader's epoch may be higher than the old one's was, after some elections."""
    facts = cut_and_grown(45)
    facts.ids = {"t": "second"}
    told = stream(facts, goneData="skip").latestOffset(epoched(5, p0=40), ALL)
    assert told == {"t": {"id": "second", "0": 0, "epochs": {"0": 6}}}


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_batch_of_an_earlier_life_is_held_against_the_log(policy: str) -> None:
    """It was planned before the log was cut. Its tasks read the log of now: that is no gap."""
    begin, end = epoched(4, p0=40), epoched(5, p0=60)
    reader = stream(cut_and_grown(70), goneData=policy)
    if policy == "fail":
        with pytest.raises(DataLossError, match="from offset 30 on, up to 40, are other records"):
            reader.partitions(begin, end)
        return
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 40, 60, "first", -1, 6)]
    told = reader.latestOffset(end, ALL)
    expected = epoched(6, p0=70)
    expected["t"]["cuts"] = {"0": [[30, 40]]}
    assert told == expected
    # Cut behind where it begins: nothing before it has changed, and that is written down, too.
    reader = stream(cut_and_grown(60), goneData=policy)
    begin = epoched(4, p0=20)
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 20, 60, "first", 4, 6)]
    assert reader.latestOffset(end, ALL) == epoched(6, p0=60)
    # What this life has planned was held a moment ago.
    facts = Facts(p0=60)
    facts.epochs = {Partition("t", 0): 5}
    reader = stream(facts, goneData=policy)
    planned = reader.latestOffset(begin, ALL)
    facts.epochs, facts.epoch_ends = {Partition("t", 0): 6}, {Partition("t", 0): 10}
    assert reader.partitions(begin, planned) == [RangePartition("t", 0, 20, 60, "first", 4, 5)]


def test_a_gap_that_is_known_stands_in_the_offset_and_a_replay_tells_the_same() -> None:
    facts = Facts(p0=9, p1=9)
    facts.begin[Partition("t", 0)] = 7
    begin = offsets(p0=3, p1=9)
    reader = stream(facts, goneData="skip")
    end = reader.latestOffset(begin, ALL)
    assert end["t"] == {"id": "first", "0": 9, "1": 9, "gaps": {"0": [[3, 7]]}}
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 7, 9, "first")]
    assert reader.latestOffset(end, ALL) == end, "while nothing moves, no batch is made"
    facts.end[Partition("t", 0)] = 10
    assert reader.latestOffset(end, ALL) == offsets(p0=10, p1=9), "it is told once"
    # In a later life more is gone, and the policy is another one: what was decided stays.
    facts.begin[Partition("t", 0)] = 8
    with pytest.raises(DataLossError, match="offsets 7 to 7 are gone"):
        stream(facts).partitions(begin, end)
    assert stream(facts, failOnDataLoss="false").partitions(begin, end) == [
        RangePartition("t", 0, 8, 9, "first")
    ]


def test_what_went_after_an_entry_was_written_is_told_by_the_next_one() -> None:
    facts = Facts(p0=9)
    begin, end = offsets(p0=3), offsets(p0=9)
    reader = stream(facts, goneData="skip")
    facts.begin[Partition("t", 0)] = 5
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 5, 9, "first")]
    told = reader.latestOffset(end, ALL)
    assert told["t"] == {"id": "first", "0": 9, "gaps": {"0": [[3, 5]]}}, "at once"
    assert reader.latestOffset(end, ALL) == told
    assert reader.partitions(end, told) == []
    assert reader.latestOffset(told, ALL) == told
    # All of it and more: one gap, from where the entry began.
    assert reader.partitions(begin, end)
    facts.begin[Partition("t", 0)], facts.end[Partition("t", 0)] = 12, 15
    assert reader.partitions(begin, end) == []
    told = reader.latestOffset(end, ALL)
    assert told["t"] == {"id": "first", "0": 15, "gaps": {"0": [[3, 12]]}}
    with pytest.raises(DataLossError, match="offsets 3 to 11 are gone"):
        stream(facts).partitions(begin, end)
    facts.ids = {"t": "second"}
    assert reader.latestOffset(end, ALL) == offsets("second", p0=12), "not of another topic"


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_what_goes_while_a_leader_is_away_is_found_when_it_is_back(policy: str) -> None:
    """Its task would wait for it, and then tell its own log alone."""
    facts = Facts(p0=9)
    facts.begin[Partition("t", 0)], facts.away = 5, {Partition("t", 0)}
    begin, end = offsets(p0=3), offsets(p0=9)
    reader = stream(facts, goneData=policy)
    if policy == "fail":  # the task ends the query
        assert reader.partitions(begin, end) == [RangePartition("t", 0, 3, 9, "first")]
        return
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 5, 9, "first")]
    assert reader.latestOffset(end, ALL)["t"]["gaps"] == {"0": [[3, 5]]}
    # A topic that is not there just now is left to the task, which tells whether it is gone.
    facts.ids, facts.away = {}, {Partition("t", 0)}
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 3, 9, "first")]
    assert facts.away, "nobody waited"


def test_a_limit_stops_before_the_gap_s_end() -> None:
    facts = Facts(p0=90)
    facts.begin[Partition("t", 0)] = 50
    end = stream(facts, goneData="skip", maxOffsetsPerTrigger=10).latestOffset(
        offsets(p0=3), ReadMaxRows(10)
    )
    assert end["t"] == {"id": "first", "0": 60, "gaps": {"0": [[3, 50]]}}


def test_gone_data_is_decided_topic_by_topic() -> None:
    facts = Facts(p0=9)
    facts.begin[Partition("u", 0)], facts.end[Partition("u", 0)] = 4, 8
    facts.begin[Partition("t", 0)] = 4
    facts.ids["u"] = "other"
    begin = {**offsets(p0=2), "u": {"id": "other", "0": 2}}
    reader = stream(facts, subscribePattern="t|u", goneData='{"u":"skip"}')
    with pytest.raises(DataLossError, match=r"read: t-0: offsets 2 to 3 are gone, [^;]*\. To go"):
        reader.latestOffset(begin, ALL)
    both = stream(facts, subscribePattern="t|u", goneData='{"u":"fail"}', failOnDataLoss="false")
    with pytest.raises(DataLossError, match=r"read: u-0: "):
        both.latestOffset(begin, ALL)
    facts.begin[Partition("u", 0)] = 2
    end = both.latestOffset(begin, ALL)
    assert end["t"]["gaps"] == {"0": [[2, 4]]}
    assert "gaps" not in end["u"]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_reset_begins_a_topic_that_was_made_anew_where_the_query_did(starting: str) -> None:
    facts = Facts(p0=90, p1=70)
    facts.begin = {Partition("t", 0): 5, Partition("t", 1): 6}
    facts.ids = {"t": "second"}
    reader = stream(facts, goneData="reset", startingOffsets=starting)
    facts.away = {Partition("t", 1)}
    begin = offsets(p0=50)
    pinned = reader.latestOffset(begin, ALL)
    first = {"0": 90} if starting == "latest" else {"0": 5}
    assert pinned == {"t": {"id": "second", **first}}
    assert reader.partitions(begin, pinned) == []
    lenient = stream(facts, goneData="skip", startingOffsets=starting)
    assert lenient.latestOffset(begin, ALL)["t"]["0"] == 5, "skip begins where the log does"


def test_a_batch_query_holds_its_tasks_to_the_topic() -> None:
    """The id is asked for first: of a topic that is made anew meanwhile no task reads a row."""

    class MadeAnewMeanwhile(Facts):
        def earliest(self, *given: Any, **more: Any) -> Offsets:
            self.ids = {"t": "second"}
            return super().earliest(*given, **more)

    assert batch(MadeAnewMeanwhile(p0=9)).partitions() == [RangePartition("t", 0, 0, 9, "first")]


def test_a_batch_query_that_is_to_end_behind_the_log_is_told_so() -> None:
    facts = Facts(p0=9)
    facts.epochs = {Partition("t", 0): 2}
    past = '{"t":{"0":50}}'
    with pytest.raises(DataLossError, match="t-0: endingOffsets is 50, but the log ends at 9"):
        batch(facts, endingOffsets=past).partitions()
    (task,) = batch(facts, endingOffsets=past, goneData="skip").partitions()
    assert task == RangePartition("t", 0, 0, 9, "first", -1, 2)
    (task,) = batch(facts, endingOffsets='{"t":{"0":8}}').partitions()
    assert task == RangePartition("t", 0, 0, 8, "first", -1, 2)


def test_what_stays_gone_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks many times a second: a topic that was deleted would fill the disk with its log."""
    facts = Facts(p0=9, p1=9)
    begin = offsets(p0=9, p1=9)
    reader = stream(facts, goneData="skip")

    def said() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return texts

    del facts.end[Partition("t", 1)]
    with caplog.at_level(logging.WARNING, "holdfast.pipelines.planner"):
        for _ in range(3):
            assert reader.latestOffset(begin, ALL) == begin
        (once,) = said()
        assert "without data that was lost: t-1: no longer exists" in once
        facts.begin[Partition("t", 0)] = facts.end[Partition("t", 0)] = 12
        reader.latestOffset(begin, ALL)
        (news,) = said()
        assert news.endswith("lost: t-0: offsets 9 to 11 are gone, the log starts at 12")


@pytest.mark.parametrize("policy", ["skip", "reset"])
def test_a_topic_that_is_gone_leaves_the_offsets_of_a_pattern(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no end to topics that come and go. Seen to fail: each stayed there for good."""
    facts = Facts(p0=9)
    facts.end[Partition("u", 0)] = 5
    facts.begin[Partition("u", 0)] = 0
    facts.ids["u"] = "other"
    reader = stream(facts, subscribePattern="[tu]", goneData=policy)
    begin = {**offsets(p0=3), "u": {"id": "other", "0": 2}}
    end = {**offsets(p0=9), "u": {"id": "other", "0": 5}}
    assert reader.latestOffset(begin, ALL) == end
    del facts.end[Partition("u", 0)], facts.ids["u"]
    assert reader.latestOffset(begin, ALL) == {**offsets(p0=9), "u": begin["u"]}, "one says so"
    facts.deleted = {"u"}
    without = reader.latestOffset(begin, ALL)
    assert without == offsets(p0=9)
    assert "u-0: no longer exists" in caplog.text
    assert not reader._planner._said, "nothing stays behind"
    assert reader.reportLatestOffset() == offsets(None, p0=9)
    assert reader.partitions(begin, without) == [RangePartition("t", 0, 3, 9, "first")]
    assert reader.latestOffset(without, ALL) == without
    # Another one of its name is new, and enters empty at its beginning.
    facts.end[Partition("u", 0)], facts.ids["u"], facts.deleted = 7, "third", set()
    assert reader.latestOffset(without, ALL) == {**without, "u": {"id": "third", "0": 0}}


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("which", ["subscribe", "assign"])
def test_a_run_that_ends_goes_on_without_a_topic_that_was_deleted(policy: str, which: str) -> None:
    """As a query that stays does. Seen to end each night before it had read the other topic."""

    class Deleted(Facts):
        """What is there no more keeps whoever must have it waiting, and then ends."""

        def partitions(self, topics: Iterable[str]) -> list[Partition]:
            if "u" in topics:
                raise UnknownTopicError("topic 'u' does not exist")
            return super().partitions(topics)

        def existing_of(self, topics: Iterable[str]) -> list[Partition]:
            return super().partitions([topic for topic in topics if topic != "u"])

        def _known(
            self, facts: Offsets, wanted: Collection[Partition], *, all_of_them: bool
        ) -> Offsets:
            if all_of_them and not facts.keys() >= set(wanted):
                raise UnknownTopicError("no offsets from u-0")
            return {p: facts[p] for p in wanted if p in facts}

    facts = Deleted(p0=9)
    read = "t,u" if which == "subscribe" else '{"t":[0],"u":[0]}'
    options = {which: read, "goneData": f'{{"u":"{policy}"}}', "kafka.bootstrap.servers": "no:1"}
    reader = StreamReader(parse(options, "stream"))
    reader._planner._listing = facts  # type: ignore[assignment]
    if policy == "fail":
        with pytest.raises(UnknownTopicError, match="u"):
            reader.prepareForTriggerAvailableNow()
        return
    reader.prepareForTriggerAvailableNow()
    begin = {**offsets(p0=3), "u": {"id": "other", "0": 5}}
    end = reader.latestOffset(begin, ALL)
    assert end == {**offsets(p0=9), "u": {"id": "other", "0": 5}}
    assert reader.partitions(begin, end) == [RangePartition("t", 0, 3, 9, "first")]
    with pytest.raises(UnknownTopicError, match="u"):
        StreamReader.initialOffset(reader)  # a query that begins may have misspelt it


def test_that_a_topic_is_another_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A batch of an earlier life says it as it is planned, and so would each trigger behind it."""
    facts = Facts(p0=90)
    facts.ids = {"t": "second"}
    reader = stream(facts, goneData="skip")
    begin, end = offsets(p0=40), offsets(p0=50)

    def said() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return texts

    with caplog.at_level(logging.WARNING, "holdfast.pipelines.planner"):
        assert reader.partitions(begin, end) == []
        (once,) = said()
        assert "going on with what is there now" in once
        reader.latestOffset(end, ALL)
        reader.latestOffset(end, ALL)
        assert not said()
        facts.ids = {"t": "third"}
        reader.latestOffset(end, ALL)
        assert len(said()) == 1


def test_lag_is_told_of_the_topic_that_is_there() -> None:
    """Method: it is made anew with one partition less, whose end was known before."""
    facts = Facts(p0=90, p1=70)
    reader = stream(facts, goneData="skip")
    reader.latestOffset(offsets(p0=1, p1=1), ALL)
    assert reader.reportLatestOffset() == offsets(None, p0=90, p1=70)
    facts.ids = {"t": "second"}
    del facts.end[Partition("t", 1)]
    facts.end[Partition("t", 0)] = 5
    reader.latestOffset(offsets(p0=90, p1=70), ALL)
    assert reader.reportLatestOffset() == offsets(None, p0=5)


def test_a_range_behind_a_gap_begins_in_no_epoch_that_was_told() -> None:
    """The epoch is that of the offset before the gap: another one may have written what is left."""
    facts = Facts(p0=30)
    facts.begin[Partition("t", 0)] = 20
    facts.epochs = {Partition("t", 0): 2}
    reader = stream(facts, goneData="skip")
    begin = epoched(1, p0=5)
    (task,) = reader.partitions(begin, reader.latestOffset(begin, ALL))
    assert task == RangePartition("t", 0, 20, 30, "first", -1, 2)
    begin = epoched(1, p0=25)
    (task,) = reader.partitions(begin, reader.latestOffset(begin, ALL))
    assert task == RangePartition("t", 0, 25, 30, "first", 1, 2)
