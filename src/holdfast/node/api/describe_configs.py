"""DescribeConfigs (32), versions 1-4: every key with its value and where it comes from.

Versions: 3 adds types and documentation. A broker answers for topics, for groups, for itself, and
for the defaults of all brokers (the empty name); a controller for what stands in its properties
file, and may not change: what is decided, its image has before it is committed. What a node tells
of itself beside its configuration (`config.figures`) is answered by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from holdfast.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from holdfast.core.metadata.topic_names import refuse_name
from holdfast.core.refusal import Refusal
from holdfast.node.door.request_context import RequestContext, config_refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from holdfast.wire.structs import ResourceType

if TYPE_CHECKING:
    from holdfast.node.broker.broker import Broker
    from holdfast.node.controller.controller import Controller


def handle(
    broker: Broker, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return _answer(request, lambda asked: _describe(broker, context, asked))


def handle_on_controller(
    controller: Controller, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return _answer(request, lambda asked: _describe_controller(controller, context, asked))


def _answer(
    request: DescribeConfigsRequest,
    describe: Callable[[DescribeConfigsResource], list[ConfigEntry] | Refusal],
) -> DescribeConfigsResponse:
    results = []
    # Rules: connections.md#what-is-named-twice. Other keys of the same one are another question.
    resources = {
        (
            each.resource_type,
            each.resource_name,
            None if each.configuration_keys is None else tuple(each.configuration_keys),
        ): each
        for each in request.resources
    }
    for asked in resources.values():
        found = describe(asked)
        result = DescribeConfigsResult(
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            error_message=None,
        )
        if isinstance(found, Refusal):
            result.error_code, result.error_message = found.code, found.message
        else:
            result.configs = [_entry(request, entry) for entry in found]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: Broker, context: RequestContext, asked: DescribeConfigsResource
) -> list[ConfigEntry] | Refusal:
    refused = config_refusal(context, asked.resource_type, asked.resource_name)
    if refused is not None:
        return refused
    names = frozenset(asked.configuration_keys or ()) or None  # an empty list asks for all, too
    if asked.resource_type == ResourceType.TOPIC:
        return _topic(broker, asked.resource_name, names)
    if asked.resource_type == ResourceType.BROKER:
        return _broker(broker, asked.resource_name, names)
    if asked.resource_type == ResourceType.GROUP:
        return _group(broker, asked.resource_name, names)
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"Resource type {asked.resource_type} has no configuration here: topics "
        f"({ResourceType.TOPIC:d}), brokers ({ResourceType.BROKER:d}) and groups "
        f"({ResourceType.GROUP:d}) have.",
    )


def _describe_controller(
    controller: Controller, context: RequestContext, asked: DescribeConfigsResource
) -> list[ConfigEntry] | Refusal:
    refused = config_refusal(context, asked.resource_type, asked.resource_name)
    if refused is not None:
        return refused
    own = str(controller.settings.node_id)
    if (asked.resource_type, asked.resource_name) != (ResourceType.BROKER, own):
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"A controller tells of itself alone (type {ResourceType.BROKER:d}, name '{own}'): "
            "ask a broker.",
        )
    names = frozenset(asked.configuration_keys or ()) or None
    described = describe_broker(static=controller.settings.properties, names=names)
    fixed = [entry for entry in described if entry.read_only]
    return fixed + controller.figures.entries(names)


def _topic(broker: Broker, name: str, names: Collection[str] | None) -> list[ConfigEntry] | Refusal:
    illegal = refuse_name(name)
    if illegal is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, illegal)
    image = broker.image
    if name not in image.topics:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return describe_topic(
        image.topic_configs(name),
        cluster=image.cluster_configs(),
        broker=image.broker_configs(broker.settings.node_id),
        static=broker.settings.properties,
        names=names,
    )


def _group(broker: Broker, name: str, names: Collection[str] | None) -> list[ConfigEntry] | Refusal:
    """Describe a group, which need not be there."""
    if name == "":
        return Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    image = broker.image
    return describe_group(
        image.group_configs(name),
        cluster=image.cluster_configs(),
        broker=image.broker_configs(broker.settings.node_id),
        static=broker.settings.properties,
        names=names,
    )


def _broker(
    broker: Broker, name: str, names: Collection[str] | None
) -> list[ConfigEntry] | Refusal:
    image = broker.image
    if name == "":
        return describe_cluster_default(image.cluster_configs(), names=names)
    own = broker.settings.node_id
    if name != str(own):
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own} or an empty name, but received '{name}': a "
            "broker knows its own properties file only.",
        )
    described = describe_broker(
        cluster=image.cluster_configs(),
        broker=image.broker_configs(own),
        static=broker.settings.properties,
        names=names,
    )
    return described + broker.figures.entries(names)


def _entry(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
