"""One running hash over all that happened, by which two runs of one seed are compared.

Owns the hash and the last few events, for finding where two runs part. Must never be asked for
anything that could change a run.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import TypeAlias
from zlib import crc32

from holdfast.runtime.ports import Buffer

Part: TypeAlias = str | int
_Event: TypeAlias = tuple[float, int, str, tuple[Part, ...]]

_KEPT = 1000


def brief(data: Buffer) -> str:
    """Bytes by length and CRC, so that a line stays readable."""
    return f"{len(data)}:{crc32(data):08x}"


class Trace:
    """Fold events in; compare `digest` between runs."""

    def __init__(self, *, kept: int = _KEPT) -> None:
        self._now = 0.0
        self._ticks = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._fresh: list[_Event] = []  # not hashed yet: many at a time cost less
        self._last: deque[_Event] = deque(maxlen=kept)
        self._kept = kept
        self.count = 0
        self.tell: Callable[[str], None] | None = None  # called with each event's line

    def tick(self, now: float) -> None:
        """Time has moved on. Every event takes in how often it did."""
        self._now = now
        self._ticks += 1

    def fold(self, kind: str, *parts: Part) -> None:
        """Add one event. Bytes go in as `brief` has them."""
        event = (self._now, self._ticks, kind, parts)
        fresh = self._fresh
        fresh.append(event)
        self.count += 1
        if len(fresh) >= self._kept:
            self._take_in()
        if self.tell is not None:
            self.tell(_line(event))

    @property
    def digest(self) -> str:
        """Hash of all events so far, in hexadecimal. To ask for it changes nothing."""
        self._take_in()
        return self._hash.hexdigest()

    def last(self) -> list[str]:
        """Return the last events, oldest first."""
        self._take_in()
        return [_line(event) for event in self._last]

    def _take_in(self) -> None:
        # Not one by one, and yet the same wherever the cuts fall: no list's brackets.
        self._hash.update("".join(map(repr, self._fresh)).encode())
        self._last.extend(self._fresh)
        self._fresh.clear()


def _line(event: _Event) -> str:
    now, _, kind, words = event
    return " ".join([f"{now:.6f}", kind, *map(str, words)])
