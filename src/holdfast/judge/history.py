"""The history of a run: one event is one JSON line. Owns the schema, the writing and the reading.

Every process of a run writes a file of its own, in the order in which things happened to it;
`merge` puts the files in the order of the monotonic clock, which all processes of one machine
share. This module must never open a file or read a clock: lines come in, lines go out.

A new field has a default, and a new kind of event excuses nothing by being absent, so that
histories that were written before can still be judged.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

import msgspec

LINE_BYTES_MAX = 1 << 20
NO_TIMESTAMP = -1

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


class Fault(Event, kw_only=True, frozen=True, tag="fault"):
    """Done to a node: KILL, TERM, STOP, CONT, start, DISK; or done by it: exit after TERM.

    DISK: a part of what its disks held is gone, as `detail` says. It was dead then.
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


class Note(Event, kw_only=True, frozen=True, tag="note"):
    """A sentence for the timeline."""

    text: str


_AnyEvent = (
    Expected | Retention | DeleteRecords | DeletionRefused | Send | Acknowledged | Refused
    | Unknown | Delivered | Position | ReadEnd | Replica | ReplicaBatch | Fault | LeaderChange
    | IsrChange | Note
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


def read_blocks(blocks: Iterable[bytes], source: str = "history") -> Iterator[Event]:
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
            yield from events
        else:  # line by line, to say which
            each = (line + b"\n" for line in lines.split(b"\n"))
            yield from read_events(each, source, number + 1)
        number += count


def merge(*histories: Iterable[Event]) -> Iterator[Event]:
    """All events by the monotonic clock; events of one process keep their order.

    Events of one file often come in runs, so each is taken as far as the next file lets it.
    """
    heap: list[tuple[float, int, Event, Iterator[Event]]] = []
    for number, history in enumerate(histories):
        events = iter(history)
        first = next(events, None)
        if first is not None:
            heap.append((first.at_ms, number, first, events))
    heapq.heapify(heap)
    while len(heap) > 1:
        _, number, event, events = heap[0]
        second = heap[1]
        if len(heap) > 2 and heap[2] < second:  # of a heap the second is one of these
            second = heap[2]
        limit_ms, limit_number = second[0], second[1]
        while True:
            yield event
            following = next(events, None)
            if following is None:
                heapq.heappop(heap)
                break
            event, at_ms = following, following.at_ms
            if at_ms > limit_ms or (at_ms == limit_ms and number > limit_number):
                heapq.heapreplace(heap, (at_ms, number, event, events))
                break
    for _, _, event, events in heap:
        yield event
        yield from events
