"""What compaction may take of one partition, and whether it took anything else.

Owns what was written: each record as its leader appended it, and of which records somebody has seen
that a later one of their key has replaced them. To the rest of the oracle a replica holds what was
appended to it, compacted or not: what its files lack is filled in here, once it is known to be gone
rightly. So a record may be missing if a later one with its key was committed in the same log, or,
where it deletes its key, if its time has come and no older record of the key is left. All that is
there is what was written at its offset. What a broker says of itself allows nothing.

Rules: compaction.md#which-records-stay, compaction.md#delete-horizon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Final, NamedTuple
from zlib import crc32

from holdfast.testing.simulation.chain import Chain, Entry, Name
from holdfast.wire.batch import read_records
from holdfast.wire.batch_header import BatchHeader, Buffer, batches

_CLOCKS_MS: Final = 20_000  # by so much the clocks of nodes may be apart


class Said(NamedTuple):
    """One record."""

    offset: int
    key: bytes | None
    value: int | None  # None: it deletes its key
    timestamp: int
    id: str


class Stored(NamedTuple):
    """A batch as it lies in a file, or came from a leader."""

    entry: Entry
    header: BatchHeader
    records: Sequence[Said]


@dataclass(slots=True)
class _Written:
    """A batch as it was appended first."""

    entry: Entry
    records: Sequence[Said]
    at_ms: float


def stored(data: Buffer) -> list[Stored]:
    """Read whole batches."""
    view = memoryview(data)
    found = []
    for position, header in batches(view):
        entry = Entry(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
        said = [
            Said(
                one.offset,
                one.key,
                None if one.value is None else crc32(one.value),
                one.timestamp,
                (one.value or b"").split(b"|", 1)[0].decode("ascii", "replace"),
            )
            for one in read_records(view[position : position + header.size])
        ]
        found.append(Stored(entry, header, said))
    return found


@dataclass(slots=True)
class Compacted:
    """Of one partition whose topic is compacted."""

    known: Mapping[Name, tuple[Entry, Name | None]]  # each batch, and the one before it
    counts: Counter[str]
    retention_ms: Callable[[], float]
    now_ms: Callable[[], float]
    # (leader epoch, offset) of records that a later one has replaced, and of those that deleted
    # their keys, and whose time had come.
    taken: set[Name] = field(default_factory=set)
    forgotten: set[Name] = field(default_factory=set)
    _written: dict[Name, _Written] = field(default_factory=dict)
    _places: dict[str, list[Name]] = field(default_factory=dict)  # of each id

    def wrote(self, records: Buffer) -> None:
        """A leader has appended this."""
        for one in stored(records):
            epoch = one.entry.epoch
            self._written.setdefault(
                one.entry.name, _Written(one.entry, one.records, self.now_ms())
            )
            for said in one.records:
                if said.value is not None:
                    self._places.setdefault(said.id, []).append((epoch, said.offset))

    def is_taken(self, record_id: str) -> bool:
        """Whether a record with this id was replaced by a later one, somewhere."""
        return any(place in self.taken for place in self._places.get(record_id, ()))

    def logical(self, before: Entry | None, entry: Entry, start: int) -> list[Entry]:
        """Return what a log holds that goes on with `entry` behind `before`, as it was appended.

        Batches that were compacted away come first. Nothing is said of those before `start`.
        """
        known = self.known.get(entry.name)
        if known is None:
            return [entry]
        original, behind = known
        if (original.base, original.last) != (entry.base, entry.last):
            return [entry]  # which is told of by whoever knows both
        run = [original]
        while behind is not None and (before is None or behind != before.name):
            found, further = self.known[behind]
            if found.last < start or (before is not None and found.base <= before.last):
                break
            run.append(found)
            behind = further
        return run[::-1]

    def check(
        self,
        chain: Chain,
        found: Iterable[Stored],
        bounds: tuple[int, int],
        committed: float,
        never: set[Name],
        *,
        is_fetched: bool,
    ) -> str:
        """Hold what is stored between two offsets against what was appended: "", or what is wrong.

        `committed`: below it a later record replaces an earlier one. `never`: deletions that this
        replica never had, since its leader had forgotten them when they were fetched.
        """
        there = {one.entry.name: one for one in found}
        low, high = bounds
        latest = cache(lambda: self._latest(chain, committed))  # few ask for it
        first: dict[bytes | None, int] = {}  # of each key where a record is there
        deleted: list[tuple[Name, Said]] = []  # that are gone, and replaced by nothing
        for entry in chain.between(low, high):
            written = self._written.get(entry.name)
            if written is None:
                return f"nobody has seen [{entry}] being written"
            one = there.pop(entry.name, None)
            if one is not None and (wrong := _is_changed(one, written)):
                return wrong
            kept = set() if one is None else {said.offset for said in one.records}
            for said in written.records:
                if said.offset in kept:
                    first.setdefault(said.key, said.offset)
                elif said.offset >= low and (
                    wrong := self._why_not(written, said, latest, deleted)
                ):
                    return wrong
        if there:
            return f"nobody has appended [{next(iter(there.values())).entry}] there"
        if is_fetched:
            never.update(place for place, _ in deleted)
        for place, said in deleted:
            if place not in never and first.get(said.key, said.offset) < said.offset:
                return f"{said} is gone, and an older record of its key is there"
        return ""

    def _why_not(
        self,
        written: _Written,
        said: Said,
        latest: Callable[[], Mapping[bytes | None, float]],
        deleted: list[tuple[Name, Said]],
    ) -> str:
        """Say why a record may not be gone; note that it is. `latest`: where each key stands last.

        Of what somebody has seen to be gone rightly nothing more is asked.
        """
        place = written.entry.epoch, said.offset
        if place in self.taken:
            return ""
        if place in self.forgotten:
            deleted.append((place, said))
            return ""
        is_replaced = latest().get(said.key, -1) > said.offset
        if not is_replaced:
            if said.value is None:
                deleted.append((place, said))
            due_ms = written.at_ms + self.retention_ms() - _CLOCKS_MS
            if said.value is not None or self.now_ms() < due_ms:
                return f"{said} of [{written.entry}] is gone, and none of its key comes later"
        self.counts["records that compaction took"] += is_replaced
        self.counts["deleted keys that compaction forgot"] += not is_replaced
        (self.taken if is_replaced else self.forgotten).add(place)
        return ""

    def _latest(self, chain: Chain, committed: float) -> dict[bytes | None, float]:
        """Return where each key stands last among what is committed of a log."""
        latest: dict[bytes | None, float] = {}
        for entry in chain.entries:
            if entry.last >= committed:
                break
            written = self._written.get(entry.name)
            for said in () if written is None else written.records:
                latest[said.key] = max(said.offset, latest.get(said.key, -inf))
        return latest


def _is_changed(one: Stored, written: _Written) -> str:
    """Say what of a batch is not as it was written; records may be missing."""
    if (one.entry.base, one.entry.last) != (written.entry.base, written.entry.last):
        return f"[{one.entry}] was written as [{written.entry}]"
    before = {said.offset: said for said in written.records}
    for said in one.records:
        if before.get(said.offset) != said:
            return f"{said} stands where {before.get(said.offset)} was written"
    if one.records and not one.header.is_log_append_time:
        newest = max(said.timestamp for said in one.records)
        if one.header.max_timestamp != newest:
            return f"{one.header} says {one.header.max_timestamp}, its records {newest}"
    return ""
