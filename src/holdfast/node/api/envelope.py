"""Envelope (58), version 0: a request that a broker forwards for a client.

The inner request is served as if the client had sent it here: with its own principal and address,
and through the same table. Only what the table says is forwarded may travel so.
"""

from __future__ import annotations

from ipaddress import ip_address

from holdfast.node.api.forward import decode_principal
from holdfast.node.controller.controller import Controller
from holdfast.node.door.api_table import BROKER, ON_CONTROLLER, Role
from holdfast.node.door.dispatch import Dispatcher
from holdfast.node.door.request_context import Client, Deferred, RequestContext
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.frame import LENGTH_SIZE, decode_request_header
from holdfast.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


def handle_on_controller(
    controller: Controller, context: RequestContext, request: EnvelopeRequest
) -> Deferred | EnvelopeResponse:
    frame = bytes(request.request_data)
    try:
        header, body = decode_request_header(frame)
        principal = decode_principal(request.request_principal or b"")
        api = BROKER.get(header.key)
        if api is None or Role.FORWARDING not in api.role or not api.serves(header.version):
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        dispatcher = Dispatcher(controller, ON_CONTROLLER, context.authorizer)
        outer = context.defer()

        def deliver(inner: Deferred) -> None:
            if inner.closes and controller.active:
                # Not outer.abandon(): that would end what all other clients of the broker wait for.
                outer.answer(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            elif inner.closes:
                outer.abandon()
            else:
                outer.answer(_wrap(inner))

        client = Client(
            principal, _host(bytes(request.client_host_address)), context.client.listener
        )
        with memoryview(frame) as view:  # which dies here, as one from a connection does
            answer = dispatcher.serve(header, body, view, client, deliver)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if answer is None:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if isinstance(answer, Deferred):
        return outer
    return _wrap(Deferred.answered(answer))


def _wrap(inner: Deferred) -> EnvelopeResponse:
    assert inner.is_answered, "wrapped before it was answered"
    return EnvelopeResponse(response_data=b"".join(inner.buffers)[LENGTH_SIZE:])


def _host(address: bytes) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return "?"
