"""The history of a run: one event is one JSON line. Owns the schema, the writing and the reading.

Every process of a run writes a file of its own, in the order in which things happened to it;
`merge` puts the files in the order of the monotonic clock, which all processes of one machine
share. This module must never open a file or read a clock: lines come in, lines go out.

A new field has a default, and a new kind of event excuses nothing by being absent, so that
histories that were written before can still be judged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, islice
from math import inf
from typing import Annotated, ClassVar

import msgspec

LINE_BYTES_MAX = 1 << 20
NO_TIMESTAMP = -1
RUN_EVENTS = 4096  # that are handed on together

Offset = Annotated[int, msgspec.Meta(ge=0)]


class HistoryError(ValueError):
    """A line that is no event. The last line of a killed process is not one of these."""


class Event(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    gc=False,  # nothing in an event can be part of a cycle
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="event",
):
    """What every event says: when (both clocks, milliseconds) and which process saw it."""

    KIND: ClassVar[str] = ""  # the tag, for whoever counts or prints

    at_ms: float  # monotonic, to order events and to measure
    wall_ms: int  # since 1970, for people, other machines' logs, and retention
    process: str


class PartitionEvent(Event, kw_only=True, frozen=True):
    topic: str
    partition: Offset


class Expected(PartitionEvent, kw_only=True, frozen=True, tag="expected"):
    """This partition belongs to the run: without a whole read of it nothing is decided."""


class Retention(PartitionEvent, kw_only=True, frozen=True, tag="retention"):
    """From now on the log's beginning may go by this policy, and by no earlier one.

    Written by whoever configures it: before a policy is asked for that lets more go, and after one
    that lets less go is in force everywhere. None: nothing goes by that.
    """

    retention_ms: Offset | None = None
    retention_bytes: Offset | None = None


class Compaction(PartitionEvent, kw_only=True, frozen=True, tag="compaction"):
    """From now on a record may be gone once a later one of its key is committed.

    Written by whoever configures it: before a topic gets that policy, and, with `is_on` false,
    after one without it is in force everywhere. Of deleted keys it says nothing: the last record of
    a key stays.
    """

    is_on: bool = True


class DeleteRecords(PartitionEvent, kw_only=True, frozen=True, tag="delete_records"):
    """Somebody is about to ask for all before `offset` to be deleted, by name.

    Written before the request. "All that is committed" (-1) must be asked for by its number.
    """

    offset: Offset


class DeletionRefused(PartitionEvent, kw_only=True, frozen=True, tag="deletion_refused"):
    """What this process asked for last with `delete_records` and this offset was refused.

    For certain: nothing was deleted, and nothing will be.
    """

    offset: Offset


class Send(PartitionEvent, kw_only=True, frozen=True, tag="send"):
    """A record is handed to the client. Its outcome follows under the same `id`."""

    id: str  # unique in the run: "<process>:<number>", the number rises with each send
    digest: str  # of the value's bytes, and of the headers where there are any
    size: int  # bytes of the value
    key: str | None = None
    # The record's timestamp: None: the time of sending, `wall_ms`; NO_TIMESTAMP: it carries none,
    # so the time of the file that it is in counts; else this.
    timestamp: int | None = None


class Acknowledged(PartitionEvent, kw_only=True, frozen=True, tag="acknowledged"):
    """The cluster said that it has the record; `offset` is None where none is told (acks=0)."""

    id: str
    offset: Offset | None = None


class Refused(PartitionEvent, kw_only=True, frozen=True, tag="refused"):
    """Certainly not in the log, and never will be (rules: errors.md#ambiguous-outcomes)."""

    id: str
    error: str
    message: str = ""


class Unknown(PartitionEvent, kw_only=True, frozen=True, tag="unknown"):
    """The record may be in the log or not: a time-out, a lost connection, codes 6, 7, 20."""

    id: str
    error: str
    message: str = ""


class Delivered(PartitionEvent, kw_only=True, frozen=True, tag="delivered"):
    """A reader received a record. `id` is None when the value carries none."""

    offset: Offset
    id: str | None = None
    digest: str
    key: str | None = None
    # The record's own; NO_TIMESTAMP: it carries none. None: nothing was told, or it is a broker's.
    timestamp: int | None = None
    epoch: int | None = None  # the leader epoch in the record's batch
    committed_end: int | None = None  # the high watermark told in the same answer


class Position(PartitionEvent, kw_only=True, frozen=True, tag="position"):
    """A reader's position was set, not reached by reading."""

    offset: int
    reason: str
    # The cluster said so: here its log begins, or the reader's position is none. It is held to that
    # later. False: the reader's own wish, which needs no cause.
    told: bool = False


class ReadEnd(PartitionEvent, kw_only=True, frozen=True, tag="read_end"):
    """The reader has received everything in [begin, end): a whole read, made after healing."""

    begin: Offset
    end: Offset
    # When `end` was asked for, on the clock of `at_ms`. What is acknowledged later may be missing.
    # None (an old history): when this reader first wrote anything of the partition.
    asked_ms: float | None = None


class Replica(PartitionEvent, kw_only=True, frozen=True, tag="replica"):
    """One replica as its files are after the nodes have settled: it holds [begin, end).

    Written also where it holds nothing. Its batches follow as events of their own.
    """

    node: int
    begin: Offset
    end: Offset


class ReplicaBatch(PartitionEvent, kw_only=True, frozen=True, tag="replica_batch"):
    """One record batch as it stands in one replica's files."""

    node: int
    offset: Offset
    last_offset: Offset
    epoch: int
    digest: str  # of the batch's bytes, header included
    size: int = 0  # of those bytes; 0: an old history, which excuses nothing by size


class ReplicaRecord(PartitionEvent, kw_only=True, frozen=True, tag="replica_record"):
    """One record as it stands in one replica's files, of a partition that replicas compact.

    Its fields are those of a delivery: a replica's word is held against what readers were given.
    """

    node: int
    offset: Offset
    epoch: int
    id: str | None = None
    digest: str
    key: str | None = None
    timestamp: int | None = None


class Fault(Event, kw_only=True, frozen=True, tag="fault"):
    """Done to a node: KILL, TERM, STOP, CONT, start, DISK, CUT, HEAL; or by it: exit after TERM.

    DISK: a part of what its disks held is gone, as `detail` says. It was dead then.
    CUT: it can't reach others any more, as `detail` says, until HEAL.
    """

    action: str
    node: int
    detail: str = ""


class LeaderChange(PartitionEvent, kw_only=True, frozen=True, tag="leader"):
    """The cluster's metadata name another leader or epoch. -1: none.

    Of two brokers one may be behind, so whoever looks leaves out an earlier epoch of another one.
    One that is written down was named by a broker that had named a later one, or to the end.
    """

    leader: int
    epoch: int


class IsrChange(PartitionEvent, kw_only=True, frozen=True, tag="isr"):
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class LeaderClaim(PartitionEvent, kw_only=True, frozen=True, tag="claim"):
    """A broker that is cut off was asked alone: whom it takes for the leader now, -1 for nobody."""

    node: int
    leader: int
    epoch: int


class LinkChange(Event, kw_only=True, frozen=True, tag="link"):
    """What is so from now on between places of a network, each pair from one to another."""

    pairs: tuple[tuple[str, str], ...]
    state: str  # CUT or WHOLE


class Note(Event, kw_only=True, frozen=True, tag="note"):
    """A sentence for the timeline."""

    text: str


_AnyEvent = (
    Expected | Retention | Compaction | DeleteRecords | DeletionRefused | Send | Acknowledged
    | Refused | Unknown | Delivered | Position | ReadEnd | Replica | ReplicaBatch | ReplicaRecord
    | Fault | LeaderChange | IsrChange | LeaderClaim | LinkChange | Note
)  # fmt: skip
_CLASSES: tuple[type[Event], ...] = _AnyEvent.__args__
KINDS: dict[str, type[Event]] = {}
for _kind in _CLASSES:
    _tag = _kind.__struct_config__.tag
    assert isinstance(_tag, str)
    assert _tag not in KINDS, "two events share a name"
    _kind.KIND = _tag
    KINDS[_tag] = _kind

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_AnyEvent)


def encode_event(event: Event) -> str:
    """One line, its end included."""
    assert event.KIND in KINDS, f"{type(event).__name__} is no event"
    return _encoder.encode(event).decode() + "\n"


def decode_event(line: str | bytes) -> Event:
    """Raise HistoryError for anything that isn't one whole event."""
    try:
        return _decoder.decode(line)
    except DECODE_ERRORS as error:
        raise HistoryError(f"no event ({error}): {line[:120]!r}") from None


def read_events(
    lines: Iterable[bytes], source: str = "history", first_line: int = 1
) -> Iterator[Event]:
    """Events of one process's file, in its order.

    A last line without its end is what a SIGKILL leaves, and is passed over; anything else that
    does not parse raises HistoryError naming `source` and the line.
    """
    decode = _decoder.decode
    for number, line in enumerate(lines, start=first_line):
        if not line.endswith(b"\n"):
            return
        if len(line) > LINE_BYTES_MAX:
            raise HistoryError(f"{source}:{number}: line of {len(line)} bytes")
        try:
            event = decode(line)
        except DECODE_ERRORS as error:
            raise HistoryError(f"{source}:{number}: no event ({error}): {line[:120]!r}") from None
        yield event


def read_runs(blocks: Iterable[bytes], source: str = "history") -> Iterator[list[Event]]:
    """As `read_events`, of a file that comes in blocks, cut anywhere. Three times as fast."""
    rest, number = b"", 0
    for block in blocks:
        lines, end, rest = (rest + block).rpartition(b"\n")
        count = lines.count(b"\n") + 1 if end else 0
        if len(rest) > LINE_BYTES_MAX:
            raise HistoryError(f"{source}:{number + count + 1}: line without an end")
        if not count:
            continue
        try:
            events = _decoder.decode_lines(lines)
        except DECODE_ERRORS:
            events = []
        if len(events) == count:
            yield events
        else:  # line by line, to say which
            each = (line + b"\n" for line in lines.split(b"\n"))
            yield from ([event] for event in read_events(each, source, number + 1))
        number += count


def in_runs(events: Iterable[Event], length: int = RUN_EVENTS) -> Iterator[list[Event]]:
    """Cut a history into runs."""
    rest = iter(events)
    while run := list(islice(rest, length)):
        yield run


def merge(*histories: Iterable[Event]) -> Iterator[Event]:
    """All events by the monotonic clock; events of one process keep their order."""
    return chain.from_iterable(merge_runs(*map(in_runs, histories)))


def merge_runs(*histories: Iterable[list[Event]]) -> Iterator[list[Event]]:
    """As `merge`, of histories that come in runs; runs come out."""
    sources = [_Source(iter(history)) for history in histories]
    while True:
        for source in sources:
            source.fill()
        end_ms = min((source.moments[-1] for source in sources if source.has_more), default=inf)
        events: list[Event] = []
        moments: list[float] = []
        is_before = True  # no source whose next event may be of that moment, too
        for source in sources:
            is_before = source.take(end_ms, is_before, events, moments)
        if not events:
            return
        # Of one moment, the first source's come first: so they stand, and sorting leaves them so.
        order = sorted(range(len(events)), key=moments.__getitem__)
        yield [events[index] for index in order]


def later(one_ms: float, other_ms: float) -> float:
    return other_ms if other_ms > one_ms else one_ms  # noqa: FURB136 - `max` takes three times as long


class _Source:
    """What was read of one history and is not merged yet."""

    def __init__(self, runs: Iterator[list[Event]]) -> None:
        self._runs = runs
        self._events: list[Event] = []
        self.moments: list[float] = []  # of each: the latest of all up to it, since order is kept
        self._latest_ms = -inf
        self.has_more = True

    def fill(self) -> None:
        """Read on where nothing is left."""
        while not self._events and self.has_more:
            run = next(self._runs, None)
            if run is None:
                self.has_more = False
                return
            moments = [event.at_ms for event in run]
            if moments[0] < self._latest_ms or moments != sorted(moments):
                moments[0] = max(moments[0], self._latest_ms)
                moments = list(accumulate(moments, later))
            self._latest_ms = moments[-1]
            self._events, self.moments = run, moments

    def take(
        self, end_ms: float, may_equal: bool, events: list[Event], moments: list[float]
    ) -> bool:
        """Hand over what is certain to come before all that nobody has read yet.

        That is what is before `end_ms`, and what is at it if no source before this one can have
        more of that. Return whether it is so for the next one.
        """
        cut = bisect_right if may_equal else bisect_left
        count = cut(self.moments, end_ms)
        events += self._events[:count]
        moments += self.moments[:count]
        goes_on = self.has_more and self.moments[-1] == end_ms
        del self._events[:count], self.moments[:count]
        return may_equal and not goes_on
