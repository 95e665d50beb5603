"""Members of the classic protocol in a group of the consumer protocol, while it migrates.

They join, sync, beat and leave as they always do, and the group treats them as its own: their epoch
is their generation. JoinGroup is answered at once, since nobody has to be waited for; the broker
assigns, so no leader is named. A member that has to revoke or may get more is told to join again.

Rules: consumer-groups.md#classic-members.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from holdfast.core.group.any_group import UNKNOWN_MEMBER, Caller
from holdfast.core.group.append_errors import append_error
from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_checks import find_member, refuse_bytes, refuse_full
from holdfast.core.group.consumer.consumer_core import ConsumerCore, Timer
from holdfast.core.group.consumer.consumer_heartbeat import take_place
from holdfast.core.group.consumer.consumer_member import ConsumerMember, MemberState, distinct
from holdfast.core.group.consumer.consumer_migration import downgrade, may_replace_and_downgrade
from holdfast.core.group.consumer.consumer_protocol_bytes import (
    assignment_bytes,
    owned_partitions,
)
from holdfast.core.group.consumer.consumer_step import MemberStep
from holdfast.core.log_machine import Decision, KeyedRecord
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    decode_subscription,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from holdfast.wire.records.group_tables import ClassicMemberMetadata, ClassicProtocol

_MEMBER_ID_REQUIRED_SINCE: Final = 4  # JoinGroup
_NULLABLE_PROTOCOL_SINCE: Final = 7  # JoinGroup
_MANY_MEMBERS_SINCE: Final = 3  # LeaveGroup


# -- JoinGroup ---------------------------------------------------------------------------------


def join(
    core: ConsumerCore, decision: Decision, caller: Caller, request: JoinGroupRequest, now_ms: int
) -> None:
    """Decide about a JoinGroup: the member is moved on, and is told its epoch as generation."""
    response = _join(core, decision, caller, request, now_ms)
    if isinstance(response, ErrorCode):
        response = _join_refused(caller, response)
    decision.answer(caller.call, response, lambda code: _join_refused(caller, append_error(code)))


def _join_refused(
    caller: Caller, code: ErrorCode, member_id: str = UNKNOWN_MEMBER
) -> JoinGroupResponse:
    protocol = None if caller.version >= _NULLABLE_PROTOCOL_SINCE else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=protocol)


def _join(
    core: ConsumerCore, decision: Decision, caller: Caller, request: JoinGroupRequest, now_ms: int
) -> JoinGroupResponse | ErrorCode:
    is_new = request.member_id == UNKNOWN_MEMBER
    member_id = core.around.new_member_id() if is_new else request.member_id
    refusal = refuse_full(core, member_id)
    if refusal is not None:
        return refusal.code
    if not _supports(core, request):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    instance_id = request.group_instance_id
    if is_new and instance_id is None and caller.version >= _MEMBER_ID_REQUIRED_SINCE:
        return _join_refused(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    try:
        subscription = decode_subscription(request.protocols[0].metadata)
    except WireError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    records: list[KeyedRecord] = []
    before = _joining(core, member_id, instance_id, records, is_new=is_new)
    if isinstance(before, Refusal):
        return before.code
    after = _told(before, request, subscription, caller)
    refusal = refuse_bytes(core, before, after)
    if refusal is not None:
        return refusal.code
    step = MemberStep(core, before, after, records, now_ms=now_ms, call=caller.call)
    step.note_member()
    refusal = step.note_pattern()
    assert refusal is None, "a member of the classic protocol has no pattern"
    step.note_epoch(bump=step.subscription_changed)
    owned = owned_partitions(subscription, core.around.topics)
    replaced = core.state.static_member(instance_id)
    if replaced is not None and may_replace_and_downgrade(core, replaced):
        return _join_and_downgrade(core, decision, step, replaced, owned, now_ms)
    step.note_target()
    refusal = step.move(owned)
    if refusal is not None:
        return refusal.code
    step.put_into(decision)
    decision.once_applied(lambda: _joined(core, step.after, now_ms))
    return _joined_answer(step.after)


def _supports(core: ConsumerCore, request: JoinGroupRequest) -> bool:
    """Whether it has a protocol that all others of its kind have."""
    state = core.state
    return request.protocol_type == PROTOCOL_TYPE and any(
        state.classic_protocols[protocol.name] == state.classic_count
        for protocol in request.protocols
    )


def _joining(
    core: ConsumerCore,
    member_id: str,
    instance_id: str | None,
    records: list[KeyedRecord],
    *,
    is_new: bool,
) -> ConsumerMember | Refusal:
    """Return the member as it was until now. A static one without an id takes its old place."""
    existing = core.state.static_member(instance_id)
    if instance_id is None or (is_new and existing is None):
        return core.state.members.get(member_id) or ConsumerMember(member_id=member_id)
    if is_new and existing is not None:
        return take_place(core, existing, member_id, records)
    return find_member(core, member_id, instance_id)


def _told(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    caller: Caller,
) -> ConsumerMember:
    instance_id = request.group_instance_id
    timeout_ms = request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms
    protocols = [
        ClassicProtocol(name=protocol.name, metadata=bytes(protocol.metadata))
        for protocol in request.protocols
    ]
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=distinct(subscription.topics),
        pattern="",
        client_id=caller.client_id,
        client_host=caller.host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms, supported_protocols=protocols
        ),
    )


def _joined(core: ConsumerCore, member: ConsumerMember, now_ms: int) -> None:
    """Wait for its SyncGroup as long as a rebalance may take, and for nothing else.

    What it has to give up it gives up by its next JoinGroup.
    """
    core.timers.cancel((Timer.JOIN, member.member_id))
    core.timers.cancel((Timer.REBALANCE, member.member_id))
    core.keep_alive(member, now_ms)
    core.timers.set((Timer.SYNC, member.member_id), now_ms + member.rebalance_timeout_ms)


def _joined_answer(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None, "it speaks the classic protocol"
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.supported_protocols[0].name,
    )


def _join_and_downgrade(
    core: ConsumerCore,
    decision: Decision,
    step: MemberStep,
    replaced: ConsumerMember,
    owned: Partitions,
    now_ms: int,
) -> JoinGroupResponse | ErrorCode:
    """The last member of the consumer protocol has come back as one of the classic protocol."""
    if not step.subscription_changed:
        step.keep_target()
        refusal = step.move(owned)
        if refusal is not None:
            return refusal.code
    step.put_into(decision)
    downgrade(
        core,
        decision,
        now_ms,
        gone=[replaced],
        come=step.after,
        # Who has not arrived at its target has to join again to hear of it: targets become what
        # members have, and nobody is told of that in the generation that it is in.
        rebalances=step.subscription_changed
        or not all(
            member.settled(core.state.epoch)
            for member in core.state.members.values()
            if member is not replaced
        ),
    )
    return _joined_answer(step.after)


# -- SyncGroup ---------------------------------------------------------------------------------


def sync(
    core: ConsumerCore, decision: Decision, caller: Caller, request: SyncGroupRequest, now_ms: int
) -> None:
    """Decide about a SyncGroup: the member is told what it has."""
    member = _classic_member(
        core, request.member_id, request.group_instance_id, request.generation_id
    )
    if not isinstance(member, ErrorCode):
        refusal = _refuse_sync(core, member, request, now_ms)
        member = member if refusal is None else refusal
    if isinstance(member, ErrorCode):
        decision.answer(caller.call, SyncGroupResponse(error_code=member))
        return
    core.timers.cancel((Timer.SYNC, member.member_id))
    core.keep_alive(member, now_ms)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, member, core.around.topics),
    )
    decision.answer(caller.call, response)


def _refuse_sync(
    core: ConsumerCore, member: ConsumerMember, request: SyncGroupRequest, now_ms: int
) -> ErrorCode | None:
    assert member.classic is not None, "it speaks the classic protocol"
    name = member.classic.supported_protocols[0].name
    if request.protocol_type not in (None, PROTOCOL_TYPE):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # One that has to revoke has joined for that already: it goes through with it first.
    if core.state.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        core.await_rejoin(member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _classic_member(
    core: ConsumerCore, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember | ErrorCode:
    """Return the member of the classic protocol that a request is from."""
    member = find_member(core, member_id, instance_id)
    if isinstance(member, Refusal):
        return member.code
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if member.epoch == generation else ErrorCode.ILLEGAL_GENERATION


# -- Heartbeat and LeaveGroup --------------------------------------------------------------------


def beat(
    core: ConsumerCore, decision: Decision, caller: Caller, request: HeartbeatRequest, now_ms: int
) -> None:
    """Decide about a Heartbeat: a member that is to take another step is told to join again."""
    member = _classic_member(
        core, request.member_id, request.group_instance_id, request.generation_id
    )
    if isinstance(member, ErrorCode):
        decision.answer(caller.call, HeartbeatResponse(error_code=member))
        return
    core.keep_alive(member, now_ms)
    code = ErrorCode.NONE
    if _may_take_a_step(core, member):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        core.await_rejoin(member, now_ms)
    decision.answer(caller.call, HeartbeatResponse(error_code=code))


def _may_take_a_step(core: ConsumerCore, member: ConsumerMember) -> bool:
    state = core.state
    if member.epoch < state.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
        index not in member.assigned.get(topic_id, ()) and state.owner(topic_id, index) is not None
        for topic_id, numbers in state.targets[member.member_id].items()
        for index in numbers
    )


def leaving(
    core: ConsumerCore, caller: Caller, request: LeaveGroupRequest
) -> tuple[LeaveGroupResponse, list[ConsumerMember]]:
    """Return the answer to a LeaveGroup, and the members that are to be removed.

    An operator may name a static member by its instance alone, whichever protocol it speaks.
    """
    identities = request.members
    if caller.version < _MANY_MEMBERS_SINCE:
        identities = [MemberIdentity(member_id=request.member_id)]
    gone: dict[str, ConsumerMember] = {}
    told: list[MemberResponse] = []
    for identity in identities:
        found = _leaving_member(core, identity)
        code = ErrorCode.NONE
        if isinstance(found, Refusal):
            code = found.code
        else:
            gone[found.member_id] = found
        told.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=code,
            )
        )
    if caller.version < _MANY_MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=told[0].error_code), list(gone.values())
    return LeaveGroupResponse(members=told), list(gone.values())


def _leaving_member(core: ConsumerCore, identity: MemberIdentity) -> ConsumerMember | Refusal:
    instance_id = identity.group_instance_id
    if instance_id is not None and identity.member_id == UNKNOWN_MEMBER:
        member = core.state.static_member(instance_id)
        if member is not None:
            return member
    return find_member(core, identity.member_id, instance_id)
