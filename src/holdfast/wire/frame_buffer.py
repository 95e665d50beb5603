"""The receive buffer of a client's connection: frames are cut where they lie.

Must never hold more than what was received at once and one frame of the size allowed.

Rules: connections.md#frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final, TypeAlias

from holdfast.wire.errors import WireError

Buffer: TypeAlias = bytes | bytearray | memoryview

GIVEN_BYTES_MIN: Final = 32 * 1024  # a smaller frame is copied, a larger one keeps its memory
_BYTES: Final = 64 * 1024
_KEPT_BYTES: Final = 16 * 1024 * 1024  # a larger one is given back after its frame
_LENGTH: Final = Layout(">i")


class FrameBuffer:
    """Receive into `space`, say so with `received`, then `cut` until there is no frame."""

    __slots__ = ("_buffer", "_filled", "_given", "_position", "_view", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._position = 0  # everything before it was cut
        self._given = False  # a frame's reader keeps its memory

    def feed(self, data: Buffer) -> list[bytes]:
        """Take what was received elsewhere; return the frames that it completes, copied."""
        frames: list[bytes] = []
        for _ in self.fill(data):
            while (frame := self.cut()) is not None:
                frames.append(bytes(frame))
        return frames

    def fill(self, data: Buffer) -> Iterator[None]:
        """Take what was received elsewhere, as much at once as there is space: `cut` in between."""
        view = memoryview(data)
        while view:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            view = view[count:]
            self.received(count)
            yield

    def space(self) -> memoryview:
        """Return where to receive next; never empty when there was no frame left to cut."""
        return self._view[self._filled :]

    def received(self, count: int) -> None:
        """Note that so many bytes were written into `space`."""
        self._filled += count

    def cut(self) -> memoryview | None:
        """Return the next whole frame, without its length; None, with room for more.

        A view is valid until there is none left, for good after `give`. WireError: a length that
        may not be.
        """
        position = self._position
        available = self._filled - position
        needed = _LENGTH.size
        if available >= needed:
            (length,) = _LENGTH.unpack_from(self._buffer, position)
            if not _LENGTH.size <= length <= self.frame_bytes_max:
                raise WireError(
                    f"a frame of {length} bytes; at most {self.frame_bytes_max} are taken"
                )
            needed += length
            if available >= needed:
                end = self._position = position + needed
                return self._view[position + _LENGTH.size : end]
        self._make_room(available, needed)
        return None

    def give(self) -> None:
        """Leave the memory of what was cut to whoever has it: nothing is copied."""
        self._given = True

    def _make_room(self, rest: int, needed: int) -> None:
        """Move what was received of a frame of `needed` bytes to where all of it has room."""
        position, size = self._position, len(self._buffer)
        if needed > _KEPT_BYTES:  # room for what has come of it, not for what was announced
            needed = min(needed, max(_KEPT_BYTES, size * 2 if rest == size else size))
        if self._given or needed > size or (not rest and size > _KEPT_BYTES):
            buffer = bytearray(max(_BYTES, needed))
            buffer[:rest] = self._view[position : self._filled]
            self._buffer, self._view, self._given = buffer, memoryview(buffer), False
        elif position and rest:
            self._buffer[:rest] = self._buffer[position : self._filled]
        self._position, self._filled = 0, rest
