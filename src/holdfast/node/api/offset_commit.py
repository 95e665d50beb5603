"""OffsetCommit (key 8), versions 2 to 10: a group goes on from here.

Version 10 names topics by their ids. Partitions that are not there are refused one by one; the
others are committed all the same.

Rules: committed-offsets.md#committing, committed-offsets.md#who-may-commit.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.group.append_errors import commit_append_error
from holdfast.core.group.offsets.offset_requests import commit_refused
from holdfast.node.api.committed_topics import Sorted, join_topics, sort_topics
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.uuids import NULL_UUID

TOPIC_IDS_SINCE: Final = 10


def handle(broker: Broker, context: RequestContext, request: OffsetCommitRequest) -> Any:
    why = refusal(context, request.group_id)
    if why is not None:
        return commit_refused(request, why.code)
    by_id = context.version >= TOPIC_IDS_SINCE
    topics = sort_topics(broker, context, request.topics, by_id=by_id)
    told = [_told(each) for each in topics if each.refused]
    if told and not any(each.known for each in topics):
        return OffsetCommitResponse(topics=told)
    request.topics = [
        OffsetCommitRequestTopic(
            name=each.name,
            topic_id=_id_of(broker, each),
            partitions=each.known,
        )
        for each in topics
        if each.known
    ]

    def complete(response: OffsetCommitResponse) -> OffsetCommitResponse:
        response.topics = join_topics(response.topics, told)
        return response

    return broker.groups.coordinator.ask(
        context,
        request.group_id,
        lambda shard, caller, now_ms: shard.commit_offsets(caller, request, now_ms),
        lambda code: complete(commit_refused(request, _code(code))),
        complete=complete if told else None,
        records=sum(len(each.known) for each in topics),
        shares_batch=True,
    )


def _code(code: ErrorCode) -> ErrorCode:
    """Old clients know one name for a coordinator that is not ready: as Apache Kafka."""
    return commit_append_error(code)


def _id_of(broker: Broker, topic: Sorted[Any]) -> bytes:
    """Return the id of the topic that is there now, to be kept with the offset."""
    known = broker.image.topics.get(topic.name)
    return NULL_UUID if known is None else known.topic_id


def _told(topic: Sorted[Any]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index, code in topic.refused
        ],
    )
