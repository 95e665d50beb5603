"""IncrementalAlterConfigs (44), versions 0-1: brokers forward it, the controller decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.core.controller.config_changes import incremental_alter_configs
from holdfast.core.metadata.image import ConfigResource
from holdfast.core.refusal import Refusal
from holdfast.node.door.access import config_refusal
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from holdfast.wire.structs import AlteredResource

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


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
    found = ((resource, config_refusal(context, *resource)) for resource in resources)
    return {resource: why for resource, why in found if why is not None}


def refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    """Refuse the whole request."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlteredResource(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        ]
    )
