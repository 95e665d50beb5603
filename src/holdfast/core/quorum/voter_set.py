"""Who may vote in the quorum, and what counts as a majority of them. Pure values.

Owns the identity of a voter: its node id, and the id of its metadata directory where that is known
(KIP-853). A voter whose directory is not known is anybody with its node id. A set is never changed:
another one takes its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.wire.uuids import NULL_UUID


class ReplicaKey(NamedTuple):
    """One replica of the metadata log. A directory of 16 zero bytes is one that is not known."""

    node_id: int
    directory_id: bytes = NULL_UUID


class Voter(NamedTuple):
    """A member of the quorum, and where it listens."""

    node_id: int
    host: str
    port: int
    directory_id: bytes = NULL_UUID

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    def is_replica(self, key: ReplicaKey) -> bool:
        """Return whether a replica that calls itself `key` is this voter."""
        if self.node_id != key.node_id:
            return False
        return self.directory_id in (NULL_UUID, key.directory_id)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, by rising node id; no id stands twice."""

    voters: tuple[Voter, ...] = ()

    def __post_init__(self) -> None:
        ids = [voter.node_id for voter in self.voters]
        assert ids == sorted(set(ids)), "voters are sorted, each there once"

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls(tuple(sorted(voters)))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.node_id for voter in self.voters)

    @property
    def majority(self) -> int:
        """Return how many voters are a majority. An empty set has none."""
        return len(self.voters) // 2 + 1

    @property
    def knows_directories(self) -> bool:
        """Return whether the directory of every voter is known (kraft.version 1)."""
        return bool(self.voters) and all(v.directory_id != NULL_UUID for v in self.voters)

    def find(self, node_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.node_id == node_id), None)

    def contains(self, key: ReplicaKey) -> bool:
        voter = self.find(key.node_id)
        return voter is not None and voter.is_replica(key)

    def is_part_of(self, key: ReplicaKey) -> bool:
        """Return whether a reader is a voter, or a broker in a voter's own process."""
        voter = self.find(key.node_id)
        return voter is not None and (key.directory_id == NULL_UUID or voter.is_replica(key))

    def others(self, node_id: int) -> tuple[Voter, ...]:
        return tuple(voter for voter in self.voters if voter.node_id != node_id)

    def is_majority(self, node_ids: Collection[int]) -> bool:
        return len(set(node_ids) & set(self.ids)) >= self.majority

    def majority_value(self, values: Iterable[int]) -> int:
        """The largest value that a majority has reached, given one value for each voter."""
        ranked = sorted(values, reverse=True)
        assert len(ranked) == len(self.voters), "one value for each voter"
        return ranked[self.majority - 1]
