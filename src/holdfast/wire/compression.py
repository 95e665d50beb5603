"""The five codecs of record batches (KAFKA.md 2.5), with bounded output.

Owns the framing differences. Imports the native library when it is first needed, because a node
that only passes batches through never needs it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

INFLATED_SIZE_MAX: Final = 256 * 1024 * 1024
"""Most bytes that one batch may inflate to, unless told otherwise."""


def compress(codec: int, data: bytes) -> bytes:
    """Return `data` compressed as Kafka's clients do."""
    raise AssertionError


def decompress(codec: int, data: Buffer, size_max: int = INFLATED_SIZE_MAX) -> bytes:
    """Return what a batch's body holds. WireError: it does not inflate, or beyond `size_max`."""
    raise AssertionError
