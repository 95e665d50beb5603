"""OffsetFetch (key 9), versions 1 to 10: where groups go on.

Several groups in one request from version 8 on; topics by their ids from 10 on. Before version 2
an error of the group stands at each partition: there is no other place for it.

Rules: committed-offsets.md#fetching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.coordinator import Asked, GroupPart, Told
from holdfast.node.coordinator.pieces import Piece, Pieces
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from holdfast.wire.uuids import NULL_UUID

GROUP_ERROR_SINCE: Final = 2
SEVERAL_GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
NO_OFFSET: Final = -1


def handle(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Any:
    version = context.version
    if version < SEVERAL_GROUPS_SINCE:
        group = OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)
        return broker.groups.coordinator.ask_groups(
            context,
            [_part(broker, context, group, request.require_stable, lambda found: found)],
            lambda found: _of_one_group(version, group, found[0]),
            is_flexible=version >= OffsetFetchResponse.FLEXIBLE,
        )
    pieces = Pieces(lambda groups: OffsetFetchResponse(groups=groups), version)

    def tell(found: OffsetFetchResponseGroup) -> Piece:
        return pieces.piece([found])

    # One that is named twice is looked up once: few bytes must not be much work.
    groups = {(each.group_id, each.topics is None): each for each in request.groups}
    return broker.groups.coordinator.ask_groups(
        context,
        (_part(broker, context, each, request.require_stable, tell) for each in groups.values()),
        pieces.join,
        is_flexible=pieces.is_flexible,
    )


def _of_one_group(
    version: int, asked: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    if found.error_code and version < GROUP_ERROR_SINCE:
        topics = [
            _refused_topic(topic, ErrorCode(found.error_code)) for topic in asked.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(topics=found.topics, error_code=found.error_code)


def _part(
    broker: Broker,
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    tell: Callable[[OffsetFetchResponseGroup], Any],
) -> GroupPart:
    """Return a part; `tell` makes what stands for it in the answer."""

    def refused(code: ErrorCode) -> Any:
        return tell(_refused(group.group_id, code))

    def id_now(name: str) -> bytes:
        known = broker.image.topics.get(name)
        return NULL_UUID if known is None else known.topic_id

    why = refusal(context, group.group_id)
    if why is not None:
        return Told(refused(why.code))
    told: list[OffsetFetchResponseTopic] = []
    wanted = group
    if group.topics is not None:
        wanted = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=_allowed(broker, context, group.topics, told),
        )
    complete = _completion(broker, context, told, shows_all=group.topics is None)
    return Asked(
        group.group_id,
        lambda shard, caller, now_ms: shard.fetch_offsets(
            caller, wanted, now_ms, require_stable=require_stable, id_now=id_now
        ),
        refused,
        lambda found: tell(complete(found)),
    )


def _allowed(
    broker: Broker,
    context: RequestContext,
    topics: Iterable[OffsetFetchRequestTopic],
    told: list[OffsetFetchResponseTopic],
) -> list[OffsetFetchRequestTopic]:
    """Return those topics that are known by their names and may be described; tell the others."""
    allowed = []
    for topic in topics:
        if context.version >= TOPIC_IDS_SINCE:
            known = broker.image.topics_by_id.get(bytes(topic.topic_id))
            if known is None:
                told.append(_refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            topic.name = known.name
        if refusal(context, topic.name, DESCRIBE_TOPIC) is not None:
            told.append(_refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            allowed.append(topic)
    return allowed


def _completion(
    broker: Broker,
    context: RequestContext,
    told: list[OffsetFetchResponseTopic],
    *,
    shows_all: bool,
) -> Callable[[OffsetFetchResponseGroup], OffsetFetchResponseGroup]:
    """Put what was refused into what a shard has found, and the ids of topics where all are told.

    Who asks by an id is answered with that, whatever has become of the topic since.
    """

    def complete(group: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        if group.error_code:
            return group
        topics = group.topics
        if shows_all:
            topics = [
                each for each in topics if refusal(context, each.name, DESCRIBE_TOPIC) is None
            ]
        if shows_all and context.version >= TOPIC_IDS_SINCE:
            known = broker.image.topics
            topics = [each for each in topics if each.name in known]
            for each in topics:
                each.topic_id = known[each.name].topic_id
        group.topics = topics + told
        return group

    return complete


def _refused_topic(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _refused(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    # Old clients know COORDINATOR_NOT_AVAILABLE in every answer about groups but in this one.
    told = append_error(code)
    if told is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        told = ErrorCode.NOT_COORDINATOR
    return OffsetFetchResponseGroup(group_id=group_id, error_code=told)
