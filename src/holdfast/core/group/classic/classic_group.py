"""A classic group as its shard sees it (`any_group.AnyGroup`), and how one comes from the log.

Rules: classic-groups.md#states, committed-offsets.md#expiry, committed-offsets.md#deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from holdfast.core.group.any_group import Caller, Committer, NumberedPartition
from holdfast.core.group.classic import classic_rebalance as rebalance
from holdfast.core.group.classic import classic_requests as requests
from holdfast.core.group.classic.classic_joining import Joining
from holdfast.core.group.classic.classic_state import ClassicState, GroupState
from holdfast.core.group.group_memory import GROUP_OVERHEAD_BYTES, GroupMemory
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.log_machine import Decision, KeyedRecord
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.messages.leave_group import LeaveGroupRequest
from holdfast.wire.messages.sync_group import SyncGroupRequest
from holdfast.wire.records.group_tables import GroupMetadataKey, GroupMetadataValue
from holdfast.wire.schema import Struct

CLASSIC: Final = "classic"

_S = GroupState


class ClassicGroup:
    """One classic group. Who makes a group of another kind of it may read its `state`."""

    __slots__ = ("group_id", "state")

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        new_id: Callable[[], str],
        memory: GroupMemory,
    ) -> None:
        self.group_id = group_id
        self.state = ClassicState(group_id, settings, new_id, memory)

    @property
    def kind(self) -> str:
        return CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.state.value

    @property
    def protocol_type(self) -> str:
        return self.state.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state.state is _S.EMPTY

    @property
    def deadline_ms(self) -> int:
        return self.state.timers.wake_ms

    @property
    def bytes(self) -> int:
        return GROUP_OVERHEAD_BYTES + 2 * len(self.group_id) + self.state.roster.bytes

    @property
    def retention_version(self) -> int:
        return self.state.retention_version

    # -- from the log ----------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        assert isinstance(key, GroupMetadataKey), "one key says what a classic group is"
        assert isinstance(value, GroupMetadataValue), "a tombstone takes the group out"
        self.state.replay(value)

    def loaded(self, now_ms: int) -> None:
        """Begin all sessions; also for a group that was made of one of another kind just now."""
        group = self.state
        for member in group.roster.members.values():
            group.keep_alive(member, now_ms)
        if len(group.roster.members) > group.settings.members_max:
            # The bound was lowered. A rebalance lets all commit before those go who come last.
            decision = Decision()
            rebalance.begin(group, decision, now_ms)
            assert not decision.records, "members that are there are waited for"

    def tombstones(self, decision: Decision) -> None:
        decision.append(GroupMetadataKey(group=self.group_id), None)

    # -- time and connections --------------------------------------------------------------------

    def due(self, decision: Decision, now_ms: int) -> None:
        rebalance.handle_due(self.state, decision, now_ms)

    def forget(self, call: int) -> None:
        rebalance.forget(self.state, call)

    def resign(self, decision: Decision, code: ErrorCode) -> None:
        for member in self.state.roster.members.values():
            rebalance.refuse_join(self.state, decision, member, code, member.member_id)
            rebalance.refuse_sync(self.state, decision, member, code)
        self.state.state = _S.DEAD

    # -- members ---------------------------------------------------------------------------------

    def join(
        self, decision: Decision, caller: Caller, request: JoinGroupRequest, now_ms: int
    ) -> None:
        Joining(self.state, decision, caller, request, now_ms).run()

    def sync(
        self, decision: Decision, caller: Caller, request: SyncGroupRequest, now_ms: int
    ) -> None:
        requests.sync(self.state, decision, caller, request, now_ms)

    def heartbeat(
        self, decision: Decision, caller: Caller, request: HeartbeatRequest, now_ms: int
    ) -> None:
        requests.heartbeat(self.state, decision, caller, request, now_ms)

    def leave(
        self, decision: Decision, caller: Caller, request: LeaveGroupRequest, now_ms: int
    ) -> None:
        requests.leave(self.state, decision, caller, request, now_ms)

    def describe(self) -> DescribedGroup:
        """Describe it as DescribeGroups does: what members say of themselves when it is stable."""
        group = self.state
        stable = group.state is _S.STABLE
        chosen = (group.protocol or "") if stable else ""
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type,
            protocol_data=chosen,
            members=[
                DescribedGroupMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    member_metadata=each.protocols[chosen] if stable else b"",
                    member_assignment=each.assignment,
                )
                for each in group.roster.members.values()
            ],
        )

    # -- offsets ---------------------------------------------------------------------------------

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[NumberedPartition],
        version: int,
        now_ms: int,
    ) -> ErrorCode:
        del partitions, version  # the same for all of them
        return requests.check_commit(self.state, committer, now_ms)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        del member_id, member_epoch  # anybody may read
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """Others than consumers don't say which topics they read, so all of them may be in use."""
        if self.is_empty or self.state.is_of_consumers:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def subscribes_to(self, topic: str) -> bool:
        return self.state.subscribes_to(topic)

    def offsets_expire_from(self, committed_ms: int) -> int | None:
        group = self.state
        if group.protocol_type is None:
            return committed_ms  # nobody was ever in it: only commits show that it is used
        if group.state is _S.EMPTY:
            return committed_ms if group.since_ms == -1 else group.since_ms
        if group.state is _S.STABLE and group.is_of_consumers and group.subscribed is not None:
            return committed_ms
        return None


class ClassicGroups:
    """How a shard makes classic groups (`any_group.GroupKind`)."""

    name = CLASSIC
    key_types: tuple[type[Struct], ...] = (GroupMetadataKey,)
    existence_type: type[Struct] = GroupMetadataKey

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        memory: GroupMemory | None = None,
    ) -> None:
        self._settings = settings
        self._new_id = new_id
        self._memory = memory or GroupMemory()

    def group_id_of(self, key: Struct) -> str:
        assert isinstance(key, GroupMetadataKey)
        return key.group

    def make(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._settings, self._new_id, self._memory)

    def new_group(self, group_id: str, now_ms: int) -> KeyedRecord:
        """Return the record that makes a group: it has had no members yet."""
        return GroupMetadataKey(group=group_id), GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=now_ms
        )
