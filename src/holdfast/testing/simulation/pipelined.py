"""A producer that pipelines: batches of several partitions in a request, requests in flight.

Owns what goes into which request, and in which order. What each answer means its partitions'
`SimulatedProducer`s say, each of which keeps its own sequence.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, TypeAlias

from holdfast.testing.simulated_client import AnswerError, ClusterClient
from holdfast.testing.simulation.clients import PAUSE_S, Batch, SimulatedProducer
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import ProducerPlan
from holdfast.wire.errors import ErrorCode

_BATCHES = 5  # in hand at a time
_REQUESTS = 3  # in flight to each leader


class _Held(NamedTuple):
    """A batch in hand, and whose it is."""

    lane: SimulatedProducer
    batch: Batch


_Part: TypeAlias = tuple[_Held, bytes]
_Failure: TypeAlias = OSError | AnswerError
_Outcomes: TypeAlias = dict[int, tuple[int, int | _Failure]]  # by the batch's identity


def is_there(outcome: int | OSError | AnswerError) -> bool:
    """Whether a log is known to have the batch."""
    if isinstance(outcome, AnswerError):
        return outcome.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    return isinstance(outcome, int)


class Pipeline:
    """Writes to several partitions of a topic, which have one `acks`, until it is told to stop."""

    def __init__(
        self,
        plan: ProducerPlan,
        lanes: Sequence[SimulatedProducer],
        client: ClusterClient,
        oracle: Oracle,
        seed: int,
    ) -> None:
        """`plan`: of one of them."""
        self._plan: Final = plan
        self._lanes: Final = lanes
        self._client: Final = client
        self._oracle: Final = oracle
        self._draw = random.Random(f"pipeline/{seed}/{plan.topic}/{plan.partition}")
        self.stopping = False

    def __str__(self) -> str:
        return f"pipeline into {self._plan.topic}"

    async def run(self) -> None:
        held: list[_Held] = []
        loop = asyncio.get_running_loop()
        due = 0.0
        while held or not self.stopping:
            if loop.time() >= due and not self.stopping:
                held += self._take({each.lane for each in held})
                due = loop.time() + self._plan.pause_ms / 1000 * 2 * self._draw.random()
            doubts = self._doubts
            held = await self._attempt(held)
            if held or self._doubts != doubts:
                self._client.forget()  # somebody else may lead
            if held:
                await asyncio.sleep(PAUSE_S)
            else:
                await asyncio.sleep(max(0.0, due - loop.time()))

    @property
    def _doubts(self) -> int:
        return sum(lane.generation for lane in self._lanes)

    def _take(self, waiting: Collection[SimulatedProducer]) -> list[_Held]:
        """Some batches, of partitions as chance has them; not of those that have one waiting."""
        free = [lane for lane in self._lanes if lane not in waiting]
        lanes = [self._draw.choice(free) for _ in range(_BATCHES if free else 0)]
        return [_Held(lane, lane.draw_batch()) for lane in lanes]

    async def _attempt(self, held: list[_Held]) -> list[_Held]:
        """Send what is in hand once; return what has no outcome yet, in order."""
        built, failed = await self._build(held)
        for leader in list(built):
            try:  # else each request would dial, and overtake another one
                await self._client.reach(leader)
            except OSError as failure:
                failed += [(each, failure) for each, _ in built.pop(leader)]
        requests = self._share_out(built)
        in_flight = len(requests) > len(built)
        self._oracle.counts["producers with several requests in flight"] += in_flight
        answers = await asyncio.gather(
            *(self._send(leader, parts) for leader, parts in requests), return_exceptions=True
        )
        outcomes: _Outcomes = {id(each.batch): (-1, failure) for each, failure in failed}
        for (leader, parts), answer in zip(requests, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, (OSError, AnswerError)):
                raise answer
            for number, (each, _) in enumerate(parts):
                outcome = answer[number] if isinstance(answer, list) else answer
                outcomes[id(each.batch)] = leader, outcome
        return [
            each
            for lane in self._lanes
            for each in self._settle(lane, [one for one in held if one.lane is lane], outcomes)
        ]

    def _settle(
        self, lane: SimulatedProducer, held: list[_Held], outcomes: _Outcomes
    ) -> list[_Held]:
        """Take in what became of a partition's batches; return those to be sent again, in order."""
        left: list[_Held] = []
        doubtful = refused = False
        for each in held:
            leader, outcome = outcomes[id(each.batch)]
            if doubtful:  # it begins anew, under another name
                lane.doubt(each.batch, "behind a batch in doubt")
                continue
            before = lane.generation
            if not lane.settle(each.batch, leader, outcome):
                left.append(each)
                # It may be in a log under its number, and would be sent again under that of the
                # batch that was refused.
                doubtful = refused and self._plan.idempotent
            elif lane.generation != before:
                doubtful = self._plan.acks != 0
            elif left and self._plan.idempotent and is_there(outcome):
                # A log that did not know this producer has taken what comes behind first.
                doubtful = True
            else:
                refused = refused or (isinstance(outcome, AnswerError) and not is_there(outcome))
            if doubtful:
                for one in left:
                    lane.doubt(one.batch, "beside a batch in doubt")
                left.clear()
        return left

    async def _build(
        self, held: list[_Held]
    ) -> tuple[dict[int, list[_Part]], list[tuple[_Held, _Failure]]]:
        """Return the batches by leader, and those that can't be sent now."""
        parts: dict[int, list[_Part]] = {}
        failed: list[tuple[_Held, _Failure]] = []
        stuck: dict[SimulatedProducer, _Failure] = {}
        ahead = dict.fromkeys(self._lanes, 0)
        for each in held:
            lane, batch = each
            if lane in stuck:  # what is behind goes behind
                failed.append((each, stuck[lane]))
                continue
            try:
                await lane.identify()
                leader = await self._client.leader(self._plan.topic, lane.partition)
            except (OSError, AnswerError) as failure:
                stuck[lane] = failure
                failed.append((each, failure))
                continue
            data = lane.build(batch, leader, ahead=ahead[lane])
            ahead[lane] += len(batch.sends)
            parts.setdefault(leader, []).append((each, data))
        return parts, failed

    def _share_out(self, parts: dict[int, list[_Part]]) -> list[tuple[int, list[_Part]]]:
        """Make one request or some of what each leader gets."""
        requests = []
        for leader, all_parts in parts.items():
            count = self._draw.randint(1, _REQUESTS)
            size = -(-len(all_parts) // count)
            requests += [
                (leader, all_parts[at : at + size]) for at in range(0, len(all_parts), size)
            ]
        return requests

    async def _send(self, leader: int, parts: list[_Part]) -> list[int | AnswerError]:
        lanes = {each.lane for each, _ in parts}
        self._oracle.counts["requests over several partitions"] += len(lanes) > 1
        self._oracle.counts["partitions with several batches in a request"] += len(parts) > len(
            lanes
        )
        return await self._client.produce_batches(
            self._plan.topic,
            [(each.lane.partition, data) for each, data in parts],
            acks=self._plan.acks,
            node=leader,
        )
