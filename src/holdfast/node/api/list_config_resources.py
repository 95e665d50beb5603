"""ListConfigResources (key 74), versions 0 and 1: what there is that has a configuration.

Version 0 lists subscriptions to clients' metrics alone (KIP-714), of which there are none here; 1
whatever kinds are asked for, and without any all of them (KIP-1142). A kind is listed once however
often it is named, and the kinds in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from holdfast.node.api.partition_view import reachable
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from holdfast.wire.structs import ResourceType

BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

Names = Callable[[Broker, RequestContext], Iterable[str]]


def handle(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    kinds = set(request.resource_types) or NAMES.keys()
    if context.version == 0:
        kinds = {CLIENT_METRICS}
    if not kinds <= NAMES.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in NAMES.items()
            if kind in kinds
            for name in names(broker, context)
        ]
    )


def _groups(broker: Broker, _context: RequestContext) -> Iterable[str]:
    """Groups that have settings of their own; whether they have members is nothing to them."""
    return [name for kind, name in broker.image.configs if kind == GROUP]


def _subscriptions(_broker: Broker, _context: RequestContext) -> Iterable[str]:
    return ()


def _brokers(broker: Broker, context: RequestContext) -> Iterable[str]:
    """Brokers that the client can reach."""
    alive = broker.image.alive_brokers()
    return [str(each.broker_id) for each, _ in reachable(alive, context.client.listener)]


def _topics(broker: Broker, _context: RequestContext) -> Iterable[str]:
    return broker.image.topics


# By kind, in the order in which Apache Kafka lists them.
NAMES: Final[Mapping[int, Names]] = {
    GROUP: _groups,
    CLIENT_METRICS: _subscriptions,
    BROKER_LOGGER: _brokers,
    ResourceType.BROKER: _brokers,
    ResourceType.TOPIC: _topics,
}
