"""The five codecs of record batches (rules: batches.md#codecs), with bounded output.

Owns the framing differences. Imports the native library when it is first needed, because a node
that only passes batches through never needs it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, Final, TypeAlias

from holdfast.wire.errors import InflatedError, WireError

Buffer: TypeAlias = bytes | bytearray | memoryview

INFLATED_SIZE_MAX: Final = 256 * 1024 * 1024
"""Most bytes that one batch may inflate to, unless told otherwise."""

INFLATED_BYTES_SMALL: Final = 16 * 1024 * 1024
"""What a batch in a log may inflate to, if max.message.bytes is small."""
INFLATED_RATIO_MAX: Final = 4
"""And so many times max.message.bytes if that is large: clients bound a batch before or after they
compress it, and a bomb of a few KB would otherwise take the memory and the time of all."""

_GZIP: Final = 1
_SNAPPY: Final = 2
_LZ4: Final = 3
_ZSTD: Final = 4
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_BLOCK_LENGTH: Final = Layout(">i")
_FIRST_GUESS: Final = 64 * 1024
_GUESS_FACTOR: Final = 4
_SNAPPY_RATIO_MAX: Final = 64  # three bytes copy at most 64
_TOO_SMALL: Final = "failed to write whole buffer"


def inflated_bytes_max(message_bytes_max: int) -> int:
    """Return what a batch may inflate to that is to be looked into, checked or compressed anew."""
    return max(INFLATED_BYTES_SMALL, message_bytes_max * INFLATED_RATIO_MAX)


def compress(codec: int, data: bytes) -> bytes:
    """Return `data` compressed as Kafka's clients do. Codec 0 returns it as it is."""
    if codec == 0:
        return data
    if codec == _GZIP:
        return zlib.compress(data, wbits=_GZIP_WINDOW)
    import cramjam  # noqa: PLC0415 - see the module's docstring

    if codec == _SNAPPY:
        parts = [_XERIAL_HEADER]
        for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
            parts += (_BLOCK_LENGTH.pack(len(block)), block)
        return b"".join(parts)
    if codec == _LZ4:
        # Kafka's Java reader takes independent blocks only.
        compressor = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    assert codec == _ZSTD, f"codec {codec} does not exist"
    return bytes(cramjam.zstd.compress(data))


def decompress(codec: int, data: Buffer, size_max: int = INFLATED_SIZE_MAX) -> bytes | bytearray:
    """Return what a batch's body holds, where it was inflated to: a copy would hold up all threads.

    WireError: it does not inflate; its kind InflatedError: to more than `size_max` bytes.
    """
    if codec == 0:
        return bytes(data)
    if codec == _GZIP:
        return _gunzip(data, size_max)
    if codec not in {_SNAPPY, _LZ4, _ZSTD}:
        raise WireError(f"compression codec {codec} does not exist")
    import cramjam  # noqa: PLC0415 - see the module's docstring

    try:
        if codec == _SNAPPY:
            return _unsnappy(cramjam, data, size_max)
        inflate = cramjam.lz4.decompress_into if codec == _LZ4 else cramjam.zstd.decompress_into
        return _inflate(cramjam, inflate, data, size_max)
    except cramjam.DecompressionError as error:
        raise WireError(f"a batch does not inflate: {error}") from error


def _too_large(size_max: int) -> InflatedError:
    return InflatedError(f"a batch inflates to more than {size_max} bytes")


def _gunzip(data: Buffer, size_max: int) -> bytes:
    """Inflate one or more gzip members."""
    out: list[bytes] = []
    size = 0
    rest = bytes(data)
    try:
        while rest:
            member = zlib.decompressobj(_GZIP_WINDOW)
            out.append(member.decompress(rest, size_max - size + 1))
            size += len(out[-1])
            if size > size_max:
                raise _too_large(size_max)
            if not member.eof:
                raise WireError("a batch does not inflate: truncated gzip")
            rest = member.unused_data
    except zlib.error as error:
        raise WireError(f"a batch does not inflate: {error}") from error
    return b"".join(out)


def _inflate(cramjam: Any, inflate: Callable[..., int], data: Buffer, size_max: int) -> bytearray:
    """Inflate into a buffer of our own, larger each time: frames need not say their size."""
    size = min(size_max, max(_FIRST_GUESS, _GUESS_FACTOR * len(data)))
    while True:
        out = bytearray(size)
        try:
            written = inflate(data, out)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if size == size_max:
                raise _too_large(size_max) from error
        else:
            del out[written:]
            return out
        size = min(size_max, _GUESS_FACTOR * size)


def _unsnappy(cramjam: Any, data: Buffer, size_max: int) -> bytes | bytearray:
    """Inflate the xerial framing that Java clients use, or a raw block as some others do."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(cramjam, view, size_max)
    out: list[bytearray] = []
    left = size_max
    offset = 0
    while offset < len(view):
        if bytes(view[offset : offset + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            offset += len(_XERIAL_HEADER)  # a stream may be several, one behind the other
            continue
        if len(view) - offset < _BLOCK_LENGTH.size:
            raise WireError("truncated in a snappy block's length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, offset)
        offset += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - offset:
            raise WireError(f"a snappy block of {length} bytes where {len(view) - offset} remain")
        out.append(_snappy_block(cramjam, view[offset : offset + length], left))
        left -= len(out[-1])
        offset += length
    return b"".join(out)


def _snappy_block(cramjam: Any, block: memoryview, size_max: int) -> bytearray:
    # The claimed size is checked against the limit, and against what a block of that length can
    # hold at best, so that a few bytes can't make us allocate much.
    size = cramjam.snappy.decompress_raw_len(block)
    if size > size_max:
        raise _too_large(size_max)
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise WireError(f"a snappy block of {len(block)} bytes can't hold {size}")
    out = bytearray(size)
    written = cramjam.snappy.decompress_raw_into(block, out)
    del out[written:]
    return out
