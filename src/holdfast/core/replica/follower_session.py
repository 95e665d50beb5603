"""A follower's half of a fetch session (KIP-227): what the next request to a leader has to name.

Owns what the leader has been told of each partition, what is news to it, and the session's id and
epoch. It decides and remembers; it never sends, reads or applies anything.

Rules: replication.md#sessions-between-brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, NamedTuple

from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.session_cache import EPOCH_MAX, FULL, NO_SESSION
from holdfast.wire.errors import ErrorCode

# So many partitions that the leader does not know of are named at once, at most: a session of
# thousands is told in several requests, each of which keeps neither side busy for long. Without a
# session one request has to name them all.
NAMED_MAX: Final = 1000
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Position(NamedTuple):
    """What a request says of a replica: which leader epoch it follows in, and what it holds."""

    leader_epoch: int
    end: int
    last_epoch: int
    start: int


class Question(NamedTuple):
    """What the next request says."""

    session_id: int
    session_epoch: int
    named: dict[PartitionKey, Position]
    forgotten: list[PartitionKey]
    has_more: bool  # there is more to say: the leader should not hold this one back

    @property
    def is_full(self) -> bool:
        """Whether the leader has to answer for everything that is named."""
        return self.session_epoch == FULL


class FollowerSession:
    """What one leader knows of the partitions that are fetched from it; one request in flight.

    `name` and `forget` say what is to be fetched, `next` what to ask. Then comes one of `answered`,
    `refused` and `lost`, and for each partition of an answer `settle` or `doubt`.
    """

    def __init__(self, named_max: int = NAMED_MAX) -> None:
        self._named_max = named_max
        self._id = NO_SESSION
        self._epoch = FULL
        self._is_given = True  # False: the leader has said that it gives no sessions
        self._told: dict[PartitionKey, Position] = {}
        self._news: dict[PartitionKey, None] = {}  # not told of yet
        self._moved: dict[PartitionKey, None] = {}  # told of, and somewhere else since
        self._leaving: dict[PartitionKey, None] = {}  # told of, and to be forgotten there

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to ask for."""
        return bool(self._news or self._moved) or len(self._told) > len(self._leaving)

    @property
    def news(self) -> Collection[PartitionKey]:
        """What the leader has not been told of yet."""
        return self._news.keys()

    @property
    def members(self) -> Collection[PartitionKey]:
        """What the leader has been told of."""
        return self._told.keys()

    def told(self, key: PartitionKey) -> Position | None:
        """Return what an answer is about; None: nothing that is wanted any more."""
        return None if key in self._leaving else self._told.get(key)

    def name(self, key: PartitionKey) -> None:
        """Fetch this partition, from where it is then."""
        self._news[key] = None

    def forget(self, key: PartitionKey) -> None:
        """Fetch it no longer."""
        self._news.pop(key, None)
        self._moved.pop(key, None)
        if key in self._told:
            self._leaving[key] = None

    def settle(self, key: PartitionKey, position: Position) -> None:
        """An answer has been applied, after which the replica is here."""
        if self._told.get(key) != position:
            self._moved[key] = None

    def doubt(self, key: PartitionKey) -> None:
        """What an answer said was not taken in, and the leader thinks it was.

        It would not say the same high watermark again. So it has to forget the partition, and is
        told of it anew: in the request after that, for in one request forgetting goes last.
        """
        self.forget(key)
        self._news[key] = None

    def next(self, position_of: Callable[[PartitionKey], Position | None]) -> Question | None:
        """Return what to ask now; None: nothing. `position_of` has None for what is not to be."""
        if self._epoch == FULL or len(self._told) == len(self._leaving):
            # If nothing stays of a session it is closed: this ends it, and asks for another one.
            return self._full(position_of)
        forgotten = list(self._leaving)
        for key in forgotten:
            del self._told[key]
        # What has moved is named in any case: the leader would send it the same once more.
        wanted = list(self._moved)
        self._moved.clear()
        wanted += [
            key
            for key in islice(self._news, self._named_max + len(forgotten))
            if key not in self._leaving
        ][: self._named_max]
        self._leaving.clear()
        named: dict[PartitionKey, Position] = {}
        for key in wanted:
            self._news.pop(key, None)
            position = position_of(key)
            if position is not None:
                self._told[key] = named[key] = position
            elif self._told.pop(key, None) is not None:
                forgotten.append(key)
        return Question(self._id, self._epoch, named, forgotten, bool(self._news))

    def _full(self, position_of: Callable[[PartitionKey], Position | None]) -> Question | None:
        """Name everything, or the first part of it. What has moved goes last.

        An answer is filled from its beginning, so if all have much to fetch, the last ones would
        never get anything.
        """
        wanted = self._resting()
        wanted += [*self._moved, *self._news]
        self._moved.clear()
        self._told.clear()
        self._leaving.clear()
        self._epoch = FULL
        count = self._named_max if self._is_given else len(wanted)
        rest = iter(wanted)
        for key in rest:
            position = position_of(key)
            if position is not None:
                self._told[key] = position
                if len(self._told) == count:
                    break
        self._news = dict.fromkeys(rest)
        if not self._told:
            return None
        return Question(self._id, FULL, dict(self._told), [], bool(self._news))

    def answered(self, session_id: int) -> None:
        """An answer has come, without an error of its own."""
        if self._epoch == FULL:
            self._id = session_id
            self._is_given = session_id != NO_SESSION
            self._epoch = 1 if self._is_given else FULL
        elif session_id == self._id:
            self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1
        else:
            self.lost()

    def refused(self, error: ErrorCode) -> None:
        """The leader does not go on with this session: name everything, in a new one."""
        assert error in SESSION_ERRORS, error
        before = self._id
        self.lost()
        if error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = before  # it may have it still: the next request ends it

    def lost(self) -> None:
        """Nobody knows what the leader knows: it is told everything anew, in a new session."""
        self._news = dict.fromkeys([*self._resting(), *self._moved, *self._news])
        self._moved.clear()
        self._told.clear()
        self._leaving.clear()
        self._id, self._epoch, self._is_given = NO_SESSION, FULL, True

    def _resting(self) -> list[PartitionKey]:
        """What the leader has been told of, and is still where it was."""
        gone = (self._leaving, self._moved, self._news)
        return [key for key in self._told if not any(key in each for each in gone)]
