"""How a classic group rebalances: who is waited for, how long, and what ends it.

A rebalance has two halves. First every member joins again; then the leader says who gets what, and
every member fetches its part. What waits is answered by the move that ends its wait.

Rules: classic-groups.md#rebalances, classic-groups.md#initial-delay, classic-groups.md#sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.group.any_group import Caller
from holdfast.core.group.classic.classic_member import (
    FORGOTTEN,
    Member,
    join_refused,
    sync_refused,
)
from holdfast.core.group.classic.classic_state import (
    JOIN_TIMER,
    SYNC_TIMER,
    ClassicState,
    GroupState,
    TimerKind,
)
from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from holdfast.wire.messages.sync_group import SyncGroupResponse

# For members that are all away; each of them may have asked for no time at all.
WAIT_AGAIN_MS: Final = 1000
TIMERS_A_TURN: Final = 50  # of one group: thousands of sessions may end together

_S = GroupState
_MAY_BEGIN: Final = frozenset({_S.EMPTY, _S.COMPLETING_REBALANCE, _S.STABLE})


def begin_or_complete(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """Rebalance, because members or what they say have changed. One that goes on may be over."""
    if group.state in _MAY_BEGIN:
        begin(group, decision, now_ms)
    else:
        complete_if_all_joined(group, decision, now_ms)


def begin(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """Prepare a rebalance. An empty group gives others the time to come."""
    if group.state is _S.COMPLETING_REBALANCE:
        take_back(group, decision, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    group.roster.unsynced.clear()
    group.timers.cancel(SYNC_TIMER)
    timeout_ms = group.roster.rebalance_timeout_ms
    if group.state is _S.EMPTY:
        delay_ms = group.settings.initial_rebalance_delay_ms
        group.initial_step_ms = delay_ms
        group.remaining_ms = max(timeout_ms - delay_ms, 0)
        group.new_member_added = False
        group.timers.set(JOIN_TIMER, now_ms + delay_ms)
        group.enter(_S.PREPARING_REBALANCE, now_ms)
        return
    group.enter(_S.PREPARING_REBALANCE, now_ms)
    if group.roster.all_joined:
        complete(group, decision, now_ms)
    else:
        group.timers.set(JOIN_TIMER, now_ms + timeout_ms)


def complete_if_all_joined(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """Complete the first half if nobody is missing. The initial delay is always waited for."""
    if group.state is _S.PREPARING_REBALANCE and not group.is_initial and group.roster.all_joined:
        complete(group, decision, now_ms)


def complete(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """End the first half: the next generation has those who have joined, and static members."""
    roster = group.roster
    group.timers.cancel(JOIN_TIMER)
    missing = [
        each.member_id
        for each in roster.members.values()
        if each.join_caller is None and not each.is_static
    ]
    for member_id in missing:
        roster.remove(member_id)
        group.end_session(member_id)
    if not roster.members:
        _become_empty(group, decision, now_ms)
    elif roster.elect_joined():
        _begin_generation(group, decision, now_ms)
    else:
        # Static members alone, and none of them has joined: until one does, or their sessions end.
        wait_ms = max(roster.rebalance_timeout_ms, WAIT_AGAIN_MS)
        group.timers.set(JOIN_TIMER, now_ms + wait_ms)


def _become_empty(group: ClassicState, decision: Decision, now_ms: int) -> None:
    key, value = group.record_of_empty(now_ms)
    decision.append(key, value)
    # In memory it is empty even if the log did not take that: who loads the group from the log
    # finds members that do not come back, and their sessions end.
    decision.once_refused(lambda _: group.replay(value))


def _begin_generation(group: ClassicState, decision: Decision, now_ms: int) -> None:
    group.begin_generation(now_ms)
    roster = group.roster
    members = list(roster.members.values())
    for member in members:
        caller = group.unpark_join(member)
        if caller is not None:
            decision.answer(caller.call, current_generation(group, member))
        group.keep_alive(member, now_ms)
        member.is_new = False
        roster.unsynced[member.member_id] = None
    group.timers.set(SYNC_TIMER, now_ms + roster.rebalance_timeout_ms)


def current_generation(group: ClassicState, member: Member) -> JoinGroupResponse:
    """Tell a member in which generation it is; the leader gets all members, to assign to them."""
    leads = group.roster.leader_id == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.roster.leader_id or "",
        member_id=member.member_id,
        members=members_for_leader(group, group.roster.members.values()) if leads else [],
    )


def members_for_leader(
    group: ClassicState, members: Iterable[Member]
) -> list[JoinGroupResponseMember]:
    """List members with what each says in the protocol that the group has chosen."""
    assert group.protocol is not None, "no generation has begun"
    return [
        JoinGroupResponseMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            metadata=each.protocols[group.protocol],
        )
        for each in members
    ]


# -- the second half ---------------------------------------------------------------------------


def synced(group: ClassicState, member_id: str) -> None:
    """Note that a member has asked for its part of this generation."""
    group.roster.unsynced.pop(member_id, None)
    if not group.roster.unsynced:
        group.timers.cancel(SYNC_TIMER)


def give_out(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """Give what was assigned to all who wait for it."""
    for member in group.roster.members.values():
        if member.sync_caller is None:
            continue
        # Also where the connection is gone: from now on we owe the member nothing.
        group.keep_alive(member, now_ms)
        caller = group.unpark_sync(member)
        if caller is not None:
            decision.answer(caller.call, assigned(group, member))


def assigned(group: ClassicState, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def take_back(group: ClassicState, decision: Decision, code: ErrorCode, now_ms: int) -> None:
    """Nobody gets anything in this generation: tell those who wait for it."""
    for member in group.roster.members.values():
        member.assignment = b""
        if member.sync_caller is None:
            continue
        group.keep_alive(member, now_ms)
        refuse_sync(group, decision, member, code)


# -- members that go ---------------------------------------------------------------------------


def remove(group: ClassicState, decision: Decision, member_id: str) -> None:
    """Take out a member, and answer what it still waits for. What follows is for the caller."""
    member = group.roster.members[member_id]
    refuse_join(group, decision, member, ErrorCode.UNKNOWN_MEMBER_ID)
    refuse_sync(group, decision, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.roster.remove(member_id)
    group.end_session(member_id)


def refuse_join(
    group: ClassicState, decision: Decision, member: Member, code: ErrorCode, member_id: str = ""
) -> None:
    """Answer a JoinGroup that waits, if one does, with an error."""
    caller = group.unpark_join(member)
    if caller is not None:
        decision.answer(caller.call, join_refused(caller, code, member_id))


def refuse_sync(group: ClassicState, decision: Decision, member: Member, code: ErrorCode) -> None:
    """Answer a SyncGroup that waits, if one does, with an error."""
    caller = group.unpark_sync(member)
    if caller is not None:
        decision.answer(caller.call, sync_refused(code))


def forget(group: ClassicState, call: int) -> None:
    """Answer a call no more. Its member has joined all the same, and may ask again."""
    member = group.parked.pop(call, None)
    if member is None:
        return
    if _is(member.join_caller, call):
        member.join_caller = FORGOTTEN
    if _is(member.sync_caller, call):
        member.sync_caller = FORGOTTEN


def _is(caller: Caller | None, call: int) -> bool:
    return caller is not None and caller.call == call


# -- time --------------------------------------------------------------------------------------


def handle_due(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """Do a part of what is due, until something is to be appended: what follows has to see that."""
    for _ in range(TIMERS_A_TURN):
        key = None if decision.records else group.timers.take(now_ms)
        if key is None:
            return
        kind, member_id = key
        if kind is TimerKind.JOIN:
            _end_of_joining(group, decision, now_ms)
        elif kind is TimerKind.SYNC:
            _end_of_syncing(group, decision, now_ms)
        else:
            _end_of_session(group, decision, member_id, now_ms)


def _end_of_joining(group: ClassicState, decision: Decision, now_ms: int) -> None:
    assert group.state is _S.PREPARING_REBALANCE, "nobody is waited for"
    if not (group.is_initial and group.new_member_added and group.remaining_ms):
        complete(group, decision, now_ms)
        return
    # Others came during this step, so more may be on their way.
    group.new_member_added = False
    step_ms = min(group.settings.initial_rebalance_delay_ms, group.remaining_ms)
    group.remaining_ms = max(group.remaining_ms - group.initial_step_ms, 0)
    group.initial_step_ms = step_ms
    group.timers.set(JOIN_TIMER, now_ms + step_ms)


def _end_of_syncing(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """Remove those who did not ask for their part in time, static members too."""
    assert group.state in (_S.COMPLETING_REBALANCE, _S.STABLE), "nobody has anything to fetch"
    missing = list(group.roster.unsynced)
    assert missing, "the time-out is cancelled when all have asked"
    for member_id in missing:
        remove(group, decision, member_id)
    begin(group, decision, now_ms)


def _end_of_session(group: ClassicState, decision: Decision, member_id: str, now_ms: int) -> None:
    if group.roster.drop_pending(member_id):
        _complete_after_loss(group, decision, now_ms)
        return
    member = group.roster.members[member_id]
    if member.is_excused:
        return  # it gets a new session when it is answered
    remove(group, decision, member_id)
    if group.state is _S.PREPARING_REBALANCE:
        _complete_after_loss(group, decision, now_ms)
    else:
        begin_or_complete(group, decision, now_ms)


def _complete_after_loss(group: ClassicState, decision: Decision, now_ms: int) -> None:
    """Complete the first half when the one that was waited for does not come any more.

    As in Apache Kafka, this cuts the initial delay short too.
    """
    if group.state is _S.PREPARING_REBALANCE and group.roster.all_joined:
        complete(group, decision, now_ms)
