"""`format("holdfast")`: Spark reads Kafka topics, as a stream or as a batch, without a JAR.

Owns what Spark asks a source: where to begin, how far to go, which ranges to read. The planner's
reader lives in one process beside the driver; `read` runs in workers, and uses nothing of `self`
but options. What is decided is decided in `offsets`; this module must never let an offset move
backwards, nor let a batch begin at an offset that Spark's offset log does not hold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.pipelines import offsets as moves
from holdfast.pipelines.listing import Listing
from holdfast.pipelines.offsets import (
    DataLossError,
    Offsets,
    Partition,
    Position,
    Range,
    TopicIds,
    TopicMadeAnewError,
)
from holdfast.pipelines.options import OptionError, SourceOptions, parse
from holdfast.pipelines.read_range import Access, data_loss_text, read_range
from holdfast.pipelines.topic_ids import must_be
from holdfast.wire.well_known import EARLIEST, LATEST

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
log = logging.getLogger(__name__)


@dataclass
class RangePartition(InputPartition):  # type: ignore[misc]
    """One task: a range of one partition. It is pickled to the worker."""

    topic: str
    number: int
    start: int
    end: int
    topic_id: str | None = None


class HoldfastSource(DataSource):  # type: ignore[misc]
    """The entry that Spark finds by the name `holdfast`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_schema(schema)
        return BatchReader(parse(self.options, "batch"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        _check_schema(schema)
        return StreamReader(parse(self.options, "stream"))


def _check_schema(schema: StructType) -> None:
    if schema != SCHEMA:
        raise OptionError("schema: the source has seven columns of its own; leave schema() out")


class _Planner:
    """What both readers share: the options, and the listing, connected on first use."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._listing: Listing | None = None

    @property
    def listing(self) -> Listing:
        if self._listing is None:
            self._listing = Listing(self.options.client)
        return self._listing

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options; connections stay here."""
        return {"options": self.options, "_listing": None}

    def partitions(self) -> list[Partition]:
        return list(self.options.partitions) or self.listing.partitions(self.options.topics)

    def resolved(self, wanted: int | Offsets, name: str) -> Offsets:
        """Turn `startingOffsets` or `endingOffsets` into numbers, all of them known."""
        partitions = self.partitions()
        if isinstance(wanted, int):
            spec = dict.fromkeys(partitions, wanted)
        else:
            spec = dict(wanted)
            if spec.keys() != set(partitions):
                odd = ", ".join(str(p) for p in sorted(spec.keys() ^ set(partitions)))
                raise OptionError(f"{name}: name every partition to be read and no other: {odd}")
        named = [p for p in partitions if spec[p] == EARLIEST]
        last = [p for p in partitions if spec[p] == LATEST]
        return moves.resolve(
            spec,
            self.listing.earliest(named, all_of_them=True) if named else {},
            self.listing.latest(last, all_of_them=True) if last else {},
        )

    def lost(self, said: list[str]) -> None:
        """Fail with what is gone, or note it, as failOnDataLoss says."""
        if not said:
            return
        if self.options.fail_on_data_loss:
            raise DataLossError(data_loss_text(said))
        log.warning("going on without data that was lost: %s", "; ".join(said))

    def made_anew(self, before: TopicIds, now: TopicIds) -> set[str]:
        """Return the topics that are others now, after failing or noting it."""
        changed = moves.made_anew(before, now)
        said = "; ".join(moves.made_anew_text(changed))
        if said and self.options.fail_on_data_loss:
            raise TopicMadeAnewError(said)
        if said:
            log.warning("going on with what is there now: %s", said)
        return set(changed)

    def tasks(
        self, planned: Sequence[Range], earliest: Mapping[Partition, int], ids: Mapping[str, str]
    ) -> list[Any]:
        """One task for each range; what aged out of it is loss, said here, before a task starts."""
        starts = {r.partition: r.start for r in planned}
        self.lost(moves.aged_out(starts, earliest))
        tasks = []
        for planned_range in planned:
            partition = planned_range.partition
            start = max(planned_range.start, earliest.get(partition, 0))
            if start < planned_range.end:
                topic_id = ids.get(partition.topic)
                tasks.append(RangePartition(*partition, start, planned_range.end, topic_id))
        return tasks

    def records(self, task: RangePartition) -> Iterator[pa.RecordBatch]:
        access = Access(
            client=self.options.client,
            fail_on_data_loss=self.options.fail_on_data_loss,
            silence_ms_max=self.options.poll_timeout_ms,
        )
        yield from read_range(Partition(task.topic, task.number), task.start, task.end, access)
        if task.topic_id is not None:
            must_be(access.client, task.topic, task.topic_id, access.silence_ms_max)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """`spark.read.format("holdfast")`: everything between two offsets, once."""

    def __init__(self, options: SourceOptions) -> None:
        self._planner = _Planner(options)

    def partitions(self) -> list[InputPartition]:
        planner = self._planner
        start = planner.resolved(planner.options.starting, "startingOffsets")
        end = planner.resolved(planner.options.ending, "endingOffsets")
        if isinstance(planner.options.ending, int):
            planner.lost(moves.out_of_log(start, end))
        elif odd := [p for p in sorted(start) if end[p] < start[p]]:
            raise OptionError(
                f"endingOffsets: {odd[0]}: {end[odd[0]]} is before startingOffsets, {start[odd[0]]}"
            )
        earliest = planner.listing.earliest(list(start), all_of_them=True)
        tasks = planner.tasks(moves.ranges(start, end), earliest, {})
        # Spark calls `read(InputPartition(None))` when there is nothing; an empty range says it.
        empty = min(end)
        return tasks or [RangePartition(empty.topic, empty.number, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return self._planner.records(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream.format("holdfast")`.

    The first batch of a query is empty on purpose: Spark asks for the initial offset more than
    once, and asks anew when it replays batch 0, so under `latest` the beginning of the query would
    wander past records. An empty batch 0 writes it into the offset log before anything is read.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._planner = _Planner(options)
        self._initial: Position | None = None
        self._pinned = False
        self._target: Offsets | None = None
        self._seen: Offsets = {}  # where the logs ended when we last looked

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            planner = self._planner
            wanted = planner.options.starting
            offsets = planner.resolved(wanted, "startingOffsets")
            if not isinstance(wanted, int):
                planner.lost(moves.out_of_log(offsets, planner.listing.latest(list(offsets))))
            topics = {partition.topic for partition in offsets}
            ids = planner.listing.topic_ids(topics, all_of_them=True)
            self._initial = Position(offsets, ids)
        return moves.position_to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self._planner.options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = moves.position_from_json(start)
        if not self._pinned and begin == self._initial:
            self._pinned = True
            return moves.position_to_json(begin)
        present = self._present()
        listing = self._planner.listing
        earliest, latest = listing.earliest(present), listing.latest(present)
        # Asked for after the offsets: these are not those of a topic that came a moment later.
        topics = {partition.topic for partition in [*begin.offsets, *present]}
        ids = listing.topic_ids(topics)
        others = self._planner.made_anew(begin.ids, ids)
        # What counts a topic that is gone is dropped; the new one's partitions enter as new ones.
        kept = {p: offset for p, offset in begin.offsets.items() if p.topic not in others}
        self._seen |= latest
        self._planner.lost(
            moves.vanished(kept, present)
            + moves.aged_out(kept, earliest)
            + moves.cut_short(kept, latest)
        )
        if self._target is not None:
            earliest, latest = self._up_to_target(self._target, kept, present, earliest, latest)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = moves.advance(kept, earliest, latest, rows_max)
        # An id that is not told just now stays what it was: nothing says that it changed.
        return moves.to_json(end, begin.ids | ids)

    def _present(self) -> list[Partition]:
        listing, options = self._planner.listing, self._planner.options
        if options.partitions:
            return listing.existing(options.partitions)
        return listing.existing_of(options.topics)

    def _up_to_target(
        self,
        target: Offsets,
        begin: Offsets,
        present: Sequence[Partition],
        earliest: Offsets,
        latest: Offsets,
    ) -> tuple[Offsets, Offsets]:
        """AvailableNow: nothing that came after the query was started, and all that was there.

        A partition whose leader is away may not be left out, or the query would end without it: its
        end was known at the start, and reading it will wait.
        """
        away = [p for p in target if p in present and p not in begin and p not in earliest]
        if away:
            earliest = earliest | self._planner.listing.earliest(away, all_of_them=True)
        return (
            {p: offset for p, offset in earliest.items() if p in begin or p in target},
            {p: min(offset, latest.get(p, offset)) for p, offset in target.items() if p in present},
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._planner.resolved(LATEST, "startingOffsets")

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
        entered = moves.made_anew(before.ids, after.ids)
        planned = [
            planned
            for planned in moves.ranges(before.offsets, after.offsets)
            if planned.partition.topic not in entered
        ]
        if not planned:
            return []
        ids = self._planner.listing.topic_ids({r.partition.topic for r in planned})
        others = self._planner.made_anew(after.ids, ids)
        planned = [r for r in planned if r.partition.topic not in others]
        earliest = self._planner.listing.earliest([r.partition for r in planned])
        tasks: list[InputPartition] = self._planner.tasks(planned, earliest, after.ids)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return self._planner.records(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Offsets live in Spark's checkpoint; the cluster is told nothing."""

    def stop(self) -> None:
        if self._planner._listing is not None:  # noqa: SLF001 - its own module
            self._planner._listing.close()  # noqa: SLF001
