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

Part: TypeAlias = str | int | Buffer

_KEPT = 1000


class Trace:
    """Fold events in; compare `digest` between runs."""

    def __init__(self, now: Callable[[], float], *, kept: int = _KEPT) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=kept)
        self.count = 0

    def fold(self, kind: str, *parts: Part) -> None:
        """Add one event. Bytes go in by length and CRC, so that a line stays readable."""
        words = [f"{self._now():.6f}", kind]
        for part in parts:
            if isinstance(part, (str, int)):
                words.append(str(part))
            else:
                words.append(f"{len(part)}:{crc32(part):08x}")
        line = " ".join(words)
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._last.append(line)
        self.count += 1

    @property
    def digest(self) -> str:
        """Hash of all events so far, in hexadecimal."""
        return self._hash.hexdigest()

    def last(self) -> list[str]:
        """Return the last events, oldest first."""
        return list(self._last)
