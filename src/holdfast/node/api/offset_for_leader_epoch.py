"""OffsetForLeaderEpoch (key 23): where an epoch ends in the leader's log (KIP-101, KIP-320).

Served: 2 to 4. Consumers ask after a leader change whether what they read still stands; librdkafka
asks in version 2 exactly. Followers learn the same from Fetch.

Rules: replication.md#look-up-by-consumers.
"""

from __future__ import annotations

from holdfast.core.refusal import Refusal
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import offset_for_leader_epoch as wire


def handle(
    broker: Broker, context: RequestContext, request: wire.OffsetForLeaderEpochRequest
) -> wire.OffsetForLeaderEpochResponse:
    """Look up each partition's epoch cache."""
    topics = []
    for topic in request.topics:
        refused = refusal(context, topic.topic)
        answers = [_look_up(broker, topic.topic, asked, refused) for asked in topic.partitions]
        topics.append(wire.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return wire.OffsetForLeaderEpochResponse(topics=topics)


def _look_up(
    broker: Broker, topic: str, asked: wire.OffsetForLeaderPartition, refused: Refusal | None
) -> wire.EpochEndOffset:
    answer = wire.EpochEndOffset(partition=asked.partition)
    leading = (
        broker.partitions.leading(topic, asked.partition, asked.current_leader_epoch)
        if refused is None
        else refused.code
    )
    if isinstance(leading, ErrorCode):
        answer.error_code = leading
    else:
        answer.leader_epoch, answer.end_offset = leading.log.epoch_end(asked.leader_epoch)
    return answer
