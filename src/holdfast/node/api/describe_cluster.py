"""DescribeCluster (60), versions 0-2: who is there, for an administrator.

Versions: 1 asks brokers for brokers and controllers for controllers; 2 can show fenced brokers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.node.api.partition_view import reachable
from holdfast.node.door.request_context import (
    CLUSTER_NAME,
    NOT_REQUESTED,
    RequestContext,
    ResourceType,
    authorized_operations,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from holdfast.node.broker.broker import Broker
    from holdfast.node.controller.controller import Controller

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return _wrong_endpoint(request, CONTROLLERS, "brokers")
    image = broker.image
    asked = (
        [image.brokers[broker_id] for broker_id in sorted(image.brokers)]
        if request.include_fenced_brokers
        else image.alive_brokers()
    )
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        brokers=[
            DescribeClusterBroker(
                broker_id=each.broker_id,
                host=found.host,
                port=found.port,
                rack=each.rack,
                is_fenced=each.fenced,
            )
            for each, found in reachable(asked, context.client.listener)
        ],
        cluster_authorized_operations=cluster_operations(context, request),
    )


def handle_on_controller(
    controller: Controller, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != CONTROLLERS:
        return _wrong_endpoint(request, BROKERS, "controllers")
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=controller.cluster_id,
        controller_id=controller.quorum.leader_id,
        brokers=[
            DescribeClusterBroker(broker_id=voter.node_id, host=voter.host, port=voter.port)
            for voter in controller.quorum.voters.voters
        ],
        cluster_authorized_operations=cluster_operations(context, request),
    )


def controller_id(broker: Broker) -> int:
    """A broker that is up, by chance: clients send there what brokers forward.

    Rules: topics.md#controller-for-clients.
    """
    alive = broker.image.alive_brokers()
    return alive[broker.runtime.random.below(len(alive))].broker_id if alive else -1


def cluster_operations(
    context: RequestContext, request: DescribeClusterRequest | MetadataRequest
) -> int:
    if not request.include_cluster_authorized_operations:
        return NOT_REQUESTED
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def _wrong_endpoint(
    request: DescribeClusterRequest, other: int, here: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == other
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        ),
        error_message=f"This listener knows {here} only; endpoint type {request.endpoint_type} "
        "was asked for.",
    )
