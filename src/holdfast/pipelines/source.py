"""`format("holdfast")`: Spark reads Kafka topics, as a stream or as a batch, without a JAR.

Owns what Spark asks a source: where to begin, how far to go, which ranges to read. The planner's
reader lives in one process beside the driver; `read` runs in workers, and uses nothing of `self`
but options. What is decided is decided in `offsets`; this module must never let an offset move
backwards, nor let a batch begin at an offset that Spark's offset log does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.pipelines import offsets as moves
from holdfast.pipelines.intake import connection
from holdfast.pipelines.intake.bounds import option_of
from holdfast.pipelines.intake.delay import Delay, new_offsets
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.offsets import (
    RECORD,
    Epochs,
    Gaps,
    Known,
    Offsets,
    Partition,
    Position,
    Range,
)
from holdfast.pipelines.options import SourceOptions, parse
from holdfast.pipelines.planner import Planner, RangePartition
from holdfast.pipelines.read_range import Access, Plan, read_range
from holdfast.pipelines.topic_ids import must_be
from holdfast.wire.well_known import LATEST

# Three columns say of themselves what they are: Spark keeps that where a column is passed on, under
# whatever name, and drops it where a value is computed. Sinks tell rows apart by them.
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType(), metadata={RECORD: "topic"}),
        StructField("partition", IntegerType(), metadata={RECORD: "partition"}),
        StructField("offset", LongType(), metadata={RECORD: "offset"}),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


class HoldfastSource(DataSource):  # type: ignore[misc]
    """The entry that Spark finds by the name `holdfast`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        """Say the columns. This is the first that Spark asks, so what is wrong is said here."""
        options = parse(self.options, None)
        connection.check(options.client)
        return schema_of(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse(self.options, "batch")
        _check_schema(schema, options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = parse(self.options, "stream")
        _check_schema(schema, options)
        return StreamReader(options)


def schema_of(options: SourceOptions) -> StructType:
    return StructType([*SCHEMA, HEADERS]) if options.headers else SCHEMA


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    if schema != schema_of(options):
        raise OptionError(
            "schema: the source has columns of its own, seven and with includeHeaders an eighth; "
            "leave schema() out"
        )


class _TaskReading:
    """What a reader does in a worker: it has the options, and no connection of the planner's."""

    _planner: Planner

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return self._records(partition)

    def _records(self, task: RangePartition) -> Iterator[pa.RecordBatch]:
        options = self._planner.options
        access = Access(
            client=options.client,
            fail_on_data_loss=options.gone.fails(task.topic),
            resets=options.gone.of(task.topic) == "reset",
            silence_ms_max=options.poll_timeout_ms,
            headers=options.headers,
            fetch_bytes=options.fetch_bytes,
        )
        plan = Plan(task.topic_id, task.start_epoch, task.end_epoch)
        partition = Partition(task.topic, task.number)
        is_certain = yield from read_range(partition, task.start, task.end, access, plan)
        if task.topic_id is not None:
            must_be(access, task.topic, task.topic_id, is_certain=is_certain)


class BatchReader(_TaskReading, DataSourceReader):  # type: ignore[misc]
    """`spark.read.format("holdfast")`: everything between two offsets, once."""

    def __init__(self, options: SourceOptions) -> None:
        self._planner = Planner(options)

    def partitions(self) -> list[InputPartition]:
        planner, options = self._planner, self._planner.options
        read = planner.partitions()  # once: a pattern may match more a moment later
        first = option_of(options.starting, "startingOffsets")
        last = option_of(options.ending, "endingOffsets")
        # Asked for before the offsets: of a topic that is made anew meanwhile no task reads any.
        ids = planner.listing.topic_ids({p.topic for p in read}, all_of_them=True)
        start = planner.resolved(options.starting, first, read).offsets
        end = planner.resolved(options.ending, last, read)
        if isinstance(options.ending, int):
            planner.lost(moves.out_of_log(start, end.offsets))
        elif odd := [p for p in sorted(start) if end.offsets[p] < start[p]]:
            backwards = f"{end.offsets[odd[0]]} is before {first}, {start[odd[0]]}"
            raise OptionError(f"{last}: {odd[0]}: {backwards}")
        else:
            end = planner.within_logs(end, last)
        earliest = planner.listing.earliest(list(start), all_of_them=True)
        tasks = planner.tasks(moves.ranges(start, end.offsets), earliest, ids, ({}, end.epochs))
        # Spark calls `read(InputPartition(None))` when there is nothing; an empty range says it.
        # A pattern that matches no topic has nothing, as with the JVM connector.
        empty = min(end.offsets, default=Partition("", 0))
        return tasks or [RangePartition(empty.topic, empty.number, 0, 0)]


class StreamReader(_TaskReading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream.format("holdfast")`.

    The first batch of a query is empty on purpose: Spark asks for the initial offset more than
    once, and asks anew when it replays batch 0, so under `latest` the beginning of the query would
    wander past records. An empty batch 0 writes it into the offset log before anything is read.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._planner = Planner(options)
        self._initial: Position | None = None
        self._pinned = False
        self._target: Known | None = None
        # Found when a batch's tasks were made, for the next entry to tell: what went since, where
        # the log was cut, and in which epochs the batch's end was found again.
        self._late: Gaps = {}
        self._late_cuts: Gaps = {}
        self._held: tuple[Position, Epochs] | None = None
        self._planned: dict[str, Any] | None = None  # the last end that this life has planned
        self._seen: Offsets = {}  # where the logs ended when we last looked
        self._past_end: Offsets = {}  # where the query was told to begin behind what there is
        least = options.rows_min
        self._delay = None if least is None else Delay(least, options.wait_ms_max)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            planner = self._planner
            wanted = planner.options.starting
            begin = planner.resolved(wanted, "startingOffsets", planner.partitions())
            if isinstance(wanted, dict):
                named = list(begin.offsets)
                ends = planner.listing.ends(named, planner.listing.newest(named))
                past = moves.out_of_log(begin.offsets, ends.offsets)
                planner.lost(past)
                self._past_end = {p: begin.offsets[p] for p in past}
            topics = {partition.topic for partition in begin.offsets}
            ids = planner.listing.topic_ids(topics, all_of_them=True)
            planner.refuse_members()
            group = planner.options.progress
            self._initial = Position(begin.offsets, ids, group, begin.epochs)
        return moves.position_to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the one limit that Spark hands back; one of its own means Trigger.Once."""
        options = self._planner.options
        if options.rows_max is not None:
            return ReadMaxRows(options.rows_max)
        return ReadAllAvailable() if options.rows_min is None else ReadMinRows(options.rows_min)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = moves.position_from_json(start)
        if not self._pinned and begin == self._initial:
            self._pinned = True
            return moves.position_to_json(begin)
        self._planned = moves.position_to_json(self._next(begin, limit))
        return self._planned

    def _next(self, begin: Position, limit: ReadLimit) -> Position:
        """Return where the batch that begins there ends."""
        planner, listing = self._planner, self._planner.listing
        held = self._held[1] if self._held is not None and self._held[0] == begin else {}
        known = begin.epochs | held
        present = planner.present(begin.offsets)
        planner.refuse_members()
        earliest, latest = listing.earliest(present), listing.ends(present, known)
        # Asked for after the offsets: these are not those of a topic that came a moment later.
        topics = {partition.topic for partition in [*begin.offsets, *present]}
        told_ids, must = listing.topic_ids(topics), self._target is not None
        ids = listing.settled(begin.ids, told_ids, all_of_them=must)
        others = planner.made_anew(begin.ids, ids)
        # Brokers do not agree which topic this is: whose log begins and ends there, nobody knows.
        sure = {p for p in present if p.topic in ids or p.topic not in told_ids}
        earliest = {p: offset for p, offset in earliest.items() if p in sure}
        latest = moves.known_of(latest, sure)
        # What counts a topic that is gone is dropped; the new one's partitions enter as new ones.
        kept = {p: offset for p, offset in begin.offsets.items() if p.topic not in others}
        # Epochs of a topic that is gone say nothing of the one that has its name now.
        read = Known(kept, {p: epoch for p, epoch in known.items() if p in kept})
        latest, cuts = listing.held(read, latest, all_of_them=must)
        told = latest.epochs
        # Where a log begins is believed of no leader that does not say where it ends.
        earliest = {p: o for p, o in earliest.items() if p not in kept or p in latest.offsets}
        earliest = planner.entering(earliest, latest.offsets, others)
        seen = {p: offset for p, offset in self._seen.items() if p.topic not in others}
        self._seen = seen | latest.offsets
        planner.lost(moves.vanished(kept, present) | moves.aged_out(kept, earliest))
        gone = planner.gone({t: i for t, i in begin.ids.items() if t not in others}, present)
        kept = {p: offset for p, offset in kept.items() if p.topic not in gone}
        self._seen = {p: offset for p, offset in self._seen.items() if p.topic not in gone}
        short = moves.cut_short(kept, known, latest)
        # Told as what it is when the query began: up to there nothing was read.
        short = {p: text for p, text in short.items() if self._past_end.get(p) != kept[p]}
        planner.cut(short | moves.cuts_text(read, cuts))
        if self._target is not None:
            earliest, latest = self._up_to_target(self._target, read, present, earliest, latest)
        if self._waits(kept, earliest, latest.offsets, limit):
            latest = Known({}, {})  # nothing moves; what is new in the topics enters all the same
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = moves.advance(kept, earliest, latest.offsets, rows_max)
        epochs = moves.epochs_at(kept, known, end, latest.epochs)
        # That a log was cut is told once: who leads it has all before the offset that stands.
        epochs |= {p: told[p] for p in cuts}
        # An id that is not told just now stays what it was: nothing says that it changed.
        named = {t: i for t, i in (begin.ids | ids).items() if t not in gone}
        position = Position(end, named, planner.options.progress, epochs)
        cut: Gaps = {p: ((at, kept[p]),) for p, at in cuts.items()}
        return self._with_gaps(begin, position, moves.gaps_before(kept, earliest, end), cut)

    def _with_gaps(self, begin: Position, position: Position, gaps: Gaps, cuts: Gaps) -> Position:
        """Add what is known to be gone of this batch, and of those before it, if that is new.

        While nothing moves the text stays what it was, or Spark would make a batch of it.
        """
        # Of a topic that was made anew meanwhile, offsets count other records.
        anew = moves.made_anew(begin.ids, position.ids)
        late, late_cuts = (
            {p: each for p, each in found.items() if told.get(p) != each and p.topic not in anew}
            for found, told in ((self._late, begin.gaps), (self._late_cuts, begin.cuts))
        )
        cuts = moves.with_gaps(late_cuts, cuts)
        if replace(begin, gaps={}, cuts={}) == position and not late and not cuts:
            return begin
        return replace(position, gaps=moves.with_gaps(late, gaps), cuts=cuts)

    def _waits(self, begin: Offsets, earliest: Offsets, latest: Offsets, limit: ReadLimit) -> bool:
        """Return whether what is new waits for more. AvailableNow and Once take what is there."""
        if self._delay is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        now_ms = time.monotonic_ns() // 1_000_000
        return self._delay.holds(new_offsets(begin, earliest, latest), now_ms)

    def _up_to_target(
        self,
        target: Known,
        begin: Known,
        present: Sequence[Partition],
        earliest: Offsets,
        latest: Known,
    ) -> tuple[Offsets, Known]:
        """AvailableNow: nothing that came after the query was started, and all that was there.

        A partition whose leader is away may not be left out, or the query would end without it: its
        end was known at the start, and reading it will wait.
        """
        listing, now = self._planner.listing, set(present)
        there = [p for p in target.offsets if p in now]
        away = [p for p in there if p not in begin.offsets and p not in earliest]
        if away:
            earliest = earliest | listing.earliest(away, all_of_them=True)
        # The end was told by a leader that was cut off: its successor is waited for.
        old = [p for p in there if target.epochs.get(p, 0) < begin.epochs.get(p, 0)]
        unknown = [p for p in old if p not in latest.offsets]
        if unknown:
            told = listing.ends(unknown, begin.epochs, all_of_them=True)
            latest = Known(latest.offsets | told.offsets, latest.epochs | told.epochs)
        ends = {p: min(target.offsets[p], latest.offsets.get(p, target.offsets[p])) for p in there}
        return (
            {p: o for p, o in earliest.items() if p in begin.offsets or p in target.offsets},
            Known(ends, target.epochs | latest.epochs),
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        planner = self._planner
        self._target = planner.resolved(LATEST, "startingOffsets", planner.still_there())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Tell Spark where the log ends, so that its progress shows how far behind it is.

        Spark asks in each trigger, after `latestOffset`, which has just looked.
        """
        return moves.to_json(self._seen) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan one batch. Being asked means that its offsets stand in the log: it is pinned.

        Spark also asks for a batch that it planned in an earlier life: meanwhile the topic may have
        become another one, whose records are not those of the plan.
        """
        self._pinned = True
        before, after = moves.position_from_json(start), moves.position_from_json(end)
        self._late, self._late_cuts, self._held = {}, {}, None
        entered = moves.made_anew(before.ids, after.ids)
        planned = [
            planned
            for planned in moves.ranges(before.offsets, after.offsets, after.gaps)
            if planned.partition.topic not in entered
        ]
        if not planned:
            return []
        told_ids = self._planner.listing.topic_ids({r.partition.topic for r in planned})
        ids = self._planner.listing.settled(after.ids, told_ids)
        self._planner.refuse_members()
        others = self._planner.made_anew(after.ids, ids)
        planned = [r for r in planned if r.partition.topic not in others]
        # Brokers do not agree which topic this is: of whose log may be told, and by its id tasks
        # read the one that is meant, or none.
        sure = ids.keys() | {r.partition.topic for r in planned} - told_ids.keys()
        begins = [r.partition for r in planned if r.partition.topic in sure]
        earliest = self._planner.begins(begins, ids)
        if end != self._planned:
            self._hold(before, after, [r for r in planned if r.partition.topic in sure])
        # What the log was held against here is not for the tasks to find again; and that of an
        # offset before a gap is not of what the range begins with behind it.
        behind = {r.partition for r in planned if r.start != before.offsets[r.partition]}
        unheld = behind.union(after.cuts, self._late_cuts)
        epochs = (
            {p: e for p, e in before.epochs.items() if p not in unheld},
            after.epochs | (self._held[1] if self._held is not None else {}),
        )
        tasks: list[InputPartition] = self._planner.tasks(planned, earliest, after.ids, epochs)
        # This batch's entry is written, and stays what it is: the next one tells what went since.
        starts = {r.partition: r.start for r in planned}
        self._late = moves.gaps_before(starts, earliest, after.offsets)
        return tasks

    def _hold(self, before: Position, after: Position, planned: Sequence[Range]) -> None:
        """Hold a batch of an earlier life against the log: it may have been cut meanwhile.

        Then the tasks read the log as it is, so behind the batch nothing is lacking.
        """
        planner = self._planner
        starts, ends = (
            Known({r.partition: at.offsets[r.partition] for r in planned}, at.epochs)
            for at in (before, after)
        )
        told = planner.listing.ends(ends.offsets, after.epochs)
        cuts, at_end = (planner.listing.held(read, told)[1] for read in (starts, ends))
        cuts = {p: at for p, at in cuts.items() if p not in after.cuts}
        planner.cut(moves.cuts_text(ends, at_end) | moves.cuts_text(starts, cuts))
        self._late_cuts = {p: ((at, starts.offsets[p]),) for p, at in cuts.items()}
        self._held = after, {p: told.epochs[p] for p in at_end}

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark calls this a batch late, and not for the last one. Sinks tell groups."""

    def stop(self) -> None:
        self._planner.close()
