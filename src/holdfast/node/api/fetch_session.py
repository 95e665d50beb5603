"""What a reader has asked for, from request to request (KIP-227). Not an API.

Owns the partitions that a session keeps, and which of them may have something to tell: one that was
looked at and had nothing is looked at again when it is touched, and not before. Of a session in
which nobody asks any more no partition is watched: what was left must cost appends nothing. A
request without a session is one that ends with its answer.

Rules: fetch.md#fetch-sessions.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol, TypeAlias

from holdfast.core.replica.replication import NO_SESSION, LastFetch
from holdfast.core.replica.session_cache import CachedSession
from holdfast.node.api.fetch_readers import Asked, Refused, Seen
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.replica import Partition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire

# So many changes a session is told of while no request of it waits: this many, and several for each
# key that it watches, for who follows thousands may be told of them all before it asks again.
UNHEARD_MAX: Final = 1000
UNHEARD_ROUNDS_MAX: Final = 4

Name: TypeAlias = tuple[str | bytes, int]  # of a partition: its topic's name, or id


class ParkedFetch(Protocol):
    """The request of a session that waits."""

    @property
    def sender(self) -> Hashable:
        """Whose it is: its connection."""

    def touched(self, asked: Asked, key: Hashable) -> bool:
        """One of its partitions has changed. True: ask whether that is enough."""

    def ask(self) -> None:
        """Answer if it can be answered now."""

    def expire(self) -> None:
        """Answer with what there is."""


class FetchSession(CachedSession):
    """Partitions that are asked for, each with what was last said of it."""

    def __init__(self, broker: Broker, owner: int, *, by_id: bool) -> None:
        super().__init__(owner)
        self.by_id = by_id  # topics are named by id, from version 13 on
        self.parked: ParkedFetch | None = None
        # A follower's partitions that it need not name; one of a single request names them all.
        self.last_fetch: LastFetch = NO_SESSION
        self.broker_epoch = -1  # of the follower, as its last request said
        # May have something to tell, those first whose turn it is.
        self.stirred: dict[Asked, None] = {}
        self._changed: dict[Asked, None] = {}  # since the last request came
        self.bytes_max = 0  # what one answer may hold at most, but for one larger batch
        self._broker = broker
        self._asked: dict[Name, Asked] = {}
        self._watched: dict[Hashable, Asked] = {}
        self._unheard = 0  # changes since the last request, while none waited
        self._sleeps = False

    @property
    def size(self) -> int:
        return len(self._asked)

    @property
    def sender(self) -> Hashable:
        """Whose request waits; a session goes on with any connection, and keeps none."""
        return None if self.parked is None else self.parked.sender

    # -- what is asked for ---------------------------------------------------------------------

    def ask_for(self, name: str, topic_id: bytes, wanted: wire.FetchPartition) -> None:
        """Ask for a partition, or for other offsets of it."""
        key = (topic_id if self.by_id else name, wanted.partition)
        asked = self._asked.get(key)
        if asked is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            asked = self._asked[key] = Asked(name, topic_id, wanted, unknown)
        else:
            self.bytes_max -= asked.wanted.partition_max_bytes
            asked.wanted = wanted
        self.bytes_max += wanted.partition_max_bytes
        self.stirred[asked] = None

    def forget(self, name: str, topic_id: bytes, index: int) -> Asked | None:
        """Ask for a partition no longer; None: it was not asked for."""
        asked = self._asked.pop((topic_id if self.by_id else name, index), None)
        if asked is not None:
            self.bytes_max -= asked.wanted.partition_max_bytes
            self.stirred.pop(asked, None)
            self._changed.pop(asked, None)
            self._unwatch(asked)
        return asked

    def stir_changed(self) -> None:
        """Look at what has changed since the last request, whatever answers have told of it.

        A request says of all that it leaves out how far the reader is. Where something changed,
        that may mean more than it did: a follower may join an ISR that is not being changed now.
        """
        self._unheard = 0
        if self._sleeps:
            self._sleeps = False
            for key in self._watched:
                self._broker.waiting.watch(key, self)
            self.stir_all()
        self.stirred |= self._changed
        self._changed.clear()

    def stir_all(self) -> None:
        """Look at everything: who asks is another one than before, or was away for long."""
        self.stirred |= dict.fromkeys(self._asked.values())

    # -- what becomes of it --------------------------------------------------------------------

    def watch(self, asked: Asked, found: Partition) -> None:
        """Be told of changes of the replica that was found."""
        self._unwatch(asked)
        asked.watched = found
        for key in (found.key, found.committed_key):
            self._watched[key] = asked
            self._broker.waiting.watch(key, self)

    def watch_all(self) -> None:
        """Be told of changes of everything that is asked for."""
        for asked in self.stirred:
            if isinstance(asked.found, Partition):
                self.watch(asked, asked.found)

    def _unwatch(self, asked: Asked) -> None:
        if asked.watched is not None:
            for key in (asked.watched.key, asked.watched.committed_key):
                self._watched.pop(key, None)
                self._broker.waiting.unwatch(key, self)

    def hear(self) -> None:
        """Hear of all that has changed by now, so that what is called quiet is."""
        if not self._sleeps:
            for key in self._broker.waiting.untold(self._watched):
                self.touched(key)

    def touched(self, key: Hashable) -> bool:
        """A partition has changed: it may have something to tell."""
        asked = self._watched[key]
        self._changed[asked] = None
        self.stirred[asked] = None
        if self.parked is not None:
            return self.parked.touched(asked, key)
        self._unheard += 1
        if self._unheard > UNHEARD_MAX + UNHEARD_ROUNDS_MAX * len(self._watched):
            self._sleep()
        return False

    def _sleep(self) -> None:
        """Be told of nothing until somebody asks again: who opened it may be gone for good."""
        self._sleeps = True
        for key in self._watched:
            self._broker.waiting.unwatch(key, self)

    def ask(self) -> None:
        """Look whether the request that waits can be answered."""
        if self.parked is not None:
            self.parked.ask()

    def saw(self, asked: Asked, seen: Seen | Refused) -> None:
        """Keep in mind that a partition has nothing to tell, if so it is."""
        if (
            not isinstance(seen, Refused)
            and asked.told == (seen.log.high_watermark, seen.log.start)
            and not seen.has_more(asked.wanted.fetch_offset)
        ):
            del self.stirred[asked]

    def tell(self, asked: Asked, seen: Seen | Refused, data: wire.PartitionData) -> bool:
        """Whether the reader has to be told of this; it counts as told."""
        if isinstance(seen, Refused) or data.error_code:
            asked.told = None
            return True
        if seen.diverging is not None:
            asked.told = None  # whoever has to cut its log takes nothing else from the answer
            return True
        told, asked.told = asked.told, (data.high_watermark, data.log_start_offset)
        if data.records:
            # To the end: an answer is filled from its beginning, so if all have much to read, the
            # last ones would never get anything.
            self.stirred[asked] = self.stirred.pop(asked)
            return True
        is_news = told != asked.told or seen.diverging is not None or seen.preferred is not None
        self.saw(asked, seen)
        return is_news

    def unwatch(self) -> None:
        """Be told of nothing any more."""
        for asked in self._watched.values():
            asked.watched = None
        for key in self._watched:
            self._broker.waiting.unwatch(key, self)
        self._watched.clear()

    def close(self) -> None:
        if self.parked is not None:
            self.parked.expire()
        self.unwatch()
        self.last_fetch.is_open = False
        self._asked.clear()
        self.stirred.clear()
        self._changed.clear()
