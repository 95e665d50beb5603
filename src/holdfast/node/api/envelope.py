"""Envelope (58), version 0: a request that a broker forwards for a client.

The inner request is served as if the client had sent it here: with its own principal and address,
and through the same table. Only what the table says is forwarded may travel so.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from holdfast.node.access import is_broker
from holdfast.node.api import CONTROLLER
from holdfast.node.context import Deferred, RequestContext
from holdfast.node.dispatch import Dispatcher
from holdfast.node.forward import decode_principal
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import decode_request_header
from holdfast.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from holdfast.node.controller import Controller

LENGTH_SIZE = 4  # a frame's length prefix, which does not travel in an Envelope
FORWARDED = {key: api for key, api in CONTROLLER.items() if api.forwarded}


def handle_on_controller(
    controller: Controller, context: RequestContext, request: EnvelopeRequest
) -> Deferred | EnvelopeResponse:
    if not is_broker(context):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    frame = bytes(request.request_data)
    try:
        header, body = decode_request_header(frame)
        principal = decode_principal(request.request_principal or b"")
        api = FORWARDED.get(header.key)
        if api is None or api.controller is None:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not api.controller[0] <= header.version <= api.controller[1]:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        dispatcher = Dispatcher(
            role="controller",
            owner=controller,
            apis=FORWARDED,
            listener=context.listener,
            authorizer=context.authorizer,
        )
        outer = context.defer()

        def deliver(inner: Deferred) -> None:
            if inner.closes and controller.active:
                # Not outer.abandon(): that would end what all other clients of the broker wait for.
                outer.answer(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            elif inner.closes:
                outer.abandon()
            else:
                outer.answer(_wrap(inner))

        host = _host(bytes(request.client_host_address))
        answer = dispatcher.serve(header, body, frame, principal, host, deliver)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if answer is None:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if isinstance(answer, Deferred):
        return outer
    return _wrap(Deferred.answered(answer))


def _wrap(inner: Deferred) -> EnvelopeResponse:
    assert inner.buffers is not None, "wrapped before it was answered"
    return EnvelopeResponse(response_data=b"".join(inner.buffers)[LENGTH_SIZE:])


def _host(address: bytes) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return "?"
