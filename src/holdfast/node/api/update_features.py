"""UpdateFeatures (57), versions 0-2: brokers forward it, the controller decides.

Versions: until 1 each feature has a result of its own; 1 adds kinds of downgrade and validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.feature_updates import refused, update_features
from holdfast.core.refusal import Refusal
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: UpdateFeaturesRequest
) -> Deferred:
    return controller.decide(context, lambda state, _: update_features(state, request))


def refuse(request: UpdateFeaturesRequest, code: ErrorCode, message: str) -> UpdateFeaturesResponse:
    """Refuse the whole request."""
    return refused(request, Refusal(code, message))
