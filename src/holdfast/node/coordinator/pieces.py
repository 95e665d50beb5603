"""An answer that is a list, encoded a piece at a time and put together at the end.

A hundred thousand groups encoded in one go would hold up everybody, and as objects until then they
take ten times the memory of their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.wire.codec import encode
from holdfast.wire.primitives import uvarint
from holdfast.wire.schema import Response

ANSWER_BYTES_MAX: Final = 64 * 2**20
"""What one answer may have; what is asked for beyond it is refused."""


class Piece(NamedTuple):
    """Some elements of the list, as they stand in the answer."""

    number: int
    data: bytes


class Pieces:
    """How an answer of one version is cut and joined. The list is the last of its fields."""

    def __init__(self, make: Callable[[list[Any]], Response], version: int) -> None:
        self._make = make
        self._version = version
        nothing = make([])
        self.is_flexible = version >= type(nothing).FLEXIBLE
        self._tail = int(self.is_flexible)  # of tagged fields, none
        self._head = encode(nothing, version)[: -self._tail - len(self._count(0)) or None]

    def piece(self, elements: Sequence[Any]) -> Piece:
        whole = encode(self._make(list(elements)), self._version)
        begin = len(self._head) + len(self._count(len(elements)))
        return Piece(len(elements), whole[begin : len(whole) - self._tail])

    def join(self, pieces: Iterable[Piece]) -> bytes:
        """Return the body of the answer."""
        pieces = list(pieces)
        count = self._count(sum(each.number for each in pieces))
        return b"".join((self._head, count, *(each.data for each in pieces), bytes(self._tail)))

    def _count(self, count: int) -> bytes:
        return uvarint(count + 1) if self.is_flexible else count.to_bytes(4, "big")
