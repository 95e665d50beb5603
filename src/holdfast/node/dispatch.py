"""From a frame to the handler of its API, and from the handler's answer to a frame.

Owns the refusal of what is not served, and the encoding of answers for the version asked. It
decides nothing that an API's own module could decide.

Rules: connections.md#unserved-requests, errors.md#an-answer-in-every-version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from holdfast.node.api import Api
from holdfast.node.connection import Connection
from holdfast.node.context import Authorizer, Buffers, Deferred, RequestContext
from holdfast.wire.codec import decode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import RequestHeader, decode_request_header, encode_response
from holdfast.wire.messages import api_name, request_class, response_class
from holdfast.wire.schema import Response

API_VERSIONS = 18

# Handles one decoded request: a response struct, ready buffers, a Deferred, or None for no answer.
Handler = Callable[[Any, RequestContext, Any], Any]


class Route:
    """One API as one role serves it; its module is loaded when it is first asked for."""

    __slots__ = ("_role", "api", "decode", "handler", "versions")

    def __init__(self, api: Api, role: str) -> None:
        versions = api.broker if role == "broker" else api.controller
        assert versions is not None, "a route is made for a role that serves the API"
        self.api = api
        self.versions = versions
        self.handler: Handler | None = None
        self.decode: Callable[[int, memoryview | bytes, int], Any] | None = None
        self._role = role

    def load(self) -> Handler:
        """Import the API's module and find its handler."""
        name = "forward" if self._role == "broker" and self.api.forwarded else self.api.module
        package = "holdfast.node." + ("" if name == "forward" else "api.")
        module = import_module(package + name)
        handler: Handler = module.handle if self._role == "broker" else module.handle_on_controller
        if self._role != "broker" and not self.api.any_controller:
            handler = partial(_only_if_active, self.api, module, handler)
        # A module may bring a decoder of its own (Produce, Fetch); forwarding decodes nothing.
        own = getattr(module, "decode_request", None)
        self.decode = own or partial(_decode_by_table, request_class(self.api.key))
        self.handler = handler
        return handler


def _only_if_active(
    api: Api, module: Any, handler: Handler, owner: Any, context: RequestContext, request: Any
) -> Any:
    """Serve a request on the active controller; others say that they are not."""
    if owner.active:
        return handler(owner, context, request)
    if api.forwarded:
        why = "This is not the active controller."
        return module.refuse(request, ErrorCode.NOT_CONTROLLER, why)
    made: Any = response_class(api.key)
    return made(error_code=ErrorCode.NOT_CONTROLLER)


def _decode_by_table(
    request: type[Any], version: int, frame: memoryview | bytes, offset: int
) -> Any:
    return decode(request, version, frame, offset)


class Dispatcher:
    """The APIs of one role, for one listener."""

    def __init__(
        self,
        *,
        role: str,
        owner: object,
        apis: Mapping[int, Api],
        listener: str,
        authorizer: Authorizer,
    ) -> None:
        self.owner = owner
        self.listener = listener
        self.authorizer = authorizer
        self.routes = {key: Route(api, role) for key, api in apis.items()}

    def __call__(self, connection: Connection, frame: memoryview) -> Buffers | Deferred | None:
        """Handle one frame. WireError: the peer does not speak the protocol as it should."""
        header, body = decode_request_header(frame)
        route = self.routes.get(header.key)
        if route is None:
            raise WireError(f"API {header.key} ({api_name(header.key)}) is not served here")
        if not route.versions[0] <= header.version <= route.versions[1]:
            return self._unsupported(header, route)
        if not connection.authenticated:
            raise WireError(f"API {header.key} before authentication")
        deliver = connection.deliver
        return self.serve(header, body, frame, connection.principal, connection.host, deliver)

    def serve(
        self,
        header: RequestHeader,
        body: int,
        frame: memoryview | bytes,
        principal: str,
        client_host: str,
        deliver: Callable[[Deferred], None],
    ) -> Buffers | Deferred | None:
        """Handle one request, from a connection or out of an Envelope."""
        route = self.routes[header.key]
        handler = route.handler or route.load()
        assert route.decode is not None
        encode = partial(_encode, header)
        context = RequestContext(
            principal=principal,
            client_id=header.client_id,
            client_host=client_host,
            listener=self.listener,
            api_key=header.key,
            version=header.version,
            correlation_id=header.correlation_id,
            authorizer=self.authorizer,
            frame=frame,
            encode=encode,
            deliver=deliver,
        )
        request = route.decode(header.version, frame, body)
        answer = handler(self.owner, context, request)
        if answer is None or isinstance(answer, Deferred):
            return answer
        return encode(answer)

    def _unsupported(self, header: RequestHeader, route: Route) -> Buffers:
        low, high = route.versions
        if header.key != API_VERSIONS:
            raise WireError(
                f"{api_name(header.key)} version {header.version} is not served here "
                f"(versions {low} to {high} are)"
            )
        # KIP-511: answer in version 0, naming at least what we have of ApiVersions itself.
        from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=low, max_version=high)],
        )
        return encode_response(header.correlation_id, response, 0)


def _encode(header: RequestHeader, answer: object) -> Buffers:
    """Encode a response struct, or pass on buffers that a handler has made itself."""
    if isinstance(answer, list):
        return answer
    assert isinstance(answer, Response), f"a handler answered with {type(answer).__name__}"
    return encode_response(header.correlation_id, answer, header.version)
