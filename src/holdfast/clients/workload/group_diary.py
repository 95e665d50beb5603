"""What a member of a group writes down of itself, in the order in which it happens.

Owns the ids of commits, and which lines must be on disk before something else happens: what was
processed before a commit that covers it is sent, and a commit before its request. Else a SIGKILL of
the member would make losses of what was done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.groups.history import (
    Assigned,
    CommitAcknowledged,
    CommitAsked,
    CommitRefused,
    CommitUnknown,
    Joined,
    Left,
    Processed,
    Revoked,
    Started,
)
from holdfast.judge.history import Note


def now_ms() -> float:
    """Return the clock of `at_ms`."""
    return time.monotonic_ns() // 1000 / 1000


@dataclass(frozen=True, slots=True)
class Membership:
    """What the coordinator calls a member: its id, and its generation or member epoch."""

    member: str
    epoch: int

    @property
    def is_known(self) -> bool:
        """Whether it is a member: librdkafka shows epoch 0 to who joins, and -1 to who is none."""
        return bool(self.member) and self.epoch > 0


@dataclass(frozen=True, slots=True)
class AskedCommit:
    """A commit that was written down and has no answer yet."""

    id: str
    partition: int
    offset: int


class GroupDiary:
    """Writes the events of one member after the other, of one process."""

    def __init__(
        self, recorder: Recorder, group: str, topic: str, instance: str | None = None
    ) -> None:
        self._recorder = recorder
        self._group = group
        self._topic = topic
        self._instance = instance
        self._commits = 0
        self._joined: Membership | None = None

    def flush(self) -> None:
        self._recorder.flush()

    def note(self, text: str) -> None:
        self._recorder.record(Note, text=text)
        self._recorder.flush()

    # -- membership ------------------------------------------------------------------------------

    def joined(self, me: Membership) -> None:
        """Write down what the coordinator told, where it is new."""
        if me.is_known and me != self._joined:
            self._joined = me
            self._recorder.record(Joined, group=self._group, member=me.member, epoch=me.epoch)

    def left(self, me: Membership) -> None:
        """Call it before the member asks to leave, and processes nothing more."""
        if me.member:
            self._recorder.record(Left, group=self._group, member=me.member)
        self._recorder.flush()

    def assigned(self, me: Membership, partitions: Iterable[int]) -> None:
        self.joined(me)
        for partition in partitions:
            self._recorder.record(
                Assigned,
                group=self._group,
                topic=self._topic,
                partition=partition,
                member=me.member,
                epoch=me.epoch,
                instance=self._instance,
            )
        self._recorder.flush()

    def started(
        self,
        me: Membership,
        partition: int,
        *,
        committed: int | None,
        offset: int,
        reset: str,
        begin_ms: float,
    ) -> None:
        self._recorder.record(
            Started,
            group=self._group,
            topic=self._topic,
            partition=partition,
            member=me.member,
            committed=committed,
            offset=offset,
            reset=reset,
            begin_ms=begin_ms,
        )

    def revoked(self, me: Membership, partitions: Iterable[int], *, lost: bool) -> None:
        """Call it when nothing of them is processed any more, before the coordinator is told."""
        for partition in partitions:
            self._recorder.record(
                Revoked,
                group=self._group,
                topic=self._topic,
                partition=partition,
                member=me.member,
                lost=lost,
            )
        self._recorder.flush()

    # -- work ------------------------------------------------------------------------------------

    def processed(
        self, me: Membership, partition: int, offset: int, name: str | None, begin_ms: float
    ) -> None:
        self._recorder.record(
            Processed,
            group=self._group,
            topic=self._topic,
            partition=partition,
            member=me.member,
            offset=offset,
            id=name,
            begin_ms=begin_ms,
        )

    def asks(self, me: Membership, offsets: Mapping[int, int]) -> list[AskedCommit]:
        """Write down, and have on disk, what is about to be committed."""
        assert me.member, "a commit of nobody's would be taken for an operator's"
        asked = []
        for partition, offset in offsets.items():
            commit = AskedCommit(f"{self._recorder.process}:c{self._commits}", partition, offset)
            self._commits += 1
            self._recorder.record(
                CommitAsked,
                group=self._group,
                topic=self._topic,
                partition=partition,
                id=commit.id,
                offset=offset,
                member=me.member,
                epoch=me.epoch,
            )
            asked.append(commit)
        self._recorder.flush()
        return asked

    def acknowledged(self, commit: AskedCommit) -> None:
        self._recorder.record(CommitAcknowledged, **self._of(commit))

    def refused(self, commit: AskedCommit, error: str) -> None:
        """Certainly without effect."""
        self._recorder.record(CommitRefused, error=error, **self._of(commit))

    def unknown(self, commit: AskedCommit, error: str) -> None:
        self._recorder.record(CommitUnknown, error=error, **self._of(commit))

    def _of(self, commit: AskedCommit) -> dict[str, object]:
        return {
            "group": self._group,
            "topic": self._topic,
            "partition": commit.partition,
            "id": commit.id,
        }
