"""Which source of a query an offset belongs to that its tables remember. Pure.

A query may read a partition more than once: a self-join, or a union of two parts of one topic.
Which of its sources a line of Spark's offset log is of, its place there tells; the place holds as
long as the checkpoint does, whenever each source learns of a partition. So it is what tables
remember. Another checkpoint may have another order: then sources are told by the order of those
that read the same partition. What the query reads no more waits under a negative number.

It must never guess: what can't be told apart is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, PlanError, Reader

_Places = Mapping[Partition, Sequence[int]]


def renamed(
    batch: Batch, remembered: Collection[Reader], *, of_this_checkpoint: bool, by_place: bool
) -> dict[Reader, Reader]:
    """Return what readers that tables remember are called from this batch on.

    What keeps its name is left out. `of_this_checkpoint`: the tables had a batch of it last.
    `by_place`: sources are remembered by their place; tables of before count those that know the
    partition. PlanError: which source is meant can't be told.
    """
    named = {r for r in remembered if of_this_checkpoint and by_place and r.source >= 0}
    loose = _by_partition(r for r in remembered if r not in named)
    if not loose:
        return {}
    places: _Places = _by_partition(r.reader for r in batch.ranges if r.reader not in named)
    if of_this_checkpoint and not by_place:
        # They counted when the entry before this batch was the newest. A source that learns of the
        # partition only now is none of those.
        before = {p: at for p, at in batch.known.items() if len(at) == len(loose.get(p, ()))}
        places = {**places, **before}
    pairs = _pairs(loose, places, several=by_place)
    after = {
        reader: pairs.get(reader, Reader(reader.partition, -1 - _rank(reader.source)))
        for reader in remembered
        if reader not in named
    }
    taken = [*after.values(), *named]
    if len(set(taken)) < len(taken):
        raise PlanError(_cannot_tell(next(r for r in taken if taken.count(r) > 1).partition))
    return {reader: now for reader, now in after.items() if reader != now}


def _rank(source: int) -> int:
    """Return the place that a source had, also of one that waits."""
    return source if source >= 0 else -1 - source


def _by_partition(readers: Iterable[Reader]) -> dict[Partition, list[int]]:
    """Return each partition's sources, in the order of their places."""
    found: dict[Partition, list[int]] = defaultdict(list)
    for reader in sorted(readers, key=lambda reader: (reader.partition, _rank(reader.source))):
        found[reader.partition].append(reader.source)
    return dict(found)


def _pairs(loose: _Places, places: _Places, *, several: bool) -> dict[Reader, Reader]:
    """Find for what is remembered the source that goes on with it.

    `several`: partitions that as many sources read as before tell, of each source, which one it
    was; so others can be told that only one of them had learnt of.
    """
    was: dict[int, set[int]] = defaultdict(set)
    if several:
        for partition, sources in loose.items():
            now = places.get(partition, ())
            if len(sources) == len(now) > 1:
                for source, place in zip(sources, now, strict=True):
                    was[place].add(source)
    told = set().union(*was.values())
    pairs: dict[Reader, Reader] = {}
    for partition, sources in loose.items():
        now = places.get(partition, ())
        sure = {s: place for place in now for s in sources if s in was.get(place, ())}
        others = [s for s in sources if s not in sure]
        candidates = [place for place in now if place not in sure.values()]
        if others and candidates:
            another = told.intersection(others) or was.keys() & candidates
            if another or len(others) != len(candidates):
                raise PlanError(_cannot_tell(partition))
            sure |= zip(others, candidates, strict=True)
        for source, place in sure.items():
            pairs[Reader(partition, source)] = Reader(partition, place)
    return pairs


def _cannot_tell(partition: Partition) -> str:
    return (
        f"{partition}: the tables remember how far the query's sources are with it, and now "
        "another number of sources reads it: which of them goes on where can't be told. Read it as "
        "often as before; or give the query another name, a fresh checkpoint and empty tables"
    )
