"""One process with a member of a group: it takes part, reads what it owns, and commits.

Owns what it does and when; what its protocol wants is the light member's. It runs on a machine of
its own, so that it can be killed, paused and cut off like any other process.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from typing import Any, Final

from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_cooperative import COOPERATIVE, CooperativeMember
from holdfast.clients.group_member.light_member import LightMember, Topic
from holdfast.clients.group_member.light_member import Plan as LightPlan
from holdfast.runtime.ports import Runtime
from holdfast.testing.simulated_client import AnswerError, ClusterClient, records_of
from holdfast.testing.simulation.groups.attempts import Attempt
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.member_line import MemberLine
from holdfast.testing.simulation.groups.member_offsets import (
    BY_ID,
    BY_NAME,
    Place,
    commit_request,
    committed_codes,
    fetch_request,
    fetched,
)
from holdfast.testing.simulation.groups.views import View
from holdfast.testing.simulation.plan import CONSUMER, GroupPlan, MemberPlan
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.heartbeat import HeartbeatResponse
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.schema import Request
from holdfast.wire.uuids import NULL_UUID
from holdfast.wire.well_known import EARLIEST

ANSWER_MS: Final = 2_500
RETRY_MS: Final = 300
READ_BYTES: Final = 4_096
_LOOKS_AT_TOPICS: Final = 0.2  # how often, of its turns
_STRAYS: Final = 0.06  # how often it commits as it may not
_COMMITS_FIRST: Final = 0.5  # how often a classic member commits before it joins again
_COMMITS_SAME: Final = 0.3  # how often it commits what it has committed already


class Life:
    """From its start to its end."""

    def __init__(
        self,
        name: str,
        group: GroupPlan,
        plan: MemberPlan,
        runtime: Runtime,
        brokers: Sequence[str],
        oracle: GroupOracle,
        ghost: tuple[str, int],
    ) -> None:
        """`brokers`: the machines' names, by node. `ghost`: the member that it was, and its epoch.

        What it was may not commit any more.
        """
        self.name: Final = name
        self._group: Final = group
        self._plan: Final = plan
        self._brokers: Final = list(brokers)
        self._oracle: Final = oracle
        self._ghost: Final = ghost
        self._draw = random.Random(f"member/{name}")
        self._line = MemberLine(runtime, name.partition("#")[0])
        self._offsets_line = MemberLine(runtime, name.partition("#")[0])
        self._client = ClusterClient(runtime, [(each, 9092) for each in brokers], client_id=name)
        self._topics: dict[str, Topic] = {
            topic: Topic(topic, NULL_UUID, 0) for topic in group.topics
        }
        self.light: Final = self._make_light()
        self.view: Final = View(name, group, plan, self.light)
        self._nap: asyncio.Future[None] | None = None
        self._next_broker = self._draw.randrange(len(self._brokers))
        self._tenures: dict[Place, int] = {}  # what it owns, each time under another number
        self._tenure = 0
        self._is_behind = False  # it owns something of a topic that it does not know
        self._positions: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._attempts = 0
        self.read_s: dict[Place, float] = {}  # when each was last read, of what it owns
        self.served_s = -1.0  # when a commit was last acknowledged

    def _make_light(self) -> LightMember:
        group, plan = self._group, self._plan
        light_plan = LightPlan(
            group_id=group.name,
            topics=tuple(self._topics.values()),
            instance_id=plan.instance,
            session_timeout_ms=group.session_ms,
            rebalance_timeout_ms=group.rebalance_ms,
            heartbeat_ms=group.heartbeat_ms,
            retry_ms=RETRY_MS,
            answer_ms=ANSWER_MS,
        )
        if plan.protocol == CONSUMER:
            return ConsumerMember(light_plan, self.name, plan.assignor or None)
        if plan.assignor == COOPERATIVE:
            return CooperativeMember(light_plan)
        return ClassicMember(light_plan, (plan.assignor or "range",))

    def __str__(self) -> str:
        return str(self.view)

    # -- taking part -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part until it has left or failed."""
        await self._look_at_topics()
        self._oracle.enter(self.view)
        reading = asyncio.get_running_loop().create_task(self._consume())
        light = self.light
        while not light.over:
            request = light.poll(now_ms())
            if request is None:
                await self._sleep_until(light.due_ms)
            else:
                await self._exchange(request)
        self._oracle.leave(self.view)
        reading.cancel()

    def leave(self) -> None:
        """Leave in good order, as soon as that can be said."""
        self._oracle.leave(self.view)
        self.light.leave(now_ms())
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    async def _exchange(self, request: Request) -> None:
        light, oracle = self.light, self._oracle
        place = light.place or (self._any_broker(), 9092)
        question = oracle.ask(self._group.name, request, self._node(place[0]))
        try:
            answer = await self._line.ask(
                place,
                request,
                timeout_ms=max(1, light.due_ms - now_ms()),
                version=self._plan.join_version if isinstance(request, JoinGroupRequest) else None,
            )
        except OSError:
            light.lost(now_ms())
            self._settle()
            return
        if question is not None and not isinstance(request, FindCoordinatorRequest):
            oracle.answered(self.view, question, answer)
            await self._commits_first(answer)
        light.answered(answer, now_ms())
        self._settle()

    async def _commits_first(self, answer: Any) -> None:
        """Who has to join again may commit what it has done before it gives everything up."""
        if (
            isinstance(answer, HeartbeatResponse)
            and answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
            and self._draw.random() < _COMMITS_FIRST
        ):
            await self._quietly(self._commit)

    def _any_broker(self) -> str:
        self._next_broker = (self._next_broker + 1) % len(self._brokers)
        return self._brokers[self._next_broker]

    def _node(self, host: str) -> int:
        return self._brokers.index(host)

    async def _sleep_until(self, due_ms: int) -> None:
        loop = asyncio.get_running_loop()
        nap = self._nap = loop.create_future()
        timer = loop.call_at(due_ms / 1000, _wake, nap)
        await nap
        timer.cancel()
        self._nap = None

    def _settle(self) -> None:
        """Take note of what it owns now: of what it does not own any more it forgets all.

        What it does not know the name of, since its topic was made anew, it can't read yet.
        """
        owned = {place for place in self.light.assignment if place[0] in self._topics}
        self._is_behind = len(owned) < len(self.light.assignment)
        self.view.last_epoch = max(self.view.last_epoch, self.light.epoch)
        for place in [each for each in self._tenures if each not in owned]:
            for known in (self._tenures, self._positions, self._committed, self.read_s):
                known.pop(place, None)
        for place in sorted(owned - self._tenures.keys()):
            self._tenure += 1
            self._tenures[place] = self._tenure

    # -- reading and committing ------------------------------------------------------------------

    async def _consume(self) -> None:
        while True:
            await asyncio.sleep(self._plan.pause_ms / 1000 * (0.5 + self._draw.random()))
            await self._quietly(self._turn)

    async def _quietly(self, act: Callable[[], Any]) -> None:
        try:
            await act()
        except (OSError, AnswerError):
            self._client.forget()

    async def _turn(self) -> None:
        if self._is_behind or self._draw.random() < _LOOKS_AT_TOPICS:
            await self._look_at_topics()
        if self.light.place is None:
            return
        new = sorted(self._tenures.keys() - self._positions.keys())
        if new:
            await self._begin_at(new)
        for place in sorted(self._positions):
            await self._quietly(partial(self._read, place))
        await self._commit()
        if self._draw.random() < _STRAYS:
            await self._stray()

    async def _look_at_topics(self) -> None:
        """Find out what the topics are by now: one may have been made anew, or be gone."""
        for name in self._group.topics:
            try:
                found = await self._client.refresh(name)
            except (OSError, AnswerError):
                continue
            self._topics[name] = Topic(name, bytes(found.topic_id), len(found.partitions))
        self.light.learn(tuple(self._topics.values()))

    @property
    def _ids(self) -> dict[str, bytes]:
        return {name: topic.topic_id for name, topic in self._topics.items()}

    def _drawn_version(self) -> int:
        known = NULL_UUID not in self._ids.values()
        return BY_ID if known and self._draw.random() < 0.5 else BY_NAME

    async def _begin_at(self, places: list[Place]) -> None:
        """Ask where the group goes on in what is new."""
        light, version, ids = self.light, self._drawn_version(), self._ids
        tenures = {place: self._tenures[place] for place in places}
        stable = self._draw.random() < 0.7
        request = fetch_request(light, places, ids, stable=stable)
        epoch = light.epoch
        answer, question = await self._ask_for_offsets(request, version)
        (group,) = answer.groups
        if group.error_code:
            code = error_code(group.error_code)
            self._oracle.offsets_refused(self.view, code, question, epoch)
            return
        for told in fetched(group, ids):
            if told.code is not ErrorCode.NONE:
                continue
            topic_id = ids[told.place[0]] if version == BY_ID else NULL_UUID
            self._oracle.told_offset(self._group.name, told.place, told.offset, question, topic_id)
            if self._tenures.get(told.place) == tenures.get(told.place):
                self._positions[told.place] = max(0, told.offset)

    async def _ask_for_offsets(self, request: Request, version: int) -> Any:
        place = self.light.place
        if place is None:
            raise ConnectionError("it has no coordinator now")
        question = self._oracle.ask(self._group.name, request, self._node(place[0]))
        assert question is not None, "there is a coordinator"
        answer = await self._offsets_line.ask(place, request, timeout_ms=ANSWER_MS, version=version)
        return answer, question

    async def _read(self, place: Place) -> None:
        if place not in self._positions:
            return  # it was lost meanwhile
        tenure, at = self._tenures[place], self._positions[place]
        try:
            data = await self._client.fetch(*place, at, wait_ms=0, partition_bytes=READ_BYTES)
            stored = records_of(data.records or b"", at)
            found = stored[-1].offset + 1 if stored else at
        except AnswerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            found = await self._client.offset_at(*place, EARLIEST)
        if self._tenures.get(place) == tenure:
            self._positions[place] = found
            self.read_s[place] = asyncio.get_running_loop().time()

    async def _commit(self) -> None:
        """Commit where it stands, in what it owns."""
        if self.light.epoch < 0 or self.light.over:
            return
        same = self._draw.random() < _COMMITS_SAME
        offsets = {
            place: at
            for place, at in sorted(self._positions.items())
            if same or self._committed.get(place) != at
        }
        if offsets:
            await self._try(offsets, self.light.member_id, self.light.epoch)

    async def _stray(self) -> None:
        """Commit as somebody who may not, or who it is not any more."""
        light, draw = self.light, self._draw
        member_id, epoch = draw.choice(
            (
                (light.member_id, light.epoch - 1),
                (light.member_id, light.epoch + 1),
                ("nobody", light.epoch),
                (light.member_id, draw.randrange(max(light.epoch, 1))),
                ("", -1),
                self._ghost,
            )
        )
        topic = draw.choice(self._group.topics)
        partitions = self._topics[topic].partitions
        if partitions:
            place = topic, draw.randrange(partitions)
            self._oracle.counts["stray commits"] += 1
            await self._try({place: draw.randrange(100)}, member_id, epoch)

    async def _try(self, offsets: dict[Place, int], member_id: str, epoch: int) -> None:
        attempts = []
        for (topic, partition), offset in offsets.items():
            self._attempts += 1
            attempts.append(
                Attempt(
                    name=f"{self.name}:{self._attempts}",
                    group=self._group.name,
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    member_id=member_id,
                    epoch=epoch,
                )
            )
        version, ids = self._drawn_version(), self._ids
        instance = self._plan.instance if member_id == self.light.member_id else None
        request = commit_request(attempts, ids, instance)
        for each in attempts:
            self._oracle.attempt(each)
        answer, question = await self._ask_for_offsets(request, version)
        codes = committed_codes(answer, ids)
        for each in attempts:
            place = each.topic, each.partition
            code = codes[place]
            self._oracle.outcome(self.view, each, code, question)
            if code is ErrorCode.NONE and member_id == self.light.member_id:
                self._committed[place] = each.offset
                self.served_s = asyncio.get_running_loop().time()


def now_ms() -> int:
    """Return the loop's time. Rounded up, so that what is due at a time is due when it comes."""
    return ceil(asyncio.get_running_loop().time() * 1000)


def _wake(nap: asyncio.Future[None]) -> None:
    if not nap.done():
        nap.set_result(None)
