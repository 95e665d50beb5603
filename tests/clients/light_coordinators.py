"""Two small coordinators in memory, one a protocol, for light members to be tested against.

Owns what a coordinator knows of one group, and no clock: time is an argument. Each does what Apache
Kafka's does with a group of which all goes well or members vanish; what no light member does is
left out. An answer is returned, or comes later from `take_answers` (who is parked).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from holdfast.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

Late = tuple[int, Any]
"""Who asked, and the answer."""


@dataclass
class Classic:
    """What it knows of a member."""

    metadata: bytes
    protocol: str
    session_ms: int
    rebalance_ms: int
    heard_ms: int
    caller: int | None = None  # whose join or sync is parked
    given: bytes = b""


@dataclass
class ClassicCoordinator:
    """Of one classic group."""

    members: dict[str, Classic] = field(default_factory=dict)
    state: str = "empty"
    generation: int = 0
    leader: str = ""
    rebalance_ends_ms: int = 0
    named: int = 0
    asked: list[str] = field(default_factory=list)
    _late: list[Late] = field(default_factory=list)

    def ask(self, caller: int, request: Any, now_ms: int) -> Any:
        """Return the answer; None: it is parked."""
        self.asked.append(type(request).__name__)
        if isinstance(request, JoinGroupRequest):
            return self._join(caller, request, now_ms)
        if isinstance(request, SyncGroupRequest):
            return self._sync(caller, request, now_ms)
        if isinstance(request, LeaveGroupRequest):
            for each in request.members:
                if self.members.pop(each.member_id, None) is not None:
                    self._prepare(now_ms)
            self.look(now_ms)
            return LeaveGroupResponse()
        assert isinstance(request, HeartbeatRequest)
        code = self._check(request, now_ms)
        if not code and self.state == "preparing":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(error_code=code)

    def take_answers(self) -> list[Late]:
        late, self._late = self._late, []
        return late

    def look(self, now_ms: int) -> None:
        """Do what is due: sessions, and the end of a rebalance."""
        for name, one in list(self.members.items()):
            if one.caller is None and now_ms > one.heard_ms + one.session_ms:
                del self.members[name]
                self._prepare(now_ms)
        if self.state != "preparing":
            return
        if now_ms >= self.rebalance_ends_ms:
            self.members = {name: one for name, one in self.members.items() if self._joins(one)}
        if all(self._joins(one) for one in self.members.values()):
            self._complete(now_ms)

    def _joins(self, one: Classic) -> bool:
        return one.caller is not None

    def _join(self, caller: int, request: JoinGroupRequest, now_ms: int) -> Any:
        if not request.member_id:
            self.named += 1
            name = f"member-{self.named}"
            self.members[name] = self._member(request, now_ms)  # named, and not heard of again
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=name)
        if request.member_id not in self.members:
            return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state != "preparing":
            self._prepare(now_ms)
        self.members[request.member_id] = self._member(request, now_ms)
        self.members[request.member_id].caller = caller
        self.look(now_ms)
        return None

    def _member(self, request: JoinGroupRequest, now_ms: int) -> Classic:
        first = request.protocols[0]
        return Classic(
            metadata=first.metadata,
            protocol=first.name,
            session_ms=request.session_timeout_ms,
            rebalance_ms=request.rebalance_timeout_ms,
            heard_ms=now_ms,
        )

    def _prepare(self, now_ms: int) -> None:
        for one in self.members.values():
            if self.state == "completing" and one.caller is not None:
                answer = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
                self._late.append((one.caller, answer))
                one.caller, one.heard_ms = None, now_ms
        if self.state != "preparing":
            most = max((one.rebalance_ms for one in self.members.values()), default=0)
            self.rebalance_ends_ms = now_ms + most
        self.state = "preparing"

    def _complete(self, now_ms: int) -> None:
        if not self.members:
            self.state = "empty"
            return
        self.state, self.generation = "completing", self.generation + 1
        self.leader = next(iter(self.members))
        everyone = [
            JoinGroupResponseMember(member_id=name, metadata=one.metadata)
            for name, one in self.members.items()
        ]
        for name, one in self.members.items():
            assert one.caller is not None
            answer = JoinGroupResponse(
                generation_id=self.generation,
                protocol_name=one.protocol,
                leader=self.leader,
                member_id=name,
                members=everyone if name == self.leader else [],
            )
            self._late.append((one.caller, answer))
            one.caller, one.heard_ms, one.given = None, now_ms, b""

    def _sync(self, caller: int, request: SyncGroupRequest, now_ms: int) -> Any:
        code = self._check(request, now_ms)
        if not code and self.state == "preparing":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            return SyncGroupResponse(error_code=code)
        if self.state == "stable":
            return SyncGroupResponse(assignment=self.members[request.member_id].given)
        self.members[request.member_id].caller = caller
        if request.member_id != self.leader:
            return None
        given = {each.member_id: each.assignment for each in request.assignments}
        self.state = "stable"
        for name, one in self.members.items():
            one.given = given.get(name, b"")
            if one.caller is not None:
                self._late.append((one.caller, SyncGroupResponse(assignment=one.given)))
                one.caller, one.heard_ms = None, now_ms
        return None

    def _check(self, request: SyncGroupRequest | HeartbeatRequest, now_ms: int) -> int:
        one = self.members.get(request.member_id)
        if one is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        one.heard_ms = now_ms
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE


Held = frozenset[tuple[bytes, int]]
NOTHING: Held = frozenset()


@dataclass
class Consumer:
    """What it knows of a member."""

    heard_ms: int
    epoch: int = 0
    before: int = -1  # the epoch before this one, whose answer may have been lost
    target: Held = NOTHING
    given: Held = NOTHING  # what it may hold: nobody else gets that


@dataclass
class ConsumerCoordinator:
    """Of one KIP-848 group. `everything`: the partitions of all topics."""

    everything: list[tuple[bytes, int]]
    interval_ms: int = 5_000
    session_ms: int = 45_000
    members: dict[str, Consumer] = field(default_factory=dict)
    epoch: int = 0
    asked: list[ConsumerGroupHeartbeatRequest] = field(default_factory=list)

    def take_answers(self) -> list[Late]:
        return []  # nothing is parked

    def look(self, now_ms: int) -> None:
        """Do what is due: sessions."""
        late = [
            name for name, one in self.members.items() if now_ms > one.heard_ms + self.session_ms
        ]
        for name in late:
            del self.members[name]
        if late:
            self._share()

    def ask(self, caller: int, request: Any, now_ms: int) -> ConsumerGroupHeartbeatResponse:
        """Return the answer."""
        del caller
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        self.asked.append(request)
        name = request.member_id
        if request.member_epoch < 0:
            if self.members.pop(name, None) is not None:
                self._share()
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch)
        held = None if request.topic_partitions is None else flat(request.topic_partitions)
        if request.member_epoch == 0:
            assert request.subscribed_topic_names, "who joins says what it wants"
            assert held == NOTHING, "who joins holds nothing"
            self.members.pop(name, None)
            self.members[name] = Consumer(heard_ms=now_ms)
            self._share()
        one = self.members.get(name)
        if one is None:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        again = request.member_epoch == one.before and held is not None and held <= one.given
        if request.member_epoch not in {0, one.epoch} and not again:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        one.heard_ms = now_ms
        return self._reconcile(
            name, one, held, everything=request.subscribed_topic_names is not None
        )

    def _reconcile(
        self, name: str, one: Consumer, held: Held | None, *, everything: bool
    ) -> ConsumerGroupHeartbeatResponse:
        before = one.given
        if held is not None and held <= one.target:
            one.given = held  # what it gave up is free
        if one.given <= one.target:
            others = NOTHING.union(
                *(each.given for key, each in self.members.items() if key != name)
            )
            one.given |= one.target - others
            if one.epoch != self.epoch:
                one.before, one.epoch = one.epoch, self.epoch
            told = one.given
        else:
            told = one.given & one.target  # to be confirmed before anything is new
        says = told != before or everything
        return ConsumerGroupHeartbeatResponse(
            member_id=name,
            member_epoch=one.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=assigned(told) if says else None,
        )

    def _share(self) -> None:
        self.epoch += 1
        names = sorted(self.members)
        for place, name in enumerate(names):
            self.members[name].target = frozenset(self.everything[place :: len(names)])


def flat(topics: list[ConsumerGroupHeartbeatTopicPartitions]) -> Held:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def assigned(held: Held) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic, partitions=[index])
            for topic, index in sorted(held)
        ]
    )
