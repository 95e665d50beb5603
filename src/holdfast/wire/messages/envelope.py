"""Envelope (key 58), versions 0 to 0.

A request forwarded to the controller, header included, with its principal and the client's address.
"""

from __future__ import annotations

from holdfast.wire.schema import Request, Response, blob, int16


class EnvelopeRequest(Request, key=58, versions=(0, 0), flexible=0):
    request_data: bytes = blob()
    request_principal: bytes | None = blob(nullable=0)
    client_host_address: bytes = blob()


class EnvelopeResponse(Response, key=58, versions=(0, 0), flexible=0):
    response_data: bytes | None = blob(nullable=0, default=None)
    error_code: int = int16()
