"""Metadata (3), versions 0-13: brokers, topics and leaders, from this broker's image.

Versions: 0 reads an empty list as all topics, later ones as none; 4 lets the client forbid that a
topic is created; 6 tells a missing listener from a missing leader; 10 has topic ids, 12 asks by
them. A topic that is created on the way is LEADER_NOT_AVAILABLE until it is up.

Rules: topics.md#metadata-answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.metadata.image import Topic
from holdfast.core.metadata.topic_names import INTERNAL_TOPICS, refuse_name
from holdfast.node.api.auto_creation import AutoCreation
from holdfast.node.api.describe_cluster import cluster_operations, controller_id
from holdfast.node.api.partition_view import Reachable, reachable
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import (
    NOT_REQUESTED,
    RequestContext,
    ResourceType,
    authorized_operations,
    refusal,
)
from holdfast.wire.codec import decode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.uuids import NULL_UUID

EMPTY_MEANS_NONE_SINCE: Final = 1
LISTENER_NOT_FOUND_SINCE: Final = 6
TWO_BOOLEANS_SINCE: Final = 11
ALL_TOPICS_QUIRK: Final = bytes(4)  # null, false, false, no tagged fields


def decode_request(version: int, frame: memoryview | bytes, offset: int) -> MetadataRequest:
    """Decode by the table, and forgive librdkafka what Apache Kafka forgives it.

    Asking for all topics, it leaves three bytes of a placeholder behind the null array. Kafka stops
    reading after the fields that it knows, so it reads two false booleans out of the placeholder.
    """
    quirk = version >= TWO_BOOLEANS_SINCE and len(frame) - offset == len(ALL_TOPICS_QUIRK) + 3
    if quirk and bytes(frame[offset : offset + len(ALL_TOPICS_QUIRK)]) == ALL_TOPICS_QUIRK:
        frame = frame[: offset + len(ALL_TOPICS_QUIRK)]
    return decode(MetadataRequest, version, frame, offset)


def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker_id, host=found.host, port=found.port, rack=each.rack
            )
            for each, found in reachable(broker.image.alive_brokers(), context.client.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        topics=list(_topics(broker, context, request)),
        cluster_authorized_operations=cluster_operations(context, request),
    )


def _topics(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> Iterable[MetadataResponseTopic]:
    told = context.version >= LISTENER_NOT_FOUND_SINCE
    elsewhere = ErrorCode.LISTENER_NOT_FOUND if told else ErrorCode.LEADER_NOT_AVAILABLE
    views = Reachable(broker.image, context.client.listener, elsewhere)
    asked = request.topics
    if asked is None or (not asked and context.version < EMPTY_MEANS_NONE_SINCE):
        for topic in broker.image.topics.values():
            if refusal(context, topic.name) is None:
                yield _known(context, request, topic, views)
        return
    creation = AutoCreation(broker, context)
    # Rules: connections.md#what-is-named-twice.
    for each in {(bytes(each.topic_id), each.name): each for each in asked}.values():
        if bytes(each.topic_id) != NULL_UUID:
            yield _by_id(broker, context, request, bytes(each.topic_id), views)
        elif each.name is None:
            yield _unknown(ErrorCode.UNKNOWN_TOPIC_ID, None)
        else:
            yield _by_name(broker, context, request, each.name, views, creation)
    creation.send()


def _by_id(
    broker: Broker,
    context: RequestContext,
    request: MetadataRequest,
    topic_id: bytes,
    views: Reachable,
) -> MetadataResponseTopic:
    topic = broker.image.topics_by_id.get(topic_id)
    if topic is None:
        return _unknown(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    refused = refusal(context, topic.name)
    if refused is not None:
        # As Apache Kafka has it, an id is no secret, but the name that it stands for is.
        return _unknown(refused.code, None, topic_id)
    return _known(context, request, topic, views)


def _by_name(
    broker: Broker,
    context: RequestContext,
    request: MetadataRequest,
    name: str,
    views: Reachable,
    creation: AutoCreation,
) -> MetadataResponseTopic:
    refused = refusal(context, name)
    if refused is not None:
        return _unknown(refused.code, name)
    topic = broker.image.topics.get(name)
    if topic is not None:
        return _known(context, request, topic, views)
    if refuse_name(name) is not None:
        return _unknown(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable:
        return _unknown(creation.ask(name), name)
    return _unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _known(
    context: RequestContext, request: MetadataRequest, topic: Topic, views: Reachable
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=error,
                partition_index=partition.index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=offline,
            )
            for partition, error, leader, offline in map(views.view, topic.partitions)
        ],
        topic_authorized_operations=(
            authorized_operations(context, ResourceType.TOPIC, topic.name)
            if request.include_topic_authorized_operations
            else NOT_REQUESTED
        ),
    )


def _unknown(
    code: ErrorCode, name: str | None, topic_id: bytes = NULL_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
    )
