"""A query's memory as JSON, in a file beside its rows: for stores that have no table of their own.

Owns the spelling, and how a batch moves it. Where the file lies, and what makes it hold, a store
decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.pipelines.due import Last, Memory, Stored, Work
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Reader


def memory_of(told: Mapping[str, Any]) -> Memory:
    """Return what a text remembers; without a checkpoint it is of before the first batch."""
    offsets = {
        Reader(Partition(each["topic"], each["partition"]), each["source"]): Stored(
            each["next"], each["topic_id"]
        )
        for each in told["offsets"]
    }
    if told["checkpoint"] is None:
        return Memory(offsets)
    last = Last(told["checkpoint"], told["batch"], told["plan"], told["stateful"])
    return Memory(offsets, last)


def told_of(batch: Batch) -> dict[str, Any]:
    """Return what says which batch the table had last."""
    return {
        "checkpoint": batch.checkpoint,
        "batch": batch.number,
        "plan": batch.plan,
        "stateful": batch.stateful,
    }


def told_moves(query: str, memory: Memory, work: Work) -> dict[str, Any]:
    """Return what a batch covers, and how far the table is with it. FencedError: as in `_moved`."""
    moved = _moved(query, memory, work)
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
        "offsets": [
            {**_place(reader), "topic_id": stored.topic_id, "next": stored.next_offset}
            for reader, stored in sorted(moved.items())
        ],
    }


def _moved(query: str, memory: Memory, work: Work) -> dict[Reader, Stored]:
    """Return how far the table is with this batch. FencedError: somebody changed it."""
    known = dict(memory.offsets)
    for reader in work.forget:
        del known[reader]
    for reader, stored in known.items():
        if stored.topic_id is None and reader.partition.topic in work.named:
            known[reader] = Stored(stored.next_offset, work.named[reader.partition.topic])
    for move in work.moves:
        before = known.get(move.reader)
        if (None if before is None else before.next_offset) != move.expected:
            raise FencedError(
                f"query {query!r}, {move.reader}: the next offset is no longer "
                f"{move.expected}; somebody changed it. Nothing was written"
            )
        topic_id = move.topic_id if before is None else before.topic_id
        known[move.reader] = Stored(move.end, topic_id)
    return known


def _place(reader: Reader) -> dict[str, Any]:
    topic, partition = reader.partition
    return {"topic": topic, "partition": partition, "source": reader.source}
