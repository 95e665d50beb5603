"""The oracle of groups: hears of all that is committed of them, and of all that members are told.

Owns one truth a partition of `__consumer_offsets`, and holds the rules against it. It must never
look at a node, nor change what it watches.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final

from holdfast.testing.simulation.groups.answers import Answers, Question
from holdfast.testing.simulation.groups.attempts import Attempt, Attempts
from holdfast.testing.simulation.groups.owners import Owners
from holdfast.testing.simulation.groups.shard_state import Fact, Member
from holdfast.testing.simulation.groups.shard_truth import Change, Record, ShardTruth
from holdfast.testing.simulation.groups.views import View, Views
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.metadata import Metadata
from holdfast.testing.simulation.plan import Plan
from holdfast.testing.simulation.truth import PartitionTruth
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.group_partition import group_partition
from holdfast.wire.messages.join_group import JoinGroupResponse
from holdfast.wire.records.group_tables import OffsetCommitKey
from holdfast.wire.schema import Request
from holdfast.wire.uuids import NULL_UUID


class GroupOracle:
    """All groups of one run."""

    def __init__(
        self,
        plan: Plan,
        metadata: Metadata,
        fail: Callable[[Invariant, str], None],
        counts: Counter[str],
    ) -> None:
        topic = plan.offsets_topic
        self._partitions: Final = 1 if topic is None else topic.partitions
        self._metadata: Final = metadata
        self.fail: Final = fail
        self.counts: Final = counts
        self.views: Final = Views()
        self._owners: Final = Owners(fail, self.views, self.index_of, self._id_of)
        self._answers: Final = Answers(
            fail, self._owners, self._name_of, self._is_one, self._is_replaced
        )
        self._attempts: Final = Attempts(fail, counts, self._is_abandoned)
        self.shards: Final[dict[int, ShardTruth]] = {}
        self.deleted: Final[dict[str, None]] = {}  # groups that somebody wanted to be deleted
        # How far the metadata were when each shard's coordinator was elected last.
        self._elected_at: dict[int, int] = {}

    def _id_of(self, topic: str) -> bytes | None:
        key = self._metadata.find(topic, 0)
        return None if key is None else key[0]

    def _name_of(self, topic_id: bytes) -> str:
        return self._metadata.topics.get(topic_id, "")

    def _is_one(self, topic: str, topic_id: bytes) -> bool:
        """Whether no topic but this one has ever had that name: so nobody can take another's id."""
        return self._ids_of(topic) == [topic_id]

    def _is_replaced(self, topic: str, topic_id: bytes) -> bool:
        """Whether this topic had that name, and another one after it."""
        return topic_id in self._ids_of(topic)[:-1]

    def _ids_of(self, topic: str) -> list[bytes]:
        """Return all topics that ever had a name, in the order in which they were made."""
        return [key for key, name in self._metadata.topics.items() if name == topic]

    def index_of(self, group: str) -> int:
        """In which partition a group lives."""
        return group_partition(group, self._partitions)

    def shard_of(self, group: str) -> ShardTruth | None:
        """The truth of a group's partition; None: it was not made yet."""
        return self.shards.get(self.index_of(group))

    # -- what the log does -----------------------------------------------------------------------

    def watch(self, partition: int, truth: PartitionTruth) -> None:
        """Follow a partition of `__consumer_offsets` from its beginning on."""
        self.shards[partition] = ShardTruth(
            truth, self.fail, self._take, lambda: self._owners.forget_all(partition)
        )

    def keep(self, partition: int, records: memoryview) -> None:
        """Remember what a leader has appended."""
        self.shards[partition].keep(records)

    def elected(self, partition: int, epoch: int, node: int) -> None:
        self.counts["coordinators elected"] += 1
        self._elected_at[partition] = self._metadata.end
        self.shards[partition].elected(epoch, node)

    def _take(self, shard: ShardTruth, records: Iterable[Record]) -> None:
        """Take in a committed batch, whole."""
        changes: list[Change] = []
        for key, value in records:
            if isinstance(key, OffsetCommitKey) and value is not None:
                self.counts["offsets committed"] += 1
                self._attempts.taken(key, value, shard.state)
            change = shard.apply(key, value)
            if change is not None:
                changes.append(change)
        for change in changes:
            self._look_at(change)
        consumers = dict.fromkeys(
            str(change.fact[1]) for change in changes if change.fact[0] in {"member", "epoch"}
        )
        for group in consumers:
            members = shard.state.members.get(group, {})
            self._owners.consumer_changed(shard, group, members)

    def _look_at(self, change: Change) -> None:
        kind, group = str(change.fact[0]), str(change.fact[1])
        if kind == "offset":
            if change.after is None:
                self._removed(change)
        elif kind in {"classic", "epoch"}:
            self._generation_changed(kind, group, change)
        elif kind == "member" and change.after is not None:
            self._epochs_written(change)

    def _removed(self, change: Change) -> None:
        """An offset goes with its group or its topic, and not otherwise."""
        before, (_, group, topic, _) = change.before, change.fact
        if before is None or group in self.deleted:
            return
        self.counts["offsets removed with their topic"] += 1
        if self._is_there(topic, before.topic_id):
            self.fail(
                Invariant.COMMIT_STAYS,
                f"{change.fact}: {before} is removed, and its topic is there",
            )

    def _is_there(self, topic: str, topic_id: bytes) -> bool:
        """Whether the topic that an offset is of is there; without its id, one of its name."""
        if topic_id == NULL_UUID:
            return self._metadata.find(topic, 0) is not None
        return any(key[0] == topic_id for key in self._metadata.partitions)

    def may_be_forgotten(self, shard: ShardTruth, fact: Fact) -> bool:
        """Whether a committed offset is of a topic that is gone, as its coordinator may not know.

        Another topic has its name, so nobody is told the offset; and the coordinator that had to
        remove it may have died before: another one was elected since.
        """
        _, group, topic, _ = fact
        topic_id = shard.state.facts[fact].topic_id
        is_another = not self._is_there(str(topic), topic_id) and self._is_there(
            str(topic), NULL_UUID
        )
        elected_at = self._elected_at.get(self.index_of(str(group)), -1)
        return is_another and elected_at >= self._metadata.removed.get(topic_id, inf)

    def _generation_changed(self, kind: str, group: str, change: Change) -> None:
        before, after = change.before, change.after
        if after is None:
            self._owners.forget(group)
            return
        self.counts[f"{kind} generations committed"] += before != after
        now, then = (
            row if row is None or kind == "epoch" else row.generation for row in (after, before)
        )
        if then is not None and now < then:
            self.fail(Invariant.GENERATIONS_RISE, f"{group}: {before}, then {after}")

    def _epochs_written(self, change: Change) -> None:
        """The record says since when a member has each partition: who loads it knows no more."""
        member: Member = change.after
        self.counts["partitions kept over epochs"] += sum(
            since < member.epoch for since in member.since.values()
        )
        if member.told != member.since:
            self.fail(Invariant.PARTITION_EPOCHS, f"{change.fact}: {change.before}, then {member}")

    # -- what members do, and are told -----------------------------------------------------------

    def enter(self, view: View) -> None:
        """A member is about to ask for the first time."""
        self.views.enter(view)

    def leave(self, view: View) -> None:
        """A member has died, or is about to say that it leaves."""
        self.views.leave(view)

    def ask(self, group: str, asked: Request, node: int) -> Question | None:
        """Somebody is about to ask a coordinator. None: there can be none yet."""
        shard = self.shard_of(group)
        if shard is None:
            return None
        now_s = asyncio.get_running_loop().time()
        return Question(asked, now_s, shard.epoch, node)

    def answered(self, view: View, question: Question, answer: Any) -> None:
        """A member is told this; before it takes it in."""
        shard = self._shard(view)
        self._answers.judge(shard, view, question, answer)
        if isinstance(answer, JoinGroupResponse) and not answer.error_code:
            self._attempts.joined(view.group.name, answer.member_id, answer.generation_id)

    def told_offset(
        self,
        group: str,
        place: tuple[str, int],
        told: int,
        question: Question,
        topic_id: bytes = NULL_UUID,
    ) -> None:
        """Somebody is told what a group has committed; -1: nothing."""
        shard = self.shard_of(group)
        assert shard is not None, "somebody was asked"
        self.counts["committed offsets told"] += 1
        self._answers.committed(shard, group, place, told, question, topic_id)

    def attempt(self, attempt: Attempt) -> None:
        """A commit is about to be asked for."""
        self._attempts.ask(attempt)

    def outcome(self, view: View, attempt: Attempt, code: ErrorCode, question: Question) -> None:
        """A commit was answered."""
        shard = self._shard(view)
        if code is ErrorCode.NONE:
            self.counts["commits acknowledged"] += 1
            excused = not attempt.is_taken and shard.may_have_lost(question.node)
            self._attempts.acknowledged(attempt, excused=excused)
            return
        self.counts[f"commits refused: {code.name}"] += 1
        self._attempts.refused(attempt, code)
        if attempt.member_id == view.member_id:
            self._answers.offsets_refused(shard, view, code, question, attempt.epoch)

    def offsets_refused(self, view: View, code: ErrorCode, question: Question, epoch: int) -> None:
        """A member was refused what its group has committed."""
        self._answers.offsets_refused(self._shard(view), view, code, question, epoch)

    def _shard(self, view: View) -> ShardTruth:
        shard = self.shard_of(view.group.name)
        assert shard is not None, "somebody was asked"
        return shard

    def _is_abandoned(self, group: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        return all(view.may_be_out(now_s) for view in self.views.of(group))

    def living(self, groups: Iterable[str]) -> Mapping[str, list[View]]:
        """Return the members that live, by group."""
        return {group: list(self.views.of(group)) for group in groups}
