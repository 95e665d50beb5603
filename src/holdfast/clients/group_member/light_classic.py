"""A member of a classic group: joins, is given or gives an assignment, says that it lives, leaves.

Eager: it gives up all that it has before it joins again. Its heartbeats wait for joins and syncs,
which the coordinator parks: whoever is parked counts as alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.clients.group_member.light_assignors import ASSIGNORS, Shares
from holdfast.clients.group_member.light_member import LightMember, Partition, Phase, Plan
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from holdfast.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from holdfast.wire.schema import Request

_UNNAMED: Final = ""
_NO_GENERATION: Final = -1


class ClassicMember(LightMember):
    """See the module. `assignors`: what it offers, the first it likes best."""

    def __init__(self, plan: Plan, assignors: Sequence[str] = ("range", "roundrobin")) -> None:
        super().__init__(plan, _UNNAMED)
        self._assignors = tuple(assignors)
        self._protocol = ""
        self._given: list[SyncGroupRequestAssignment] = []
        self._leads = False
        self._shares_anew = False  # it leads, and what it has shared out is not so any more

    def _next(self) -> Request:
        if self.phase is Phase.JOINING:
            return self._join()
        if self.phase is Phase.SYNCING:
            return SyncGroupRequest(
                group_id=self.plan.group_id,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self.plan.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self._protocol,
                assignments=self._given,
            )
        assert self.phase is Phase.STABLE
        return HeartbeatRequest(
            group_id=self.plan.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.plan.instance_id,
        )

    def _join(self) -> JoinGroupRequest:
        subscription = self._subscribes()
        offered = [
            JoinGroupRequestProtocol(name=name, metadata=subscription) for name in self._assignors
        ]
        return JoinGroupRequest(
            group_id=self.plan.group_id,
            session_timeout_ms=self.plan.session_timeout_ms,
            rebalance_timeout_ms=self.plan.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.plan.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=offered,
        )

    def _subscribes(self) -> bytes:
        """Return what it tells the leader of itself."""
        topics = [topic.name for topic in self.plan.topics]
        return encode_subscription(ConsumerProtocolSubscription(topics=topics))

    def _parked_ms(self) -> int:
        return 0 if self.phase is Phase.STABLE else self.plan.rebalance_timeout_ms

    def _read(self, asked: Request, answer: Any, now_ms: int) -> None:
        if isinstance(asked, JoinGroupRequest):
            self._joined(answer, now_ms)
        elif isinstance(asked, SyncGroupRequest):
            self._synced(answer, now_ms)
        elif answer.error_code == ErrorCode.NONE and self._shares_anew:
            self._turned_away(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat", now_ms)
        elif answer.error_code == ErrorCode.NONE:
            self.due_ms = now_ms + self.plan.heartbeat_ms
        else:
            self._turned_away(answer.error_code, "Heartbeat", now_ms)

    def _joined(self, answer: JoinGroupResponse, now_ms: int) -> None:
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.due_ms = now_ms
            return
        if code:
            self._turned_away(code, "JoinGroup", now_ms)
            return
        self.member_id = answer.member_id
        self._holds(self.assignment, answer.generation_id, now_ms)
        self._protocol = answer.protocol_name or ""
        self._leads = answer.leader == answer.member_id
        shares_out = self._leads and not answer.skip_assignment
        self._given = self._share_out(answer.members) if shares_out else []
        self.phase, self.due_ms = Phase.SYNCING, now_ms

    def _share_out(
        self, members: Sequence[JoinGroupResponseMember]
    ) -> list[SyncGroupRequestAssignment]:
        told = {each.member_id: decode_subscription(each.metadata) for each in members}
        shares = self._shares(told)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=_embedded(share))
            for member, share in shares.items()
        ]

    def _shares(self, told: Mapping[str, ConsumerProtocolSubscription]) -> Shares:
        """Return who gets what, by what each has told."""
        wanted = {member: each.topics for member, each in told.items()}
        partitions = {topic.name: topic.partitions for topic in self.plan.topics}
        return ASSIGNORS[self._protocol](partitions, wanted)

    def _synced(self, answer: SyncGroupResponse, now_ms: int) -> None:
        if answer.error_code:
            self._turned_away(answer.error_code, "SyncGroup", now_ms)
            return
        self._given = []
        topics = []
        if answer.assignment:  # a leader need not name who gets nothing
            topics = decode_assignment(answer.assignment).assigned_partitions
        owned = [(topic.topic, index) for topic in topics for index in topic.partitions]
        self.phase, self.due_ms = Phase.STABLE, now_ms + self.plan.heartbeat_ms
        self._given_out(frozenset(owned), now_ms)

    def _given_out(self, owned: frozenset[Partition], now_ms: int) -> None:
        self._holds(owned, self.epoch, now_ms)
        self.changed_ms = now_ms

    def _turned_away(self, code: int, what: str, now_ms: int) -> None:
        """Join again where that helps."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = _UNNAMED
        elif code not in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}:
            self._refused(code, what, now_ms)
            return
        in_progress = code == ErrorCode.REBALANCE_IN_PROGRESS
        at_once = in_progress and self.phase is not Phase.JOINING
        if not in_progress:
            self._loses_all()
        self._rejoins()
        self.due_ms = now_ms if at_once else now_ms + self.plan.retry_ms

    def _learnt(self) -> None:
        """Have a leader join again with its next heartbeat: that makes a rebalance."""
        self._shares_anew = self._leads

    def _rejoins(self) -> None:
        self._leads = self._shares_anew = False
        self.phase = Phase.JOINING
        self._given = []
        self._loses_all()

    def _loses_all(self) -> None:
        self.assignment = frozenset()
        self.epoch = _NO_GENERATION

    def _interrupted(self) -> None:
        if self.phase is Phase.SYNCING:  # its generation's assignment may never come
            self._rejoins()

    def _farewell(self) -> Request:
        # A static member does not come here: it comes back, or its session runs out.
        return LeaveGroupRequest(
            group_id=self.plan.group_id,
            members=[MemberIdentity(member_id=self.member_id)],
        )

    def _is_farewell(self, asked: Request) -> bool:
        return isinstance(asked, LeaveGroupRequest)

    def _is_known(self) -> bool:
        return self.member_id != _UNNAMED and self.plan.instance_id is None


def _embedded(share: dict[str, list[int]]) -> bytes:
    topics = [
        ConsumerTopicPartitions(topic=topic, partitions=indexes) for topic, indexes in share.items()
    ]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics))
