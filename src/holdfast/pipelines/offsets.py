"""Which offsets a batch covers, as pure arithmetic. Owns the text form and the rules of moving on.

It never talks to a cluster: what the cluster says comes in as numbers. An `Offsets` maps a
partition to the next offset to read; its text is the JVM connector's `{"topic":{"0":17}}`. A
`Position` also says which topics these are: a topic that was deleted and made anew has the same
name and another id. Its text has the id beside the numbers: `{"topic":{"id":"...","0":17}}`. And it
says which consumer group is told, where one is: `{"topic":{...},"@progressGroup":{...}}`.

Beside a topic's numbers stand the leader epochs that they were told in, and what was known to be
gone when the batch was planned: `{"topic":{"0":17,"epochs":{"0":3},"gaps":{"0":[[3,9]]}}}`, or
`"cuts"` of the same form.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.pipelines.intake.json_texts import OFFSETS_END, is_partition, json_of
from holdfast.pipelines.progress.group import (
    KEY,
    GroupError,
    ProgressGroup,
    group_from_json,
    group_to_json,
)
from holdfast.wire.well_known import EARLIEST, LATEST


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


Offsets = dict[Partition, int]
TopicIds = dict[str, str]  # a cluster before Kafka 2.8 tells none: then the topic is left out
Epochs = dict[Partition, int]  # of leaders; of a cluster before Kafka 2.1 there are none
Gaps = dict[Partition, tuple[tuple[int, int], ...]]  # offsets [from, to) that the log lacked
# Among a topic's partitions, which are numbers.
ID, EPOCHS, GAPS, CUTS = "id", "epochs", "gaps", "cuts"
RECORD = "holdfast.record"  # in the metadata of a column: which of a record's coordinates it has
_AS_KAFKA_SPELLS = str.maketrans("+/", "-_")


class Known(NamedTuple):
    """Offsets, and the epochs of the leaders that told them."""

    offsets: Offsets
    epochs: Epochs


def known_of(known: Known, partitions: Collection[Partition]) -> Known:
    """Return what is known of these alone."""
    return Known(
        {p: offset for p, offset in known.offsets.items() if p in partitions},
        {p: epoch for p, epoch in known.epochs.items() if p in partitions},
    )


@dataclass(frozen=True, slots=True)
class Position:
    """Where a source stands: the next offsets, and the ids of the topics that they count.

    `group` is told so, when a table has what lies before them. All before an offset could be read
    of the leader whose epoch is in `epochs`. `gaps` are what the log lacked of the batch that ends
    here, or of the one before it. `cuts` lie before that batch: there the log has other records now
    than those that were read.
    """

    offsets: Offsets
    ids: TopicIds = field(default_factory=dict)
    group: ProgressGroup | None = None
    epochs: Epochs = field(default_factory=dict)
    gaps: Gaps = field(default_factory=dict)
    cuts: Gaps = field(default_factory=dict)


class DataLossError(RuntimeError):
    """Offsets that the query still needs are no longer in the log."""


class TopicMadeAnewError(DataLossError):
    """A topic was deleted and made anew: the offsets count another one's records."""


class OffsetsError(ValueError):
    """An offset text that says something else than `{"topic":{"0":17}}`."""


Said = dict[Partition, str]  # what is gone


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition."""

    partition: Partition
    start: int
    end: int


def to_json(
    offsets: Mapping[Partition, int], ids: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the nested form in one canonical order: Spark compares offsets as text."""
    nested: dict[str, dict[str, Any]] = {}
    for partition in sorted(offsets):
        topic = partition.topic
        if topic not in nested:
            nested[topic] = {ID: ids[topic]} if ids is not None and topic in ids else {}
        nested[topic][str(partition.number)] = offsets[partition]
    return nested


def spelt(topic_id: str) -> str:
    """Return a topic's id as Kafka's tools spell it, whichever base64 it is told in.

    librdkafka's has + and / where Kafka's has - and _; checkpoints and tables of before have the
    former. Other ids stay as they are.

    >>> spelt("a+b/c")
    'a-b_c'
    """
    return topic_id.translate(_AS_KAFKA_SPELLS)


def position_to_json(position: Position) -> dict[str, dict[str, Any]]:
    nested = to_json(position.offsets, position.ids)
    gaps, cuts = (
        {p: [list(pair) for pair in pairs] for p, pairs in told.items()}
        for told in (position.gaps, position.cuts)
    )
    for name, values in ((EPOCHS, position.epochs), (GAPS, gaps), (CUTS, cuts)):
        for partition in sorted(values.keys() & position.offsets.keys()):
            beside = nested[partition.topic].setdefault(name, {})
            beside[str(partition.number)] = values[partition]
    return nested if position.group is None else nested | {KEY: group_to_json(position.group)}


def to_text(offsets: Mapping[Partition, int], ids: Mapping[str, str] | None = None) -> str:
    return json.dumps(to_json(offsets, ids), separators=(",", ":"))


def position_from_json(value: Any) -> Position:
    """Read the nested form, with ids or, as older checkpoints have it, without."""
    if not isinstance(value, dict):
        return Position(from_json(value))  # which says what is wrong
    ids: TopicIds = {}
    numbers: dict[str, Any] = {}
    epochs: Epochs = {}
    gaps: Gaps = {}
    cuts: Gaps = {}
    try:
        group = group_from_json(value[KEY]) if KEY in value else None
    except GroupError as error:
        raise OffsetsError(str(error)) from error
    for topic, partitions in value.items():
        if topic == KEY:
            continue
        if not isinstance(partitions, dict):
            numbers[topic] = partitions  # which is refused below
            continue
        beside = {ID, EPOCHS, GAPS, CUTS}
        numbers[topic] = {name: told for name, told in partitions.items() if name not in beside}
        epochs |= from_json({topic: partitions.get(EPOCHS, {})})
        gaps |= _gaps_from_json(topic, partitions.get(GAPS, {}))
        cuts |= _gaps_from_json(topic, partitions.get(CUTS, {}))
        if ID in partitions:
            told = partitions[ID]
            if not (isinstance(told, str) and told):
                raise OffsetsError(f"topic {topic!r}: {told!r} is no id of a topic")
            ids[topic] = spelt(told)
    return Position(from_json(numbers), ids, group, epochs, gaps, cuts)


def _gaps_from_json(topic: str, value: Any) -> Gaps:
    gaps: Gaps = {}
    for number, told in value.items() if isinstance(value, dict) else [("", value)]:
        # Their ends are offsets: those are read as such, and have to rise.
        ends = [
            from_json({topic: {number: offset}})[Partition(topic, int(number))]
            for pair in (told if isinstance(told, list) else [])
            for offset in (pair if isinstance(pair, list) else [])
        ]
        pairs = tuple(zip(ends[::2], ends[1::2], strict=False))
        is_whole = [list(pair) for pair in pairs] == told and pairs
        if not is_whole or any(not 0 <= first < behind for first, behind in pairs):
            raise OffsetsError(f"topic {topic!r}: {told!r} are no gaps")
        gaps[Partition(topic, int(number))] = pairs
    return gaps


def position_from_text(text: str) -> Position:
    return position_from_json(_parsed(text))


def from_json(value: Any) -> Offsets:
    """Read the nested form without ids. OffsetsError says what is wrong with it."""
    if not isinstance(value, dict):
        raise OffsetsError(f"offsets are an object of topics, not {value!r}")
    offsets: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise OffsetsError(f"topic {topic!r}: an object of partitions is wanted")
        for number, offset in partitions.items():
            if not is_partition(number):
                raise OffsetsError(f"topic {topic!r}: {number!r} is no partition")
            if type(offset) is not int or not EARLIEST <= offset < OFFSETS_END:
                raise OffsetsError(f"{topic}-{number}: {offset!r} is no offset")
            offsets[Partition(topic, int(number))] = offset
    return offsets


def from_text(text: str) -> Offsets:
    return from_json(_parsed(text))


def _parsed(text: str) -> Any:
    try:
        return json_of(text)
    except (ValueError, RecursionError) as error:
        raise OffsetsError(f"not JSON: {error}") from error


def made_anew(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the topics that are others now, with both ids. An id that is not told proves nothing.

    >>> made_anew({"a": "1", "b": "2"}, {"a": "3"})
    {'a': ('1', '3')}
    """
    return {
        topic: (before[topic], now[topic])
        for topic in sorted(before.keys() & now.keys())
        if before[topic] != now[topic]
    }


def made_anew_text(changed: Mapping[str, tuple[str, str]]) -> list[str]:
    """Say, per topic, that it is another one, and what to do to read it."""
    return [
        f"topic {topic!r} was deleted and made anew: the query has read the one with id {old}, "
        f"and now there is the one with id {new}. To read that from its beginning, remove the "
        f"checkpoint and start with --begin-anew {old} (the sink's begin_anew={{{old!r}}})"
        for topic, (old, new) in changed.items()
    ]


def out_of_log(
    told: Mapping[Partition, int], latest: Mapping[Partition, int], option: str = "startingOffsets"
) -> Said:
    """Say, per partition, where a query was told to begin or end past what there is."""
    return {
        partition: f"{option} is {offset}, but the log ends at {latest[partition]}"
        for partition, offset in sorted(told.items())
        if latest.get(partition, offset) < offset
    }


def resolve(
    wanted: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    latest: Mapping[Partition, int],
) -> Offsets:
    """Replace -2 and -1 by what the cluster says. Both maps know every partition in `wanted`."""
    named = {EARLIEST: earliest, LATEST: latest}
    return {
        partition: named[offset][partition] if offset in named else offset
        for partition, offset in wanted.items()
    }


def aged_out(start: Mapping[Partition, int], earliest: Mapping[Partition, int]) -> Said:
    """Say, per partition, which offsets were deleted before they were read."""
    return {
        partition: f"offsets {offset} to {earliest[partition] - 1} are gone, "
        f"the log starts at {earliest[partition]}"
        for partition, offset in sorted(start.items())
        if earliest.get(partition, offset) > offset
    }


def cut_short(
    start: Mapping[Partition, int], epochs: Mapping[Partition, int], latest: Known
) -> Said:
    """Say, per partition, where the log now ends before what was read already.

    Who told of `start` led in `epochs`: only who leads in a newer one can have lost that. Any
    other does not know it yet.
    """
    return {
        partition: f"read up to {offset}, but the log ends at {latest.offsets[partition]}: it was "
        "truncated, or its topic was made anew"
        for partition, offset in sorted(start.items())
        if latest.offsets.get(partition, offset) < offset
        # Where none was told when it was planned, nothing says that the leader is an old one.
        and (partition not in epochs or latest.epochs.get(partition, -1) > epochs[partition])
    }


def parted(read: Known, ends: Mapping[Partition, int]) -> Offsets:
    """Return from where on a log is another one than that which was read.

    `ends` says where each epoch in which something was read ends in the log of now.
    """
    return {p: end for p, end in ends.items() if end < read.offsets[p]}


def cuts_text(read: Known, cuts: Mapping[Partition, int]) -> Said:
    return {
        p: f"an election cut the log: from offset {cut} on, up to {read.offsets[p]}, are other "
        f"records now than leader epoch {read.epochs[p]} had"
        for p, cut in sorted(cuts.items())
    }


def vanished(start: Mapping[Partition, int], present: Iterable[Partition]) -> Said:
    there = set(present)
    return {partition: "no longer exists" for partition in sorted(start) if partition not in there}


def gaps_before(
    start: Mapping[Partition, int], earliest: Mapping[Partition, int], end: Mapping[Partition, int]
) -> Gaps:
    """Return what a batch from `start` to `end` lacks where the log begins later."""
    behind = {p: min(earliest.get(p, offset), end.get(p, offset)) for p, offset in start.items()}
    return {p: ((offset, behind[p]),) for p, offset in start.items() if offset < behind[p]}


def with_gaps(late: Gaps, more: Gaps) -> Gaps:
    """Return both; what adjoins is one gap."""
    merged: Gaps = {}
    for partition in sorted(late.keys() | more.keys()):
        pairs: list[tuple[int, int]] = []
        for first, behind in sorted((*late.get(partition, ()), *more.get(partition, ()))):
            if pairs and first <= pairs[-1][1]:
                pairs[-1] = pairs[-1][0], max(behind, pairs[-1][1])
            else:
                pairs.append((first, behind))
        merged[partition] = tuple(pairs)
    return merged


def epochs_at(
    start: Mapping[Partition, int],
    epochs: Mapping[Partition, int],
    end: Mapping[Partition, int],
    told: Mapping[Partition, int],
) -> Epochs:
    """Return the epoch in which each end was told: of one that did not move, the old one.

    So the text of an offset that stands is what it was, and Spark makes no batch of it.
    """
    sources = {p: epochs if start.get(p) == offset else told for p, offset in end.items()}
    return {p: source[p] for p, source in sources.items() if p in source}


def advance(
    start: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    latest: Mapping[Partition, int],
    rows_max: int | None,
) -> Offsets:
    """Return the end of the next batch that begins at `start`.

    It never moves a partition backwards, whatever the cluster says; a partition whose latest
    offset is unknown now (its leader is away) stays where it is. A partition that is new enters
    with its earliest offset, an empty range: so its beginning stands in Spark's offset log before
    the first record of it is read.
    """
    target = {
        partition: max(offset, latest.get(partition, offset)) for partition, offset in start.items()
    }
    end = target if rows_max is None else _limit(start, earliest, target, rows_max)
    for partition, offset in earliest.items():
        end.setdefault(partition, offset)
    assert all(end[partition] >= offset for partition, offset in start.items()), "moved backwards"
    return end


def _limit(
    start: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    target: Mapping[Partition, int],
    rows_max: int,
) -> Offsets:
    """Share `rows_max` among the partitions that have something, in proportion to how much.

    Each gets one before any gets more, so that a small partition is not starved by a large one.
    Where there are more of them than rows, they take turns, by name.
    Offsets that aged out already cost nothing: only what the log still holds counts.
    """
    assert rows_max > 0
    begin = {
        partition: min(max(offset, earliest.get(partition, offset)), target[partition])
        for partition, offset in start.items()
    }
    lag = {partition: target[partition] - offset for partition, offset in begin.items()}
    total = sum(lag.values())
    if total <= rows_max:
        return dict(target)
    waiting = sorted(p for p in lag if lag[p])
    if len(waiting) > rows_max:
        # What was read says whose turn it is: a batch adds `rows_max`, the next begins behind it.
        turn = sum(start.values()) % len(waiting)
        waiting = (waiting[turn:] + waiting[:turn])[:rows_max]
    busy = sorted(waiting, key=lambda p: (-lag[p], p))
    spare = rows_max - len(busy)
    rest = sum(lag[p] - 1 for p in busy)
    share = {p: 1 + (spare * (lag[p] - 1) // rest if rest else 0) for p in busy}
    left = rows_max - sum(share.values())
    for partition in busy[:left]:  # what rounding down left over, one each; fewer than len(busy)
        share[partition] += share[partition] < lag[partition]
    return {p: begin[p] + share[p] if p in share else start[p] for p in start}


def ranges(
    start: Mapping[Partition, int], end: Mapping[Partition, int], gaps: Gaps | None = None
) -> list[Range]:
    """Return the ranges to read between two offsets of one query; empty ones are left out.

    They begin behind the gaps that were known when `end` was planned.

    A partition that is not in `start` was pinned by this batch: nothing of it is due yet. An end
    before its start is what a replay of batch 0 gives under `latest`: nothing is due either.
    """
    begin = dict(start)
    for partition, pairs in (gaps or {}).items():
        for first, behind in pairs:
            if partition in begin and first <= begin[partition]:
                begin[partition] = max(begin[partition], behind)
    return [
        Range(partition, begin[partition], offset)
        for partition, offset in sorted(end.items())
        if begin.get(partition, offset) < offset
    ]
