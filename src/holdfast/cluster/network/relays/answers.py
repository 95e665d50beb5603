"""Which answers of a connection are swallowed, told by its frames. Pure.

A request's frame says which API it is of and its correlation id; an answer's says only the latter.
Only the heads of frames are kept: what a frame holds passes through as it comes.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from holdfast.cluster.layout import UsageError
from holdfast.cluster.network.link_table import Answers
from holdfast.wire.messages import API_NAMES

UNANSWERED_MAX: Final = 10_000  # requests of one connection; acks=0 has no answer
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">ihhi")  # size, API key, version, correlation id
_ANSWER: Final = struct.Struct(">ii")  # size, correlation id


class NotFramesError(Exception):
    """What passes is not Kafka's protocol."""


def api_key(name: str) -> int:
    """Return the key of an API by its name, such as `Produce`. UsageError names all there are."""
    for key, known in API_NAMES.items():
        if known.lower() == name.lower():
            return key
    raise UsageError(f"There is no API {name!r}: {', '.join(API_NAMES.values())}.")


@dataclass(slots=True)
class Swallowing:
    """What is swallowed between one client and one node, over all their connections."""

    what: Answers
    swallowed: int = 0


@dataclass(slots=True)
class _Frames:
    """Cuts a stream into frames: the head of each, and the bytes behind it as they come."""

    head: struct.Struct
    _begun: bytearray = field(default_factory=bytearray)
    _left: int = 0  # bytes of the frame whose head was seen

    def cut(self, data: bytes) -> list[tuple[tuple[int, ...] | None, bytes]]:
        """Return pieces of `data`: with its head's fields where a frame begins, else None."""
        pieces: list[tuple[tuple[int, ...] | None, bytes]] = []
        view = memoryview(data)
        while view:
            if self._left:
                part, view = view[: self._left], view[self._left :]
                self._left -= len(part)
                pieces.append((None, bytes(part)))
                continue
            missing = self.head.size - len(self._begun)
            self._begun += view[:missing]
            view = view[missing:]
            if len(self._begun) == self.head.size:
                fields = self.head.unpack(self._begun)
                self._left = fields[0] + _SIZE.size - self.head.size
                if self._left < 0:
                    raise NotFramesError
                pieces.append((fields, bytes(self._begun)))
                self._begun.clear()
        return pieces


class Connection:
    """One connection's frames, both ways."""

    def __init__(self) -> None:
        self._requests, self._answers = _Frames(_REQUEST), _Frames(_ANSWER)
        # APIs of requests that have no answer yet, by correlation id, which a client may repeat.
        self._apis: dict[int, deque[int]] = {}
        self._unanswered = 0
        self._is_silent = False  # an answer is lacking: without it none behind it can come

    def asked(self, data: bytes) -> None:
        """Note what a client sends. NotFramesError: it isn't the protocol."""
        for fields, _ in self._requests.cut(data):
            if fields is not None:
                _, api, _, correlation = fields
                self._apis.setdefault(correlation, deque()).append(api)
                self._unanswered += 1
                if self._unanswered > UNANSWERED_MAX:
                    self._pop(next(iter(self._apis)))

    def answered(self, data: bytes, swallowing: Swallowing | None) -> tuple[bytes, bool]:
        """Return what of a node's bytes goes on, and whether the connection ends behind it.

        Behind an answer that is swallowed nothing goes on: no network lets later bytes of a
        connection through without the earlier ones. What of that is of the API counts as swallowed.
        """
        kept: list[bytes] = []
        for fields, piece in self._answers.cut(data):
            if fields is not None:
                api = self._pop(fields[1])
                if swallowing is not None and _is_swallowed(swallowing, api):
                    self._is_silent = True
                    swallowing.swallowed += 1
                    if swallowing.what.close:
                        return b"".join(kept), True
            if not self._is_silent:
                kept.append(piece)
        return b"".join(kept), False

    def _pop(self, correlation: int) -> int | None:
        """Forget the oldest request of this id, and return its API."""
        apis = self._apis.get(correlation)
        if apis is None:
            return None
        self._unanswered -= 1
        api = apis.popleft()
        if not apis:
            del self._apis[correlation]
        return api


def _is_swallowed(swallowing: Swallowing, api: int | None) -> bool:
    return api == swallowing.what.api and swallowing.swallowed < swallowing.what.count
