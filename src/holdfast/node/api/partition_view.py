"""A partition as a client sees it: its leader if the client can reach it, and who is offline.

Owns the error that a partition carries in Metadata and in DescribeTopicPartitions.
"""

from __future__ import annotations

from holdfast.core.metadata.image import NO_LEADER, MetadataImage, Partition
from holdfast.wire.errors import ErrorCode


class Reachable:
    """Which brokers a client of one listener can reach, looked up once per request."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._reachable = {
            broker.broker_id: broker
            for broker in image.alive_brokers()
            if broker.endpoint(listener) is not None
        }
        self._alive = {broker.broker_id for broker in image.alive_brokers()}

    def view(self, partition: Partition) -> tuple[ErrorCode, int, list[int]]:
        """Return an error or NONE, who leads, and whose broker or disk is not there (KIP-858).

        A leader without this listener is an error of its own: waiting does not help.
        """
        reachable = self._reachable
        offline = [
            node
            for node in partition.replicas
            if node not in reachable
            or not reachable[node].has_directory(partition.directory_of(node))
        ]
        leader = partition.leader
        if leader == NO_LEADER or leader not in self._alive:
            return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline
        if leader not in self._reachable:
            return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, offline
        return ErrorCode.NONE, leader, offline
