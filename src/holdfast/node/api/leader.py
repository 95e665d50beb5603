"""Where the leader is, for the answers that tell a client so. Not an API of its own.

Rules: connections.md#leader-hints.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.metadata.image import NO_LEADER
from holdfast.node.api.partition_view import reachable
from holdfast.node.broker.broker import Broker
from holdfast.wire.messages.fetch import PartitionData
from holdfast.wire.messages.produce import PartitionProduceResponse
from holdfast.wire.structs import LeaderIdAndEpoch, LeaderNode


def name_leaders(
    broker: Broker,
    refused: Iterable[tuple[str, int, PartitionData | PartitionProduceResponse]],
    listener: str,
) -> list[LeaderNode]:
    """Put the leader that the image has into each answer (topic, partition, its answer).

    Return where those leaders listen.
    """
    leaders: dict[int, None] = {}
    for topic, index, answer in refused:
        decided = broker.image.partition(topic, index)
        if decided is not None and decided.leader != NO_LEADER:
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=decided.leader, leader_epoch=decided.leader_epoch
            )
            leaders[decided.leader] = None
    return endpoints(broker, leaders, listener)


def endpoints(broker: Broker, nodes: Iterable[int], listener: str) -> list[LeaderNode]:
    """Return where each broker is that has the listener the client came by."""
    registered = [broker.image.brokers[node] for node in nodes if node in broker.image.brokers]
    return [
        LeaderNode(node_id=each.broker_id, host=found.host, port=found.port, rack=each.rack)
        for each, found in reachable(registered, listener)
    ]
