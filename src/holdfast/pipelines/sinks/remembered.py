"""How far a table is, as text, for stores that have no tables of their own for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.pipelines.due import Stored, Work
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Reader

Offsets = Mapping[Reader, Stored]


def moved(query: str, before: Offsets, work: Work) -> dict[Reader, Stored]:
    """Return how far the table is once a batch's work is done. FencedError: somebody changed it."""
    known = dict(before)
    for reader in work.forget:
        del known[reader]
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
        {**place_of(reader), "topic_id": stored.topic_id, "next": stored.next_offset}
        for reader, stored in sorted(offsets.items())
    ]


def from_json(entries: Iterable[Mapping[str, Any]]) -> dict[Reader, Stored]:
    return {
        Reader(Partition(each["topic"], each["partition"]), each["source"]): Stored(
            each["next"], each["topic_id"]
        )
        for each in entries
    }


def place_of(reader: Reader) -> dict[str, Any]:
    topic, partition = reader.partition
    return {"topic": topic, "partition": partition, "source": reader.source}
