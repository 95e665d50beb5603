"""Voters that stand in the metadata log: which set is in force, and which change of it is allowed.

Owns KIP-853's rules. A set is in force from the moment its record is appended, committed or not,
and no longer once the record is truncated. One change at a time, of one voter, by a leader that has
committed something of its own epoch: then any majority of the old set and any of the new one
overlap. Nothing here appends, and nothing here counts votes.

Rules: quorum.md#changing-voters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.core.quorum.leader_view import ReplicaView
from holdfast.core.quorum.voter_set import ReplicaKey, Voter, VoterSet
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.control import (
    VotersRecord,
    VotersRecordVoter,
)
from holdfast.wire.structs import KRaftVersionFeature, QuorumEndpoint
from holdfast.wire.uuids import NULL_UUID

KRAFT_VERSIONS: Final = (0, 1)  # that this version of ours knows; from 1 on voters are in the log
BOOTSTRAP_OFFSET: Final = -1  # of a set that came from a file and not from the log
VOTERS_MAX: Final = 25
LATELY_MS: Final = 3_600_000  # a new voter has fetched within so long


class _Entry(NamedTuple):
    offset: int
    voters: VoterSet


class VoterHistory:
    """Sets of voters by the offsets of their records, as far back as the log may be truncated."""

    def __init__(self, configured: VoterSet) -> None:
        """`configured` counts until a set is found in a snapshot or in the log."""
        self._versions = [(BOOTSTRAP_OFFSET, 0)]
        self._entries = [_Entry(BOOTSTRAP_OFFSET, configured)]

    @property
    def kraft_version(self) -> int:
        """The finalized level of kraft.version: 0 for voters that the configuration fixes."""
        return self._versions[-1][1]

    @property
    def latest(self) -> VoterSet:
        """The set in force."""
        return self._entries[-1].voters

    @property
    def latest_offset(self) -> int:
        """Return where its record stands; BOOTSTRAP_OFFSET when it is not in the log."""
        return self._entries[-1].offset

    @property
    def needs_writing(self) -> bool:
        """Return whether a new leader must write the set down: it came from a file and may change.

        Who joins later learns of it from the log only.
        """
        return self.kraft_version > 0 and self.latest_offset == BOOTSTRAP_OFFSET

    def may_return(self, key: ReplicaKey) -> bool:
        """Return whether it is no voter, but would be one again if the log were cut."""
        sets = [entry.voters for entry in self._entries]
        return not sets[-1].contains(key) and any(each.contains(key) for each in sets[:-1])

    def loaded(self, offset: int, kraft_version: int, voters: VoterSet | None) -> None:
        """Take over what a snapshot that contains `offset` says; what was known before is gone."""
        self._versions = [(offset, kraft_version)]
        if voters is not None:
            self._entries = [_Entry(offset, voters)]

    def version_appended(self, offset: int, kraft_version: int) -> None:
        """A KRaftVersion record is in the log. It never falls."""
        assert kraft_version >= self.kraft_version, "kraft.version fell"
        self._versions.append((offset, kraft_version))

    def voters_appended(self, offset: int, voters: VoterSet) -> None:
        """A Voters record is in the log: its set is in force."""
        assert offset > self.latest_offset, "sets of voters out of order"
        self._entries.append(_Entry(offset, voters))

    def truncated(self, end: int) -> bool:
        """The log ends at `end` now. True when another set is in force for it."""
        before = self.latest
        while len(self._entries) > 1 and self.latest_offset >= end:
            self._entries.pop()
        while len(self._versions) > 1 and self._versions[-1][0] >= end:
            self._versions.pop()
        return self.latest != before

    def committed(self, offset: int) -> None:
        """Forget older sets: nothing is cut below `offset`, so only the last one there counts."""
        below = [entry for entry in self._entries if entry.offset < offset]
        if len(below) > 1:
            del self._entries[: len(below) - 1]

    def at(self, end: int) -> VoterSet:
        """The set that was in force when the log ended at `end`, for a snapshot up to there."""
        found = [entry.voters for entry in self._entries if entry.offset < end]
        return found[-1] if found else self._entries[0].voters


# --- rules --------------------------------------------------------------------------------------


class Situation(NamedTuple):
    """The facts that a leader must look at before it changes the voters."""

    history: VoterHistory
    committed: int  # the first offset that is not
    epoch_start: int  # of the leader's own epoch, in the log
    wall_ms: int


def refuse_any(situation: Situation) -> Refusal | None:
    """Return why no change at all is possible now; None when one is."""
    history = situation.history
    if history.kraft_version < 1:
        return Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "The voters of this cluster are fixed by controller.quorum.voters (kraft.version 0); "
            "only a cluster formatted with --standalone or --initial-controllers can change them.",
        )
    if situation.committed <= situation.epoch_start:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            "The active controller has just been elected and has committed nothing yet: try again.",
        )
    if history.latest_offset >= situation.committed:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way: try again."
        )
    return None


def add_voter(situation: Situation, voter: Voter, seen: ReplicaView | None) -> VoterSet | Refusal:
    """The set with one voter more. `seen` is what the leader knows of it as an observer."""
    refusal = refuse_any(situation)
    if refusal is not None:
        return refusal
    voters = situation.history.latest
    if voter.directory_id == NULL_UUID or not voter.host:
        return Refusal(
            ErrorCode.INVALID_REQUEST, "A voter has the id of its directory and a listener."
        )
    if voters.find(voter.node_id) is not None:
        return Refusal(
            ErrorCode.DUPLICATE_VOTER,
            f"Node {voter.node_id} is a voter already; one whose disk was replaced has to be "
            "removed first, under its old directory.",
        )
    if len(voters.voters) >= VOTERS_MAX:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"There are {VOTERS_MAX} voters, which is enough."
        )
    if not _is_close(situation, seen):
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Node {voter.node_id} has not caught up with the metadata log: start it, and try "
            "again.",
        )
    return VoterSet.of([*voters.voters, voter])


def _is_close(situation: Situation, seen: ReplicaView | None) -> bool:
    """Return whether a new voter would not hold up the high watermark for long."""
    if seen is None or seen.caught_up_wall_ms < 0:
        return False
    return situation.wall_ms - seen.fetched_wall_ms <= LATELY_MS


def remove_voter(situation: Situation, key: ReplicaKey) -> VoterSet | Refusal:
    """The set with one voter less; it may be the leader itself."""
    refusal = refuse_any(situation)
    if refusal is not None:
        return refusal
    voters = situation.history.latest
    found = voters.find(key.node_id)
    if found is None or found.key != key:
        return Refusal(
            ErrorCode.VOTER_NOT_FOUND, f"Node {key.node_id} with this directory is no voter."
        )
    if len(voters.voters) == 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "The last voter stays: nobody else has the log.")
    return VoterSet(tuple(each for each in voters.voters if each.node_id != key.node_id))


def update_voter(situation: Situation, voter: Voter) -> VoterSet | Refusal:
    """The set with another address for one voter."""
    refusal = refuse_any(situation)
    if refusal is not None:
        return refusal
    voters = situation.history.latest
    found = voters.find(voter.node_id)
    if found is None or found.key != voter.key:
        return Refusal(
            ErrorCode.VOTER_NOT_FOUND, f"Node {voter.node_id} with this directory is no voter."
        )
    if not voter.host:
        return Refusal(ErrorCode.INVALID_REQUEST, "A voter has a listener.")
    return VoterSet.of(voter if each.node_id == voter.node_id else each for each in voters.voters)


# --- records ------------------------------------------------------------------------------------


def voters_record(voters: VoterSet, listener: str) -> VotersRecord:
    """The record of a set; `listener` is the name under which all of them listen."""
    low, high = KRAFT_VERSIONS
    return VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory_id,
                endpoints=[QuorumEndpoint(name=listener, host=voter.host, port=voter.port)],
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=low, max_supported_version=high
                ),
            )
            for voter in voters.voters
        ]
    )


def voters_of(record: VotersRecord, listeners: Iterable[str]) -> VoterSet:
    """The set that a record holds, each with the first of `listeners` that it has, or any."""
    names = list(listeners)
    found = []
    for voter in record.voters:
        by_name = {end.name: end for end in voter.endpoints}
        known = [by_name[name] for name in names if name in by_name]
        end = (known or list(voter.endpoints) or [QuorumEndpoint()])[0]
        found.append(Voter(voter.voter_id, end.host, end.port, bytes(voter.voter_directory_id)))
    return VoterSet.of(found)
