"""ApiVersions (key 18): what is served here, in which versions, and the cluster's features.

Served: 0 to 4. A version above is answered in version 0 with UNSUPPORTED_VERSION (KIP-511), which
`dispatch` does, for its body cannot be parsed. Version 3 brought the client's name, which is
validated, and the features; features whose minimum is 0 are named from version 4 on only.

Rules: connections.md#version-negotiation, connections.md#features.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.core.metadata.feature_levels import SUPPORTED, settable
from holdfast.core.quorum.voter_changes import KRAFT_VERSIONS
from holdfast.node.door.api_table import BROKER, CONTROLLER, Api
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import api_versions as wire
from holdfast.wire.well_known import KRAFT_VERSION

if TYPE_CHECKING:
    from holdfast.core.metadata.image import MetadataImage
    from holdfast.node.broker.broker import Broker
    from holdfast.node.controller.controller import Controller
    from holdfast.node.door.request_context import RequestContext

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_LEVEL_0 = 4

_FEATURES = {**{name: settable(name) for name in SUPPORTED}, KRAFT_VERSION: KRAFT_VERSIONS}


def _advertised(apis: Mapping[int, Api]) -> list[wire.ApiVersion]:
    return [
        wire.ApiVersion(api_key=key, min_version=api.versions[0], max_version=api.versions[1])
        for key, api in apis.items()
    ]


_BROKER_APIS = _advertised(BROKER)
_CONTROLLER_APIS = _advertised(CONTROLLER)


def handle(
    broker: Broker, context: RequestContext, request: wire.ApiVersionsRequest
) -> wire.ApiVersionsResponse:
    """Name what a broker's listener serves."""
    return _answer(context, request, _BROKER_APIS, broker.image, broker.observer.kraft_version)


def handle_on_controller(
    controller: Controller, context: RequestContext, request: wire.ApiVersionsRequest
) -> wire.ApiVersionsResponse:
    """Name what a controller's listener serves."""
    return _answer(context, request, _CONTROLLER_APIS, controller.image, controller.kraft_version)


def _answer(
    context: RequestContext,
    request: wire.ApiVersionsRequest,
    apis: Iterable[wire.ApiVersion],
    image: MetadataImage,
    kraft_version: int,
) -> wire.ApiVersionsResponse:
    if context.version >= FIRST_VERSION_WITH_SOFTWARE and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = wire.ApiVersionsResponse(api_keys=list(apis))
    if image.features:
        levels = dict(image.features)
        if kraft_version > 0:
            levels[KRAFT_VERSION] = kraft_version
        response.finalized_features_epoch = image.offset
        response.finalized_features = [
            wire.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(levels.items())
        ]
        response.supported_features = [
            wire.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(_FEATURES.items())
            # Clients of an earlier version take a lowest level of 0 for an error.
            if low > 0 or context.version >= FIRST_VERSION_WITH_LEVEL_0
        ]
    return response
