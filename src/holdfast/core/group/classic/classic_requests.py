"""SyncGroup, Heartbeat, LeaveGroup, and whether a member may commit, in a classic group.

Rules: classic-groups.md#syncing, classic-groups.md#heartbeats, classic-groups.md#leaving,
committed-offsets.md#who-may-commit.
"""

from __future__ import annotations

from holdfast.core.group.any_group import UNKNOWN_MEMBER, Caller, Committer
from holdfast.core.group.append_errors import append_error
from holdfast.core.group.classic.classic_member import sync_refused
from holdfast.core.group.classic.classic_rebalance import (
    assigned,
    begin,
    begin_or_complete,
    complete_if_all_joined,
    give_out,
    remove,
    synced,
    take_back,
)
from holdfast.core.group.classic.classic_state import ClassicState, GroupState
from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from holdfast.wire.messages.sync_group import SyncGroupRequest

LEAVE_TOGETHER_SINCE = 3  # LeaveGroup: from this version on several members at once

_S = GroupState


def sync(
    group: ClassicState,
    decision: Decision,
    caller: Caller,
    request: SyncGroupRequest,
    now_ms: int,
) -> None:
    """Let a member have its part of the generation; the leader's request says who gets what."""
    code = _check_sync(group, request)
    if code is not ErrorCode.NONE:
        decision.answer(caller.call, sync_refused(code))
        return
    member = group.roster.members[request.member_id]
    synced(group, member.member_id)
    if group.state is _S.STABLE:
        decision.answer(caller.call, assigned(group, member))
        return
    before = group.park_sync(member, caller)
    if before is not None:  # it asked twice: see `Joining`
        decision.answer(before.call, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    if group.roster.leader_id == member.member_id:
        _assign(group, decision, request, now_ms)


def _check_sync(group: ClassicState, request: SyncGroupRequest) -> ErrorCode:
    code = _check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if code is not ErrorCode.NONE:
        return code
    differs = any(
        asked is not None and known is not None and asked != known
        for asked, known in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol),
        )
    )
    if differs:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is _S.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _assign(
    group: ClassicState, decision: Decision, request: SyncGroupRequest, now_ms: int
) -> None:
    """Keep what the leader assigns; the group is stable once the log has it.

    Who is not named gets nothing, and who is named and not a member is passed over.
    """
    assert group.protocol is not None, "no generation has begun"
    assignments = {each.member_id: each.assignment for each in request.assignments}
    records = [
        each.to_record(group.protocol, bytes(assignments.get(each.member_id, b"")))
        for each in group.roster.members.values()
    ]

    def rebalance(code: ErrorCode) -> None:
        take_back(group, decision, append_error(code), now_ms)
        begin(group, decision, now_ms)

    decision.append(*group.record(records, group.roster.leader_id))
    decision.once_applied(lambda: give_out(group, decision, now_ms))
    decision.once_refused(rebalance)


def heartbeat(
    group: ClassicState,
    decision: Decision,
    caller: Caller,
    request: HeartbeatRequest,
    now_ms: int,
) -> None:
    """Begin a member's session anew, and say whether it has to join again."""
    code = _check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if code is ErrorCode.NONE:
        group.keep_alive(group.roster.members[request.member_id], now_ms)
        if group.state is _S.PREPARING_REBALANCE:
            code = ErrorCode.REBALANCE_IN_PROGRESS
    decision.answer(caller.call, HeartbeatResponse(error_code=code))


def _check_member(
    group: ClassicState, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    code = group.roster.check(member_id, instance_id)
    if code is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return code


# -- leaving -----------------------------------------------------------------------------------


def leavers(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """Return who leaves; before version 3 that is one member, known by its id."""
    if version >= LEAVE_TOGETHER_SINCE:
        return request.members
    return [MemberIdentity(member_id=request.member_id)]


def left(results: list[MemberResponse], version: int) -> LeaveGroupResponse:
    """Answer with what became of each."""
    if version >= LEAVE_TOGETHER_SINCE:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)


def leave(
    group: ClassicState,
    decision: Decision,
    caller: Caller,
    request: LeaveGroupRequest,
    now_ms: int,
) -> None:
    """Take out members; the others rebalance."""
    results = [
        MemberResponse(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=_leave_one(group, decision, each),
        )
        for each in leavers(request, caller.version)
    ]
    if any(each.error_code == ErrorCode.NONE for each in results):
        if group.state is _S.PREPARING_REBALANCE:
            complete_if_all_joined(group, decision, now_ms)
        elif group.state is not _S.EMPTY:
            begin_or_complete(group, decision, now_ms)
    decision.answer(
        caller.call,
        left(results, caller.version),
        lambda code: LeaveGroupResponse(error_code=append_error(code)),
    )


def _leave_one(group: ClassicState, decision: Decision, who: MemberIdentity) -> ErrorCode:
    roster, member_id = group.roster, who.member_id
    if member_id == UNKNOWN_MEMBER:
        # An operator removes a static member by its instance's id.
        instance_id = who.group_instance_id
        known = None if instance_id is None else roster.member_of_instance(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif roster.drop_pending(member_id):
        group.end_session(member_id)
        return ErrorCode.NONE
    else:
        code = roster.check(member_id, who.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
    remove(group, decision, member_id)
    return ErrorCode.NONE


# -- committing --------------------------------------------------------------------------------


def check_commit(group: ClassicState, committer: Committer, now_ms: int) -> ErrorCode:
    """Say whether these may commit offsets; if so, that keeps a member's session alive."""
    if committer.generation < 0 and group.state is _S.EMPTY:
        return ErrorCode.NONE  # an operator, or a consumer that is in no group
    anonymous = Committer(UNKNOWN_MEMBER, committer.generation)
    if committer.generation < 0 and committer == anonymous:
        return ErrorCode.UNKNOWN_MEMBER_ID  # there are members, and this is none of them
    code = _check_member(group, committer.member_id, committer.instance_id, committer.generation)
    if code is not ErrorCode.NONE:
        return code
    if group.state is _S.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS  # its partitions may be another's by now
    group.keep_alive(group.roster.members[committer.member_id], now_ms)
    return ErrorCode.NONE
