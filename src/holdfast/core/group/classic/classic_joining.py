"""JoinGroup: who may come into a classic group, and what that sets going.

A client comes in two steps: it is given an id first, and joins with that. Before version 4 it was a
member at once, and one that has an instance's id still is: it is known by that, and takes the place
of its earlier life.

Rules: classic-groups.md#joining, classic-groups.md#static-members, classic-groups.md#bounds.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.group.any_group import UNKNOWN_MEMBER, Caller
from holdfast.core.group.append_errors import append_error
from holdfast.core.group.classic.classic_member import (
    Member,
    bytes_of,
    join_refused,
    protocols_of,
    rebalance_timeout_of,
    same_protocols,
)
from holdfast.core.group.classic.classic_rebalance import (
    begin,
    begin_or_complete,
    complete_if_all_joined,
    current_generation,
    members_for_leader,
    refuse_join,
    refuse_sync,
)
from holdfast.core.group.classic.classic_state import ClassicState, GroupState, TimerKind
from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

KNOWN_ID_SINCE: Final = 4  # from this version on a client is given an id first
SKIPPED_ASSIGNMENT_SINCE: Final = 9
ID_BYTES_MAX: Final = 32_767  # of a text in the log
NEW_MEMBER_JOIN_MS: Final = 5 * 60 * 1000  # as Kafka: how long a member may wait that never joined

_S = GroupState


class Joining:
    """One JoinGroup, and what every step of it needs."""

    __slots__ = ("caller", "decision", "group", "now_ms", "protocols", "request")

    def __init__(
        self,
        group: ClassicState,
        decision: Decision,
        caller: Caller,
        request: JoinGroupRequest,
        now_ms: int,
    ) -> None:
        self.group = group
        self.decision = decision
        self.caller = caller
        self.request = request
        self.now_ms = now_ms
        self.protocols = protocols_of(request.protocols)

    def run(self) -> None:
        group, member_id = self.group, self.request.member_id
        if not self._has_room(member_id):
            self._turn_away(member_id)
        elif self._exceeds_bytes(member_id):
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.speaks(self.request.protocol_type, self.protocols):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id == UNKNOWN_MEMBER:
            self._join_first()
        else:
            self._join_known(member_id)

    # -- whether there is room -------------------------------------------------------------------

    def _has_room(self, member_id: str) -> bool:
        """Whether the group may have this member too.

        While a rebalance is prepared those count who have joined: so a group that is too large
        (its bound was lowered, say) loses those who come last.
        """
        group = self.group
        roster, most = group.roster, group.settings.members_max
        member = roster.members.get(member_id)
        if group.state is _S.EMPTY:
            return True
        if group.state is _S.PREPARING_REBALANCE:
            waits = member is not None and member.join_caller is not None
            return waits or roster.joined < most
        return member is not None or len(roster.members) < most

    def _exceeds_bytes(self, member_id: str) -> bool:
        group = self.group
        size = group.roster.size_with(member_id, bytes_of(self.protocols))
        more = size - group.roster.bytes
        return size > group.settings.group_bytes_max or not group.memory.has_room(more)

    def _turn_away(self, member_id: str) -> None:
        group = self.group
        group.roster.remove(member_id)
        group.roster.drop_pending(member_id)
        group.end_session(member_id)
        self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        # Nobody waits for it any more. (In Apache Kafka the others do, for the whole time-out.)
        complete_if_all_joined(group, self.decision, self.now_ms)

    # -- clients that have no id -------------------------------------------------------------------

    def _join_first(self) -> None:
        group, request = self.group, self.request
        instance_id = request.group_instance_id
        name = self.caller.client_id if instance_id is None else instance_id
        member_id = f"{name}-{group.new_id()}"
        if len(member_id.encode()) > ID_BYTES_MAX:
            self._refuse(ErrorCode.INVALID_REQUEST)
        elif instance_id is not None:
            old_id = group.roster.member_of_instance(instance_id)
            if old_id is None:
                self._add(member_id)
            else:
                self._replace(old_id, member_id)
        elif self.caller.version >= KNOWN_ID_SINCE:
            group.roster.add_pending(member_id)
            session_end_ms = self.now_ms + request.session_timeout_ms
            group.timers.set((TimerKind.SESSION, member_id), session_end_ms)
            self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(member_id)

    def _add(self, member_id: str) -> None:
        group, request = self.group, self.request
        member = Member(
            member_id,
            request.group_instance_id,
            self.caller.client_id,
            self.caller.host,
            rebalance_timeout_of(request, self.caller.version),
            request.session_timeout_ms,
            self.protocols,
            is_new=True,
        )
        if group.is_initial:
            group.new_member_added = True
        if not group.roster.members:
            group.protocol_type = request.protocol_type
        group.roster.add(member)
        group.park_join(member, self.caller)
        group.timers.set((TimerKind.SESSION, member_id), self.now_ms + NEW_MEMBER_JOIN_MS)
        begin_or_complete(group, self.decision, self.now_ms)

    # -- static members that come back -------------------------------------------------------------

    def _replace(self, old_id: str, new_id: str) -> None:
        group = self.group
        old = group.roster.members[old_id]
        chosen = group.roster.select_protocol(old, self.protocols)
        if group.state is _S.STABLE and chosen == group.protocol:
            self._replace_in_log(old, new_id)
            return
        refuse_join(group, self.decision, old, ErrorCode.FENCED_INSTANCE_ID, old_id)
        refuse_sync(group, self.decision, old, ErrorCode.FENCED_INSTANCE_ID)
        group.end_session(old_id)
        member = group.roster.rename(old_id, new_id)
        group.keep_alive(member, self.now_ms)
        self._update_and_park(member)
        if group.state is _S.PREPARING_REBALANCE:
            complete_if_all_joined(group, self.decision, self.now_ms)
        else:
            # Its protocols change what the group speaks; or its old id is on the way to the
            # leader, who would assign to that.
            begin(group, self.decision, self.now_ms)

    def _replace_in_log(self, old: Member, new_id: str) -> None:
        """Give a member of a stable group another id without a rebalance, once the log has it."""
        group, roster = self.group, self.group.roster
        assert group.protocol is not None, "a stable group has chosen"
        leader_id = roster.leader_id
        new_leader_id = new_id if leader_id == old.member_id else leader_id
        records = [
            each.to_record(group.protocol, each.assignment)
            for each in roster.members.values()
            if each is not old
        ]
        new = Member(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            rebalance_timeout_of(self.request, self.caller.version),
            self.request.session_timeout_ms,
            self.protocols,
        )
        records.append(new.to_record(group.protocol, old.assignment))
        self.decision.append(*group.record(records, new_leader_id))
        self.decision.answer(
            self.caller.call,
            self._unchanged_generation(new, leader_id, leads=new_leader_id == new_id),
            lambda code: self._unchanged_generation(
                None, leader_id, leads=False, error=append_error(code)
            ),
        )
        self.decision.once_applied(lambda: self._take_over(new_id))

    def _take_over(self, member_id: str) -> None:
        """Know of a member what the log does not keep: the protocols that are not used now."""
        member = self.group.roster.members[member_id]
        self.group.roster.update(
            member, self.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        )
        self.group.keep_alive(member, self.now_ms)

    def _unchanged_generation(
        self,
        new: Member | None,
        leader_id: str | None,
        *,
        leads: bool,
        error: ErrorCode = ErrorCode.NONE,
    ) -> JoinGroupResponse:
        """Tell a static member that nothing has changed for it.

        One that leads must not assign: the group would not take it. Before version 9 it is told
        that its old id leads, which is not its own any more.
        """
        group = self.group
        response = JoinGroupResponse(
            error_code=error,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=leader_id or "",
            member_id=UNKNOWN_MEMBER if new is None else new.member_id,
        )
        if new is not None and leads and self.caller.version >= SKIPPED_ASSIGNMENT_SINCE:
            response.leader = new.member_id
            response.skip_assignment = True
            response.members = self._members_with(new)
        return response

    def _members_with(self, new: Member) -> list[JoinGroupResponseMember]:
        """List the members as they will be, the new one last."""
        group = self.group
        others = [
            each
            for each in group.roster.members.values()
            if each.instance_id is None or each.instance_id != new.instance_id
        ]
        return members_for_leader(group, [*others, new])

    # -- clients that say who they are -------------------------------------------------------------

    def _join_known(self, member_id: str) -> None:
        group, request = self.group, self.request
        if member_id in group.roster.pending:
            if request.group_instance_id is None:
                self._add(member_id)
            else:  # ids are given out in two steps to those who have no instance only
                self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        code = group.roster.check(member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            self._refuse(code, member_id)
            return
        member = group.roster.members[member_id]
        if self._has_nothing_new(member):
            # Its answer may have been lost: the generation goes on without a rebalance.
            self.decision.answer(self.caller.call, current_generation(group, member))
            return
        self._update_and_park(member)
        begin_or_complete(group, self.decision, self.now_ms)

    def _has_nothing_new(self, member: Member) -> bool:
        """Whether there is no reason to rebalance.

        A leader that joins a stable group has one that it does not say: it has seen topics change.
        """
        group = self.group
        if group.state is _S.PREPARING_REBALANCE:
            return False
        if group.state is _S.STABLE and group.roster.leader_id == member.member_id:
            return False
        return same_protocols(member.protocols, self.protocols)

    def _update_and_park(self, member: Member) -> None:
        """Let a member wait for the next generation, with what it says of itself now."""
        group, request = self.group, self.request
        group.roster.update(
            member,
            self.protocols,
            rebalance_timeout_of(request, self.caller.version),
            request.session_timeout_ms,
        )
        before = group.park_join(member, self.caller)
        if before is not None:
            # It asked twice, so it does not wait for the first answer any more. It must have one:
            # what was asked later on the same connection is answered behind it.
            refused = join_refused(before, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.decision.answer(before.call, refused)

    def _refuse(self, code: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> None:
        self.decision.answer(self.caller.call, join_refused(self.caller, code, member_id))
