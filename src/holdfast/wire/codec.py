"""Messages to bytes and back. Owns the entry points; the code they run is compiled per version.

Must never know what a message means. See `schema` for the tables, `encoder` and `decoder` for
how they become code.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from holdfast.wire.decoder import compile_decoder
from holdfast.wire.encoder import compile_encoder
from holdfast.wire.schema import Message

Buffer: TypeAlias = bytes | bytearray | memoryview
MessageT = TypeVar("MessageT", bound=Message)


def encode(message: Message, version: int) -> bytes:
    """Return the message in that version. EncodeError: the version can't carry it."""
    encoder = message.ENCODERS.get(version) or compile_encoder(type(message), version)
    parts: list[Buffer] = []
    encoder(message, parts, [])
    return b"".join(parts)


def encode_buffers(message: Message, version: int) -> list[bytes | memoryview]:
    """Return the message as buffers to be written in turn; record batches are not copied."""
    encoder = message.ENCODERS.get(version) or compile_encoder(type(message), version)
    parts: list[Buffer] = []
    cuts: list[int] = []
    encoder(message, parts, cuts)
    buffers: list[bytes | memoryview] = []
    start = 0
    for cut in cuts:
        if cut > start:
            buffers.append(b"".join(parts[start:cut]))
        buffers.append(parts[cut])  # type: ignore[arg-type]
        start = cut + 1
    if start < len(parts):
        buffers.append(b"".join(parts[start:]))
    return buffers


def decode(cls: type[MessageT], version: int, data: Buffer, offset: int = 0) -> MessageT:
    """Return the message that begins at `offset` and ends with the data.

    WireError: truncated, too long, a length beyond what remains, null where it may not be, text
    that is not UTF-8, or a version that `cls` does not have. Records are slices of `data`.
    """
    decoder = cls.DECODERS.get(version) or compile_decoder(cls, version)
    message: MessageT = decoder(data, offset)
    return message
