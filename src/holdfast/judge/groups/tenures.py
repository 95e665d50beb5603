"""One member's ownership of one partition: from when, from where, and until when it knew of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from holdfast.judge.groups.commits import Commit
from holdfast.judge.groups.history import (
    Assigned,
    CommitAcknowledged,
    CommitRefused,
    Left,
    Processed,
    Revoked,
    Started,
)

NOWHERE = -1

# Codes that tell a member that it is none any more; a generation that passed tells it of those
# partitions that have another owner (a cooperative member keeps the others).
OUT = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"})
BEHIND = "ILLEGAL_GENERATION"


@dataclass(slots=True, eq=False)
class Tenure:
    assigned: Assigned
    predecessor_released: bool
    started: Started | None = None
    source_end_ms: float = -inf  # the commit that it began with had taken effect by then
    next: int = NOWHERE  # behind the highest that it has processed
    floor: int | None = None  # what is below was committed when it began; None: it has not begun
    floor_commit: Commit | None = None
    ended: Revoked | Left | None = None  # by its own telling
    successor: Assigned | None = None
    heard: CommitRefused | None = None  # that told it that another one owns the partition
    last: Processed | None = None
    committed: CommitAcknowledged | None = None  # the last one

    @property
    def is_released(self) -> bool:
        """Whether it gave the partition up by itself."""
        return self.ended is not None and not (isinstance(self.ended, Revoked) and self.ended.lost)

    def refuse(self, event: CommitRefused, asked_ms: float) -> None:
        """Take in what a refused commit tells its member."""
        is_behind = (
            event.error == BEHIND
            and self.successor is not None
            and asked_ms >= self.successor.at_ms
        )
        if self.heard is None and (event.error in OUT or is_behind):
            self.heard = event
