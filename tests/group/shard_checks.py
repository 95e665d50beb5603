"""What must hold of a shard at any time, worked out anew from what it holds."""

from __future__ import annotations

from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.core.group.classic.classic_member import (
    MEMBER_OVERHEAD_BYTES,
    PENDING_OVERHEAD_BYTES,
    Member,
)
from holdfast.core.group.classic.classic_roster import Roster
from holdfast.core.group.classic.classic_state import (
    JOIN_TIMER,
    SYNC_TIMER,
    ClassicState,
    GroupState,
    TimerKind,
)
from holdfast.core.group.offsets.offset_store import OffsetStore, bytes_of_offset
from holdfast.core.group.shard import GroupShard


def check_shard(shard: GroupShard) -> None:
    parked: dict[int, str] = {}
    for group in shard._groups.all():
        assert isinstance(group, ClassicGroup)
        check_group(group.state)
        parked |= dict.fromkeys(group.state.parked, group.group_id)
        assert group.deadline_ms >= shard.deadline_ms
    assert shard._groups._parked == parked, "a call is parked in one place"
    check_offsets(shard._offsets)
    check_bytes(shard)
    for group_id in shard._offsets._by_group:
        assert shard._groups.get(group_id) is not None, "offsets have a group"


def check_bytes(shard: GroupShard) -> None:
    """What is told to the broker is what its groups and offsets take, to the byte."""
    groups = sum(group.bytes for group in shard._groups.all())
    assert shard._groups.bytes == groups
    assert shard._noted_bytes == groups + shard._offsets.bytes
    assert shard._memory.bytes >= shard._noted_bytes


def check_group(group: ClassicState) -> None:
    roster, state = group.roster, group.state
    check_roster(roster)
    members = list(roster.members.values())
    for member in members:
        check_calls(group, member)
        timer = (TimerKind.SESSION, member.member_id)
        assert timer in group.timers or member.is_excused, "nobody ends its session"
    for member_id in roster.pending:
        assert (TimerKind.SESSION, member_id) in group.timers
    sessions = sum(1 for kind, _ in group.timers._due_ms if kind is TimerKind.SESSION)
    assert sessions <= len(members) + len(roster.pending), "a session without a member"
    assert (JOIN_TIMER in group.timers) == (state is GroupState.PREPARING_REBALANCE)
    assert (SYNC_TIMER in group.timers) == bool(roster.unsynced)
    if state is GroupState.COMPLETING_REBALANCE:
        assert roster.leader_id in roster.unsynced, "its leader has assigned, and nothing followed"
    if state is GroupState.EMPTY:
        assert not members
    elif state is not GroupState.PREPARING_REBALANCE:
        assert members
        assert group.protocol is not None
        assert all(group.protocol in member.protocols for member in members)
        assert all(member.join_caller is None for member in members)


def check_calls(group: ClassicState, member: Member) -> None:
    for caller in (member.join_caller, member.sync_caller):
        if caller is not None and caller.call >= 0:
            assert group.parked[caller.call] is member
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert member.sync_caller is None


def check_roster(roster: Roster) -> None:
    members = roster.members
    assert roster.joined == sum(1 for each in members.values() if each.join_caller is not None)
    assert (roster.leader_id in members) if members else roster.leader_id is None
    assert roster.unsynced.keys() <= members.keys()
    assert not roster.pending.keys() & members.keys()
    instances = {each.instance_id: each.member_id for each in members.values() if each.is_static}
    assert roster._by_instance == instances
    supporters: dict[str, int] = {}
    for member in members.values():
        for name in member.protocols:
            supporters[name] = supporters.get(name, 0) + 1
    assert roster._supporters == supporters
    assert not members or roster.can_speak(supporters), "they have no protocol in common"
    size = sum(len(name) + PENDING_OVERHEAD_BYTES for name in roster.pending)
    for name, member in members.items():
        size += MEMBER_OVERHEAD_BYTES + len(name) + len(member.instance_id or "")
        size += member.protocols_bytes
    assert roster.bytes == size


def check_offsets(store: OffsetStore) -> None:
    found = [
        (group_id, topic, committed)
        for group_id, topics in store._by_group.items()
        for topic, partitions in topics.items()
        for committed in partitions.values()
    ]
    assert store.count == len(found)
    assert store.bytes == sum(bytes_of_offset(each[2]) for _, _, each in found)
    index = {(topic, group_id) for topic, ids in store._groups_of_topic.items() for group_id in ids}
    assert index == {(topic, group_id) for group_id, topic, _ in found}
    assert store._names.keys() == {topic for _, topic, _ in found}
