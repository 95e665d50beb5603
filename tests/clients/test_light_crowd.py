"""Goal: light members of both protocols come to share a group, whatever is lost on the way.

Method: members and a small coordinator in virtual time. From a seed, answers are lost before or
after their request was done, members leave and are killed, coordinators move. At no time do two
members own a partition in one epoch; when nothing is lost any more, the group is whole in time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pytest
from tests.clients.light_coordinators import ClassicCoordinator, ConsumerCoordinator

from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_crowd import (
    NotSettledError,
    is_whole,
    settled_ms,
    topics_of,
)
from holdfast.clients.group_member.light_member import LightMember, Phase, Plan, Topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from holdfast.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPICS = (Topic("a", b"A" * 16, 7), Topic("b", b"B" * 16, 4))
EVERYTHING = [(topic.topic_id, index) for topic in TOPICS for index in range(topic.partitions)]
PLAN = Plan(
    group_id="g",
    topics=TOPICS,
    session_timeout_ms=10_000,
    rebalance_timeout_ms=20_000,
    heartbeat_ms=3_000,
    answer_ms=5_000,
)
CALM_MS = 60_000
MAX_DELAY_MS = 20


class Crowd:
    """Members and their coordinator, with all that is on its way between them."""

    def __init__(self, coordinator: ClassicCoordinator | ConsumerCoordinator, seed: int) -> None:
        self.coordinator = coordinator
        self.chance = random.Random(seed)
        self.members: dict[int, LightMember] = {}
        self.now_ms = 0
        self.lost_share = 0.0
        self.port = 1
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._callers: dict[int, tuple[LightMember, Any]] = {}  # by the number of a request

    def add(self, member: LightMember) -> int:
        number = next(self._numbers)
        self.members[number] = member
        self.now(lambda: self._turn(member))
        return number

    def kill(self, number: int) -> None:
        member = self.members.pop(number)
        member.phase = Phase.LEFT
        member.assignment = frozenset()

    def leave(self, number: int) -> None:
        member = self.members.pop(number)
        member.leave(self.now_ms)
        self._turn(member)

    def now(self, action: Callable[[], None]) -> None:
        self._at(self.now_ms, action)

    def run(self, until: Callable[[], bool], bound_ms: int) -> None:
        """Run until something holds; fails where the time is over."""
        deadline = self.now_ms + bound_ms
        while not until():
            assert self._events, "nobody does anything"
            self.now_ms, _, action = heappop(self._events)
            assert self.now_ms <= deadline, "it takes too long"
            action()
            self.coordinator.look(self.now_ms)
            for number, answer in self.coordinator.take_answers():
                self._answer(number, answer)
            self._check()

    def whole(self) -> bool:
        return is_whole(list(self.members.values()), TOPICS)

    def _at(self, when_ms: int, action: Callable[[], None]) -> None:
        heappush(self._events, (when_ms, next(self._numbers), action))

    def _turn(self, member: LightMember) -> None:
        """Send what is due, and look again when the member says."""
        request = member.poll(self.now_ms)
        if request is not None:
            number = next(self._numbers)
            self._callers[number] = (member, request)
            delay_ms = self.chance.randrange(MAX_DELAY_MS)
            if self.chance.random() >= self.lost_share:
                self._at(self.now_ms + delay_ms, lambda: self._arrives(number, request))
            self._at(member.due_ms, lambda: self._late(number))
        elif not member.over and not member.waits:
            self._at(member.due_ms, lambda: self._turn(member))

    def _arrives(self, number: int, request: Any) -> None:
        member, _ = self._callers.get(number, (None, None))
        if isinstance(request, FindCoordinatorRequest):
            found = Coordinator(key="g", node_id=0, host="h", port=self.port)
            self._answer(number, FindCoordinatorResponse(coordinators=[found]))
            return
        if member is not None and member.place != ("h", self.port):
            answer = elsewhere(request)
        else:
            answer = self.coordinator.ask(number, request, self.now_ms)
        if answer is not None:
            self._answer(number, answer)

    def _answer(self, number: int, answer: Any) -> None:
        if self.chance.random() >= self.lost_share:
            delay_ms = self.chance.randrange(MAX_DELAY_MS)
            self._at(self.now_ms + delay_ms, lambda: self._answered(number, answer))

    def _answered(self, number: int, answer: Any) -> None:
        member, _ = self._callers.pop(number, (None, None))
        if member is not None and not member.over:
            member.answered(answer, self.now_ms)
            self._turn(member)

    def _late(self, number: int) -> None:
        member, _ = self._callers.pop(number, (None, None))
        if member is not None:
            member.lost(self.now_ms)
            self._turn(member)

    def _check(self) -> None:
        owners: dict[tuple[str, int, int], LightMember] = {}
        for member in self.members.values():
            assert member.failure is None
            for topic, index in member.assignment:
                other = owners.setdefault((topic, index, member.epoch), member)
                assert other is member, f"{topic}-{index} has two owners in epoch {member.epoch}"


def elsewhere(request: Any) -> Any:
    """What a broker answers that does not coordinate the group."""
    module = __import__(type(request).__module__, fromlist=["_"])
    answer = getattr(module, type(request).__name__.replace("Request", "Response"))()
    answer.error_code = ErrorCode.NOT_COORDINATOR
    return answer


def classic(number: int) -> LightMember:
    del number
    return ClassicMember(PLAN)


def consumer(number: int) -> LightMember:
    return ConsumerMember(PLAN, f"c{number}")


def classic_crowd(seed: int) -> Crowd:
    return Crowd(ClassicCoordinator(), seed)


def consumer_crowd(seed: int) -> Crowd:
    return Crowd(ConsumerCoordinator(EVERYTHING), seed)


BOTH = pytest.mark.parametrize(
    ("crowd_of", "member"),
    [(classic_crowd, classic), (consumer_crowd, consumer)],
    ids=["classic", "consumer"],
)


def standing(epoch: int, *indexes: int, phase: Phase = Phase.STABLE) -> LightMember:
    member = consumer(epoch)
    member.phase, member.epoch = phase, epoch
    member.assignment = frozenset(("t", index) for index in indexes)
    return member


@pytest.mark.parametrize(
    ("members", "whole"),
    [
        ([], False),
        ([standing(1, 0, 1, 2, 3, 4)], True),
        ([standing(1, 0, 1, 2), standing(1, 3, 4)], True),
        ([standing(1, 0, 1, 2), standing(2, 3, 4)], False),
        ([standing(1, 0, 1, 2), standing(1, 2, 3, 4)], False),
        ([standing(1, 0, 1, 2), standing(1, 3)], False),
        ([standing(1, 0, 1, 2), standing(1, 2, 3)], False),
        ([standing(1, 0, 1, 2, 3), standing(1, 4)], False),
        ([standing(1, 0, 1, 2, 3, 4), standing(1)], False),
        ([standing(1, 0, 1, 2), standing(1, 3, 4, phase=Phase.RECONCILING)], False),
    ],
)
def test_what_a_whole_group_is(members: list[LightMember], whole: bool) -> None:
    assert is_whole(members, [Topic("t", b"t" * 16, 5)]) is whole


@BOTH
def test_members_share_and_share_again(
    crowd_of: Callable[[int], Crowd], member: Callable[[int], LightMember]
) -> None:
    crowd = crowd_of(1)
    numbers = [crowd.add(member(each)) for each in range(5)]
    crowd.run(crowd.whole, CALM_MS)
    joined_ms = max(each.joined_ms or 0 for each in crowd.members.values())
    assert 0 <= joined_ms <= settled_ms(crowd.members.values()) <= crowd.now_ms
    assert all(member.assignment for member in crowd.members.values())

    crowd.leave(numbers[0])
    assert not crowd.whole()
    crowd.run(crowd.whole, 12_000)  # two heartbeats are enough: nobody has to be missed

    crowd.kill(numbers[1])
    crowd.run(crowd.whole, 45_000 + 15_000)  # a session and two heartbeats
    assert len(crowd.members) == 3
    for number in numbers[2:]:
        crowd.leave(number)
    crowd.run(lambda: not crowd.coordinator.members, 15_000)


@BOTH
@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost(
    crowd_of: Callable[[int], Crowd], member: Callable[[int], LightMember], seed: int
) -> None:
    crowd = crowd_of(seed)
    numbers = [crowd.add(member(each)) for each in range(3)]
    crowd.lost_share = 0.1
    for step in range(8):
        end_ms = crowd.now_ms + crowd.chance.randrange(8_000)
        crowd.run(lambda end_ms=end_ms: crowd.now_ms >= end_ms, 60_000)  # type: ignore[misc]
        event = crowd.chance.randrange(5)
        if event == 0 and len(numbers) > 1:
            crowd.kill(numbers.pop(crowd.chance.randrange(len(numbers))))
        elif event == 1 and len(numbers) > 1:
            crowd.leave(numbers.pop(crowd.chance.randrange(len(numbers))))
        elif event == 2:
            crowd.port += 1  # the coordinator moves, with all that it knows
        else:
            numbers.append(crowd.add(member(10 + step)))
    crowd.lost_share = 0.0
    crowd.run(crowd.whole, 3 * CALM_MS)


class Slow:
    """A cluster that knows a topic only when it is asked again."""

    def __init__(self, knows_at: int) -> None:
        self.knows_at = knows_at
        self.asked = 0

    def metadata(self, topics: list[str]) -> MetadataResponse:
        self.asked += 1
        code = 0 if self.asked >= self.knows_at else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [MetadataResponsePartition(partition_index=index) for index in range(4)]
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    name=name, error_code=code, topic_id=b"t" * 16, partitions=partitions
                )
                for name in topics
            ]
        )


def test_topics_are_asked_for_until_they_are_known() -> None:
    cluster: Any = Slow(2)
    assert topics_of(cluster, ["t"]) == (Topic("t", b"t" * 16, 4),)
    assert cluster.asked == 2
    with pytest.raises(NotSettledError, match="no topic u"):
        topics_of(Slow(9), ["u"], bound_s=-1)  # type: ignore[arg-type]
