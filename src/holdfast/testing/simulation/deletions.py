"""What may be gone from a log's beginning, and by which event. The only place that allows it.

Owns two events: retention that is configured and due, segment by segment, by timestamps that the
oracle has read from the records itself; and DeleteRecords, by topic, partition and offset. A log
may begin as late as these reach, on whatever replica, and no later: what a broker says of itself
allows nothing. After an unclean election offsets are given out again, and what they hold then is
not told from what expired there before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from holdfast.testing.simulation.chain import Entry, Name
from holdfast.wire.batch import batches, read_records
from holdfast.wire.batch_header import NO_TIMESTAMP, Buffer

RETENTION_MS: Final = 604_800_000  # Apache Kafka's, where nothing is configured


class Policy(NamedTuple):
    """What retention lets go: what is older, and what stands before so many bytes."""

    age_ms: float = RETENTION_MS
    size: float = inf

    def or_less(self, other: Policy) -> Policy:
        """Keep no more than either keeps: a node may not have heard of the newer one."""
        return Policy(min(self.age_ms, other.age_ms), min(self.size, other.size))


class Stretch(NamedTuple):
    """One segment's offsets, its bytes, and when they were written last."""

    first: int
    end: int
    size: int
    written_ms: int
    newest: int | None = None  # of its headers, where compaction took records; None: as written


@dataclass(slots=True)
class Deletions:
    """What may be missing at the beginning of one partition."""

    asked: Callable[[], float] = lambda: inf  # up to where DeleteRecords may reach
    policy: Callable[[], Policy] = Policy
    expired: int = 0  # what lies below was due on some replica
    reached: int = 0  # what lies below is gone from some replica whose log start moved
    _stamps: dict[Name, int] = field(default_factory=dict)  # of each batch, the largest

    @property
    def bound(self) -> float:
        """How late a log may begin."""
        return max(self.expired, self.asked())

    @property
    def gone(self) -> int:
        """Up to where something has gone, not only may go: a wish alone takes nothing."""
        return max(self.expired, self.reached)

    def read(self, records: Buffer) -> str:
        """Take in the timestamps of batches; say which header its records do not bear out."""
        wrong = ""
        view = memoryview(records)
        for position, header in batches(view):
            stamps = (record.timestamp for record in read_records(view[position:]))
            newest = max(NO_TIMESTAMP, *stamps)
            self._stamps[header.leader_epoch, header.base_offset] = newest
            if header.max_timestamp != newest:
                wrong = f"{header} says {header.max_timestamp}, its records {newest}"
        return wrong

    def expire(
        self, gone: Stretch, entries: Sequence[Entry], *, start: int, left: int, now_ms: int
    ) -> str:
        """A replica that starts at `start` deletes a segment: "", or why it must not.

        `entries`: what it holds there; `left`: bytes of its log without this segment.
        """
        if gone.end <= start:
            return ""  # its start has been judged
        policy = self.policy()
        age_ms = now_ms - self._newest(gone, entries, start)
        if age_ms > policy.age_ms or left >= policy.size:
            self.expired = max(self.expired, gone.end)
            return ""
        return f"{gone} is {age_ms} ms old, and {left} bytes are left; {policy}"

    def _newest(self, gone: Stretch, entries: Sequence[Entry], start: int) -> int:
        """When a segment was young: by its records, else by its file."""
        if gone.newest is not None:
            return gone.newest if gone.newest >= 0 else gone.written_ms
        stamps = [self._stamps[entry.name] for entry in entries]
        if gone.first < start:
            # A process that began later has not seen what was deleted of it by then. Offsets that
            # were given out in several epochs held one of several things: it was as old as any.
            seen = {offset for entry in entries for offset in range(entry.base, entry.last + 1)}
            unseen = {
                (epoch, base): stamp
                for (epoch, base), stamp in self._stamps.items()
                if gone.first <= base < start and base not in seen
            }
            if unseen:
                epochs = {epoch for epoch, _ in unseen}
                stamps.append(min(unseen.values()) if len(epochs) > 1 else max(unseen.values()))
        newest = max(stamps, default=NO_TIMESTAMP)
        return newest if newest >= 0 else gone.written_ms
