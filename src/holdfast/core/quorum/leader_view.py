"""What the leader of the metadata quorum tells of itself and of those who read from it.

Values only; `node` fills them in, DescribeQuorum shows them. Times are the wall clock's, in
milliseconds; -1 is one that is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core.quorum.voter_set import ReplicaKey, VoterSet

OBSERVERS_MAX: Final = 1000
OBSERVER_SESSION_MS: Final = 300_000  # who has not fetched for so long is forgotten


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica of the metadata log, as the leader knows it."""

    key: ReplicaKey
    log_end: int  # -1: it has not fetched in this epoch
    fetched_wall_ms: int = -1
    caught_up_wall_ms: int = -1


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The quorum at one moment."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]
    members: VoterSet  # where the voters listen


class Observers:
    """The readers of the log that have no vote, as far as the leader remembers."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[ReplicaKey, ReplicaView] = {}  # who was heard longest ago comes first

    def fetched(self, key: ReplicaKey, offset: int, log_end: int, wall_ms: int) -> None:
        """A replica asks for what begins at `offset`: it has everything before."""
        before = self._seen.pop(key, None)
        caught_up = before.caught_up_wall_ms if before is not None else -1
        if offset >= log_end:
            caught_up = wall_ms
        if len(self._seen) >= OBSERVERS_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = ReplicaView(key, offset, wall_ms, caught_up)

    def get(self, key: ReplicaKey) -> ReplicaView | None:
        """Return what is known of one of them; None: it was not heard."""
        return self._seen.get(key)

    def shown(self, wall_ms: int) -> tuple[ReplicaView, ...]:
        """Return those heard lately, by id."""
        for key, each in list(self._seen.items()):
            if wall_ms - each.fetched_wall_ms > OBSERVER_SESSION_MS:
                del self._seen[key]
        return tuple(self._seen[key] for key in sorted(self._seen))
