"""Requests that a broker takes for the controller: they travel in an Envelope (58).

Owns the Envelope's outside, and the refusals when no controller answers. The request itself is not
looked at, and neither is who may ask it: the principal travels along, the controller authorizes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.refusal import Refusal
from holdfast.node.broker.controller_channel import ControllerUnavailableError
from holdfast.node.door.api_table import BROKER
from holdfast.node.door.dispatch import refuse
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import decode_response
from holdfast.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from holdfast.wire.schema import Message, boolean, string

if TYPE_CHECKING:
    from holdfast.node.broker.broker import Broker

logger = logging.getLogger("holdfast.forward")

USER: Final = "User"


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    """How Kafka writes a principal for the controller."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


def encode_principal(principal: str) -> bytes:
    """A principal such as `User:alice`, as Kafka serializes it: a version, then the message."""
    kind, _, name = principal.partition(":")
    return b"\0\0" + encode(DefaultPrincipalData(type=kind, name=name), 0)


def decode_principal(data: bytes | memoryview) -> str:
    """Undo `encode_principal`. WireError: it is not one."""
    view = memoryview(data)
    if len(view) < 2 or bytes(view[:2]) != b"\0\0":
        raise WireError("a principal of an unknown version")
    found = decode(DefaultPrincipalData, 0, view, 2)
    return f"{found.type}:{found.name}"


def envelope(context: RequestContext, request_data: bytes) -> EnvelopeRequest:
    """Wrap a request (header and body) that the context's client makes, or that is made for it."""
    return EnvelopeRequest(
        request_data=request_data,
        request_principal=encode_principal(context.client.principal),
        client_host_address=_address(context.client.host),
    )


def handle(broker: Broker, context: RequestContext, request: Any) -> Deferred:
    """Send the client's request on; its answer is the controller's own.

    What is behind it on its connection is not looked at until it is answered, so that of each
    client one is under way.
    """
    forwarded = _Forwarded(
        context.defer_effect(len(context.frame)), context.header.key, context.version, request
    )
    broker.forwarding.send(
        envelope(context, bytes(context.frame)),
        context.client.host,
        timeout_ms=broker.settings.request_timeout_ms,
    ).add_done_callback(forwarded.done)
    return forwarded.deferred


@dataclass(frozen=True, slots=True)
class _Forwarded:
    """A client's request that the controller has been sent."""

    deferred: Deferred
    key: int
    version: int
    request: Any

    def done(self, future: asyncio.Future[EnvelopeResponse]) -> None:
        """Answer the client, and go on with what it has sent meanwhile."""
        try:
            self._answer(future)
        finally:
            self.deferred.proceed()

    def _answer(self, future: asyncio.Future[EnvelopeResponse]) -> None:
        """Hand the controller's answer to the client, or a refusal of the same shape."""
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or isinstance(error, ControllerUnavailableError):
            why = "this node is shutting down" if future.cancelled() else str(error)
            self._refuse(ErrorCode.REQUEST_TIMED_OUT, why)
            return
        outer = future.result()
        if outer.error_code != ErrorCode.NONE or outer.response_data is None:
            self._envelope_refused(outer.error_code)
            return
        try:
            _, response = decode_response(self.key, self.version, outer.response_data)
        except WireError:
            logger.exception("the controller's answer to API %d does not parse", self.key)
            self.deferred.abandon()
            return
        self.deferred.answer(response)

    def _envelope_refused(self, code: int) -> None:
        if code == ErrorCode.NOT_CONTROLLER:
            self._refuse(ErrorCode.NOT_CONTROLLER, "The controller has moved: try again.")
        elif code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # The brokers' own principal lacks a permission: no fault of the client's.
            why = "This broker may not forward requests to the controller."
            self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        else:
            logger.error("the controller refused an Envelope with error %d", code)
            self.deferred.abandon()

    def _refuse(self, code: ErrorCode, why: str) -> None:
        self.deferred.answer(refuse(BROKER[self.key], self.request, Refusal(code, why)))


def _address(host: str) -> bytes:
    """The client's address in network order; zero when the transport has no such thing."""
    try:
        return ip_address(host).packed
    except ValueError:
        return bytes(4)
