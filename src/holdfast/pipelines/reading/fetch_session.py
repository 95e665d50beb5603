"""A fetch session with one broker (KIP-227): what it knows already is not said again.

Owns what the broker remembers of us. Pure: it makes requests and reads answers, and never sends.
One request is outstanding at most, so that numbers come in their order.

Rules: fetch.md#fetch-sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

_NO_SESSION: Final = 0
_FIRST: Final = 0  # asks for a session, with all partitions
_EPOCH_MAX: Final = 2**31 - 1


class Asked(NamedTuple):
    """A partition of a fetch. Newer versions know the topic by its id, older ones by its name."""

    topic: str
    topic_id: bytes
    number: int


class From(NamedTuple):
    """Where a partition is fetched from, and whose log that is believed to be (-1: not known)."""

    offset: int
    leader_epoch: int = -1  # a leader of another epoch refuses
    last_epoch: int = -1  # of the record before; who has it elsewhere says so (Fetch 12 on)


class Limits(NamedTuple):
    """What bounds an answer, and what else is the same for all partitions of a request."""

    wait_ms: int
    min_bytes: int
    bytes_max: int
    partition_bytes_max: int
    isolation: int
    rack: str


class FetchSession:
    """One session. `request`, send it, `answered` with what came, or `reset` if nothing did."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FIRST
        self._known: dict[Asked, From] = {}  # with what was asked for last
        self._sent: dict[Asked, From] = {}

    def request(self, wanted: Mapping[Asked, From], limits: Limits) -> FetchRequest:
        """Return a request for these partitions, each from its offset on, and no others."""
        self._sent = dict(wanted)
        new = {asked: place for asked, place in wanted.items() if self._known.get(asked) != place}
        gone = [asked for asked in self._known if asked not in wanted]
        return FetchRequest(
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.bytes_max,
            isolation_level=limits.isolation,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=_topics(new, limits.partition_bytes_max),
            forgotten_topics_data=_forgotten(gone),
            rack_id=limits.rack,
        )

    def answered(self, response: FetchResponse) -> dict[Asked, PartitionData]:
        """Take what came; return it by partition. After an error the session is begun anew."""
        if response.error_code:
            self.reset()
            return {}
        if response.session_id == _NO_SESSION:  # a broker may have no place for one more
            self.reset()
        else:
            self._id = response.session_id
            self._epoch = self._epoch % _EPOCH_MAX + 1
            self._known = self._sent
        return {
            asked: data
            for topic in response.responses
            for data in topic.partitions
            for asked in self._sent
            if asked.number == data.partition_index
            and (asked.topic == topic.topic if topic.topic else asked.topic_id == topic.topic_id)
        }

    def reset(self) -> None:
        """Forget the session: the next request asks for another one."""
        self._id, self._epoch, self._known = _NO_SESSION, _FIRST, {}


def _topics(wanted: Mapping[Asked, From], bytes_max: int) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for asked, place in wanted.items():
        topic = topics.setdefault(
            asked.topic, FetchTopic(topic=asked.topic, topic_id=asked.topic_id)
        )
        topic.partitions.append(
            FetchPartition(
                partition=asked.number,
                current_leader_epoch=place.leader_epoch,
                fetch_offset=place.offset,
                last_fetched_epoch=place.last_epoch,
                partition_max_bytes=bytes_max,
            )
        )
    return list(topics.values())


def _forgotten(gone: list[Asked]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for asked in gone:
        key = asked.topic, asked.topic_id
        topics.setdefault(
            key, ForgottenTopic(topic=asked.topic, topic_id=asked.topic_id)
        ).partitions.append(asked.number)
    return list(topics.values())
