"""OffsetFetch (key 9): whoever wants to go on where a group ended is told that there are no groups.

Served: 1 to 9, and refused in each. A consumer that was assigned a partition without an offset asks
for its group's. It has to be answered: librdkafka crashes with its user's process where OffsetFetch
is not served (librdkafka issue 4789). Before version 8 the error stands at each partition, too:
version 1 has no other place for it.
"""

from __future__ import annotations

from typing import Final

from holdfast.node.api.join_group import NO_GROUPS
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

SEVERAL_GROUPS_SINCE: Final = 8
NO_OFFSET: Final = -1


def handle(
    _broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    if context.version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=(refusal(context, group.group_id) or NO_GROUPS).code,
                )
                for group in request.groups
            ]
        )
    code = (refusal(context, request.group_id) or NO_GROUPS).code
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )
