"""Produce and Fetch by hand: the two APIs whose cost is the broker's.

Owns the fast paths and nothing else: same classes, same bytes as the tables in `messages`, which
the tests hold it against. Must never look inside record batches.
"""

from __future__ import annotations

from holdfast.wire.codec import decode
from holdfast.wire.frame import encode_response
from holdfast.wire.messages.fetch import FetchRequest, FetchResponse
from holdfast.wire.messages.produce import ProduceRequest, ProduceResponse

Buffers = list[bytes | memoryview]


def decode_produce(version: int, view: memoryview, offset: int = 0) -> ProduceRequest:
    """Return the request whose body begins at `offset`. Its records are slices of `view`.

    WireError: as `codec.decode`.
    """
    return decode(ProduceRequest, version, view, offset)


def encode_produce_response(
    response: ProduceResponse, version: int, correlation_id: int
) -> Buffers:
    """Return a whole frame, its length prefix and header included."""
    return encode_response(correlation_id, response, version)


def decode_fetch(version: int, view: memoryview, offset: int = 0) -> FetchRequest:
    """Return the request whose body begins at `offset`. WireError: as `codec.decode`."""
    return decode(FetchRequest, version, view, offset)


def encode_fetch_response(response: FetchResponse, version: int, correlation_id: int) -> Buffers:
    """Return a whole frame, its length prefix and header included; records are not copied."""
    return encode_response(correlation_id, response, version)
