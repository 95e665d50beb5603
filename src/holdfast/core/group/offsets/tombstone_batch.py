"""As many tombstones of offsets as one batch takes: what is left is for the next."""

from __future__ import annotations

from typing import Final

from holdfast.core.log_machine import Decision
from holdfast.wire.records.offset_records import OffsetKey

RECORDS_MAX: Final = 1000
# Of what keys say; a batch may have 1 MiB unless it is configured otherwise, and an id 32 KiB.
_BYTES_MAX: Final = 500_000
_CHARACTER_BYTES_MAX: Final = 4


class TombstoneBatch:
    """Tombstones that a shard writes of its own accord."""

    __slots__ = ("_bytes", "_decision", "count")

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._bytes = 0
        self.count = 0

    def add(self, key: OffsetKey) -> bool:
        """Append one. False: there is no room for it."""
        size = _CHARACTER_BYTES_MAX * (len(key.group) + len(key.topic))
        if self.count == RECORDS_MAX or self._bytes + size > _BYTES_MAX:
            return False
        self._decision.append(key, None)
        self._bytes += size
        self.count += 1
        return True
