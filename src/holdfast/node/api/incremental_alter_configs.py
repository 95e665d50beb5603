"""IncrementalAlterConfigs (44), versions 0-1: brokers forward it, the controller decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.core import image
from holdfast.core.configs import incremental_alter_configs
from holdfast.core.image import ConfigResource
from holdfast.core.state import Refusal
from holdfast.node.context import (
    CLUSTER_NAME,
    Deferred,
    Operation,
    RequestContext,
    ResourceType,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Deferred:
    refusals = refuse_resources(
        context, [(each.resource_type, each.resource_name) for each in request.resources]
    )
    return controller.decide(
        context, lambda state, _: incremental_alter_configs(state, request, refusals=refusals)
    )


def refuse_resources(
    context: RequestContext, resources: Iterable[ConfigResource]
) -> dict[ConfigResource, Refusal]:
    """The resources whose configuration the requester may not alter."""
    refusals = {}
    for kind, name in resources:
        if kind == image.ResourceType.TOPIC:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            allowed = context.allows(Operation.ALTER_CONFIGS, ResourceType.TOPIC, name)
        else:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            allowed = context.allows(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
        if not allowed:
            refusals[kind, name] = Refusal(
                code, f"{context.principal} may not alter the configuration of '{name}'."
            )
    return refusals


def refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    """Refuse the whole request."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        ]
    )
