"""UpdateFeatures (57), versions 0-2: brokers forward it, the controller decides.

Versions: until 1 each feature has a result of its own; 1 adds kinds of downgrade and validation.
"""

from __future__ import annotations

from holdfast.core.controller.feature_updates import refused, update_features
from holdfast.core.refusal import Refusal
from holdfast.node.api.decided import decided_by
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

handle_on_controller = decided_by(update_features)


def refuse(_: UpdateFeaturesRequest, code: ErrorCode, message: str) -> UpdateFeaturesResponse:
    """Refuse the whole request."""
    return refused(Refusal(code, message))
