"""The five codecs of record batches (rules: batches.md#codecs), with bounded output.

Owns the framing differences. Imports the native library when it is first needed, because a node
that only passes batches through never needs it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
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
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_BLOCK_LENGTH: Final = Layout(">i")
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"  # independent blocks of 64 KB, no checksums
_LZ4_BLOCK_SIZE: Final = 64 * 1024
_LZ4_LENGTH: Final = Layout("<I")
_LZ4_STORED: Final = 1 << 31  # in a length: the block is as it was
_LZ4_END: Final = _LZ4_LENGTH.pack(0)
_GROWTH: Final = 64  # what does not compress grows by one part in so many at most
_FIRST_GUESS: Final = 64 * 1024
_GUESS_FACTOR: Final = 4
_AT_ONCE: Final = 64 * 1024  # bytes that are moved without letting other threads run
_HEAP_MAX: Final = 1024 * 1024  # more than this is inflated into memory of its own
_SNAPPY_RATIO_MAX: Final = 64  # three bytes copy at most 64
_TOO_SMALL: Final = "failed to write whole buffer"


def inflated_bytes_max(message_bytes_max: int) -> int:
    """Return what a batch may inflate to that is to be looked into, checked or compressed anew."""
    return max(INFLATED_BYTES_SMALL, message_bytes_max * INFLATED_RATIO_MAX)


def compress(codec: int, data: Buffer) -> Buffer:
    """Return `data` compressed as Kafka's clients do. Codec 0 returns it as it is.

    Other threads run meanwhile, however much it is: as for `decompress`.
    """
    if codec == 0:
        return data
    import cramjam  # noqa: PLC0415 - see the module's docstring

    if codec == _GZIP:
        return memoryview(cramjam.gzip.compress(data))
    if codec == _ZSTD:
        return memoryview(cramjam.zstd.compress(data))
    assert codec in {_SNAPPY, _LZ4}, f"codec {codec} does not exist"
    return _snappy(cramjam, data) if codec == _SNAPPY else _lz4(cramjam, data)


def decompress(codec: int, data: Buffer, size_max: int = INFLATED_SIZE_MAX) -> Buffer:
    """Return what a batch's body holds, where it was inflated to: a copy would hold up all threads.

    WireError: it does not inflate; its kind InflatedError: to more than `size_max` bytes.
    """
    if codec == 0:
        return bytes(data)
    if codec not in {_GZIP, _SNAPPY, _LZ4, _ZSTD}:
        raise WireError(f"compression codec {codec} does not exist")
    import cramjam  # noqa: PLC0415 - see the module's docstring

    try:
        if codec == _SNAPPY:
            return _unsnappy(cramjam, data, size_max)
        library = {_GZIP: cramjam.gzip, _LZ4: cramjam.lz4, _ZSTD: cramjam.zstd}[codec]
        return _inflate(cramjam, library.decompress_into, data, size_max)
    except cramjam.DecompressionError as error:
        raise WireError(f"a batch does not inflate: {error}") from error


def _too_large(size_max: int) -> InflatedError:
    return InflatedError(f"a batch inflates to more than {size_max} bytes")


def _room(size: int) -> memoryview:
    """Return memory to inflate up to `size` bytes into; what is not written to takes no room.

    All of a bytearray is written to as it is made, which for 16 MiB of new memory takes ten
    milliseconds, while no other thread may run. The system's pages come as they are written, which
    native code does while others run.
    """
    if size <= _HEAP_MAX:
        return memoryview(bytearray(size))
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without large pages; they are a matter of speed alone
            pages.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(pages)


def _guess(packed: int, size_max: int) -> int:
    """Return how much room to begin with, for so many bytes that came."""
    return min(size_max, max(_FIRST_GUESS, _GUESS_FACTOR * packed))


class _Joined:
    """What comes in pieces, joined as they come: all at once would hold up other threads."""

    def __init__(self, guess: int, size_max: int) -> None:
        self._size_max = size_max
        self._room = _room(min(guess, size_max))
        self._size = 0

    @property
    def left(self) -> int:
        """How many bytes there may be more."""
        return self._size_max - self._size

    def add(self, piece: Buffer) -> None:
        """Put a piece behind the others. InflatedError: now they are too many bytes."""
        end = self._size + len(piece)
        if end > self._size_max:
            raise _too_large(self._size_max)
        if end > len(self._room):
            before, self._room = self._room, _room(self._size_max)
            for start in range(0, self._size, _AT_ONCE):
                to = min(start + _AT_ONCE, self._size)
                self._room[start:to] = before[start:to]
        self._room[self._size : end] = piece
        self._size = end

    def whole(self) -> memoryview:
        return self._room[: self._size]


def _joined(data: Buffer) -> _Joined:
    """Return what takes `data` compressed, which may be longer by a little."""
    size = len(data)
    return _Joined(_FIRST_GUESS + size // 2, _FIRST_GUESS + size + size // _GROWTH)


def _pieces(data: Buffer, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[start : start + size] for start in range(0, len(view), size))


def _snappy(cramjam: Any, data: Buffer) -> Buffer:
    packed = _joined(data)
    packed.add(_XERIAL_HEADER)
    for piece in _pieces(data, _XERIAL_BLOCK_SIZE):
        block = cramjam.snappy.compress_raw(piece)
        packed.add(_BLOCK_LENGTH.pack(len(block)))
        packed.add(memoryview(block))
    return packed.whole()


def _lz4(cramjam: Any, data: Buffer) -> Buffer:
    """Compress block by block: the library's own frames let no other thread run.

    They are independent blocks; Kafka's Java reader takes no others.
    """
    packed = _joined(data)
    packed.add(_LZ4_HEADER)
    for piece in _pieces(data, _LZ4_BLOCK_SIZE):
        block = cramjam.lz4.compress_block(piece, store_size=False)
        if len(block) < len(piece):
            packed.add(_LZ4_LENGTH.pack(len(block)))
            packed.add(memoryview(block))
        else:
            packed.add(_LZ4_LENGTH.pack(len(piece) | _LZ4_STORED))
            packed.add(piece)
    packed.add(_LZ4_END)
    return packed.whole()


def _inflate(cramjam: Any, inflate: Callable[..., int], data: Buffer, size_max: int) -> memoryview:
    """Inflate into memory of our own, more of it if need be: frames need not say their size."""
    size = _guess(len(data), size_max)
    while True:
        out = _room(size)
        try:
            return out[: inflate(data, out)]
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if size == size_max:
                raise _too_large(size_max) from error
        size = size_max


def _unsnappy(cramjam: Any, data: Buffer, size_max: int) -> memoryview:
    """Inflate the xerial framing that Java clients use, or a raw block as some others do."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(cramjam, view, size_max)
    out = _Joined(_guess(len(view), size_max), size_max)
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
        out.add(_snappy_block(cramjam, view[offset : offset + length], out.left))
        offset += length
    return out.whole()


def _snappy_block(cramjam: Any, block: memoryview, size_max: int) -> memoryview:
    # The claimed size is checked against the limit, and against what a block of that length can
    # hold at best, so that a few bytes can't make us allocate much.
    size = cramjam.snappy.decompress_raw_len(block)
    if size > size_max:
        raise _too_large(size_max)
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise WireError(f"a snappy block of {len(block)} bytes can't hold {size}")
    out = _room(size)
    return out[: cramjam.snappy.decompress_raw_into(block, out)]
