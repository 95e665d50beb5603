"""What members of a group write down, and whoever runs them. Owns the schema of these events.

They stand in the same files as the events of `judge.history`, by the same clock. A member writes in
the order in which things happen to it. `Processed` is on disk before a commit that covers it is
sent, and `CommitAsked` before its request: else a SIGKILL makes losses of what was done.

`begin_ms` is when something began on the clock of `at_ms`, which is when it ended; None: at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.judge.history import (
    DECODE_ERRORS,
    KINDS,
    LINE_BYTES_MAX,
    Event,
    HistoryError,
    Offset,
)


class GroupEvent(Event, kw_only=True, frozen=True):
    group: str


class GroupPartitionEvent(GroupEvent, kw_only=True, frozen=True):
    topic: str
    partition: Offset


class MemberEvent(GroupPartitionEvent, kw_only=True, frozen=True):
    """Of one member and one partition. A member id is unique in the run, as Kafka makes them."""

    member: str


class GroupExpected(GroupEvent, kw_only=True, frozen=True, tag="group_expected"):
    """This group belongs to the run and reads these topics; what it holds is judged.

    `silence_ms`: who tells the coordinator nothing for so long may be thrown out, and who was
    thrown out hears of it in so long: the session's time-out, or the poll interval if it is longer.
    `looks_may_lag`: who owns nothing may be told, for a while, what was committed before: Apache
    Kafka's coordinator tells what is below its high watermark, which lags behind a fail-over.
    """

    topics: tuple[str, ...]
    silence_ms: float
    looks_may_lag: bool = False


class Joined(GroupEvent, kw_only=True, frozen=True, tag="group_joined"):
    """The coordinator told a member its generation (classic) or member epoch (KIP-848)."""

    member: str
    epoch: Offset


class Left(GroupEvent, kw_only=True, frozen=True, tag="group_left"):
    """A member goes by itself: from here on it processes nothing. Written before it asks."""

    member: str


class Assigned(MemberEvent, kw_only=True, frozen=True, tag="group_assigned"):
    """A member was told that it owns a partition from now on."""

    epoch: Offset  # the generation, or the member's epoch
    instance: str | None = None  # `group.instance.id`


class Started(MemberEvent, kw_only=True, frozen=True, tag="group_started"):
    """A new owner has asked for the committed offset, was told, and has set its position.

    `begin_ms` is when it asked. Where `offset` is not what was committed, `reset` says by which
    policy it was found: "earliest", or any other.
    """

    committed: Offset | None  # None: nothing was committed
    offset: Offset
    reset: str = ""
    begin_ms: float | None = None


class Revoked(MemberEvent, kw_only=True, frozen=True, tag="group_revoked"):
    """A member has given a partition up, or (`lost`) was told that it is gone already.

    Written when nothing of it is processed any more, and before the coordinator is told.
    """

    lost: bool = False


class Processed(MemberEvent, kw_only=True, frozen=True, tag="group_processed"):
    """A member has done what it does with a record. In the order of the offsets."""

    offset: Offset
    id: str | None = None
    begin_ms: float | None = None


class CommitEvent(GroupPartitionEvent, kw_only=True, frozen=True):
    id: str  # of the commit, unique in the run


class CommitAsked(CommitEvent, kw_only=True, frozen=True, tag="group_commit"):
    """An offset is about to be committed. Without a member: by an operator, who may move it."""

    offset: Offset | None  # the next to be read; None: the operator removes it
    member: str = ""
    epoch: int = -1


class CommitAcknowledged(CommitEvent, kw_only=True, frozen=True, tag="group_committed"):
    """The coordinator said that it has it."""


class CommitRefused(CommitEvent, kw_only=True, frozen=True, tag="group_commit_refused"):
    """Certainly without any effect, ever."""

    error: str


class CommitUnknown(CommitEvent, kw_only=True, frozen=True, tag="group_commit_unknown"):
    """It may take effect, now or later, or not."""

    error: str


class CommittedSeen(GroupPartitionEvent, kw_only=True, frozen=True, tag="group_seen"):
    """Somebody who owns nothing asked what is committed, and was told. None: nothing is."""

    offset: Offset | None
    begin_ms: float | None = None


def began_ms(event: Started | Processed | CommittedSeen) -> float:
    """Return when it began; a clock that went back is taken for its end."""
    return event.at_ms if event.begin_ms is None else min(event.begin_ms, event.at_ms)


class ConsumerFault(Event, kw_only=True, frozen=True, tag="consumer_fault"):
    """Something was done to the process `consumer` of members; `process` is who did it.

    KILL, STOP, CUT (from its coordinator), SLOW (it processes for longer than it may): written
    before it is done. CONT and HEAL, after which it is as before: written once they are done.
    """

    consumer: str
    action: str


class CalmBegan(GroupEvent, kw_only=True, frozen=True, tag="group_calm"):
    """From here on nothing is broken: no partition may wait for longer than `stuck_ms`.

    Any `fault` or `consumer_fault` ends it, too.
    """

    stuck_ms: float


class CalmEnded(GroupEvent, kw_only=True, frozen=True, tag="group_calm_ended"):
    pass


_Group = (
    GroupExpected | Joined | Left | Assigned | Started | Revoked | Processed | CommitAsked
    | CommitAcknowledged | CommitRefused | CommitUnknown | CommittedSeen | ConsumerFault
    | CalmBegan | CalmEnded
)  # fmt: skip
_CLASSES: tuple[type[Event], ...] = _Group.__args__
GROUP_KINDS: dict[str, type[Event]] = {}
for _kind in _CLASSES:
    _tag = _kind.__struct_config__.tag
    assert isinstance(_tag, str)
    assert _tag not in KINDS | GROUP_KINDS, "two events share a name"
    _kind.KIND = _tag
    GROUP_KINDS[_tag] = _kind

_encoder = msgspec.json.Encoder()
_any = _Group
for _other in KINDS.values():
    _any |= _other
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_any)


def encode_any(event: Event) -> str:
    """Return one line, its end included, of an event of a group or of any other."""
    assert event.KIND in GROUP_KINDS or event.KIND in KINDS, f"{type(event).__name__} is no event"
    return _encoder.encode(event).decode() + "\n"


def decode_any(line: str | bytes) -> Event:
    """Raise HistoryError for anything that isn't one whole event."""
    try:
        return _decoder.decode(line)
    except DECODE_ERRORS as error:
        raise HistoryError(f"no event ({error}): {line[:120]!r}") from None


def read_any_runs(blocks: Iterable[bytes], source: str = "history") -> Iterator[list[Event]]:
    """As `judge.history.read_runs`, of files in which events of groups stand, too."""
    rest, number = b"", 0
    for block in blocks:
        lines, end, rest = (rest + block).rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            which = number + lines.count(b"\n") + len(end) + 1
            raise HistoryError(f"{source}:{which}: line without an end")
        if not end:
            continue
        try:
            yield _decoder.decode_lines(lines)
        except DECODE_ERRORS as error:
            which = _bad_line(lines, number + 1)
            raise HistoryError(f"{source}:{which}: no event ({error})") from None
        number += lines.count(b"\n") + 1


def _bad_line(lines: bytes, first: int) -> int:
    for number, line in enumerate(lines.split(b"\n"), start=first):
        try:
            _decoder.decode(line)
        except DECODE_ERRORS:
            return number
    return first
