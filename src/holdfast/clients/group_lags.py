"""How far a group is: each partition's committed offset beside where its log ends, and whose it is.

Pure but for `lags_of`, which asks. Lag is counted as Kafka's tools count it: from the committed
offset to what a consumer can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import Committed, Description, Member, committed
from holdfast.clients.log_offsets import PATIENCE_S, Found, LogOffset, log_ends
from holdfast.wire.administration import AdminError, TopicPartition

# Longer than an election takes. A partition without a leader is shown without its end then.
ELECTION_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition of a group. `committed` None: nothing; `log_end` None: not told."""

    topic: str
    partition: int
    committed: Committed | None
    log_end: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        """How many offsets are left; None: not known."""
        if self.committed is None or self.log_end is None:
            return None
        return self.log_end - self.committed.offset


def lags_of(
    coordinators: Coordinators,
    descriptions: Mapping[str, Description],
    *,
    patience_s: float = PATIENCE_S,
) -> dict[str, list[PartitionLag] | AdminError]:
    """Ask what groups have committed and where those logs end, in one go for all of them."""
    found = committed(coordinators, list(descriptions))
    keys: dict[TopicPartition, None] = {}
    for group, answer in found.items():
        keys |= dict.fromkeys(_held(descriptions[group]))
        if not isinstance(answer, AdminError):
            keys |= dict.fromkeys(answer)
    ends = log_ends(coordinators.driver, keys, patience_s=min(patience_s, ELECTION_S))
    return {
        group: answer
        if isinstance(answer, AdminError)
        else lags(descriptions[group].members, answer, ends)
        for group, answer in found.items()
    }


def lags(
    members: Sequence[Member], offsets: Mapping[TopicPartition, Committed], ends: Found
) -> list[PartitionLag]:
    """Return what members hold, who has most first; then what is committed and nobody's.

    A member without partitions has no row.
    """
    rows: list[PartitionLag] = []
    held: set[TopicPartition] = set()
    for member in sorted(members, key=lambda one: -one.size):
        keys = sorted(
            (topic, number) for topic, numbers in member.assignment.items() for number in numbers
        )
        held.update(keys)
        rows.extend(_row(key, offsets, ends, member) for key in keys)
    rows.extend(_row(key, offsets, ends, None) for key in sorted(offsets) if key not in held)
    return rows


def _held(description: Description) -> list[TopicPartition]:
    return [
        (topic, number)
        for member in description.members
        for topic, numbers in member.assignment.items()
        for number in numbers
    ]


def _row(
    key: TopicPartition,
    offsets: Mapping[TopicPartition, Committed],
    ends: Found,
    member: Member | None,
) -> PartitionLag:
    end = ends.get(key)
    return PartitionLag(
        topic=key[0],
        partition=key[1],
        committed=offsets.get(key),
        log_end=end.offset if isinstance(end, LogOffset) else None,
        member=member,
    )
