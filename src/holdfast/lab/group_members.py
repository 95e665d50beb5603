"""Members of groups as a run's processes, and what their histories say while they are written."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from holdfast.judge.groups.history import (
    Assigned,
    CommitAcknowledged,
    CommitRefused,
    CommitUnknown,
    Joined,
    Left,
    Processed,
    Revoked,
    Started,
)
from holdfast.judge.history import Event, Note
from holdfast.lab.workload_processes import HistoryTail, Worker

MODULE: Final = "holdfast.clients.workload.verifiable_member"
# Answers to the commit of who is a member no more.
NO_MEMBER: Final = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "ILLEGAL_GENERATION"})
_HOLDS: Final = re.compile(r"holds with (\d+) of (\d+) records processed")


class Held(NamedTuple):
    """A member that stands still in a batch."""

    done: int
    total: int

    @property
    def left(self) -> int:
        return self.total - self.done


class MemberTail(HistoryTail):
    """Follows the history of one member; all is as of the last `poll`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.member = ""
        self.epoch = -1
        self.owned: set[int] = set()  # what it has been given and has not given up
        self.begun: dict[int, int] = {}  # of these, where it began
        self.begun_ms: dict[int, float] = {}  # and when it last did
        self.processed: Counter[int] = Counter()  # by partition
        self.processed_ms: dict[int, float] = {}  # the latest, by partition
        self.positions: dict[int, int] = {}  # behind the latest that it has processed
        self.assignments = 0  # how often it was given anything
        self.revocations = 0  # and gave anything up
        self.refusals: Counter[str] = Counter()  # of commits, by error
        self.doubts: Counter[str] = Counter()
        self.commits = 0  # acknowledged
        self.held: list[Held] = []  # every time that it stood still
        self.results_refused = 0  # batches that it could not put in any more

    def _take(self, event: Event) -> None:
        if isinstance(event, Processed):
            self.latest_ms = event.at_ms
            self.processed[event.partition] += 1
            self.processed_ms[event.partition] = event.at_ms
            self.positions[event.partition] = event.offset + 1
            return
        super()._take(event)
        if isinstance(event, Joined):
            self.member, self.epoch = event.member, event.epoch
        elif isinstance(event, Assigned):
            self.assignments += 1
            self.owned.add(event.partition)
        elif isinstance(event, Started):
            self.begun[event.partition] = event.offset
            self.begun_ms[event.partition] = event.at_ms
        elif isinstance(event, Revoked):
            self.revocations += 1
            self._gives_up(event.partition)
        elif isinstance(event, Left):
            for partition in list(self.owned):
                self._gives_up(partition)
        elif isinstance(event, CommitAcknowledged):
            self.commits += 1
        elif isinstance(event, CommitRefused):
            self.refusals[event.error] += 1
        elif isinstance(event, CommitUnknown):
            self.doubts[event.error] += 1
        elif isinstance(event, Note) and (held := _HOLDS.search(event.text)):
            self.held.append(Held(int(held[1]), int(held[2])))
        elif isinstance(event, Note) and "puts nothing in" in event.text:
            self.results_refused += 1

    @property
    def in_vain(self) -> Counter[str]:
        """Return what its commits were answered with, other than yes.

        On a slow machine none of these is certain to be the first answer.
        """
        return self.refusals + self.doubts

    def _gives_up(self, partition: int) -> None:
        self.owned.discard(partition)
        self.begun.pop(partition, None)


class Member(Worker):
    """One member of a group, in a process of its own."""

    TAIL: ClassVar[type[HistoryTail]] = MemberTail

    @property
    def told(self) -> MemberTail:
        """Its history up to now."""
        assert isinstance(self.tail, MemberTail)
        self.tail.poll()
        return self.tail
