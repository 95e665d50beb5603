"""A member of a KIP-848 group: one request says that it lives, and how far it has done as told.

The coordinator assigns only what nobody else holds, so an assignment is done at once: what is not
in it is given up, what is new is taken, and the next heartbeat says so without waiting for its
time. What has not changed is not said again, but everything is after an answer was lost.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from holdfast.clients.group_member.light_member import LightMember, Phase, Plan
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from holdfast.wire.schema import Request

_JOINS: Final = 0
_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2  # a static member
_REJOINS: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

_Owned: TypeAlias = frozenset[tuple[bytes, int]]


class ConsumerMember(LightMember):
    """See the module. `member_id`: of its own making, since version 1 of the request.

    `assignor`: one of the coordinator's; None leaves it to the coordinator.
    """

    has_member_epoch = True

    def __init__(self, plan: Plan, member_id: str, assignor: str | None = None) -> None:
        super().__init__(plan, member_id)
        self.epoch = _JOINS
        self._assignor = assignor
        self._owned: _Owned = frozenset()
        self._told: _Owned = frozenset()  # what the coordinator knows of it
        self._says_owned = False  # the request on its way does
        self._says_all = True
        self._names: dict[bytes, str] = {}
        self._learnt()

    def _learnt(self) -> None:
        self._names = {topic.topic_id: topic.name for topic in self.plan.topics}

    def _next(self) -> Request:
        everything = self._says_all or self.epoch == _JOINS
        self._says_owned = everything or self._owned != self._told
        names = [topic.name for topic in self.plan.topics]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.plan.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.plan.instance_id,
            rebalance_timeout_ms=self.plan.rebalance_timeout_ms if everything else -1,
            subscribed_topic_names=names if everything else None,
            server_assignor=self._assignor if everything else None,
            topic_partitions=_by_topic(self._owned) if self._says_owned else None,
        )

    def _read(self, asked: Request, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        del asked  # there is but one
        code = answer.error_code
        if code in _REJOINS:
            self._drops_all()
            self.due_ms = now_ms + self.plan.retry_ms
            return
        if code:
            self._says_all = True
            self._refused(code, "ConsumerGroupHeartbeat", now_ms)
            return
        self._says_all = False
        if answer.member_id:
            self.member_id = answer.member_id
        if self._says_owned:
            self._told = self._owned
        if answer.assignment is not None:
            self._owned = _flat(answer.assignment)
        owned = ((self._names.get(topic, topic.hex()), index) for topic, index in self._owned)
        self._holds(owned, answer.member_epoch, now_ms)
        if self._owned == self._told:
            if self.phase is not Phase.STABLE:
                self.changed_ms = now_ms
            self.phase, self.due_ms = Phase.STABLE, now_ms + answer.heartbeat_interval_ms
        else:
            self.phase, self.due_ms = Phase.RECONCILING, now_ms

    def _drops_all(self) -> None:
        self.phase, self.epoch = Phase.JOINING, _JOINS
        self.assignment = frozenset()
        self._owned = self._told = frozenset()
        self._says_all = True

    def _interrupted(self) -> None:
        self._says_all = True

    def _farewell(self) -> Request:
        static = self.plan.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.plan.group_id,
            member_id=self.member_id,
            member_epoch=_LEAVES_FOR_A_WHILE if static else _LEAVES,
            instance_id=self.plan.instance_id,
        )

    def _is_farewell(self, asked: Request) -> bool:
        return isinstance(asked, ConsumerGroupHeartbeatRequest) and asked.member_epoch < _JOINS

    def _is_known(self) -> bool:
        return self.joined_ms is not None


def _by_topic(owned: _Owned) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    found: dict[bytes, list[int]] = {}
    for topic, index in sorted(owned):
        found.setdefault(topic, []).append(index)
    return [
        ConsumerGroupHeartbeatTopicPartitions(topic_id=topic, partitions=indexes)
        for topic, indexes in found.items()
    ]


def _flat(assignment: ConsumerGroupHeartbeatAssignment) -> _Owned:
    return frozenset(
        (topic.topic_id, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )
