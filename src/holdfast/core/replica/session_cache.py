"""Which fetch sessions a broker keeps (KIP-227): their ids, their epochs, and who has to go.

Pure: a session is whatever the broker makes of it, here it has an owner, a size and an age.

Rules: fetch.md#fetch-sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.wire.errors import ErrorCode

STALE_MS: Final = 120_000  # unused for so long, a session goes for any other one
PARTITIONS_MAX: Final = 200_000  # of all sessions together: under 200 MB
EPOCH_MAX: Final = 2_147_483_647
NO_SESSION: Final = 0  # as id
FULL: Final = 0  # as epoch: everything is named, and a session is asked for
FINAL: Final = -1  # as epoch: everything is named, and no session is wanted


class CachedSession:
    """What the cache knows of a session. Times are monotonic milliseconds."""

    def __init__(self, owner: int) -> None:
        """Make one that is not kept yet; the owner is a follower's node, -1: a client."""
        self.session_id = NO_SESSION
        self.next_epoch = 1
        self.owner = owner
        self.created_ms = 0
        self.used_ms = 0

    @property
    def size(self) -> int:
        """How many partitions it keeps."""
        raise NotImplementedError

    def close(self) -> None:
        """It is not kept any more."""
        raise NotImplementedError

    @property
    def is_privileged(self) -> bool:
        return self.owner >= 0

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Whoever has the least goes first."""
        return self.is_privileged, self.size, self.session_id


class SessionCache:
    """Sessions by their id."""

    def __init__(self, slots: int, below: Callable[[int], int]) -> None:
        """Keep at most `slots`; `below` draws a random integer from [0, bound)."""
        self._slots = slots
        self._below = below
        self._sessions: dict[int, CachedSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """How many partitions all sessions keep together."""
        return sum(session.size for session in self._sessions.values())

    def resume(
        self, session_id: int, epoch: int, owner: int, now_ms: int
    ) -> CachedSession | ErrorCode:
        """Return the session that an incremental request goes on with, or why there is none."""
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != session.next_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.next_epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        return session

    def remove(self, session_id: int) -> None:
        """Keep this one no longer, if it is kept."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def admit(self, session: CachedSession, now_ms: int) -> None:
        """Keep a session, under an id of its own, if there is room.

        For it those go who were not used for long, and else one that is worth less.
        """
        if not self._has_room_for(session):
            for each in list(self._sessions.values()):
                if now_ms - each.used_ms > STALE_MS:
                    self.remove(each.session_id)
            if len(self._sessions) >= self._slots > 0:
                self._remove_one_for(session, now_ms)
            if session.is_privileged:
                self._remove_clients_until(lambda: self._has_room_for(session))
        if self._has_room_for(session):
            session.session_id = self._draw()
            session.created_ms = session.used_ms = now_ms
            self._sessions[session.session_id] = session

    def is_crowded(self, session: CachedSession) -> bool:
        """Whether the sessions keep more partitions than they may, now that this one has grown.

        What clients keep gives way to a follower's.
        """
        if session.is_privileged:
            self._remove_clients_until(lambda: self.partitions <= PARTITIONS_MAX)
        return self.partitions > PARTITIONS_MAX

    def _has_room_for(self, session: CachedSession) -> bool:
        return (
            len(self._sessions) < self._slots and self.partitions + session.size <= PARTITIONS_MAX
        )

    def _remove_one_for(self, session: CachedSession, now_ms: int) -> None:
        least = min(self._sessions.values(), key=lambda each: each.rank)
        if least.is_privileged == session.is_privileged:
            # Or two that are alike would take the slot from each other for ever.
            may_go = least.size < session.size and now_ms - least.created_ms > STALE_MS
        else:
            may_go = session.is_privileged
        if may_go:
            self.remove(least.session_id)

    def _remove_clients_until(self, is_enough: Callable[[], bool]) -> None:
        """Remove clients' sessions, those that keep the most first."""
        while not is_enough():
            clients = [each for each in self._sessions.values() if not each.is_privileged]
            if not clients:
                return
            self.remove(max(clients, key=lambda each: each.size).session_id)

    def _draw(self) -> int:
        while True:
            drawn = 1 + self._below(EPOCH_MAX)
            if drawn not in self._sessions:
                return drawn
