"""UpdateFeatures (57), versions 0-2: brokers forward it, the controller decides.

Versions: until 1 each feature has a result of its own; 1 adds kinds of downgrade and validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.feature_updates import refused, update_features
from holdfast.core.state import Refusal
from holdfast.node.context import (
    CLUSTER_NAME,
    Deferred,
    Operation,
    RequestContext,
    ResourceType,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: UpdateFeaturesRequest
) -> Deferred | UpdateFeaturesResponse:
    if not context.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        why = f"{context.principal} may not alter the cluster."
        return refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why)
    return controller.decide(context, lambda state, _: update_features(state, request))


def refuse(request: UpdateFeaturesRequest, code: ErrorCode, message: str) -> UpdateFeaturesResponse:
    """Refuse the whole request."""
    return refused(request, Refusal(code, message))
