"""What members are answered, held against what was committed while they waited.

Owns what each answer claims. An answer is right if it was so at some moment between question and
answer; of a coordinator that has not heard of its end, at some moment since that.

Rules: consumer-groups.md#answers, consumer-groups.md#fencing, committed-offsets.md#fetching.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.clients.group_member.light_member import Phase
from holdfast.testing.simulation.groups.owners import Owners
from holdfast.testing.simulation.groups.shard_state import (
    ClassicGroup,
    Member,
    classic_of,
    epoch_of,
    held,
    member_of,
    named,
    offset_of,
)
from holdfast.testing.simulation.groups.shard_truth import ShardTruth
from holdfast.testing.simulation.groups.views import View
from holdfast.testing.simulation.invariants import Invariant
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.messages.offset_commit import OffsetCommitRequest
from holdfast.wire.messages.sync_group import SyncGroupRequest
from holdfast.wire.schema import Request
from holdfast.wire.uuids import NULL_UUID

_E = ErrorCode
_AWAY: Final = -2  # the epoch of a static member that means to come back
_LEFT: Final = -1

# What passes, or is the way of the protocol. What a member is refused with besides must have a
# reason in the log.
_USUAL: Final = frozenset(
    {
        _E.NONE, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.COORDINATOR_NOT_AVAILABLE,
        _E.ILLEGAL_GENERATION, _E.MEMBER_ID_REQUIRED, _E.NOT_COORDINATOR,
        _E.REBALANCE_IN_PROGRESS,
    }
)  # fmt: skip
# What a coordinator says that has not read its log yet.
_UNREAD: Final = frozenset(
    {_E.COORDINATOR_LOAD_IN_PROGRESS, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR}
)
_KEEPS_SESSION: Final = (JoinGroupRequest, SyncGroupRequest)
_OF_STATIC: Final = frozenset({_E.FENCED_INSTANCE_ID, _E.UNRELEASED_INSTANCE_ID})


class Question(NamedTuple):
    """What a member has asked, and when; and who has answered."""

    asked: Request
    asked_s: float
    epoch: int  # the leader epoch of its coordinator's partition, when it asked
    node: int


class _Log(NamedTuple):
    """What the log had of a classic member's group, as one of each kind, while it waited."""

    groups: list[ClassicGroup | None]
    members: list[Member | None]
    may_be_gone: bool  # who answers was deposed with a loss, and may have what no log will have

    @property
    def is_silent(self) -> bool:
        """Whether it says nothing at all: what is not written yet may be so."""
        return not any(self.groups) and not any(self.members)

    def allows(self, generation: int) -> bool:
        """Whether a member may be in this generation: a classic group runs ahead of the log."""
        as_classic = any(row is not None and row.generation <= generation for row in self.groups)
        return as_classic or any(
            row is not None and row.epoch == generation for row in self.members
        )


def _is_blind(asked: Any, code: ErrorCode) -> bool:
    """Whether a coordinator says so also while it loads: whoever asks is told that all is well."""
    return code is _E.NONE and isinstance(asked, HeartbeatRequest)


class Answers:
    """Judges what members are told."""

    def __init__(
        self,
        fail: Callable[[Invariant, str], None],
        owners: Owners,
        name_of: Callable[[bytes], str],
        is_one: Callable[[str, bytes], bool],
        is_replaced: Callable[[str, bytes], bool],
    ) -> None:
        """`name_of`: of a topic, by its id. `is_one`: whether that name was never another's.

        `is_replaced`: whether it became another one's after this one had it.
        """
        self._fail: Final = fail
        self._name_of: Final = name_of
        self._is_one: Final = is_one
        self._is_replaced: Final = is_replaced
        self._owners: Final = owners

    def judge(self, shard: ShardTruth, view: View, question: Question, answer: Any) -> None:
        """Hold an answer to a member against the log; before the member takes it in."""
        code = error_code(answer.error_code)
        until_s = shard.led_until(question.node, question.asked_s)
        if until_s is None:
            if code is not _E.NOT_COORDINATOR:
                self._fail(
                    Invariant.LEADS_BY_RECORD,
                    f"node {question.node} has never led {shard.name}, and answers {answer}",
                )
            return
        asked = question.asked
        if isinstance(asked, ConsumerGroupHeartbeatRequest):
            self._consumer(shard, view, question, answer, until_s)
        else:
            self._classic(shard, view, question, answer, until_s)
        leads_on = shard.leads(question.node) and shard.epoch == question.epoch
        if leads_on and code not in _UNREAD and not _is_blind(asked, code):
            shard.has_loaded(shard.epoch)
        # Who joins a generation that has begun, or asks for its part of one that is there, gets no
        # new session by that, as in Apache Kafka: the one it has may be over soon.
        if code is _E.NONE and not isinstance(asked, _KEEPS_SESSION):
            view.told_well(question.node, question.asked_s, leads=leads_on)

    def _refused(self, view: View, code: ErrorCode, why: Any) -> None:
        now_s = asyncio.get_running_loop().time()
        self._fail(
            Invariant.MEMBER_REFUSED_RIGHTLY, f"{code.name} at {now_s:.3f} s for {view}: {why}"
        )

    # -- KIP-848 ---------------------------------------------------------------------------------

    def _consumer(
        self,
        shard: ShardTruth,
        view: View,
        question: Question,
        answer: Any,
        until_s: float,
    ) -> None:
        asked: Any = question.asked
        code = error_code(answer.error_code)
        begin_s = min(question.asked_s, until_s)
        rows: list[Member | None] = shard.since(member_of(asked.group_id, asked.member_id), begin_s)
        if code is _E.NONE:
            self._told(view, asked, answer, rows, may_be_gone=shard.may_have_lost(question.node))
        elif code in {_E.UNKNOWN_MEMBER_ID, _E.FENCED_MEMBER_EPOCH}:
            # With its epoch, or the one before, it is let in; so it must have had another.
            if all(row is not None and row.epoch == asked.member_epoch for row in rows):
                self._refused(view, code, rows)
        elif code is _E.GROUP_ID_NOT_FOUND:
            if all(shard.since(epoch_of(asked.group_id), begin_s)):
                self._refused(view, code, "the group is there")
        elif code not in _USUAL and not (asked.instance_id is not None and code in _OF_STATIC):
            self._refused(view, code, answer)

    def _told(
        self,
        view: View,
        asked: ConsumerGroupHeartbeatRequest,
        answer: Any,
        rows: list[Member | None],
        *,
        may_be_gone: bool,
    ) -> None:
        """`may_be_gone`: as in `_Log`."""
        epoch = answer.member_epoch
        if asked.member_epoch < 0:
            gone = [row is None or row.epoch in {_AWAY, _LEFT} for row in rows]
            if not any(gone) and not may_be_gone:
                self._fail(Invariant.TOLD_AS_LOGGED, f"{view} has left, and is {rows}")
            return
        told = view.told if answer.assignment is None else held(answer.assignment.topic_partitions)
        if view.light.phase is Phase.JOINING and answer.assignment is None:
            self._fail(Invariant.TOLD_AS_LOGGED, f"{view} joins, and is told nothing: {answer}")
            return
        view.told = told
        if not any(row is not None and row.epoch == epoch and row.assigned == told for row in rows):
            if may_be_gone:
                return
            self._fail(
                Invariant.TOLD_AS_LOGGED,
                f"{view}: epoch {epoch} and {sorted(told)}; the log had {rows}",
            )
        for each in sorted(told):
            self._owners.told(view, each, epoch)

    # -- the classic protocol --------------------------------------------------------------------

    def _classic(
        self, shard: ShardTruth, view: View, question: Question, answer: Any, until_s: float
    ) -> None:
        """Judge what a classic member is told: its group may be of either kind."""
        code = error_code(answer.error_code)
        asked, group = question.asked, view.group.name
        begin_s = min(question.asked_s, until_s)
        log = _Log(
            shard.since(classic_of(group), begin_s),
            shard.since(member_of(group, view.member_id), begin_s),
            shard.may_have_lost(question.node),
        )
        if code is _E.UNKNOWN_MEMBER_ID:
            self._judge_unknown(shard, view, question.node, until_s, log)
        elif code is not _E.NONE:
            if code not in _USUAL and not (view.instance is not None and code in _OF_STATIC):
                self._refused(view, code, answer)
        elif isinstance(asked, SyncGroupRequest):
            self._synced(shard, view, asked, answer, log)
        elif isinstance(asked, HeartbeatRequest):
            if not shard.may_load(question.node, question.asked_s):
                self._judge_generation(view, asked.generation_id, log)
        elif isinstance(asked, JoinGroupRequest):  # it learns its id, perhaps
            log = log._replace(members=shard.since(member_of(group, answer.member_id), begin_s))
            self._judge_generation(view, answer.generation_id, log)

    def _judge_generation(self, view: View, generation: int, log: _Log) -> None:
        if not (log.is_silent or log.may_be_gone) and not log.allows(generation):
            self._fail(
                Invariant.TOLD_AS_LOGGED,
                f"{view}: all is well in generation {generation}, and the log had {log}",
            )

    def _judge_unknown(
        self, shard: ShardTruth, view: View, node: int, until_s: float, log: _Log
    ) -> None:
        """Who has shown signs of life is a member, unless it never was one in the log.

        A classic group gives up a member without a record, so who has not heard that it leads no
        longer does so too: of what the next leader was asked it knows nothing. From a group of the
        other kind nobody goes before the log says so.
        """
        now_s = asyncio.get_running_loop().time()
        as_classic = all(row is not None and view.member_id in row.members for row in log.groups)
        as_other = all(row is not None for row in log.members)
        known = as_classic and not view.may_be_out_of(node, until_s, now_s)
        known |= as_other and not view.may_be_out(now_s)
        if known and view.ok_s > shard.lost_s and not view.is_gone:
            self._refused(view, _E.UNKNOWN_MEMBER_ID, log)

    def _synced(
        self,
        shard: ShardTruth,
        view: View,
        asked: SyncGroupRequest,
        answer: Any,
        log: _Log,
    ) -> None:
        told, generation = named(answer.assignment), asked.generation_id
        as_classic = any(
            row is not None
            and row.generation == generation
            and asked.member_id in row.members
            and row.members[asked.member_id].assigned == told
            for row in log.groups
        )
        as_other = any(
            row is not None
            and row.epoch == generation
            and {(self._name_of(topic_id), n) for topic_id, n in row.assigned} == told
            for row in log.members
        )
        if not as_classic and not as_other:
            if log.may_be_gone:
                return
            self._fail(
                Invariant.TOLD_AS_LOGGED,
                f"{view}: {sorted(told)} in generation {generation}; the log had {log}",
            )
        for each in sorted(told):
            self._owners.told(view, each, generation)
            self._owners.told_name(shard, view, each, generation)

    # -- offsets ---------------------------------------------------------------------------------

    def committed(
        self,
        shard: ShardTruth,
        group: str,
        place: tuple[str, int],
        told: int,
        question: Question,
        topic_id: bytes = NULL_UUID,
    ) -> None:
        """Somebody is told what a group has committed; -1: nothing. `topic_id`: as it was asked."""
        begin_s = shard.said_since(question.node, question.asked_s)
        rows = [] if begin_s is None else shard.since(offset_of(group, *place), begin_s)
        was = [
            -1 if row is None or NULL_UUID != topic_id != row.topic_id != NULL_UUID else row.offset
            for row in rows
        ]
        if topic_id == NULL_UUID and any(
            row is not None and self._is_replaced(place[0], row.topic_id) for row in rows
        ):
            was.append(-1)  # the name means another topic to who has heard of that one
        if told not in was and not shard.may_have_lost(question.node):
            self._fail(
                Invariant.COMMIT_TOLD,
                f"{group} of {place}: {told} is told by node {question.node}, since {begin_s} s it"
                f" was {was}",
            )

    def offsets_refused(
        self, shard: ShardTruth, view: View, code: ErrorCode, question: Question, epoch: int
    ) -> None:
        """A member of KIP-848 is refused its commit, or what is committed."""
        begin_s = shard.said_since(question.node, question.asked_s)
        if code not in {_E.STALE_MEMBER_EPOCH, _E.UNKNOWN_MEMBER_ID} or begin_s is None:
            return
        rows: list[Member | None] = shard.since(member_of(view.group.name, view.member_id), begin_s)
        asked = question.asked
        if all(row is not None and self._lets_in(row, asked, epoch) for row in rows):
            self._refused(view, code, rows)

    def _lets_in(self, member: Member, asked: Request, epoch: int) -> bool:
        """Whether a member may commit all of this, or read, in this epoch."""
        if member.epoch == epoch:
            return True
        return isinstance(asked, OffsetCommitRequest) and all(
            self._is_one(topic.name, bytes(topic.topic_id))
            and member.may_commit((bytes(topic.topic_id), each.partition_index), epoch)
            for topic in asked.topics
            for each in topic.partitions
        )
