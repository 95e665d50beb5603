"""ControllerRegistration (key 70), versions 0 to 0.

What a controller says of itself to the active one.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    ExplainedResponse,
    Request,
    array,
    boolean,
    int32,
    uuid,
)
from holdfast.wire.structs import RegisteredEndpoint, RegisteredFeature


class ControllerRegistrationRequest(Request, key=70, versions=(0, 0), flexible=0):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[RegisteredEndpoint] = array(RegisteredEndpoint)
    features: list[RegisteredFeature] = array(RegisteredFeature)


class ControllerRegistrationResponse(ExplainedResponse, key=70, versions=(0, 0), flexible=0):
    """Says what became of it."""
