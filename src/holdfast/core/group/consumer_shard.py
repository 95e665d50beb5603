"""A shard with groups of the consumer protocol: what their members and operators ask of it.

Owns which group a heartbeat meets: its own, a new one, or a classic one that changes over. What is
due for patterns goes like this: after a decision was applied `take_refresh` says what is to be held
to which names; the outcome comes back by `patterns_resolved`, or by `patterns_unresolved`.

Rules: consumer-groups.md#joining, consumer-groups.md#upgrade, consumer-groups.md#downgrade,
consumer-groups.md#describe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast.core.group.any_group import AnyGroup, Caller
from holdfast.core.group.classic import classic_rebalance
from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.core.group.consumer.consumer_checks import refuse_request
from holdfast.core.group.consumer.consumer_core import ConsumerSurroundings
from holdfast.core.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupKind
from holdfast.core.group.consumer.consumer_heartbeat import refused
from holdfast.core.group.consumer.consumer_member import JOIN_EPOCH
from holdfast.core.group.consumer.consumer_migration import ClassicGroupFacts, ClassicMemberFacts
from holdfast.core.group.consumer.consumer_patterns import PatternRefresh, ResolvedPattern
from holdfast.core.group.consumer.consumer_topics import KnownTopics
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.group.shard import GroupShard
from holdfast.core.log_machine import Answer, Decision
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribedGroup
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class ConsumerShard(GroupShard):
    """Groups of both protocols, committed offsets, and topics that groups subscribe to."""

    __slots__ = ("_consumers", "around")

    def __init__(
        self,
        settings: GroupSettings,
        around: ConsumerSurroundings,
        new_id: Callable[[], str],
    ) -> None:
        self.around = around
        self._consumers = ConsumerGroupKind(around)
        super().__init__(settings, new_id, [self._consumers], around.memory)

    # -- members ---------------------------------------------------------------------------------

    def consumer_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Decision:
        """Decide on ConsumerGroupHeartbeat."""
        decision = self._begin(now_ms)
        refusal = refuse_request(request, caller.version, self.around.settings)
        if refusal is None:
            refusal = self._heartbeat(decision, caller, request, now_ms)
        if refusal is not None:
            decision.answer(caller.call, refused(refusal))
        # The member's session begins anew once this is applied, whether or not there are records.
        decision.once_applied(lambda: self._settle(request.group_id))
        return self._decided(decision)

    def _heartbeat(
        self,
        decision: Decision,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
    ) -> Refusal | None:
        group_id = request.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.consumer_heartbeat(decision, caller, request, now_ms)
            return None
        if request.member_epoch != JOIN_EPOCH:
            return _not_there(group, group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            self._upgrade(group, decision, caller, request, now_ms)
            return None
        code = self._check_room(group)
        if code is not ErrorCode.NONE:
            return Refusal(code, "This shard has as many groups as it may have.")
        made = self._consumers.make(group_id)
        first = Decision()
        if group is not None:
            group.tombstones(first)
        if made.first_heartbeat(decision, caller, request, now_ms, first.records):
            decision.once_applied(lambda: self._made(group_id).take_over(made))
        return None

    def _made(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        assert isinstance(group, ConsumerGroup), "its records were replayed"
        return group

    # -- changing over -----------------------------------------------------------------------------

    def _upgrade(
        self,
        classic: ClassicGroup,
        decision: Decision,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
    ) -> None:
        group_id = classic.group_id
        made = self._consumers.upgrade(_facts(classic), decision, caller, request, now_ms)
        if made is None:
            return

        def change_over() -> None:
            self._made(group_id).take_over(made)
            # Who waits in the classic group learns with its next JoinGroup that it is another now.
            classic.resign(decision, ErrorCode.REBALANCE_IN_PROGRESS)

        decision.once_applied(change_over)

    def apply(self, decision: Decision) -> list[Answer]:
        answers = super().apply(decision)
        while self.around.downgraded:
            group_id, rebalances = self.around.downgraded.popitem()
            group = self._groups.get(group_id)
            assert isinstance(group, ClassicGroup), "its record was replayed"
            group.loaded(self._now_ms)
            if rebalances:
                begun = Decision()
                classic_rebalance.begin_or_complete(group.state, begun, self._now_ms)
                assert not begun.records, "members that are there are waited for"
            self._settle(group_id)
            self._note_bytes()
        return answers

    # -- topics and patterns -----------------------------------------------------------------------

    def topics_changed(
        self,
        topics: KnownTopics,
        *,
        created: Iterable[str] = (),
        changed: Iterable[str] = (),
        deleted: Iterable[str] = (),
    ) -> None:
        """Take over newer metadata. Groups that subscribe to one of these look at it."""
        names = self.around.topics_changed(
            topics, created=created, changed=changed, deleted=deleted
        )
        for group_id in names:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.refresh_metadata()

    @property
    def wants_refresh(self) -> bool:
        """Whether `take_refresh` has something."""
        return bool(self.around.refreshes)

    def take_refresh(self) -> PatternRefresh | None:
        """Take what a group wants to have held to the names of topics; None: nothing now."""
        return self.around.take_refresh()

    def patterns_resolved(
        self,
        refresh: PatternRefresh,
        resolved: Mapping[str, ResolvedPattern],
        now_ms: int,
    ) -> Decision:
        """Decide on what the patterns of a group match. There is nobody to answer."""
        decision = self._begin(now_ms)
        group = self._groups.get(refresh.group_id)
        if isinstance(group, ConsumerGroup):
            group.patterns_resolved(decision, resolved, now_ms, full=refresh.since is None)
        return self._decided(decision, refresh.group_id)

    def patterns_unresolved(self, refresh: PatternRefresh) -> None:
        """Note that a refresh came to nothing."""
        group = self._groups.get(refresh.group_id)
        if isinstance(group, ConsumerGroup):
            group.patterns_unresolved()

    def patterns_refused(self, refresh: PatternRefresh, now_ms: int) -> None:
        """Note that what a group's patterns match is too much: it may ask again in a while."""
        group = self._groups.get(refresh.group_id)
        if isinstance(group, ConsumerGroup):
            group.patterns_refused(now_ms)

    # -- operators -------------------------------------------------------------------------------

    def describe_consumer_group(self, caller: Caller, group_id: str, now_ms: int) -> Decision:
        """Decide on one group of ConsumerGroupDescribe; the answer is a described group."""
        decision = self._begin(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            described = group.described()
        else:
            code, message = _not_there(group, group_id)
            described = ConsumerGroupDescribedGroup(
                group_id=group_id, error_code=code, error_message=message
            )
        decision.answer(caller.call, described)
        return self._decided(decision)


def _not_there(group: AnyGroup | None, group_id: str) -> Refusal:
    if group is None:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _facts(classic: ClassicGroup) -> ClassicGroupFacts:
    """Return what a classic group is, for the group that takes its place."""
    state = classic.state
    return ClassicGroupFacts(
        group_id=state.group_id,
        generation=state.generation,
        protocol_type=state.protocol_type,
        protocol=state.protocol,
        members=[
            ClassicMemberFacts(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                protocols=member.protocols,
                assignment=member.assignment,
            )
            for member in state.roster.members.values()
        ],
    )
