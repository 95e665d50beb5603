"""What becomes of one batch in a round: its records that stay, its delete horizon, its new header.

Owns the bytes of a batch that lost records. What it loses nothing from stays as it lies there. A
batch that nobody can read stays whole, whatever is in it: it was acknowledged. Bodies are inflated,
walked and compressed in steps, so that one of a hundred megabytes holds up nobody.

Rules: compaction.md#which-records-stay, compaction.md#a-batch-that-lost-records,
compaction.md#delete-horizon, compaction.md#a-batch-that-nobody-can-read.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from holdfast.runtime.ports import Buffer
from holdfast.runtime.sliced_work import BYTES_A_SLICE, HOLD, Effort, Steps, inflated
from holdfast.wire.batch_header import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    NO_TIMESTAMP,
    BatchHeader,
    assign_max_timestamp,
)
from holdfast.wire.compression import compress
from holdfast.wire.errors import WireError
from holdfast.wire.walker.python_walker import INT64_MAX, INT64_MIN
from holdfast.wire.walker.record_compaction import (
    NOT_ENTERED,
    PROBLEMS,
    Compactor,
    Entered,
    Kept,
    KeyMap,
    Numbers,
    enter_on,
    keep_on,
    new_room,
    nothing_kept,
    room_for,
)

HORIZON: Final = 0x40
"""In a batch's attributes: its base timestamp is the time from which its tombstones may go."""

_AT_ONCE: Final = 1 << 62  # of steps: whoever works beside the loop need not stop
_COMPRESSED_INLINE_BYTES: Final = 16 * 1024  # the slowest codec takes half a millisecond for them
_ROOM_BYTES: Final = 1 << 20  # more than this is copied into memory of its own
_COPIED_MAX: Final = 1 << 20  # Python reads bytes faster than views


class UnreadableBatchError(Exception):
    """A batch's records can't be read; the message says why."""


class Rules:
    """What holds for all batches of a round."""

    __slots__ = (
        "bound",
        "compactor",
        "drops",
        "horizon_ms",
        "inflated_max",
        "key_map",
        "now_ms",
        "room",
        "start",
        "steps",
    )

    def __init__(
        self,
        compactor: Compactor,
        key_map: KeyMap,
        *,
        start: int,
        now_ms: int,
        delete_retention_ms: int,
        inflated_max: int,
        is_aside: bool,
    ) -> None:
        """`is_aside`: the work is done beside the loop, so nobody waits for a slice to end."""
        self.compactor = compactor
        self.key_map = key_map
        self.start = start  # keys are entered from this offset on
        self.bound = start  # the map knows what lies between; the first pass moves it
        self.now_ms = now_ms
        self.horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)
        self.inflated_max = inflated_max
        self.steps = _AT_ONCE if is_aside else compactor.steps_a_slice
        # Tombstones and markers may go whose time has come. Not behind a batch that nobody can
        # read: it may have the record that they delete.
        self.drops = True
        self.room = new_room(_ROOM_BYTES)  # used again and again

    def may_drop(self, header: BatchHeader) -> bool:
        """Whether the tombstones of a batch, or its marker, have been there for long enough."""
        return self.drops and has_horizon(header) and header.base_timestamp <= self.now_ms

    def numbers(self, header: BatchHeader) -> Numbers:
        return Numbers(
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            self.start,
            self.bound,
            self.may_drop(header),
        )


class Rewritten(NamedTuple):
    """What stays of a batch."""

    data: Buffer | None  # None: all of it, as it is
    header: BatchHeader
    keyless: int = 0  # records that went because they have no key

    @property
    def is_gone(self) -> bool:
        """Whether no record of it stays."""
        return not self.header.record_count


def has_horizon(header: BatchHeader) -> bool:
    return bool(header.attributes & HORIZON)


def emptied(header: BatchHeader) -> Rewritten:
    """Return a batch without records, which says who wrote it, and up to where."""
    kept = header.attributes & ~(CODEC_MASK | HORIZON)
    bare = header._replace(attributes=kept, base_timestamp=NO_TIMESTAMP, record_count=0)
    return _finished(bare, bytearray(HEADER_SIZE))


def enter_keys(
    data: memoryview, header: BatchHeader, rules: Rules, effort: Effort
) -> Steps[int | None]:
    """Enter a batch's keys. Returns the offset of the first one for which there is no room.

    UnreadableBatchError: it has none that anybody can read, and none is entered.
    """
    body = yield from _body(data, header, rules, effort)
    numbers = rules.numbers(header)
    # All of it is looked at before any of it counts: an older record must not go for one that
    # nobody can read.
    for key_map in (None, rules.key_map):
        entered = NOT_ENTERED
        while entered.records < header.record_count and entered.position < len(body):
            left = header.record_count - entered.records
            entered = enter_on(rules.compactor, body, entered, numbers, key_map, left, rules.steps)
            if entered.is_full:
                return _offset_at(body, entered, header, rules)
            if _count(entered, header, rules, effort):
                yield HOLD
                effort.spent = 0
        _check_whole(entered, header, body)
    return None


def filter_batch(
    data: memoryview, header: BatchHeader, rules: Rules, effort: Effort
) -> Steps[Rewritten]:
    """Return what stays of a batch of records. UnreadableBatchError: all of it does."""
    body = yield from _body(data, header, rules, effort)
    numbers = rules.numbers(header)
    kept, room = yield from _copied(body, header, numbers, 0, rules, effort)
    if not kept.kept:
        return emptied(header)._replace(keyless=kept.keyless)
    if kept.tombstones and not has_horizon(header):
        return (yield from _stamped(body, header, numbers, rules, effort))
    if kept.kept == header.record_count:
        return Rewritten(None, header)
    return (yield from _packed(kept, room, header, effort))


def stamp_marker(
    data: memoryview, header: BatchHeader, rules: Rules, effort: Effort
) -> Steps[Rewritten]:
    """Return a marker's batch with the time from which it may go.

    UnreadableBatchError: there is no marker in it.
    """
    body = yield from _body(data, header, rules, effort)
    numbers = rules.numbers(header)._replace(bound=header.base_offset)  # it has no key of anybody's
    return (yield from _stamped(body, header, numbers, rules, effort))


def _body(data: memoryview, header: BatchHeader, rules: Rules, effort: Effort) -> Steps[Buffer]:
    """Return the records of a batch, whose CRC is right, as they are when inflated."""
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise UnreadableBatchError(
            f"{header.record_count} records can't have {header.last_offset_delta + 1} offsets"
        )
    packed = data[HEADER_SIZE:]
    if not header.codec:
        effort.spent += len(packed) / BYTES_A_SLICE
        is_copied = not rules.compactor.is_native and len(packed) <= _COPIED_MAX
        return bytes(packed) if is_copied else packed
    try:
        return (yield from inflated(header.codec, packed, rules.inflated_max, effort))
    except WireError as error:
        raise UnreadableBatchError(str(error)) from error


def _count(at: Entered | Kept, header: BatchHeader, rules: Rules, effort: Effort) -> bool:
    """Count the steps that were made. True: they were enough, and there are more to be made."""
    if at.problem:
        raise UnreadableBatchError(f"record {at.records}: {PROBLEMS[at.problem]}")
    effort.spent += at.steps / rules.compactor.steps_a_slice
    return effort.is_over and at.records < header.record_count


def _check_whole(at: Entered | Kept, header: BatchHeader, body: Buffer) -> None:
    if at.records != header.record_count:
        raise UnreadableBatchError(
            f"{at.records} records where its header counts {header.record_count}"
        )
    if at.position != len(body):
        raise UnreadableBatchError(f"{len(body) - at.position} bytes behind its last record")


def _offset_at(body: Buffer, entered: Entered, header: BatchHeader, rules: Rules) -> int:
    """Return the offset of the record before which the keys were entered no further."""
    numbers = rules.numbers(header)
    behind = enter_on(rules.compactor, body, entered, numbers, None, 1, _AT_ONCE)
    return header.base_offset + behind.previous


def _copied(
    body: Buffer, header: BatchHeader, numbers: Numbers, shift: int, rules: Rules, effort: Effort
) -> Steps[tuple[Kept, memoryview]]:
    """Copy what stays, behind the place of a header."""
    size = HEADER_SIZE + room_for(len(body), header.record_count, shifted=bool(shift))
    room = rules.room if size <= len(rules.room) else new_room(size)
    kept = nothing_kept(HEADER_SIZE)
    while kept.records < header.record_count and kept.position < len(body):
        kept = keep_on(
            rules.compactor, body, kept, numbers, rules.key_map,
            header.record_count - kept.records, rules.steps, room, shift=shift,
        )  # fmt: skip
        if _count(kept, header, rules, effort):
            yield HOLD
            effort.spent = 0
    _check_whole(kept, header, body)
    return kept, room


def _stamped(
    body: Buffer, header: BatchHeader, numbers: Numbers, rules: Rules, effort: Effort
) -> Steps[Rewritten]:
    """Copy what stays once more, its timestamps counted from the delete horizon."""
    shift = header.base_timestamp - rules.horizon_ms
    if shift < INT64_MIN:
        shift += 1 << 64  # as the sum with each delta wraps
    kept, room = yield from _copied(body, header, numbers, shift, rules, effort)
    stamped = header._replace(
        attributes=header.attributes | HORIZON, base_timestamp=rules.horizon_ms
    )
    return (yield from _packed(kept, room, stamped, effort))


def _packed(kept: Kept, room: memoryview, header: BatchHeader, effort: Effort) -> Steps[Rewritten]:
    """Return a batch of what was copied, compressed as it was."""
    body = room[HEADER_SIZE : kept.filled]
    header = header._replace(record_count=kept.kept)
    if not header.is_log_append_time:
        header = header._replace(max_timestamp=kept.largest)
    if not header.codec:
        return _finished(header, bytearray(room[: kept.filled]), kept.keyless)
    if len(body) <= _COMPRESSED_INLINE_BYTES:
        effort.spent += len(body) / _COMPRESSED_INLINE_BYTES
        packed = compress(header.codec, bytes(body))
    else:
        packed = yield partial(compress, header.codec, bytes(body))
        effort.spent = 0
    batch = bytearray(HEADER_SIZE)
    batch += packed
    return _finished(header, batch, kept.keyless)


def _finished(header: BatchHeader, batch: bytearray, keyless: int = 0) -> Rewritten:
    """Write a header in front of a batch's body; length and CRC are made anew."""
    header = header._replace(batch_length=len(batch) - LENGTH_END)
    HEADER.pack_into(batch, 0, *header)
    assign_max_timestamp(batch, header.max_timestamp)  # which corrects the CRC
    return Rewritten(batch, header, keyless)
