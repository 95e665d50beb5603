"""Commits of offsets: who asked for each, what it was told, and what of it is in the log.

Each attempt has a name of its own, which stands in the metadata of what it commits: so a record is
known again, and nobody's commit is taken for another's.

Rules: committed-offsets.md#who-may-commit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.testing.simulation.groups.shard_state import (
    Fact,
    ShardState,
    classic_of,
    epoch_of,
    offset_of,
)
from holdfast.testing.simulation.invariants import Invariant
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.group_tables import OffsetCommitKey, OffsetCommitValue

Fail = Callable[[Invariant, str], None]

_E = ErrorCode
# With these nothing was appended. Others may come after that: too few replicas in time, or another
# coordinator by then.
CERTAIN: Final = frozenset(
    {
        _E.COORDINATOR_LOAD_IN_PROGRESS, _E.FENCED_INSTANCE_ID, _E.GROUP_ID_NOT_FOUND,
        _E.ILLEGAL_GENERATION, _E.OFFSET_METADATA_TOO_LARGE, _E.REBALANCE_IN_PROGRESS,
        _E.STALE_MEMBER_EPOCH, _E.UNKNOWN_MEMBER_ID, _E.UNKNOWN_TOPIC_ID,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
    }
)  # fmt: skip


@dataclass(slots=True)
class Attempt:
    """One offset of one request."""

    name: str
    group: str
    topic: str
    partition: int
    offset: int
    member_id: str
    epoch: int  # the generation, or the member's epoch
    number: int = 0  # in the order in which they were asked for
    is_taken: bool = False  # it was committed to the log
    refused: str = ""  # for good, and why

    @property
    def fact(self) -> Fact:
        return offset_of(self.group, self.topic, self.partition)


class Attempts:
    """All of a run."""

    def __init__(
        self, fail: Fail, counts: Counter[str], is_abandoned: Callable[[str], bool]
    ) -> None:
        """`is_abandoned`: whether a group's coordinator may have given up all of its members."""
        self._fail: Final = fail
        self._counts: Final = counts
        self._is_abandoned: Final = is_abandoned
        self._known: dict[str, Attempt] = {}
        self._latest: dict[Fact, Attempt] = {}
        self._joined: dict[tuple[str, str, int], None] = {}

    def joined(self, group: str, member_id: str, generation: int) -> None:
        """A classic member is told that it is in this generation, which the log may never have."""
        self._joined[group, member_id, generation] = None

    def ask(self, attempt: Attempt) -> None:
        """Somebody is about to ask for it."""
        assert attempt.name not in self._known, "an attempt has a name of its own"
        attempt.number = len(self._known)
        self._known[attempt.name] = attempt

    def taken(self, key: OffsetCommitKey, value: OffsetCommitValue, state: ShardState) -> None:
        """An offset is committed to the log. `state`: what was so just before."""
        said = key.group, key.topic, key.partition, value.offset
        attempt = self._known.get(value.metadata)
        if attempt is None or said != (
            attempt.group, attempt.topic, attempt.partition, attempt.offset
        ):  # fmt: skip
            self._fail(Invariant.COMMIT_OF_MEMBER, f"{said}: nobody has asked for it: {attempt}")
            return
        if attempt.refused:
            self._fail(Invariant.COMMIT_REFUSED, f"{attempt}")
        why = self._what_is_wrong(attempt, bytes(value.topic_id), state)
        if why:
            self._fail(Invariant.COMMIT_OF_MEMBER, f"{attempt}: {why}")
        attempt.is_taken = True
        before = self._latest.get(attempt.fact)
        if before is not None:
            # It was given up by who asked, and came out of some socket behind the next one.
            self._counts["commits taken behind a later one"] += attempt.number < before.number
            self._counts["commits that moved back"] += attempt.offset < before.offset
        self._latest[attempt.fact] = attempt

    def _what_is_wrong(self, attempt: Attempt, topic_id: bytes, state: ShardState) -> str:
        """Say why it had to be refused; "": it had not. `topic_id`: as it was taken."""
        group, member_id, epoch = attempt.group, attempt.member_id, attempt.epoch
        members = state.members.get(group, {})
        if epoch_of(group) in state.facts:
            if epoch < 0:
                return "the group has members" if members else ""
            member = members.get(member_id)
            if member is None or not member.may_commit((topic_id, attempt.partition), epoch):
                return f"it is {member}"
            self._counts["commits taken in an older epoch"] += epoch < member.epoch
            return ""
        classic = state.facts.get(classic_of(group))
        if epoch < 0:
            if classic is None or not classic.members or self._is_abandoned(group):
                return ""
            return f"the group has members: {classic}"
        if classic is None:
            return "there is no group"
        is_in_log = classic.generation == epoch and member_id in classic.members
        is_before = classic.generation < epoch and (group, member_id, epoch) in self._joined
        # Before the first one who joins is in generation 0, as in Apache Kafka.
        is_first = classic.generation == epoch == 0
        return "" if is_in_log or is_before or is_first else f"the group is {classic}"

    def acknowledged(self, attempt: Attempt, *, excused: bool) -> None:
        """It was answered with NONE. `excused`: what its coordinator wrote may be lost."""
        if not attempt.is_taken and not excused:
            now_s = asyncio.get_running_loop().time()
            self._fail(Invariant.COMMIT_KEPT, f"{attempt} at {now_s:.3f} s")

    def refused(self, attempt: Attempt, code: ErrorCode) -> None:
        """It was answered with an error."""
        if code not in CERTAIN:
            return
        attempt.refused = code.name
        if attempt.is_taken:
            self._fail(Invariant.COMMIT_REFUSED, f"{attempt}")
