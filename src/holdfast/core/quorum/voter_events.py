"""What the quorum's state machine is made of: roles and moves, what is saved, what it asks for.

Values only. Effects are ordered: whoever performs them does so in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.wire.errors import ErrorCode

NOBODY: Final = -1


class Role(Enum):
    """A role that a replica of the metadata log has in its epoch (rules: quorum.md#roles)."""

    UNATTACHED = auto()  # follows nobody; may have voted, or know who has led its epoch
    FOLLOWER = auto()
    PROSPECTIVE = auto()  # asks whether it would be voted for (KIP-996)
    CANDIDATE = auto()
    LEADER = auto()
    RESIGNED = auto()  # has led this epoch, and may neither lead nor vote in it any more


R = Role
# From each role, where one event may lead. A leader never leads on in another epoch, and nobody
# leads who was no candidate.
MOVES: Final[dict[Role, frozenset[Role]]] = {
    R.UNATTACHED: frozenset({R.UNATTACHED, R.FOLLOWER, R.PROSPECTIVE, R.CANDIDATE}),
    R.FOLLOWER: frozenset({R.UNATTACHED, R.FOLLOWER, R.PROSPECTIVE, R.CANDIDATE}),
    R.PROSPECTIVE: frozenset({R.UNATTACHED, R.FOLLOWER, R.PROSPECTIVE, R.CANDIDATE}),
    R.CANDIDATE: frozenset({R.UNATTACHED, R.FOLLOWER, R.PROSPECTIVE, R.LEADER}),
    R.LEADER: frozenset({R.UNATTACHED, R.FOLLOWER, R.RESIGNED}),
    R.RESIGNED: frozenset({R.UNATTACHED, R.FOLLOWER}),
}
assert MOVES.keys() == set(Role), "every role needs a row"


class LogEnd(NamedTuple):
    """The end of a log. The later epoch is more; in one epoch the larger offset is."""

    epoch: int
    offset: int


class Saved(NamedTuple):
    """The facts that survive a crash: the epoch, its leader as far as known, our vote in it."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted: ReplicaKey | None = None


class Timeouts(NamedTuple):
    election_ms: int
    fetch_ms: int
    backoff_ms_max: int


@dataclass(slots=True)
class Progress:
    """The facts that a leader knows of another replica."""

    acknowledged: int = 0  # durable there below this
    fetched_ms: int = -1  # when it last fetched; -1: never in this epoch
    heard_ms: int = -1  # when it last asked for anything else
    caught_up_ms: int = -1  # when it last had all that there was
    end_then: int = -1  # our log's end when it last fetched


@dataclass(frozen=True, slots=True)
class Persist:
    """Save this so that it survives a power cut, then say `persisted(version)`.

    Nothing that depends on it is asked for before. Rules: quorum.md#saved-before-said.
    """

    version: int
    saved: Saved


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `timed_out` after `delay_ms` and a random part of `jitter_ms`. There is one timer."""

    delay_ms: int
    jitter_ms: int = 0


@dataclass(frozen=True, slots=True)
class AskVotes:
    """Ask every other voter, again and again until it answers or another round begins."""

    round: int
    epoch: int
    pre_vote: bool
    log_end: LogEnd


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request that came with `token`."""

    token: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE
    granted: bool = False


@dataclass(frozen=True, slots=True)
class Follow:
    """Fetch from this leader until `Leave`."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Append the LeaderChange record at the log's end now, then lead until `Leave`."""

    epoch: int
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop what `Follow` or `Lead` has begun."""

    role: Role
    epoch: int


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """Tell the other voters that this epoch has no leader any more, and who should stand first."""

    epoch: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Note that everything below this offset is committed."""

    offset: int


Effect: TypeAlias = (
    Persist | SetTimer | AskVotes | Answer | Follow | Lead | Leave | EndEpoch | Commit
)
