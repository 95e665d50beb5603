"""DescribeTopicPartitions (75), version 0: topics in pages, for administrators.

Topics come sorted by name; a page ends after so many partitions and says where the next begins.
"""

from __future__ import annotations

from holdfast.core.metadata.image import Topic
from holdfast.core.metadata.topic_names import INTERNAL_TOPICS, refuse_name
from holdfast.node.api.partition_view import Reachable
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import (
    RequestContext,
    ResourceType,
    authorized_operations,
    refusal,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = broker.image
    cursor = request.cursor
    every = not request.topics
    names = image.topics.keys() if every else {topic.name for topic in request.topics}
    reachable = Reachable(image, context.client.listener)
    limit_max = broker.settings.max_request_partition_size_limit
    left = max(1, min(request.response_partition_limit, limit_max))
    response = DescribeTopicPartitionsResponse()
    if cursor is not None and (
        cursor.partition_index < 0 or not (every or cursor.topic_name in names)
    ):
        refusals = (_refused(ErrorCode.INVALID_REQUEST, name) for name in sorted(names))
        response.topics.extend([] if every else refusals)
        return response
    for name in sorted(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        topic = image.topics.get(name)
        refused = refusal(context, name)
        if refused is not None:
            if not every:
                response.topics.append(_refused(refused.code, name))
            continue
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if refuse_name(name) is not None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            unknown = _refused(code, name)
            unknown.topic_authorized_operations = _operations(context, name)
            response.topics.append(unknown)
            continue
        first = cursor.partition_index if cursor and name == cursor.topic_name else 0
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        last = min(len(topic.partitions), first + left)
        response.topics.append(_page(context, topic, first, last, reachable))
        left -= max(0, last - first)
        if last < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return response


def _page(
    context: RequestContext, topic: Topic, first: int, last: int, reachable: Reachable
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=partition.index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=offline,
            )
            for partition, error, leader, offline in map(
                reachable.view, topic.partitions[first:last]
            )
        ],
        topic_authorized_operations=_operations(context, topic.name),
    )


def _operations(context: RequestContext, name: str) -> int:
    """Return what the client may do with a topic, whether there is one of that name or not."""
    return authorized_operations(context, ResourceType.TOPIC, name)


def _refused(code: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=name in INTERNAL_TOPICS
    )
