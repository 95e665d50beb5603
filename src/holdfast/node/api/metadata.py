"""Metadata (3), versions 0-13: brokers, topics and leaders, from this broker's image.

Versions: 0 reads an empty list as all topics, later ones as none; 4 lets the client forbid that a
topic is created; 6 tells a missing listener from a missing leader; 10 has topic ids, 12 asks by
them. A topic that is created on the way is unknown until it is up.

Rules: topics.md#metadata-answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.core.metadata import image
from holdfast.core.metadata.image import Partition, Topic
from holdfast.core.metadata.topic_names import INTERNAL_TOPICS, refuse_name
from holdfast.node.api.auto_creation import AutoCreation
from holdfast.node.api.describe_cluster import cluster_operations, controller_id
from holdfast.node.api.metadata_answer import Entry, Maker, Operations
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
from holdfast.runtime.sliced_work import REST, Steps
from holdfast.wire.codec import decode, encode
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
BY_ID_SINCE: Final = 12  # versions 10 and 11 have a place for ids, and don't take them
BYTES_A_TURN: Final = 4 * 1024  # some 100 partitions, two milliseconds
ROUNDS_MAX: Final = 4  # over all topics, where much changes while pieces are made
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


def _asks_for_all(context: RequestContext, request: MetadataRequest) -> bool:
    none_means_all = context.version < EMPTY_MEANS_NONE_SINCE
    return request.topics is None or (none_means_all and not request.topics)


def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> Deferred:
    """Answer by joining pieces that are kept while nothing changes.

    At once if little is missing, else by turns with other such answers: after a change thousands of
    clients ask, and all that is made for one of them the others find.
    """
    deferred = context.defer_encoded(context.version >= MetadataResponse.FLEXIBLE)
    steps = _make(broker, context, request)
    try:
        wanted = next(steps)
    except StopIteration as end:
        deferred.answer(end.value)
        return deferred
    queue = ("metadata", context.sender)
    deferred.lost = broker.metadata_work.begin(
        steps, wanted, queue=queue, done=deferred.answer, failed=deferred.abandon
    )
    return deferred


def _make(broker: Broker, context: RequestContext, request: MetadataRequest) -> Steps[bytes]:
    """Make what is missing, and again what has changed meanwhile; return the answer.

    All of it is as the image is in the turn in which it is put together.
    """
    if context.version < BY_ID_SINCE and _asks_by_id(request):
        return _refused(context, request)
    asked = entries = list(_entries(broker, context, request))
    operations = _operations(context, request)
    maker = _maker(broker, context, operations)
    for _ in range(ROUNDS_MAX):
        made, at_once = 0, True
        for size in maker.missing([each for each in entries if isinstance(each, Topic)]):
            made += size
            if made >= BYTES_A_TURN:
                yield REST
                made, at_once = 0, False
        if at_once:
            break
        # Of the same pieces, which the last one has held until now, unless brokers have changed.
        maker = _maker(broker, context, operations)
        entries = _as_they_are(broker, context, request, asked)
    return maker.join(_answer(broker, context, request, []), entries)


def _asks_by_id(request: MetadataRequest) -> bool:
    return any(
        each.name is None or bytes(each.topic_id) != NULL_UUID for each in request.topics or ()
    )


def _refused(context: RequestContext, request: MetadataRequest) -> bytes:
    """Refuse the whole request: nothing is said of brokers, either."""
    asked = dict.fromkeys((each.name or "", bytes(each.topic_id)) for each in request.topics or ())
    topics = [_unknown(ErrorCode.INVALID_REQUEST, name, topic_id) for name, topic_id in asked]
    return encode(MetadataResponse(topics=topics), context.version)


def _maker(broker: Broker, context: RequestContext, operations: Operations | None) -> Maker:
    views = _views(broker, context)

    def find(topic_id: bytes) -> Topic | None:
        return broker.image.topics_by_id.get(topic_id)  # another dict after a snapshot

    return Maker(
        broker.topic_pieces.view(context.client.listener, context.version),
        context.version,
        lambda topic, partitions: _known(topic, partitions, views),
        find,
        operations,
    )


def _as_they_are(
    broker: Broker, context: RequestContext, request: MetadataRequest, entries: list[Entry]
) -> list[Entry]:
    """Return each topic as it is now: its object is another one after a snapshot."""
    if _asks_for_all(context, request):
        return list(_all_of_them(broker, context))
    by_id = broker.image.topics_by_id
    if all(not isinstance(each, Topic) or by_id.get(each.topic_id) is each for each in entries):
        return entries
    ids = {bytes(each.topic_id) for each in request.topics or ()}
    return [
        by_id.get(each.topic_id) or _gone(each, by_id=each.topic_id in ids)
        if isinstance(each, Topic)
        else each
        for each in entries
    ]


def _gone(topic: Topic, *, by_id: bool) -> Entry:
    """What is said of a topic that was deleted while the answer was made."""
    if by_id:
        return _unknown(ErrorCode.UNKNOWN_TOPIC_ID, None, topic.topic_id)
    return _unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name)


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
            for each, found in _brokers(broker, context.client.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        topics=topics,
        cluster_authorized_operations=cluster_operations(context, request),
    )


def _brokers(broker: Broker, listener: str) -> list[tuple[image.Broker, image.Endpoint]]:
    """Find the brokers that a client is told of: never none, for this one does answer.

    librdkafka asks nobody any more after an answer without brokers (its issue 5301).
    """
    found = list(reachable(broker.image.alive_brokers(), listener))
    return found or list(reachable([broker.lifecycle.described], listener))


def _operations(context: RequestContext, request: MetadataRequest) -> Operations | None:
    if not request.include_topic_authorized_operations:
        return None
    return Operations(lambda topic: authorized_operations(context, ResourceType.TOPIC, topic.name))


def _entries(broker: Broker, context: RequestContext, request: MetadataRequest) -> Iterator[Entry]:
    """Yield each topic that is to be told of, and what is said of what is none."""
    if _asks_for_all(context, request):
        yield from _all_of_them(broker, context)
        return
    asked = request.topics or ()
    creation = AutoCreation(broker, context)
    # Rules: connections.md#what-is-named-twice.
    for each in {(bytes(each.topic_id), each.name): each for each in asked}.values():
        if bytes(each.topic_id) != NULL_UUID:
            yield _by_id(broker, context, bytes(each.topic_id))
        elif each.name is None:
            yield _unknown(ErrorCode.UNKNOWN_TOPIC_ID, None)
        else:
            yield _by_name(broker, context, request, each.name, creation)
    creation.send()


def _all_of_them(broker: Broker, context: RequestContext) -> Iterator[Topic]:
    for topic in broker.image.topics.values():
        if refusal(context, topic.name) is None:
            yield topic


def _by_id(broker: Broker, context: RequestContext, topic_id: bytes) -> Entry:
    topic = broker.image.topics_by_id.get(topic_id)
    if topic is None:
        return _unknown(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    refused = refusal(context, topic.name)
    if refused is not None:
        # As Apache Kafka has it, an id is no secret, but the name that it stands for is.
        return _unknown(refused.code, None, topic_id)
    return topic


def _by_name(
    broker: Broker,
    context: RequestContext,
    request: MetadataRequest,
    name: str,
    creation: AutoCreation,
) -> Entry:
    refused = refusal(context, name)
    if refused is not None:
        return _unknown(refused.code, name)
    topic = broker.image.topics.get(name)
    if topic is not None:
        return topic
    if refuse_name(name) is not None:
        return _unknown(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable:
        return _unknown(creation.ask(name), name)
    return _unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _known(
    topic: Topic, partitions: Iterable[Partition], views: Reachable
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
        topic_authorized_operations=NOT_REQUESTED,
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
