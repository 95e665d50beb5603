"""Goal: what the source answers Spark, call by call, also when leaders are away or Spark replays.

Method: the reader as Spark's planner drives it, without a JVM; what a cluster would say comes from
a table of facts that each test changes as it goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from holdfast.pipelines.offsets import DataLossError, Offsets, Partition, TopicMadeAnewError
from holdfast.pipelines.options import OptionError, parse
from holdfast.pipelines.source import BatchReader, RangePartition, StreamReader

ALL = ReadAllAvailable()


class Facts:
    """What the cluster would say: where each log begins and ends, and whose leader is away."""

    def __init__(self, **ends: int) -> None:
        self.begin = {Partition("t", int(name[1:])): 0 for name in ends}
        self.end = {Partition("t", int(name[1:])): end for name, end in ends.items()}
        self.away: set[Partition] = set()
        self.ids = {"t": "first"}

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        assert list(topics) == ["t"]
        return sorted(self.end)

    existing_of = partitions

    def topic_ids(self, topics: Collection[str], *, all_of_them: bool = False) -> dict[str, str]:
        del all_of_them
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def earliest(self, wanted: Collection[Partition], *, all_of_them: bool = False) -> Offsets:
        return self._known(self.begin, wanted, all_of_them=all_of_them)

    def latest(self, wanted: Collection[Partition], *, all_of_them: bool = False) -> Offsets:
        return self._known(self.end, wanted, all_of_them=all_of_them)

    def _known(
        self, facts: Offsets, wanted: Collection[Partition], *, all_of_them: bool
    ) -> Offsets:
        if all_of_them:
            self.away.clear()  # who must have all waits until the leaders are back
        return {p: facts[p] for p in wanted if p not in self.away}


def stream(facts: Facts, **options: Any) -> StreamReader:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", **options}
    reader = StreamReader(parse({name: str(value) for name, value in given.items()}, "stream"))
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
    assert explicit.partitions() == [RangePartition("t", 0, 4, 9)]


def batch(facts: Facts, **options: Any) -> BatchReader:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", **options}
    reader = BatchReader(parse({name: str(value) for name, value in given.items()}, "batch"))
    reader._planner._listing = facts  # type: ignore[assignment]
    return reader


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
