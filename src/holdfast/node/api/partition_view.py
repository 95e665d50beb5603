"""A partition as a client sees it: its leader if the client can reach it, and who is offline.

Owns the error that a partition carries in Metadata and in DescribeTopicPartitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.metadata.image import NO_LEADER, Broker, Endpoint, MetadataImage, Partition
from holdfast.wire.errors import ErrorCode


def reachable(brokers: Iterable[Broker], listener: str) -> Iterator[tuple[Broker, Endpoint]]:
    """Find those that a client of this listener can reach, and where."""
    for broker in brokers:
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            yield broker, endpoint


class Reachable:
    """Which brokers a client of one listener can reach, looked up once per request."""

    def __init__(
        self,
        image: MetadataImage,
        listener: str,
        elsewhere: ErrorCode = ErrorCode.LISTENER_NOT_FOUND,
    ) -> None:
        """`elsewhere` is the error of a leader without this listener: waiting does not help."""
        alive = image.alive_brokers()
        self._alive = {broker.broker_id for broker in alive}
        self._reachable = {broker.broker_id: broker for broker, _ in reachable(alive, listener)}
        self._elsewhere = elsewhere

    def view(self, partition: Partition) -> tuple[Partition, ErrorCode, int, list[int]]:
        """Return it with an error or NONE, who leads, and whose broker or disk is not there."""
        offline = [
            node
            for node in partition.replicas
            if node not in self._reachable
            or not self._reachable[node].has_directory(partition.directory_of(node))
        ]
        leader = partition.leader
        if leader == NO_LEADER or leader not in self._alive:
            return partition, ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline
        if leader not in self._reachable:
            return partition, self._elsewhere, NO_LEADER, offline
        return partition, ErrorCode.NONE, leader, offline
