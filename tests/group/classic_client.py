"""A consumer of the classic protocol: eager, so that it lets go of everything before it rejoins."""

from __future__ import annotations

from typing import Any

from tests.group.consumer_client import Held
from tests.group.consumer_kit import GROUP, Coordinator

from holdfast.core.group.consumer.consumer_group import ConsumerGroup
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import (
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
)
from holdfast.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)


class ClassicConsumer:
    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.coordinator = coordinator
        self.name = name
        self.topics: list[str] = []
        self.is_running = False
        self.held: Held = set()
        self.heard_ms = 0
        self._forget()

    def _forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self._rejoin()

    def _rejoin(self) -> None:
        self.held = set()
        self.next = "join"
        self.waits: int | None = None  # the call of a JoinGroup or SyncGroup
        self.others: list[tuple[str, list[str]]] = []  # for the leader: who subscribes to what

    def start(self, *topics: str) -> None:
        self.topics = list(topics)
        self.is_running = True
        self._forget()

    @property
    def is_member(self) -> bool:
        group = self.coordinator.shard._groups.get(GROUP)
        if not self.is_running or self.next != "beat" or not isinstance(group, ConsumerGroup):
            return False
        member = group.state.members.get(self.member_id)
        return member is not None and member.epoch == self.generation

    def beat(self) -> None:
        """Do what is next: join, fetch what it got, or say that it lives."""
        self.heard_ms = self.coordinator.now_ms
        if self.waits is None:
            caller = self.coordinator.call({"join": 9, "sync": 5, "beat": 4}[self.next], self.name)
            self.waits = caller.call
            shard, now_ms = self.coordinator.shard, self.coordinator.now_ms
            if self.next == "join":
                decision = shard.join(caller, self._join_request(), now_ms)
            elif self.next == "sync":
                decision = shard.sync(caller, self._sync_request(), now_ms)
            else:
                decision = shard.heartbeat(caller, self._heartbeat_request(), now_ms)
            self.coordinator.answer(self.coordinator.perform(decision))
            self.coordinator.advance(0)
        if self.waits in self.coordinator.held:
            response = self.coordinator.held.pop(self.waits)
            self.waits = None
            self._take(response, ErrorCode(response.error_code))

    def _take(self, response: Any, code: ErrorCode) -> None:
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
        elif code is not ErrorCode.NONE:
            self._rejoin()
        elif isinstance(response, JoinGroupResponse):
            self.member_id, self.generation = response.member_id, response.generation_id
            self.next = "sync"
            self.others = [
                (each.member_id, decode_subscription(each.metadata).topics)
                for each in response.members
            ]
        elif isinstance(response, SyncGroupResponse):
            self.next = "beat"
            self.held = self._given(response.assignment)

    def _given(self, data: bytes) -> Held:
        topics = self.coordinator.topics.by_name
        if not data:
            return set()
        return {
            (topics[each.topic].topic_id, index)
            for each in decode_assignment(data).assigned_partitions
            if each.topic in topics
            for index in each.partitions
        }

    def _join_request(self) -> JoinGroupRequest:
        metadata = encode_subscription(ConsumerProtocolSubscription(topics=self.topics), 1)
        return JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    def _sync_request(self) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
                for member_id, share in self._shares().items()
            ],
        )

    def _shares(self) -> dict[str, ConsumerProtocolAssignment]:
        """Assign each topic to the first of the members that subscribe to it."""
        shares = {member_id: ConsumerProtocolAssignment() for member_id, _ in self.others}
        for name, topic in self.coordinator.topics.by_name.items():
            takers = [member_id for member_id, topics in self.others if name in topics]
            if takers:
                partitions = list(range(topic.partition_count))
                shares[takers[0]].assigned_partitions.append(
                    ConsumerTopicPartitions(topic=name, partitions=partitions)
                )
        return shares

    def _heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, generation_id=self.generation
        )

    def revoke(self) -> None:
        """It has let go already, before it joins."""

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)]
        )
        caller = self.coordinator.call(5, self.name)
        decision = self.coordinator.shard.leave(caller, request, self.coordinator.now_ms)
        self.coordinator.answer(self.coordinator.perform(decision))
        self.die()

    def die(self) -> None:
        self.held = set()
        self.is_running = False
