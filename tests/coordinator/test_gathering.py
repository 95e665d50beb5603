"""Answers of many parts, and many answers at once.

Goal: an answer made of parts is the one that its table would encode, whoever of the parts comes
first; the parts are asked for a few in a turn, as long as there is somebody to answer and room for
what they say; answers that are due together leave by turns, in their order, and one that fails
costs the others nothing. Method: parts that the test answers, real promises, virtual time.
Rules: connections.md#what-a-client-may-owe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from typing import Any

import pytest
from tests.log.log_kit import virtual

from holdfast.core.log_machine import Answer
from holdfast.node.coordinator import gathering
from holdfast.node.coordinator.calls import FEW, SLICE_S, Call, Calls
from holdfast.node.coordinator.gathering import AT_ONCE, Gathering
from holdfast.node.coordinator.pieces import Piece, Pieces
from holdfast.node.door.request_context import Deferred
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.wire.codec import encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeResponse,
)
from holdfast.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from holdfast.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from holdfast.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from holdfast.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from random_messages import make_struct


class Asked:
    """A part that is answered when the test says so, or at once."""

    def __init__(self, gathered: Gathered, number: int, *, at_once: bool = False) -> None:
        self._gathered = gathered
        self._number = number
        self._at_once = at_once
        self.answer: Callable[[Any], None] = _nobody

    def ask(self, answer: Callable[[Any], None]) -> int | None:
        self._gathered.asked.append(self._number)
        if self._at_once:
            answer(self._number)
            return None
        self.answer = answer
        return 1000 + self._number

    def refused(self, code: ErrorCode) -> Any:
        return code


def _nobody(_found: object) -> None:
    raise AssertionError("it was not asked for")


class Gathered:
    """A gathering, what it has asked for, and what came of it."""

    def __init__(self, count: int, *, at_once: bool = False) -> None:
        self.asked: list[int] = []
        self.forgotten: list[int] = []
        self.proceeded = 0
        self.found: list[Any] | None = None
        self.deferred = Deferred(self._encode, lambda _: None, is_before_effect=True)
        self.deferred.proceed = self._proceed
        self.parts = [Asked(self, number, at_once=at_once) for number in range(count)]
        Gathering(self.deferred, self.parts, lambda found: found, self.forgotten.append).begin()

    def _encode(self, found: object) -> list[bytes]:
        assert isinstance(found, list)
        self.found = found
        return []

    def _proceed(self) -> None:
        self.proceeded += 1


def play(story: Callable[[], Any]) -> None:
    async def main(_: Runtime) -> None:
        await story()

    virtual(main)


async def turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# -- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE])
@pytest.mark.parametrize("at_once", [True, False])
def test_all_parts_are_in_their_places(count: int, at_once: bool) -> None:
    async def story() -> None:
        gathered = Gathered(count, at_once=at_once)
        await turns(5)
        assert gathered.asked == list(range(count))
        if not at_once:
            for part in reversed(gathered.parts):
                assert gathered.found is None
                part.answer(part._number)
            assert not count or gathered.proceeded == 0, "what is behind it is looked at later"
        assert gathered.found == list(range(count))
        await turns(1)
        assert gathered.proceeded == 1
        assert gathered.forgotten == []

    play(story)


def test_many_parts_are_asked_for_by_turns() -> None:
    async def story() -> None:
        gathered = Gathered(3 * AT_ONCE)
        for turn in (1, 2, 3):
            assert len(gathered.asked) == turn * AT_ONCE
            await turns(1)

    play(story)


def test_which_parts_there_are_is_found_out_by_turns() -> None:
    """A client may name a hundred thousand groups: even to look where each lives takes long."""

    async def story() -> None:
        gathered = Gathered(0)
        made: list[int] = []

        def parts() -> Iterator[Asked]:
            for number in range(3 * AT_ONCE):
                made.append(number)
                yield Asked(gathered, number, at_once=True)

        deferred = Deferred(lambda _: [], lambda _: None)
        Gathering(deferred, parts(), lambda found: found, gathered.forgotten.append).begin()
        assert len(made) == AT_ONCE
        await turns(5)
        assert len(made) == 3 * AT_ONCE
        assert deferred.is_answered

    play(story)


def test_parts_that_take_long_are_asked_for_one_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        loop = VirtualLoop.running()
        ask = Asked.ask

        def slow(self: Asked, answer: Callable[[Any], None]) -> int | None:
            loop.now += gathering.SLICE_S
            return ask(self, answer)

        monkeypatch.setattr(Asked, "ask", slow)
        gathered = Gathered(5)
        for turn in range(1, 6):
            assert len(gathered.asked) == turn
            await turns(1)

    play(story)


def test_nobody_asks_for_a_client_that_has_gone() -> None:
    async def story() -> None:
        gathered = Gathered(3 * AT_ONCE)
        gathered.parts[0].answer("found")
        gathered.deferred.lost()
        await turns(5)
        assert len(gathered.asked) == AT_ONCE
        assert gathered.forgotten == [1000 + number for number in range(1, AT_ONCE)]
        assert gathered.found is None

    play(story)


def test_what_would_make_an_answer_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "ANSWER_BYTES_MAX", 100)

    async def story() -> None:
        gathered = Gathered(AT_ONCE + 2)
        for part in gathered.parts[:AT_ONCE]:
            part.answer(Piece(1, bytes(6)))
        await turns()
        assert len(gathered.asked) == AT_ONCE
        assert gathered.found is not None
        assert gathered.found[AT_ONCE:] == [ErrorCode.POLICY_VIOLATION] * 2

    play(story)


# -- pieces --------------------------------------------------------------------------------------

LISTS = [
    (ListGroupsResponse, "groups", ListedGroup, range(6)),
    (DescribeGroupsResponse, "groups", DescribedGroup, range(7)),
    (DeleteGroupsResponse, "results", DeletableGroupResult, range(3)),
    (ConsumerGroupDescribeResponse, "groups", ConsumerGroupDescribedGroup, range(2)),
    (OffsetFetchResponse, "groups", OffsetFetchResponseGroup, range(8, 11)),
]


@pytest.mark.parametrize(
    ("response", "name", "element", "version"),
    [(*one, version) for *one, versions in LISTS for version in versions],
)
def test_pieces_make_the_bytes_of_the_whole(
    response: Any, name: str, element: Any, version: int
) -> None:
    draw = Random(version)
    pieces = Pieces(lambda elements: response(**{name: elements}), version)
    for counts in ([], [0], [1], [1, 0, 2], [130], [100, 27, 1], [64, 63]):
        some = [[make_struct(draw, element, version) for _ in range(count)] for count in counts]
        whole = response(**{name: list(chain(*some))})
        assert pieces.join([pieces.piece(each) for each in some]) == encode(whole, version)


# -- many answers --------------------------------------------------------------------------------


class Sent:
    """Calls, and what was sent to each."""

    def __init__(self) -> None:
        self.calls = Calls(asyncio.get_running_loop())
        self.sent: list[int] = []
        self.cost_s = 0.0

    def begin(self, count: int) -> list[Answer]:
        return [Answer(self._begin(), None) for _ in range(count)]

    def _begin(self) -> int:
        number = self.calls.begin(
            Call(lambda _: self._send(number), lambda _: None, lambda _: True)
        )
        return number

    def _send(self, number: int) -> None:
        VirtualLoop.running().now += self.cost_s
        self.sent.append(number)


def test_a_few_answers_leave_at_once_and_many_by_turns() -> None:
    async def story() -> None:
        to = Sent()
        few = to.begin(FEW)
        to.calls.send(few)
        assert len(to.sent) == FEW
        to.cost_s = SLICE_S / 2
        many = to.begin(FEW + 1)
        to.calls.send(many)
        assert len(to.sent) == FEW, "none in this turn"
        later = to.begin(1)
        to.calls.send(later)
        await turns(1)
        assert len(to.sent) == FEW + 2
        await turns(10)
        assert to.sent == [call for call, _ in (*few, *many, *later)], "in their order"
        assert not len(to.calls)

    play(story)


def test_an_answer_that_fails_costs_the_others_nothing() -> None:
    async def story() -> None:
        to = Sent()

        def fail(_: object) -> None:
            raise AssertionError("ours")

        wrong = to.calls.begin(Call(fail, lambda _: None, lambda _: True))
        others = to.begin(3)
        with pytest.raises(AssertionError, match="ours"):
            to.calls.send([Answer(wrong, None), *others])
        await turns()
        assert to.sent == [call for call, _ in others]

    play(story)


def test_a_call_is_answered_refused_or_forgotten_once() -> None:
    async def story() -> None:
        to = Sent()
        refused: list[ErrorCode] = []
        number = to.calls.begin(Call(_nobody, refused.append, lambda _: True))
        to.calls.refuse(number, ErrorCode.NOT_COORDINATOR)
        to.calls.refuse(number, ErrorCode.NOT_COORDINATOR)
        to.calls.send([Answer(number, None)])
        assert refused == [ErrorCode.NOT_COORDINATOR]
        (gone,) = to.begin(1)
        to.calls.forget(gone.call)
        to.calls.send([gone])
        assert to.sent == []

    play(story)
