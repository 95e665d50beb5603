"""What of a batch the tables still lack, decided from its plan and what the tables remember.

Pure: the plan comes from Spark's checkpoint, the memory from the tables, both as values. Two keys
decide. Offsets tell for a query without state what it lacks, whatever became of its checkpoint.
A stateful query's rows have no offset of their own: windows close in batches without new records,
and a checkpoint that was lost has lost the state. For those the checkpoint's id and the batch's
number count, and what does not follow on the batch that the tables had last is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, PlanError, Planned, Reader
from holdfast.pipelines.progress.sources import renamed


class Standing(Enum):
    """How a batch stands to the one that the tables had last."""

    REPLAY = auto()  # it is that one
    FOLLOWS = auto()  # or is compared by its offsets
    ANEW = auto()  # what is remembered counts for nothing any more


class Rows(Enum):
    """Which of a batch's rows are to be written. All of them are computed, whichever it is."""

    NONE = auto()
    NEW = auto()  # those that a move covers
    ALL = auto()


@dataclass(frozen=True, slots=True)
class Stored:
    """How far the tables are with one reader. Without `topic_id` it was not told."""

    next_offset: int
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class Last:
    """The batch that the tables had last. Those of an older version don't know: all is None.

    `by_place`: sources are remembered by their places in the offset log. Tables of before count
    those that know a partition.
    """

    checkpoint: str | None
    batch: int | None
    plan: str | None
    stateful: bool = False
    by_place: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    """What the tables remember of a query; `last` is None before its first batch."""

    offsets: Mapping[Reader, Stored] = field(default_factory=dict)
    last: Last | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """Of [start, end), the table lacks [begin, end). `expected` is what it has; None: no entry."""

    reader: Reader
    start: int
    begin: int
    end: int
    expected: int | None
    topic_id: str | None = None

    @property
    def partial(self) -> bool:
        """Some rows of the range are in the table already and must not be written again."""
        return self.begin > self.start


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [first, behind) whose records a table can't have: the log lacked them.

    Or it was cut there: then the table has rows of the records that the log had before.
    """

    reader: Reader
    first: int
    behind: int
    topic_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the transaction of a batch does. A replay has none: the tables have that very batch."""

    rows: Rows
    replay: bool = False
    moves: tuple[Due, ...] = ()
    forget: tuple[Reader, ...] = ()  # their offsets count a topic or a checkpoint that is no more
    renamed: Mapping[Reader, Reader] = field(default_factory=dict)  # of the others; all at once
    named: Mapping[str, str] = field(default_factory=dict)  # topics whose id is learnt only now
    # Up to where the table had the batch before when that came, as long as somebody knows.
    had: Mapping[Reader, int] = field(default_factory=dict)

    def kept(self, offsets: Mapping[Reader, Stored]) -> dict[Reader, Stored]:
        """Return what is remembered still, as this batch calls it."""
        forgotten = set(self.forget)
        return {
            self.renamed.get(reader, reader): stored
            for reader, stored in offsets.items()
            if reader not in forgotten
        }


def gaps_of(batch: Batch, work: Work) -> list[Gap]:
    """Return what the log lacked of what the tables lack of a batch."""
    moves = {move.reader: move for move in work.moves}
    return [
        Gap(planned.reader, first, behind, planned.topic_id)
        for planned in batch.ranges
        for first, behind in (
            *planned.cuts,
            *_lacking(planned, moves.get(planned.reader), work.had),
        )
        if first < behind
    ]


def _lacking(
    planned: Planned, move: Due | None, had: Mapping[Reader, int]
) -> Iterator[tuple[int, int]]:
    """Yield what the table lacks of a range's gaps, and what is none, too."""
    for first, behind in planned.gaps:
        # Of the batch before, found when its tasks were made. It may go on in this one.
        yield max(first, had.get(planned.reader, first)), min(behind, planned.start)
        if move is not None:
            yield max(first, move.begin), behind


def had_before(batch: Batch, work: Work) -> dict[Reader, int]:
    """Return up to where the table had a batch before its work was done: all of it, in a replay."""
    begins = {move.reader: move.begin for move in work.moves}
    return {each.reader: begins.get(each.reader, each.end) for each in batch.ranges}


def decide(batch: Batch, memory: Memory, begin_anew: Collection[str], query: str) -> Work:
    """Compare a batch with the tables. PlanError when rows would be missing or come twice.

    `begin_anew` holds ids, of topics or of checkpoints, that are over: what is remembered under
    them is forgotten. An id that isn't met has no effect, so the switch may stay where it is.
    """
    stateful = batch.stateful or (memory.last is not None and memory.last.stateful)
    standing = _standing(batch, memory.last, begin_anew, query, stateful=stateful)
    if standing is Standing.REPLAY:
        return Work(rows=Rows.NONE, replay=True)
    names: Mapping[Reader, Reader] = {}
    if standing is Standing.ANEW:
        forget = set(memory.offsets)
    else:
        names = _names(batch, memory)
        forget = _of_topics_made_anew(batch, memory, names, begin_anew)
    kept = {reader: now for reader, now in names.items() if reader not in forget}
    work = Work(rows=Rows.NONE, forget=tuple(sorted(forget)), renamed=kept)
    stored = work.kept(memory.offsets)
    moves = due(batch.ranges, stored)
    return replace(
        work,
        rows=_rows(batch, moves, stateful=stateful),
        moves=moves,
        named={
            r.reader.partition.topic: r.topic_id
            for r in batch.ranges
            if r.topic_id is not None and r.reader in stored and not stored[r.reader].topic_id
        },
    )


def _names(batch: Batch, memory: Memory) -> Mapping[Reader, Reader]:
    """Return what the readers that are remembered are called in this batch."""
    if memory.last is None:
        return {}
    return renamed(
        batch,
        memory.offsets,
        of_this_checkpoint=memory.last.checkpoint == batch.checkpoint,
        by_place=memory.last.by_place,
    )


def _standing(
    batch: Batch, last: Last | None, begin_anew: Collection[str], query: str, *, stateful: bool
) -> Standing:
    """Hold a batch against the one that the tables had last."""
    if last is None:
        if batch.number:
            raise PlanError(
                f"batch {batch.number}: the tables know nothing of query {query!r}, so the rows of "
                "the batches before are not there. Name the query and the database that this "
                "checkpoint was written with, or remove the checkpoint too"
            )
        return Standing.FOLLOWS
    if (last.checkpoint, last.batch, last.plan) == (batch.checkpoint, batch.number, batch.plan):
        return Standing.REPLAY
    if not stateful:
        return Standing.FOLLOWS
    if last.checkpoint == batch.checkpoint:
        if last.batch is None or batch.number != last.batch + 1:
            raise PlanError(_out_of_sequence(batch, last, query))
        return Standing.FOLLOWS
    if last.checkpoint in begin_anew and batch.number == 0:
        return Standing.ANEW
    raise PlanError(_other_checkpoint(batch, last, query))


def _out_of_sequence(batch: Batch, last: Last, query: str) -> str:
    what = (
        f"batch {batch.number} of a stateful query, but the tables of {query!r} had batch "
        f"{last.batch} of this checkpoint last"
    )
    if last.batch is not None and batch.number > last.batch + 1:
        return (
            f"{what}: rows of the batches between would be missing. The tables are older than the "
            "checkpoint; restore the ones that belong to it"
        )
    by = ", by another plan" if batch.number == last.batch else ""
    return (
        f"{what}{by}: this checkpoint is an older copy. Go on with the newer one; or remove it, "
        f"empty the tables, and start with --begin-anew {last.checkpoint}"
    )


def _other_checkpoint(batch: Batch, last: Last, query: str) -> str:
    if last.checkpoint is None:
        return (
            f"query {query!r} is stateful, and its tables are of a version that did not write the "
            "rows of batches without new records. Give the query another name and empty tables"
        )
    return (
        f"the tables of query {query!r} belong to checkpoint {last.checkpoint}, and this is "
        f"{batch.checkpoint}. A stateful query's rows can't be told apart by their offsets: they "
        "would come again. Go on with the former checkpoint, or give the query another name and "
        f"empty tables; or empty these, and start with a fresh checkpoint and --begin-anew "
        f"{last.checkpoint} (the sink's begin_anew={{{last.checkpoint!r}}})"
    )


def _of_topics_made_anew(
    batch: Batch, memory: Memory, names: Mapping[Reader, Reader], begin_anew: Collection[str]
) -> set[Reader]:
    """Return what counts the offsets of topics that are gone, when that was allowed by their id."""
    forget: set[Reader] = set()
    sources = {reader: names.get(reader, reader).source for reader in memory.offsets}
    offsets = {names.get(reader, reader): what for reader, what in memory.offsets.items()}
    for planned in batch.ranges:
        stored = offsets.get(planned.reader)
        old = None if stored is None else stored.topic_id
        if old is None or planned.topic_id is None or old == planned.topic_id:
            continue
        topic = planned.reader.partition.topic
        if old not in begin_anew:
            raise PlanError(
                f"topic {topic!r} was deleted and made anew: the tables have rows of the one with "
                f"id {old}, and this query reads the one with id {planned.topic_id}. To add the "
                f"new one's rows to them, start with --begin-anew {old} (the sink's "
                f"begin_anew={{{old!r}}}); to keep the two apart, give the query another name and "
                "other tables"
            )
        # Its other partitions, too: the new topic may have fewer. Another source of the query may
        # not have come to the new one yet.
        forget |= {
            reader
            for reader, what in memory.offsets.items()
            if reader.partition.topic == topic
            and what.topic_id == old
            and (sources[reader] == planned.reader.source or sources[reader] < 0)
        }
    return forget


def due(planned: Iterable[Planned], stored: Mapping[Reader, Stored]) -> tuple[Due, ...]:
    """Compare the ranges with the tables' next offsets; PlanError when rows would be missing.

    What the table has already is a replay: after a crash between the table's commit and Spark's
    (the whole batch), or after the checkpoint was removed (up to the middle of a batch).
    """
    found = []
    for plan in planned:
        known = stored.get(plan.reader)
        expected = None if known is None else known.next_offset
        if expected is None and plan.start < plan.end:
            raise PlanError(
                f"{plan.reader}: the tables know nothing of it, but the query goes on at "
                f"{plan.start}: rows would be missing. The checkpoint and the tables don't "
                "belong together; restore the tables, or remove the checkpoint"
            )
        if expected is not None and expected < plan.start:
            raise PlanError(
                f"{plan.reader}: the table ends at offset {expected}, but the query goes on "
                f"at {plan.start}: rows would be missing. Start it with startingOffsets=earliest "
                f"or at {expected}, or give the query another name"
            )
        if expected is None or expected < plan.end:
            begin = plan.start if expected is None else expected
            found.append(Due(plan.reader, plan.start, begin, plan.end, expected, plan.topic_id))
    return tuple(found)


def _rows(batch: Batch, moves: Collection[Due], *, stateful: bool) -> Rows:
    """Say which rows of the batch the moves cover."""
    moving = {move.reader for move in moves}
    busy = [planned for planned in batch.ranges if planned.start < planned.end]
    there = [planned.reader for planned in busy if planned.reader not in moving]
    partial = [move.reader for move in moves if move.partial]
    if not there and not partial:
        return Rows.ALL
    if stateful:
        raise PlanError(
            f"{(there + partial)[0]}: a part of this batch is in the tables already, and a "
            "stateful query's rows can't be told apart. Somebody changed the tables' offsets"
        )
    if len(there) == len(busy):
        return Rows.NONE
    _refuse_twins(busy)
    return Rows.NEW


def _refuse_twins(busy: Iterable[Planned]) -> None:
    """A row does not say which source it came from when two of them read its partition."""
    seen: set[Partition] = set()
    for planned in busy:
        if planned.reader.partition in seen:
            raise PlanError(
                f"{planned.reader.partition}: two sources of the query read it, and a part of "
                "this batch is in the tables already: its rows can't be told apart. Go on with "
                "the former checkpoint, or give the query another name and empty tables"
            )
        seen.add(planned.reader.partition)
