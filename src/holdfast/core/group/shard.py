"""One shard of the group coordinator: one partition of `__consumer_offsets` that is led here.

A state machine over a log (`core.log_machine`). Each method that decides takes who asks and the
time, and returns a `Decision`: the caller appends its records, and gives it to `apply`, or to
`refuse` when the log did not take them, before anything else is decided. Both return answers, to be
sent once all is committed that was in the log by then. A JoinGroup or SyncGroup may be answered in
a later decision: it is parked here, by the number of its call.

    loading     replay ... replay, loaded(now)
    a request   decision = shard.join(caller, request, now); append; shard.apply(decision)
    time        while shard.deadline_ms <= now: decision = shard.due(now); append; shard.apply(...)
    the end     shard.resign(NOT_COORDINATOR), and the shard is thrown away

`due` does a part of what is due, so that who calls it can do other things between two parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.core.group import listing
from holdfast.core.group.any_group import UNKNOWN_MEMBER, AnyGroup, Caller, Committer
from holdfast.core.group.append_errors import append_error
from holdfast.core.group.classic.classic_member import join_refused, sync_refused
from holdfast.core.group.classic.classic_requests import leavers, left
from holdfast.core.group.group_memory import GROUP_OVERHEAD_BYTES
from holdfast.core.group.offsets import offset_requests
from holdfast.core.group.shard_machine import ShardMachine
from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_groups import DeletableGroupResult
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from holdfast.wire.messages.offset_commit import OffsetCommitRequest
from holdfast.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from holdfast.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from holdfast.wire.messages.sync_group import SyncGroupRequest
from holdfast.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from holdfast.wire.uuids import NULL_UUID

GROUP_ID_NOT_FOUND_SINCE: Final = 9  # OffsetCommit: before, a wrong generation was told

_E = ErrorCode


class GroupShard(ShardMachine):
    """Groups of both kinds, and committed offsets."""

    __slots__ = ()

    # -- members of classic groups ---------------------------------------------------------------

    def join(self, caller: Caller, request: JoinGroupRequest, now_ms: int) -> Decision:
        """Decide on JoinGroup; it makes a group that is not there for who has no id yet."""
        decision = self._begin(now_ms)
        group_id, member_id = request.group_id, request.member_id
        group = self._groups.get(group_id)
        code = self._check_join(request, group)
        if code is not _E.NONE:
            decision.answer(caller.call, join_refused(caller, code, member_id))
            return self._decided(decision)
        self._groups.park(caller.call, group_id)
        if group is not None and not self._gives_way(group):
            group.join(decision, caller, request, now_ms)
            return self._decided(decision, group_id)
        if group is not None:
            group.tombstones(decision)
        decision.append(*self._classic.new_group(group_id, now_ms))

        def join_new_group() -> None:
            made = self._groups.get(group_id)
            assert made is not None, "it was just made"
            made.join(decision, caller, request, now_ms)

        decision.once_applied(join_new_group)
        decision.once_refused(
            lambda code: decision.answer(caller.call, join_refused(caller, append_error(code)))
        )
        return self._decided(decision)

    def _check_join(self, request: JoinGroupRequest, group: AnyGroup | None) -> ErrorCode:
        settings = self._settings
        if not request.group_id:
            return _E.INVALID_GROUP_ID
        shortest, longest = settings.session_timeout_ms_min, settings.session_timeout_ms_max
        if not shortest <= request.session_timeout_ms <= longest:
            return _E.INVALID_SESSION_TIMEOUT
        if group is not None and not self._gives_way(group):
            return _E.NONE
        if request.member_id != UNKNOWN_MEMBER:
            return _E.UNKNOWN_MEMBER_ID
        return self._check_room(group)

    def _gives_way(self, group: AnyGroup) -> bool:
        """Whether a classic group may take the place of this one."""
        return group.kind != self._classic.name and group.is_empty

    def _check_room(self, group: AnyGroup | None) -> ErrorCode:
        is_full = len(self._groups) >= self._settings.groups_max
        if group is None and (is_full or not self._memory.has_room(GROUP_OVERHEAD_BYTES)):
            return _E.POLICY_VIOLATION
        return _E.NONE

    def sync(self, caller: Caller, request: SyncGroupRequest, now_ms: int) -> Decision:
        """Decide on SyncGroup."""
        decision = self._begin(now_ms)
        group = self._groups.get(request.group_id)
        if not request.group_id or group is None or group.is_empty:
            code = _E.UNKNOWN_MEMBER_ID if request.group_id else _E.INVALID_GROUP_ID
            decision.answer(caller.call, sync_refused(code))
            return self._decided(decision)
        self._groups.park(caller.call, request.group_id)
        group.sync(decision, caller, request, now_ms)
        return self._decided(decision, request.group_id)

    def heartbeat(self, caller: Caller, request: HeartbeatRequest, now_ms: int) -> Decision:
        """Decide on Heartbeat."""
        decision = self._begin(now_ms)
        group = self._groups.get(request.group_id)
        if not request.group_id or group is None:
            code = _E.UNKNOWN_MEMBER_ID if request.group_id else _E.INVALID_GROUP_ID
            decision.answer(caller.call, HeartbeatResponse(error_code=code))
            return self._decided(decision)
        group.heartbeat(decision, caller, request, now_ms)
        return self._decided(decision, request.group_id)

    def leave(self, caller: Caller, request: LeaveGroupRequest, now_ms: int) -> Decision:
        """Decide on LeaveGroup."""
        decision = self._begin(now_ms)
        group = self._groups.get(request.group_id)
        if not request.group_id:
            response = LeaveGroupResponse(error_code=_E.INVALID_GROUP_ID)
            decision.answer(caller.call, response)
        elif group is None:
            results = [
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=_E.UNKNOWN_MEMBER_ID,
                )
                for each in leavers(request, caller.version)
            ]
            decision.answer(caller.call, left(results, caller.version))
        else:
            group.leave(decision, caller, request, now_ms)
            return self._decided(decision, request.group_id)
        return self._decided(decision)

    # -- groups as operators see them --------------------------------------------------------------

    def describe_group(self, caller: Caller, group_id: str, now_ms: int) -> Decision:
        """Decide on one group of DescribeGroups; the answer is a `DescribedGroup`."""
        decision = self._begin(now_ms)
        group = self._groups.get(group_id)
        decision.answer(caller.call, listing.describe(group, group_id, caller.version))
        return self._decided(decision)

    @property
    def group_ids(self) -> Iterable[str]:
        """The ids of all groups. Nothing may be decided while they are gone through."""
        return (group.group_id for group in self._groups.all())

    def list_groups(
        self,
        caller: Caller,
        states: Sequence[str],
        types: Sequence[str],
        now_ms: int,
        *,
        group_ids: Iterable[str] | None = None,
    ) -> Decision:
        """Decide on ListGroups; the answer is a list of `ListedGroup`.

        A shard may have very many: those that are named, as far as they are there, are a part.
        """
        decision = self._begin(now_ms)
        groups = self._groups.all() if group_ids is None else self._groups.some(group_ids)
        decision.answer(caller.call, listing.list_groups(groups, states, types))
        return self._decided(decision)

    def delete_group(self, caller: Caller, group_id: str, now_ms: int) -> Decision:
        """Decide on one group of DeleteGroups; the answer is a `DeletableGroupResult`."""
        decision = self._begin(now_ms)
        group = self._groups.get(group_id)
        code = _E.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is not None and code is _E.NONE:
            for key in self._offsets.keys_of_group(group_id):
                decision.append(key, None)
            group.tombstones(decision)
        decision.answer(
            caller.call,
            DeletableGroupResult(group_id=group_id, error_code=code),
            lambda code: DeletableGroupResult(group_id=group_id, error_code=append_error(code)),
        )
        return self._decided(decision)

    # -- offsets ---------------------------------------------------------------------------------

    def commit_offsets(self, caller: Caller, request: OffsetCommitRequest, now_ms: int) -> Decision:
        """Decide on OffsetCommit. Commits decided one after the other may share a batch."""
        decision = self._begin(now_ms, may_share_batch=True)
        group = self._groups.get(request.group_id)
        code = self._check_commit(caller, request, group, now_ms)
        if code is _E.NONE:
            room = min(
                self._settings.offsets_bytes_max - self._offsets.bytes,
                self._memory.bytes_max - self._memory.bytes,
            )
            offset_requests.commit(
                self._offsets, self._settings, room, decision, caller, request, now_ms
            )
        else:
            decision.answer(caller.call, offset_requests.commit_refused(request, code))
        return self._decided(decision, request.group_id)

    def _check_commit(
        self, caller: Caller, request: OffsetCommitRequest, group: AnyGroup | None, now_ms: int
    ) -> ErrorCode:
        committer = Committer(
            request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
        )
        if group is not None:
            partitions = offset_requests.acceptable(request, self._settings)
            return group.check_commit(committer, partitions, caller.version, now_ms)
        if committer.generation < 0:
            return self._check_room(None)  # offsets alone make a group
        if caller.version >= GROUP_ID_NOT_FOUND_SINCE:
            return _E.GROUP_ID_NOT_FOUND
        return _E.ILLEGAL_GENERATION

    def commit_transaction_offsets(
        self, caller: Caller, request: TxnOffsetCommitRequest, now_ms: int
    ) -> Decision:
        """Decide on TxnOffsetCommit: the door for transactions, behind which is nothing yet."""
        decision = self._begin(now_ms)
        code = _E.UNSUPPORTED_VERSION if request.group_id else _E.INVALID_GROUP_ID
        decision.answer(caller.call, offset_requests.transaction_refused(request, code))
        return self._decided(decision)

    def fetch_offsets(
        self,
        caller: Caller,
        request: OffsetFetchRequestGroup,
        now_ms: int,
        *,
        require_stable: bool = False,
        id_now: Callable[[str], bytes] = lambda _: NULL_UUID,
    ) -> Decision:
        """Decide on one group of OffsetFetch; the answer is an `OffsetFetchResponseGroup`.

        `id_now` knows the ids of topics that are asked for by name.
        """
        decision = self._begin(now_ms)
        group = self._groups.get(request.group_id)
        code = _E.NONE  # who asks for a group that is not there is told that it has no offsets
        if group is not None:
            code = group.check_fetch(request.member_id, request.member_epoch)
        if code is _E.NONE:
            response = offset_requests.fetch(
                self._offsets, request, require_stable=require_stable, id_now=id_now
            )
        else:
            response = OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
        decision.answer(caller.call, response)
        return self._decided(decision)

    def delete_offsets(self, caller: Caller, request: OffsetDeleteRequest, now_ms: int) -> Decision:
        """Decide on OffsetDelete."""
        decision = self._begin(now_ms)
        group = self._groups.get(request.group_id)
        if not request.group_id:
            code = _E.INVALID_GROUP_ID
        else:
            code = _E.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
        if group is not None and code is _E.NONE:
            offset_requests.delete(self._offsets, group.subscribes_to, decision, caller, request)
        else:
            decision.answer(caller.call, OffsetDeleteResponse(error_code=code))
        return self._decided(decision)
