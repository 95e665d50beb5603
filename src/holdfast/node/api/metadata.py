"""Metadata (3), versions 0-13: brokers, topics and leaders, from this broker's image.

Versions: 0 reads an empty list as all topics, later ones as none; 4 lets the client forbid that a
topic is created; 6 tells a missing listener from a missing leader; 10 has topic ids, 12 asks by
them. A topic that is created on the way is LEADER_NOT_AVAILABLE until it is up.

Rules: topics.md#metadata-answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.metadata.image import Partition, Topic
from holdfast.core.metadata.topic_names import INTERNAL_TOPICS, refuse_name
from holdfast.node.api.auto_creation import AutoCreation
from holdfast.node.api.describe_cluster import cluster_operations, controller_id
from holdfast.node.api.metadata_answer import Maker
from holdfast.node.api.partition_view import Reachable, reachable
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import (
    NOT_REQUESTED,
    Deferred,
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


def handle(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Deferred:
    if _asks_for_all(context, request) and not request.include_topic_authorized_operations:
        return _everything(broker, context, request)
    return _answer(broker, context, request, list(_topics(broker, context, request)))


def _asks_for_all(context: RequestContext, request: MetadataRequest) -> bool:
    none_means_all = context.version < EMPTY_MEANS_NONE_SINCE
    return request.topics is None or (none_means_all and not request.topics)


def _everything(broker: Broker, context: RequestContext, request: MetadataRequest) -> Deferred:
    """Answer with all topics, put together of pieces that are kept while nothing changes.

    All of it is as the image is in the turn in which it is put together.
    """
    deferred = context.defer_encoded(context.version >= MetadataResponse.FLEXIBLE)

    def maker() -> Maker:
        views = _views(broker, context)
        return Maker(
            broker.topic_pieces.view(context.client.listener, context.version),
            context.version,
            lambda topic, partitions: _known(context, request, topic, partitions, views),
        )

    def join() -> None:
        image = broker.image
        seen = [each for each in image.topics.values() if refusal(context, each.name) is None]
        deferred.answer(maker().join(_answer(broker, context, request, []), seen))

    # One that is deleted meanwhile leaves no piece behind.
    by_id = broker.image.topics_by_id
    everything = list(broker.image.topics.values())
    maker().fill((each for each in everything if each.topic_id in by_id), join)
    return deferred


def _views(broker: Broker, context: RequestContext) -> Reachable:
    told = context.version >= LISTENER_NOT_FOUND_SINCE
    elsewhere = ErrorCode.LISTENER_NOT_FOUND if told else ErrorCode.LEADER_NOT_AVAILABLE
    return Reachable(broker.image, context.client.listener, elsewhere)


def _answer(
    broker: Broker,
    context: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker_id, host=found.host, port=found.port, rack=each.rack
            )
            for each, found in reachable(broker.image.alive_brokers(), context.client.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        topics=topics,
        cluster_authorized_operations=cluster_operations(context, request),
    )


def _topics(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> Iterable[MetadataResponseTopic]:
    views = _views(broker, context)
    if _asks_for_all(context, request):
        for topic in broker.image.topics.values():
            if refusal(context, topic.name) is None:
                yield _known(context, request, topic, topic.partitions, views)
        return
    asked = request.topics or ()
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
    return _known(context, request, topic, topic.partitions, views)


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
        return _known(context, request, topic, topic.partitions, views)
    if refuse_name(name) is not None:
        return _unknown(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable:
        return _unknown(creation.ask(name), name)
    return _unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _known(
    context: RequestContext,
    request: MetadataRequest,
    topic: Topic,
    partitions: Iterable[Partition],
    views: Reachable,
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
            for partition, error, leader, offline in map(views.view, partitions)
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
