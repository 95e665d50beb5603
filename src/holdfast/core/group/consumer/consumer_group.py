"""A group of the consumer protocol, as its shard sees it.

Owns which decision is made when: on a request, when a timer is due, when patterns were resolved.
What each decision is stands in the modules beside this one; what is durable is in `ConsumerState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.core.group.any_group import (
    UNKNOWN_MEMBER,
    Caller,
    Committer,
    NumberedPartition,
)
from holdfast.core.group.append_errors import append_error
from holdfast.core.group.consumer import consumer_classic
from holdfast.core.group.consumer.consumer_core import (
    ASSIGNMENT_TIMER,
    ConsumerCore,
    ConsumerSurroundings,
    Timer,
    TimerKey,
)
from holdfast.core.group.consumer.consumer_describe import describe
from holdfast.core.group.consumer.consumer_heartbeat import (
    heartbeat,
    leave,
    refused,
    remove_members,
)
from holdfast.core.group.consumer.consumer_member import JOIN_EPOCH, ConsumerMember, MemberState
from holdfast.core.group.consumer.consumer_migration import (
    ClassicGroupFacts,
    downgrade,
    may_remove_and_downgrade,
    upgrade_records,
)
from holdfast.core.group.consumer.consumer_moves import assign, take_resolved
from holdfast.core.group.consumer.consumer_patterns import ResolvedPattern
from holdfast.core.group.consumer.consumer_records import group_tombstones
from holdfast.core.group.consumer.consumer_state import RECORD_KEYS, ConsumerState
from holdfast.core.group.group_memory import GROUP_OVERHEAD_BYTES
from holdfast.core.log_machine import Decision, KeyedRecord
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import PROTOCOL_TYPE
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribedGroup
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from holdfast.wire.messages.sync_group import SyncGroupRequest
from holdfast.wire.records.group_tables import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
)
from holdfast.wire.schema import Struct

CONSUMER: Final = "consumer"

RETRY_MS: Final = 1_000
"""What was due and couldn't be written is due again after that time."""

EXPIRED_MAX: Final = 500
"""Members that one decision removes at most. Who is left is due at once."""

OFFSET_COMMIT_SINCE: Final = 9
"""The first OffsetCommit that has a member epoch."""


class ConsumerGroup:
    """One group. Nothing durable changes but by `replay`. `core` is what decisions work on."""

    def __init__(self, group_id: str, around: ConsumerSurroundings) -> None:
        self.group_id = group_id
        self.core = ConsumerCore(group_id, around)

    @property
    def kind(self) -> str:
        return CONSUMER

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state(self) -> ConsumerState:
        """What the log says of the group, to be read."""
        return self.core.state

    @property
    def state_name(self) -> str:
        return self.state.state.value

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def deadline_ms(self) -> int:
        return self.core.timers.wake_ms

    @property
    def bytes(self) -> int:
        return GROUP_OVERHEAD_BYTES + 2 * len(self.group_id) + self.state.told_bytes

    @property
    def retention_version(self) -> int:
        return self.state.changes

    # -- from the log ----------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        self.state.replay(key, value)
        if value is None and isinstance(key, ConsumerGroupMemberMetadataKey):
            self.core.forget_member(key.member_id)

    def loaded(self, now_ms: int) -> None:
        for member in self.state.members.values():
            self.core.keep_alive(member, now_ms)
            if member.classic is not None:
                continue
            self.core.tellings.loaded(member.member_id, now_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                key = (Timer.REBALANCE, member.member_id)
                self.core.timers.set(key, now_ms + member.rebalance_timeout_ms)

    def tombstones(self, decision: Decision) -> None:
        for record in group_tombstones(self.group_id, self.state.members, self.state.patterns):
            decision.append(*record)

    # -- KIP-848 ---------------------------------------------------------------------------------

    def consumer_heartbeat(
        self,
        decision: Decision,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
    ) -> None:
        """Decide about a heartbeat. `refuse_request` has let it through."""
        if request.member_epoch < JOIN_EPOCH:
            member = leave(self.core, decision, caller, request)
            if member is not None:
                self._remove(decision, [member], now_ms)
        else:
            heartbeat(self.core, decision, caller, request, now_ms)

    def _remove(self, decision: Decision, members: list[ConsumerMember], now_ms: int) -> None:
        """Remove members. Where only classic ones are left, the group becomes one of theirs."""
        if may_remove_and_downgrade(self.core, members):
            downgrade(self.core, decision, now_ms, gone=members)
        else:
            remove_members(self.core, decision, members)

    def first_heartbeat(
        self,
        decision: Decision,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
        records: Iterable[KeyedRecord],
    ) -> bool:
        """Decide about the join that makes this group, behind `records`. Return whether it does."""
        return heartbeat(self.core, decision, caller, request, now_ms, records)

    def take_over(self, decided: ConsumerGroup) -> None:
        """Take the timers of the group that was decided on before the log had this one."""
        self.core.take_over(decided.core)

    def refresh_metadata(self) -> None:
        """Note that a topic of the group has changed. The next heartbeat sees to it."""
        self.core.refresh_metadata()

    def patterns_resolved(
        self,
        decision: Decision,
        resolved: Mapping[str, ResolvedPattern],
        now_ms: int,
        *,
        full: bool,
    ) -> None:
        """Take over what the group's patterns match. `full`: all topics were looked at."""
        take_resolved(self.core, decision, resolved, now_ms, full=full)

    def patterns_unresolved(self) -> None:
        """Note that a refresh came to nothing: the next heartbeat asks for another."""
        self.core.is_refreshing = False

    def patterns_refused(self, now_ms: int) -> None:
        """Note that there is no room for what they match: the next heartbeats wait a while."""
        self.core.refresh_failed(now_ms)

    def described(self) -> ConsumerGroupDescribedGroup:
        """Return what ConsumerGroupDescribe tells."""
        return describe(self.core)

    # -- the classic protocol --------------------------------------------------------------------

    def join(
        self, decision: Decision, caller: Caller, request: JoinGroupRequest, now_ms: int
    ) -> None:
        """Decide about a JoinGroup to a group with members; an empty one becomes a classic one."""
        consumer_classic.join(self.core, decision, caller, request, now_ms)

    def sync(
        self, decision: Decision, caller: Caller, request: SyncGroupRequest, now_ms: int
    ) -> None:
        consumer_classic.sync(self.core, decision, caller, request, now_ms)

    def heartbeat(
        self, decision: Decision, caller: Caller, request: HeartbeatRequest, now_ms: int
    ) -> None:
        consumer_classic.beat(self.core, decision, caller, request, now_ms)

    def leave(
        self, decision: Decision, caller: Caller, request: LeaveGroupRequest, now_ms: int
    ) -> None:
        response, members = consumer_classic.leaving(self.core, caller, request)
        if members:
            self._remove(decision, members, now_ms)
        decision.answer(
            caller.call, response, lambda code: LeaveGroupResponse(error_code=append_error(code))
        )

    # -- time and connections --------------------------------------------------------------------

    def due(self, decision: Decision, now_ms: int) -> None:
        timers = self.core.timers
        taken: list[TimerKey] = []
        gone: dict[str, ConsumerMember] = {}
        while len(gone) < EXPIRED_MAX and (key := timers.take(now_ms)) is not None:
            taken.append(key)
            member = self.state.members.get(key[1])
            if member is not None and not _is_excused(member, key[0]):
                gone[member.member_id] = member
        if gone:
            self._remove(decision, list(gone.values()), now_ms)
            if ASSIGNMENT_TIMER in taken:  # for those who are left
                timers.set(ASSIGNMENT_TIMER, now_ms)
        elif ASSIGNMENT_TIMER in taken:
            assign(self.core, decision, now_ms)
        if decision.records:
            decision.once_refused(lambda _: self._try_again(taken, now_ms + RETRY_MS))

    def _try_again(self, keys: Iterable[TimerKey], at_ms: int) -> None:
        for key in keys:
            self.core.timers.set(key, at_ms)

    def forget(self, call: int) -> None:
        """Nobody waits here: each call is answered by the decision that it came to."""

    def resign(self, decision: Decision, code: ErrorCode) -> None:
        """Nobody waits here."""

    # -- offsets ---------------------------------------------------------------------------------

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[NumberedPartition],
        version: int,
        now_ms: int,
    ) -> ErrorCode:
        """Let members commit with the epoch that is theirs, and anybody while there are none.

        An older epoch does where a member has had each of the partitions since then.
        """
        del now_ms  # a commit is no sign of life in this protocol
        if committer.generation < 0 and not self.state.members:
            return ErrorCode.NONE
        member = self.state.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and version < OFFSET_COMMIT_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        epoch = committer.generation
        if epoch < member.epoch and all(member.had_since(*each, epoch) for each in partitions):
            return ErrorCode.NONE
        return _check_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id or UNKNOWN_MEMBER)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _check_epoch(member, member_epoch)

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def subscribes_to(self, topic: str) -> bool:
        return self.state.topic_users[topic] > 0

    def offsets_expire_from(self, committed_ms: int) -> int:
        """An offset of this kind of group is as old as its commit."""
        return committed_ms


def _is_excused(member: ConsumerMember, kind: Timer) -> bool:
    """Whether what the timer waited for has happened, or does not matter any more."""
    if kind in (Timer.JOIN, Timer.SYNC):
        return member.classic is None
    if kind is not Timer.REBALANCE:
        return False
    return member.state is not MemberState.UNREVOKED_PARTITIONS or member.epoch < JOIN_EPOCH


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    if member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


class ConsumerGroupKind:
    """How a shard makes groups of this kind, and knows their records."""

    name = CONSUMER
    key_types: tuple[type[Struct], ...] = RECORD_KEYS
    existence_type: type[Struct] = ConsumerGroupMetadataKey

    def __init__(self, around: ConsumerSurroundings) -> None:
        self._around = around

    def group_id_of(self, key: Any) -> str:
        group_id: str = key.group_id
        return group_id

    def make(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._around)

    def upgrade(
        self,
        classic: ClassicGroupFacts,
        decision: Decision,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
    ) -> ConsumerGroup | None:
        """Decide about a heartbeat to a classic group with members: it makes it one of this kind.

        Return the group as it is before that heartbeat, if this is let in: what the records make
        is to take it over.
        """
        records = upgrade_records(classic, self._around, now_ms)
        if isinstance(records, Refusal):
            decision.answer(caller.call, refused(records))
            return None
        made = ConsumerGroup(classic.group_id, self._around.aside())
        for record in records[1:]:  # the first removes the classic group
            made.replay(*record)
        made.loaded(now_ms)
        return made if made.first_heartbeat(decision, caller, request, now_ms, records) else None
