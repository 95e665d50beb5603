"""OffsetForLeaderEpoch (key 23): where an epoch ends in the leader's log (KIP-101, KIP-320).

Served: 2 to 4. Consumers ask after a leader change whether what they read still stands; librdkafka
asks in version 2 exactly. Followers learn the same from Fetch.

Rules: replication.md#look-up-by-consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.node.context import Operation, RequestContext, ResourceType
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import offset_for_leader_epoch as wire

if TYPE_CHECKING:
    from holdfast.node.broker import Broker


def handle(
    broker: Broker, context: RequestContext, request: wire.OffsetForLeaderEpochRequest
) -> wire.OffsetForLeaderEpochResponse:
    """Look up each partition's epoch cache."""
    topics = []
    for topic in request.topics:
        allowed = context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        answers = []
        for asked in topic.partitions:
            answer = wire.EpochEndOffset(partition=asked.partition)
            answers.append(answer)
            if allowed:
                _look_up(broker, topic.topic, asked, answer)
            else:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics.append(wire.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return wire.OffsetForLeaderEpochResponse(topics=topics)


def _look_up(
    broker: Broker,
    topic: str,
    asked: wire.OffsetForLeaderPartition,
    answer: wire.EpochEndOffset,
) -> None:
    partition, error = broker.partitions.find(topic, asked.partition)
    if partition is not None:
        error = partition.refusal(asked.current_leader_epoch)
    answer.error_code = error
    if error is ErrorCode.NONE:
        assert partition is not None
        assert partition.log is not None
        answer.leader_epoch, answer.end_offset = partition.log.epoch_end(asked.leader_epoch)
