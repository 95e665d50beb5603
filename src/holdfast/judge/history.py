"""The history of a run: one event is one JSON line. Owns the schema, the writing and the reading.

Every process of a run writes a file of its own, in the order in which things happened to it;
`merge` puts the files in the order of the monotonic clock, which all processes of one machine
share. This module must never open a file or read a clock: lines come in, lines go out.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import ClassVar

LINE_BYTES_MAX = 1 << 20


class HistoryError(ValueError):
    """A line that is no event. The last line of a killed process is not one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every event says: when (both clocks, milliseconds) and which process saw it."""

    KIND: ClassVar[str] = ""

    at_ms: float  # monotonic, to order events and to measure
    wall_ms: int  # since 1970, for people and for other machines' logs
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvent(Event):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(PartitionEvent):
    """A record is handed to the client. Its outcome follows under the same `id`."""

    KIND: ClassVar[str] = "send"

    id: str  # unique in the run: "<process>:<number>", the number rises with each send
    digest: str  # of the value's bytes
    size: int  # bytes of the value
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(PartitionEvent):
    """The cluster said that it has the record; `offset` is None where none is told (acks=0)."""

    KIND: ClassVar[str] = "acknowledged"

    id: str
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(PartitionEvent):
    """Certainly not in the log, and never will be (KAFKA.md 9, ambiguity rule)."""

    KIND: ClassVar[str] = "refused"

    id: str
    error: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(PartitionEvent):
    """The record may be in the log or not: a time-out, a lost connection, codes 6, 7, 20."""

    KIND: ClassVar[str] = "unknown"

    id: str
    error: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(PartitionEvent):
    """A reader received a record. `id` is None when the value carries none."""

    KIND: ClassVar[str] = "delivered"

    offset: int
    id: str | None
    digest: str
    key: str | None = None
    epoch: int | None = None  # the leader epoch in the record's batch
    committed_end: int | None = None  # the high watermark told in the same answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Position(PartitionEvent):
    """A reader's position was set, not reached by reading."""

    KIND: ClassVar[str] = "position"

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEnd(PartitionEvent):
    """The reader has received everything in [begin, end): a whole read, made after healing."""

    KIND: ClassVar[str] = "read_end"

    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBatch(PartitionEvent):
    """One record batch as it stands in one replica's files, after the nodes have settled."""

    KIND: ClassVar[str] = "replica_batch"

    node: int
    offset: int
    last_offset: int
    epoch: int
    digest: str  # of the batch's bytes, header included


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Event):
    """Something was done to a node: KILL, TERM, STOP, CONT, start; or it did: exit after TERM."""

    KIND: ClassVar[str] = "fault"

    action: str
    node: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange(PartitionEvent):
    """The cluster's metadata name another leader or epoch. -1: none."""

    KIND: ClassVar[str] = "leader"

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange(PartitionEvent):
    KIND: ClassVar[str] = "isr"

    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Event):
    """A sentence for the timeline."""

    KIND: ClassVar[str] = "note"

    text: str


_CLASSES: tuple[type[Event], ...] = (
    Send, Acknowledged, Refused, Unknown, Delivered, Position, ReadEnd, ReplicaBatch,
    Fault, LeaderChange, IsrChange, Note,
)  # fmt: skip
KINDS: dict[str, type[Event]] = {kind.KIND: kind for kind in _CLASSES}
assert len(KINDS) == len(_CLASSES), "two events share a name"

# What JSON gives for each annotation. bool is an int to Python, but never one of ours.
_SHAPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "int | None": (int, type(None)),
    "str | None": (str, type(None)),
    "tuple[int, ...]": (list,),
}
_TABLE: dict[str, tuple[type[Event], dict[str, tuple[type, ...]], frozenset[str]]] = {
    kind.KIND: (
        kind,
        {field.name: _SHAPES[str(field.type)] for field in fields(kind)},
        frozenset(field.name for field in fields(kind) if field.type == "tuple[int, ...]"),
    )
    for kind in _CLASSES
}
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)


def encode_event(event: Event) -> str:
    """One line, its end included."""
    assert event.KIND in KINDS, f"{type(event).__name__} is no event"
    row: dict[str, object] = {"event": event.KIND}
    for name in _TABLE[event.KIND][1]:
        value = getattr(event, name)
        if value is not None:
            row[name] = value
    return _encoder.encode(row) + "\n"


def decode_event(line: str) -> Event:
    """Raise HistoryError for anything that isn't one whole event."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise HistoryError(f"not JSON ({error}): {line[:120]!r}") from None
    if not isinstance(row, dict):
        raise HistoryError(f"not an object: {line[:120]!r}")
    kind = row.pop("event", None)
    found = _TABLE.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise HistoryError(f"unknown event {kind!r}: {line[:120]!r}")
    cls, shapes, lists = found
    for name, value in row.items():
        shape = shapes.get(name)
        if shape is None or type(value) not in shape:
            raise HistoryError(f"bad field {name!r} of {kind!r}: {line[:120]!r}")
    for name in lists & row.keys():
        if any(type(item) is not int for item in row[name]):
            raise HistoryError(f"bad field {name!r} of {kind!r}: {line[:120]!r}")
        row[name] = tuple(row[name])
    if kind == Acknowledged.KIND:
        row.setdefault("offset", None)
    elif kind == Delivered.KIND:
        row.setdefault("id", None)
    try:
        return cls(**row)
    except TypeError as error:
        raise HistoryError(f"{kind!r} is not whole ({error}): {line[:120]!r}") from None


def read_events(lines: Iterable[str], source: str = "history") -> Iterator[Event]:
    """Events of one process's file, in its order.

    A last line without its end is what a SIGKILL leaves, and is passed over; anything else that
    does not parse raises HistoryError naming `source` and the line.
    """
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        if len(line) > LINE_BYTES_MAX:
            raise HistoryError(f"{source}:{number}: line of {len(line)} characters")
        try:
            yield decode_event(line)
        except HistoryError as error:
            raise HistoryError(f"{source}:{number}: {error}") from None


def merge(*histories: Iterable[Event]) -> Iterator[Event]:
    """All events by the monotonic clock; events of one process keep their order."""
    return heapq.merge(*histories, key=attrgetter("at_ms"))
