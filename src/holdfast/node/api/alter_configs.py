"""AlterConfigs (33), versions 0-2: brokers forward it, the controller decides.

The older form: what the request does not name goes back to its default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.config_changes import alter_configs
from holdfast.node.api.incremental_alter_configs import (
    refuse_resources,
    refused,
    warn_of_unknown,
)
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AlterConfigsRequest
) -> Deferred:
    warn_of_unknown(controller, request)
    return controller.decide(
        context,
        lambda state, _: alter_configs(state, request, refusals=refuse_resources(context, request)),
    )


def refuse(request: AlterConfigsRequest, code: ErrorCode, message: str) -> AlterConfigsResponse:
    """Refuse the whole request."""
    return AlterConfigsResponse(responses=refused(request, code, message))
