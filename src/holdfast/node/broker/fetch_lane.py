"""A connection to a broker that leads something of ours, over which one question at a time goes.

Owns the connection, and how large an answer may be: what was asked for, and the largest batch that
may lie in a log, for one batch comes whole. It decides nothing.

Rules: replication.md#limits-between-brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.follower_session import Position
from holdfast.core.replica.throttle import Quota
from holdfast.node.broker.following import Following
from holdfast.node.broker.registration import Registration
from holdfast.runtime.dial import ANY_FRAME_BYTES, Connection, dial
from holdfast.runtime.ports import Runtime
from holdfast.runtime.tasks import Ended
from holdfast.wire.messages import fetch as wire
from holdfast.wire.messages import list_offsets
from holdfast.wire.schema import Request

VERSIONS: Final = {wire.FetchRequest.KEY: 17, list_offsets.ListOffsetsRequest.KEY: 7}
# Of an answer beside the batches: for each partition its numbers, a hint or two, its topic.
_PARTITION_BYTES: Final = 128
_HEAD_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSurroundings:
    """What a broker's fetchers share."""

    runtime: Runtime
    settings: NodeSettings
    registration: Registration
    endpoint: Callable[[int], tuple[str, int] | None]  # where brokers reach another one
    quota: Quota  # of what is throttled
    ended: Ended  # called when a loop ends, which without `close` is a mistake of ours


class FetchLane:
    """One connection to one broker; it is opened when it is needed."""

    def __init__(self, shared: FetcherSurroundings, source: int, name: str) -> None:
        self._shared = shared
        self._source = source
        self._name = f"broker-{shared.registration.node}-{name}"
        self._bytes_max = ANY_FRAME_BYTES
        self._connection: Connection | None = None

    @property
    def bytes_max(self) -> int:
        """The longest answer that is taken, also to what was asked already."""
        return self._bytes_max

    @bytes_max.setter
    def bytes_max(self, value: int) -> None:
        self._bytes_max = value
        if self._connection is not None:
            self._connection.frame_bytes_max = value

    async def connect(self) -> bool:
        """Have a connection; True: it is a new one. OSError: it can't be had."""
        if self._connection is not None and self._connection.is_open:
            return False
        endpoint = self._shared.endpoint(self._source)
        if endpoint is None:
            raise ConnectionError("it is not registered")
        self._connection = await dial(
            self._shared.runtime,
            *endpoint,
            self._name,
            timeout_ms=self._shared.settings.replica_socket_timeout_ms,
        )
        return True

    async def ask(self, request: Request, *, wait_ms: int = 0) -> Any:
        """Send what the peer may hold back for `wait_ms`; return its answer.

        OSError: there is none. UnreadableAnswerError, one of them: it is larger than `bytes_max`,
        or makes no sense.
        """
        if self._connection is None:
            raise ConnectionError("the connection was closed here")
        self._connection.frame_bytes_max = self._bytes_max
        return await self._connection.send(
            request,
            version=VERSIONS[request.KEY],
            timeout_ms=self._shared.settings.replica_socket_timeout_ms + wait_ms,
        )

    def drop(self) -> None:
        """Close the connection; a question under way gets no answer."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def records_bytes_max(settings: NodeSettings, batch_bytes: int) -> int:
    """Return how many bytes of records an answer may have, if no batch is larger than this.

    One batch is given whole, however little was asked for.
    """
    return max(0, settings.replica_fetch_response_max_bytes) + batch_bytes


def frame_bytes_max(records_max: int, partitions: int) -> int:
    """Return how large a frame may be that answers for so many partitions."""
    return min(ANY_FRAME_BYTES, records_max + _HEAD_BYTES + partitions * _PARTITION_BYTES)


def fetch_request(
    shared: FetcherSurroundings, named: Mapping[PartitionKey, Position], wait_ms: int = 0
) -> wire.FetchRequest:
    """Return a request that names these partitions, without a session."""
    topics: dict[bytes, list[wire.FetchPartition]] = {}
    bytes_max = shared.settings.replica_fetch_max_bytes
    for (topic_id, index), position in named.items():
        topics.setdefault(topic_id, []).append(
            wire.FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.end,
                last_fetched_epoch=position.last_epoch,
                log_start_offset=position.start,
                partition_max_bytes=bytes_max,
            )
        )
    return wire.FetchRequest(
        replica_state=wire.ReplicaState(
            replica_id=shared.registration.node, replica_epoch=shared.registration.epoch
        ),
        max_wait_ms=wait_ms,
        min_bytes=shared.settings.replica_fetch_min_bytes,
        max_bytes=shared.settings.replica_fetch_response_max_bytes,
        topics=[
            wire.FetchTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
    )


def forgotten_topics(keys: Collection[PartitionKey]) -> list[wire.ForgottenTopic]:
    """Return what a request of a session says of partitions that are not fetched any more."""
    leaving: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        leaving.setdefault(topic_id, []).append(index)
    return [
        wire.ForgottenTopic(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in leaving.items()
    ]


def offsets_request(
    node: int, asked: Iterable[Following], timestamp: int
) -> list_offsets.ListOffsetsRequest:
    """Return the question where these logs begin, or where they end, at their leader."""
    topics: dict[str, list[list_offsets.ListOffsetsPartition]] = {}
    for following in asked:
        topics.setdefault(following.replica.held.topic, []).append(
            list_offsets.ListOffsetsPartition(
                partition_index=following.replica.held.index,
                current_leader_epoch=following.replica.leader_epoch,
                timestamp=timestamp,
            )
        )
    return list_offsets.ListOffsetsRequest(
        replica_id=node,
        topics=[
            list_offsets.ListOffsetsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
