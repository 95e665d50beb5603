"""IncrementalAlterConfigs (44), versions 0-1: brokers forward it, the controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.config.registry import unknown_broker_keys
from holdfast.core.controller.config_changes import incremental_alter_configs
from holdfast.core.metadata.image import ConfigResource
from holdfast.core.refusal import Refusal, shown
from holdfast.node.door.request_context import Deferred, RequestContext, config_refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.alter_configs import AlterConfigsRequest
from holdfast.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from holdfast.wire.structs import AlteredResource, ResourceType

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Deferred:
    warn_of_unknown(controller, request)
    return controller.decide(
        context,
        lambda state, _: incremental_alter_configs(
            state, request, refusals=refuse_resources(context, request)
        ),
    )


def warn_of_unknown(
    controller: Controller, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
) -> None:
    """Say in the log which keys of brokers do nothing: they are kept, and may be slips."""
    asked = (each for each in request.resources if each.resource_type == ResourceType.BROKER)
    names = unknown_broker_keys(config.name for each in asked for config in each.configs)
    if names:
        controller.unknown_keys.warning(
            "nobody knows the broker config %s (%d such in one request); is it spelt right?",
            shown(names[0]),
            len(names),
        )


def refuse_resources(
    context: RequestContext, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
) -> dict[ConfigResource, Refusal]:
    """The resources whose configuration the requester may not alter."""
    resources = ((each.resource_type, each.resource_name) for each in request.resources)
    found = ((resource, config_refusal(context, *resource)) for resource in resources)
    return {resource: why for resource, why in found if why is not None}


def refused(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest, code: ErrorCode, message: str
) -> list[AlteredResource]:
    return [
        AlteredResource(
            error_code=code,
            error_message=message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in request.resources
    ]


def refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    """Refuse the whole request."""
    return IncrementalAlterConfigsResponse(responses=refused(request, code, message))
