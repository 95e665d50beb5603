"""Varints and tagged fields: the parts of the encoding that need a loop.

Owns what compiled code calls at run time. Every function here is given hostile bytes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from holdfast.wire.errors import WireError

Buffer: TypeAlias = bytes | bytearray | memoryview

UVARINT_SIZE_MAX: Final = 5
LOW: Final = 0x7F
MORE: Final = 0x80
_UINT32_MAX: Final = 0xFFFFFFFF
TAGS_MAX: Final = 1024
"""Tagged fields in one block; Kafka has a handful. Each costs a look, and may have two bytes."""

SMALL: Final[tuple[bytes, ...]] = tuple(bytes((value,)) for value in range(MORE))
"""The one-byte varints."""


def uvarint(value: int) -> bytes:
    """Return an unsigned varint of at most 32 bits."""
    if value < MORE:
        return SMALL[value]
    assert value <= _UINT32_MAX, "an unsigned varint has 32 bits"
    out = bytearray()
    while value >= MORE:
        out.append(value & LOW | MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: Buffer, offset: int) -> tuple[int, int]:
    """Return an unsigned varint and the offset behind it. WireError: truncated or too long."""
    if offset >= len(data):
        raise WireError("truncated in a length")
    first = data[offset]
    if first < MORE:
        return first, offset + 1
    return read_uvarint_rest(data, offset + 1, first)


def read_uvarint_rest(data: Buffer, offset: int, first: int) -> tuple[int, int]:
    """Go on with a varint whose first byte said that there is more."""
    value = first & LOW
    shift = 7
    size = len(data)
    while shift < 7 * UVARINT_SIZE_MAX:
        if offset >= size:
            raise WireError("truncated in a length")
        byte = data[offset]
        offset += 1
        value |= (byte & LOW) << shift
        if byte < MORE:
            if value > _UINT32_MAX:
                raise WireError("a varint of more than 32 bits")
            return value, offset
        shift += 7
    raise WireError("a varint of more than 5 bytes")


def skip_tagged_fields(data: Buffer, offset: int) -> int:
    """Return the offset behind a block of tagged fields that nobody here knows.

    WireError: truncated, or more than any version of Kafka has.
    Rules: connections.md#tagged-fields.
    """
    count, offset = read_uvarint(data, offset)
    return skip_tags(data, offset, count) if count else offset


def skip_tags(data: Buffer, offset: int, count: int) -> int:
    """Return the offset behind so many tagged fields, whose count was read already."""
    if count > TAGS_MAX:
        raise WireError(f"{count} tagged fields in one place: more than {TAGS_MAX}")
    for _ in range(count):
        _tag, offset = read_uvarint(data, offset)
        size, offset = read_uvarint(data, offset)
        offset += size
        if offset > len(data):
            raise WireError("a tagged field is longer than what remains")
    return offset
