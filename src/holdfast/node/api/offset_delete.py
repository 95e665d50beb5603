"""OffsetDelete (key 47), version 0: forget what a group has committed of some topics.

Rules: committed-offsets.md#deletion.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.group.append_errors import append_error
from holdfast.node.api.committed_topics import Sorted, join_topics, sort_topics
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> Any:
    why = refusal(context, request.group_id)
    if why is not None:
        return OffsetDeleteResponse(error_code=why.code)
    topics = sort_topics(broker, context, request.topics)
    told = [_told(each) for each in topics if each.refused]
    request.topics = [
        OffsetDeleteRequestTopic(name=each.name, partitions=each.known)
        for each in topics
        if each.known
    ]

    def refused(code: ErrorCode) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=append_error(code))

    def complete(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code == ErrorCode.NONE:
            response.topics = join_topics(response.topics, told)
        return response

    return broker.groups.coordinator.ask(
        context,
        request.group_id,
        lambda shard, caller, now_ms: shard.delete_offsets(caller, request, now_ms),
        refused,
        complete=complete,
    )


def _told(topic: Sorted[Any]) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            for index, code in topic.refused
        ],
    )
