"""From a frame to the handler of its API, and from the handler's answer to a frame.

Owns the refusal of what is not served, and of what takes rights over the cluster that the client
does not have. It decides nothing that an API's own module could decide.

Rules: connections.md#unserved-requests, errors.md#an-answer-in-every-version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

from holdfast.core.refusal import Refusal
from holdfast.node.door.api_table import APIS, ON_BROKER, Api, Role
from holdfast.node.door.connection import Connection
from holdfast.node.door.request_context import (
    CLUSTER_NAME,
    Authorizer,
    Buffers,
    Client,
    Deferred,
    RequestContext,
    refusal,
)
from holdfast.wire.codec import decode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import API_VERSIONS, RequestHeader, decode_request_header, encode_response
from holdfast.wire.messages import api_name, request_class, response_class
from holdfast.wire.schema import ExplainedResponse

# Handles one decoded request: a response struct, ready buffers, a Deferred, or None for no answer.
Handler = Callable[[Any, RequestContext, Any], Any]

# Decodes the body of a request of this version that begins at an offset of a frame.
Decode = Callable[[int, memoryview | bytes, int], Any]


@dataclass(slots=True, eq=False)
class Route:
    """One API as one role serves it; its module is loaded when it is first asked for."""

    api: Api
    role: Role  # the one of the row's that is meant here
    loaded: tuple[Decode, Handler] | None = None

    def load(self) -> tuple[Decode, Handler]:
        """Import the API's module and find its decoder and its handler."""
        api, forwards = self.api, self.role is Role.FORWARDING
        module = import_module(f"holdfast.node.api.{'forward' if forwards else api.module}")
        handler: Handler = module.handle if self.role in ON_BROKER else module.handle_on_controller
        # Who may ask for what is forwarded, the controller says: it is told who the client is.
        if not forwards and (api.needs_cluster or self.role is Role.ACTIVE):
            handler = partial(_guard, self, handler)
        # A module may bring a decoder of its own (Produce, Fetch); forwarding decodes nothing.
        own = getattr(module, "decode_request", None)
        self.loaded = own or partial(decode, request_class(api.key)), handler
        return self.loaded


def _guard(
    route: Route, handler: Handler, owner: Any, context: RequestContext, request: Any
) -> Any:
    """Serve whoever may do this to the cluster, and on the active controller what is for it."""
    refused = refusal(context, CLUSTER_NAME) if route.api.needs_cluster else None
    if refused is None and route.role is Role.ACTIVE and not owner.active:
        refused = Refusal(ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
    if refused is None:
        return handler(owner, context, request)
    return refuse(route.api, request, refused)


def refuse(api: Api, request: Any, why: Refusal) -> Any:
    """Refuse a whole request: as its API's module does, or at the top of its response."""
    module = import_module(f"holdfast.node.api.{api.module}")
    if hasattr(module, "refuse"):
        return module.refuse(request, *why)
    made: Any = response_class(api.key)
    if issubclass(made, ExplainedResponse):
        return made(error_code=why.code, error_message=why.message)
    return made(error_code=why.code)


@cache
def _routes(side: Role) -> Mapping[int, Route]:
    return {api.key: Route(api, api.role & side) for api in APIS if api.role & side}


class Dispatcher:
    """The APIs that brokers serve, or those that controllers do, with one of them as the owner."""

    def __init__(self, owner: object, side: Role, authorizer: Authorizer) -> None:
        self.owner = owner
        self.authorizer = authorizer
        self._routes = _routes(side)

    def __call__(self, connection: Connection, frame: memoryview) -> Buffers | Deferred | None:
        """Handle one frame. WireError: the peer does not speak the protocol as it should."""
        header, body = decode_request_header(frame)
        route = self._routes.get(header.key)
        if route is None:
            raise WireError(f"API {header.key} ({api_name(header.key)}) is not served here")
        low, high = route.api.versions
        if not low <= header.version <= high:
            return self._unsupported(header, route)
        if not connection.authenticated:
            raise WireError(f"API {header.key} before authentication")
        return self.serve(header, body, frame, connection.client, connection.deliver)

    def serve(
        self,
        header: RequestHeader,
        body: int,
        frame: memoryview | bytes,
        client: Client,
        deliver: Callable[[Deferred], None],
    ) -> Buffers | Deferred | None:
        """Handle one request, from a connection or out of an Envelope."""
        route = self._routes[header.key]
        decode_request, handler = route.loaded or route.load()
        context = RequestContext(header, route.api.need, frame, client, self.authorizer, deliver)
        answer = handler(self.owner, context, decode_request(header.version, frame, body))
        if answer is None or isinstance(answer, Deferred):
            return answer
        return context.encode(answer)

    def _unsupported(self, header: RequestHeader, route: Route) -> Buffers:
        low, high = route.api.versions
        if header.key != API_VERSIONS:
            raise WireError(
                f"{api_name(header.key)} version {header.version} is not served here "
                f"(versions {low} to {high} are)"
            )
        # KIP-511: answer in version 0, naming at least what we have of ApiVersions itself.
        from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

        return encode_response(
            header.correlation_id,
            ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=low, max_version=high)],
            ),
            0,
        )
