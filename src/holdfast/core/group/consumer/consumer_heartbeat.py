"""ConsumerGroupHeartbeat: how members join, stay, move and leave (KIP-848).

Rules: consumer-groups.md#joining, consumer-groups.md#leaving, consumer-groups.md#static-members,
consumer-groups.md#answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.core.group.any_group import Caller
from holdfast.core.group.append_errors import append_error
from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_checks import (
    find_member,
    refuse_bytes,
    refuse_epoch,
    refuse_full,
    refuse_instance,
)
from holdfast.core.group.consumer.consumer_core import ConsumerCore
from holdfast.core.group.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    current_record,
    distinct,
    partitions_of,
)
from holdfast.core.group.consumer.consumer_records import (
    epoch_record,
    member_tombstones,
    pattern_tombstone,
    replacement_records,
)
from holdfast.core.group.consumer.consumer_step import MemberStep
from holdfast.core.log_machine import Decision, KeyedRecord
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)


def heartbeat(
    core: ConsumerCore,
    decision: Decision,
    caller: Caller,
    request: ConsumerGroupHeartbeatRequest,
    now_ms: int,
    first: Iterable[KeyedRecord] = (),
) -> bool:
    """Decide about a heartbeat that neither leaves nor is malformed. Return whether it is let in.

    `first` are records that go before its own, if it is let in.
    """
    response = _heartbeat(core, decision, caller, request, now_ms, [*first])
    is_refused = isinstance(response, Refusal)
    if isinstance(response, Refusal):
        response = refused(response)
    decision.answer(caller.call, response, _not_appended)
    return not is_refused


def refused(refusal: Refusal) -> ConsumerGroupHeartbeatResponse:
    """Return the answer to a heartbeat that is refused."""
    return ConsumerGroupHeartbeatResponse(
        error_code=refusal.code, error_message=refusal.message or None
    )


def _not_appended(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=append_error(code))


def _heartbeat(
    core: ConsumerCore,
    decision: Decision,
    caller: Caller,
    request: ConsumerGroupHeartbeatRequest,
    now_ms: int,
    records: list[KeyedRecord],
) -> ConsumerGroupHeartbeatResponse | Refusal:
    refusal = refuse_full(core, request.member_id)
    if refusal is not None:
        return refusal
    changes_over = bool(records)
    owned = None if request.topic_partitions is None else partitions_of(request.topic_partitions)
    before = _member(core, request, owned, records)
    if isinstance(before, Refusal):
        return before
    after = _told(before, request, caller)
    refusal = refuse_bytes(core, before, after)
    if refusal is not None:
        return refusal
    step = MemberStep(core, before, after, records, now_ms=now_ms, call=caller.call)
    step.note_member()
    refusal = step.note_pattern()
    if refusal is not None:
        return refusal
    # A group that changes over has another member, and perhaps some that have nothing yet.
    step.note_epoch(bump=changes_over or step.names_changed or step.pattern_resolved)
    step.note_target()
    refusal = step.move(owned)
    if refusal is not None:
        return refusal
    step.put_into(decision)
    decision.once_applied(lambda: core.keep_alive(step.after, now_ms))
    return _answer(core, decision, request, owned, before, step.after, now_ms)


def _member(
    core: ConsumerCore,
    request: ConsumerGroupHeartbeatRequest,
    owned: Partitions | None,
    records: list[KeyedRecord],
) -> ConsumerMember | Refusal:
    """Return the member that sends this, as it was until now; a new one if it joins."""
    joins = request.member_epoch == JOIN_EPOCH
    member_id = request.member_id or core.around.new_member_id()
    instance_id = request.instance_id
    if joins and instance_id is not None:
        existing = core.state.static_member(instance_id)
        if existing is not None:
            if existing.classic is None:
                refusal = refuse_instance(existing, member_id)
                if refusal is not None:
                    return refusal
            if existing.member_id != member_id and member_id in core.state.members:
                return Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"{member_id} is another member's id: it can't take the place of "
                    f"{existing.member_id}, which has the instance id {instance_id}.",
                )
            return take_place(core, existing, member_id, records)
    if joins:
        return core.state.members.get(member_id) or ConsumerMember(member_id=member_id)
    member = find_member(core, member_id, instance_id)
    if isinstance(member, Refusal):
        return member
    return refuse_epoch(member, request.member_epoch, owned) or member


def take_place(
    core: ConsumerCore, existing: ConsumerMember, member_id: str, records: list[KeyedRecord]
) -> ConsumerMember:
    """Put a static member that has come back into the place of what it was before."""
    member = replace(existing, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    target = core.state.target_of(existing)
    records += replacement_records(core.group_id, existing.member_id, member, target)
    return member


def _told(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """Return the member with what it tells now. What it leaves out stays as it was."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else distinct(names),
        pattern=member.pattern if pattern is None else pattern,
        client_id=caller.client_id,
        client_host=caller.host,
        classic=None,
    )


def _answer(
    core: ConsumerCore,
    decision: Decision,
    request: ConsumerGroupHeartbeatRequest,
    owned: Partitions | None,
    before: ConsumerMember,
    after: ConsumerMember,
    now_ms: int,
) -> ConsumerGroupHeartbeatResponse:
    """Tell the member its epoch, and what it has if it may not know that.

    It does not if that has just changed, or it has joined; nor if it is in the epoch before, whose
    end it has not heard of, or tells everything, as after an error; nor if it says that it has what
    is not its own. And who gave up waiting for an answer may not know, and not say so: it is told
    again until it confirms that. What it confirms in the very request that changes it is what it
    was told before. `owned` is what it says that it has; None: it says nothing of that.
    """
    tellings, member_id = core.tellings, after.member_id
    interval_ms = core.settings.heartbeat_interval_ms
    has_changed = request.member_epoch != before.epoch or before.assigned != after.assigned
    is_news = (
        has_changed
        or request.member_epoch == JOIN_EPOCH
        or _tells_everything(request)
        or _has_more(owned, after)
    )
    confirms = owned == before.assigned == after.assigned
    is_unclear = confirms and tellings.is_unclear(member_id)
    is_told = is_news or is_unclear or tellings.is_due(member_id, now_ms)
    if confirms and not is_unclear:
        decision.once_applied(lambda: tellings.confirmed(member_id))
    elif is_told:
        is_awaited = after.state is MemberState.UNREVOKED_PARTITIONS
        decision.once_applied(
            lambda: tellings.told(
                member_id,
                now_ms,
                interval_ms,
                is_news=is_news,
                is_awaited=is_awaited,
                says_so=confirms,
            )
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=_assignment(after) if is_told else None,
    )


def _tells_everything(request: ConsumerGroupHeartbeatRequest) -> bool:
    subscribes = request.subscribed_topic_names is not None or (
        request.subscribed_topic_regex is not None
    )
    return (
        request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    )


def _has_more(owned: Partitions | None, member: ConsumerMember) -> bool:
    """Whether a member says that it has what it neither has nor has yet to give up."""
    return any(
        not {*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())}.issuperset(
            indexes
        )
        for topic_id, indexes in (owned or {}).items()
    )


def _assignment(member: ConsumerMember) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(
                topic_id=topic_id, partitions=list(member.assigned[topic_id])
            )
            for topic_id in sorted(member.assigned)
        ]
    )


# -- leaving -----------------------------------------------------------------------------------


def leave(
    core: ConsumerCore, decision: Decision, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember | None:
    """Decide about a member that goes. Return it if it goes for good: it is still to be removed."""
    member = find_member(core, request.member_id, request.instance_id)
    if isinstance(member, Refusal):
        decision.answer(caller.call, refused(member))
        return None
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    decision.answer(caller.call, response, _not_appended)
    if request.instance_id is None or request.member_epoch == LEAVE_EPOCH:
        return member
    decision.append(*current_record(core.group_id, member.away()))
    return None


def remove_members(
    core: ConsumerCore, decision: Decision, members: Iterable[ConsumerMember]
) -> None:
    """Remove members, in one new epoch of the group. The next heartbeat assigns for it."""
    state = core.state
    gone = list(members)
    assert gone, "an epoch for nothing"
    users = state.pattern_users.copy()
    for member in gone:
        if member.pattern:
            users[member.pattern] -= 1
        for record in member_tombstones(state.group_id, member.member_id):
            decision.append(*record)
    patterns = dict.fromkeys(member.pattern for member in gone if member.pattern)
    unused = [pattern for pattern in patterns if not users[pattern]]
    for pattern in unused:
        decision.append(*pattern_tombstone(state.group_id, pattern))
    names = state.names_after(gone=gone, patterns=[(pattern, ()) for pattern in unused])
    metadata_hash = core.metadata_hash(names)
    decision.append(*epoch_record(state.group_id, state.epoch + 1, metadata_hash))
