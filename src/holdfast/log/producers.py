"""What each producer wrote last to one partition (KAFKA.md 6.2). Pure state; snapshots as bytes."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.wire.errors import ErrorCode


class ProducerCheck(NamedTuple):
    """Verdict on a client's batch.

    With `duplicate_offset` the batch is there already, at that base offset, stamped
    `duplicate_timestamp`: answer success with these, append nothing.
    """

    error: ErrorCode
    duplicate_offset: int | None = None
    duplicate_timestamp: int = -1
