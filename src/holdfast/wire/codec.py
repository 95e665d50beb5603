"""Messages to bytes and back. Owns the entry points; the code they run is compiled per version.

Must never know what a message means. See `schema` for the tables, `encoder` and `decoder` for
how they become code.
"""

from __future__ import annotations

from struct import error as LayoutError  # noqa: N812 - an alias for a class
from typing import NoReturn, TypeAlias, TypeVar

from holdfast.wire.decoder import compile_decoder
from holdfast.wire.encoder import compile_encoder
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.schema import Message

Buffer: TypeAlias = bytes | bytearray | memoryview
MessageT = TypeVar("MessageT", bound=Message)


def encode(message: Message, version: int) -> bytes:
    """Return the message in that version. EncodeError: the version can't carry it."""
    parts: list[Buffer] = []
    _run(message, version, parts, [])
    return b"".join(parts)


def encode_buffers(message: Message, version: int) -> list[bytes | memoryview]:
    """Return the message as buffers to be written in turn; record batches are not copied."""
    parts: list[Buffer] = []
    cuts: list[int] = []
    _run(message, version, parts, cuts)
    buffers: list[bytes | memoryview] = []
    start = 0
    for cut in cuts:
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
    try:
        message: MessageT = decoder(data, offset)
    except (LayoutError, IndexError) as error:
        raise WireError(f"{cls.__name__} version {version}: truncated") from error
    except UnicodeDecodeError as error:
        raise WireError(f"{cls.__name__} version {version}: not UTF-8") from error
    return message


def _run(message: Message, version: int, parts: list[Buffer], cuts: list[int]) -> None:
    encoder = message.ENCODERS.get(version) or compile_encoder(type(message), version)
    try:
        encoder(message, parts, cuts)
    except (LayoutError, TypeError, AttributeError, ValueError, OverflowError) as error:
        _refuse(message, version, error)


def _refuse(message: Message, version: int, error: Exception) -> NoReturn:
    text = f"{type(message).__name__} version {version} can't hold that: {error}"
    raise EncodeError(text) from error
