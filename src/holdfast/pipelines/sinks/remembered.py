"""A query's memory as JSON, for stores that have no tables of their own for it.

Owns the spelling, and how a batch moves it. Where the text lies, and what makes it hold, a store
decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.pipelines.due import Last, Memory, Stored, Work, gaps_of
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Reader

Offsets = Mapping[Reader, Stored]


def memory_of(told: Mapping[str, Any]) -> Memory:
    """Return what a text remembers; without a checkpoint it is of before the first batch."""
    offsets = from_json(told["offsets"])
    if told["checkpoint"] is None:
        return Memory(offsets)
    last = Last(
        told["checkpoint"],
        told["batch"],
        told["plan"],
        told["stateful"],
        told.get("by_place", False),
    )
    return Memory(offsets, last)


def told_of(batch: Batch) -> dict[str, Any]:
    """Return what says which batch the table had last."""
    return {
        "checkpoint": batch.checkpoint,
        "batch": batch.number,
        "plan": batch.plan,
        "stateful": batch.stateful,
        "by_place": True,
    }


def told_moves(query: str, memory: Memory, work: Work) -> dict[str, Any]:
    """Return what a batch covers, and how far the table is with it. FencedError: as in `moved`."""
    return {
        "ranges": [
            {
                **_place(move.reader),
                "topic_id": move.topic_id,
                "begin": move.begin,
                "end": move.end,
            }
            for move in work.moves
        ],
        "offsets": as_json(moved(query, memory.offsets, work)),
    }


def told_gaps(batch: Batch, work: Work) -> list[dict[str, Any]]:
    """Return what the log lacked of a batch, which its rows can't show."""
    return [
        {**_place(gap.reader), "topic_id": gap.topic_id, "first": gap.first, "next": gap.behind}
        for gap in gaps_of(batch, work)
    ]


def moved(query: str, before: Offsets, work: Work) -> dict[Reader, Stored]:
    """Return how far the table is once a batch's work is done. FencedError: somebody changed it."""
    known = work.kept(before)
    for reader, stored in known.items():
        if stored.topic_id is None and reader.partition.topic in work.named:
            known[reader] = Stored(stored.next_offset, work.named[reader.partition.topic])
    for move in work.moves:
        there = known.get(move.reader)
        if (None if there is None else there.next_offset) != move.expected:
            raise FencedError(
                f"query {query!r}, {move.reader}: the next offset is no longer "
                f"{move.expected}; somebody changed it. Nothing was written"
            )
        topic_id = move.topic_id if there is None else there.topic_id
        known[move.reader] = Stored(move.end, topic_id)
    return known


def as_json(offsets: Offsets) -> list[dict[str, Any]]:
    return [
        {**_place(reader), "topic_id": stored.topic_id, "next": stored.next_offset}
        for reader, stored in sorted(offsets.items())
    ]


def from_json(entries: Iterable[Mapping[str, Any]]) -> dict[Reader, Stored]:
    return {
        Reader(Partition(each["topic"], each["partition"]), each["source"]): Stored(
            each["next"], each["topic_id"]
        )
        for each in entries
    }


def _place(reader: Reader) -> dict[str, Any]:
    topic, partition = reader.partition
    return {"topic": topic, "partition": partition, "source": reader.source}
