"""Questions to coordinators: put again where that helps, once where it could do harm.

Goal: a coordinator that loads or moves is waited for, with a bound, and nothing is done twice.
Method: a scripted cluster, whose refusals change as it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.clients.scripted import Scripted, ScriptedPeer

from holdfast.clients import group_coordinators
from holdfast.clients.blocking_driver import AnswerLostError
from holdfast.clients.group_coordinators import (
    FIRST_VERSION_OF_MANY,
    GROUPS_PER_REQUEST,
    Answers,
    Coordinator,
    Coordinators,
    refusal,
)
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import Coordinator as FoundCoordinator
from holdfast.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BOUND_S = 20.0
Asked = list[tuple[str, list[str]]]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_coordinators, "_PAUSE_S", 0)


def putting(
    asked: Asked, codes: Sequence[int], then: Callable[[], object] = lambda: None
) -> Callable[[Any, Sequence[str]], Answers[str]]:
    """A question that is refused with these codes one after the other, and then answered."""
    left = list(codes)

    def put(peer: ScriptedPeer, groups: Sequence[str]) -> Answers[str]:
        asked.append((peer.name, list(groups)))
        if left:
            code = left.pop(0)
            then()
            return {group: refusal("asking", group, code) for group in groups}
        return dict.fromkeys(groups, "answer")

    return put


def coordinators(cluster: Any, patience_s: float = BOUND_S) -> Coordinators:
    return Coordinators(cluster, patience_s=patience_s)


def test_who_answered_is_known() -> None:
    cluster, asked = Scripted(), Asked()
    cluster.coordinator = 2
    found = coordinators(cluster)
    assert found.ask(["g"], putting(asked, [])) == {"g": "answer"}
    assert asked == [("node 2", ["g"])]
    assert found.of("g") == Coordinator(2, "h", 9)
    found.ask(["g"], putting(asked, []))
    assert len(cluster.asked_for(FindCoordinatorRequest)) == 1


def test_one_that_loads_is_asked_again() -> None:
    cluster, asked = Scripted(), Asked()
    loads = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinators(cluster).ask(["g"], putting(asked, [loads, loads])) == {"g": "answer"}
    assert asked == [("node 0", ["g"])] * 3
    assert len(cluster.asked_for(FindCoordinatorRequest)) == 1


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_one_that_has_moved_is_looked_up_again(code: ErrorCode) -> None:
    cluster, asked = Scripted(), Asked()

    def move() -> None:
        cluster.coordinator = 1

    assert coordinators(cluster).ask(["g"], putting(asked, [code], move)) == {"g": "answer"}
    assert asked == [("node 0", ["g"]), ("node 1", ["g"])]


def test_patience_ends() -> None:
    """Goal: a bound. Method: none at all, and a coordinator that loads for ever."""
    asked = Asked()
    loads = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    answer = coordinators(Scripted(), 0).ask(["g"], putting(asked, [loads] * 5))["g"]
    assert isinstance(answer, AdminError)
    assert (answer.code, len(asked)) == (loads, 1)


def test_other_refusals_are_answers() -> None:
    asked = Asked()
    answer = coordinators(Scripted()).ask(["g"], putting(asked, [ErrorCode.NON_EMPTY_GROUP]))["g"]
    assert isinstance(answer, AdminError)
    assert (answer.code, answer.subject, len(asked)) == (68, "group g", 1)


def test_a_dead_coordinator_is_waited_out() -> None:
    cluster, asked = Scripted(), Asked()
    cluster.coordinator = 5  # not alive, until another one takes over
    pauses: list[int] = []

    def pause(_seconds: float) -> None:
        pauses.append(1)
        cluster.coordinator = 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.clients.group_coordinators.time.sleep", pause)
        assert coordinators(cluster).ask(["g"], putting(asked, [])) == {"g": "answer"}
    assert (asked, pauses) == ([("node 1", ["g"])], [1])


def test_a_lost_answer_is_not_asked_for_again() -> None:
    """Goal: what may have been done isn't done twice. Method: a connection that breaks."""
    calls = []

    def put(_peer: Any, groups: Sequence[str]) -> Answers[None]:
        calls.append(groups)
        raise AnswerLostError("the connection broke")

    with pytest.raises(AnswerLostError):
        coordinators(Scripted()).ask(["g"], put)
    assert len(calls) == 1


def test_a_group_that_gets_no_answer_is_refused() -> None:

    def put(_peer: Any, _groups: Sequence[str]) -> Answers[str]:
        return {}

    answer = coordinators(Scripted(), 0).ask(["g"], put)["g"]
    assert isinstance(answer, AdminError)
    assert answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_many_groups_go_in_pieces_and_only_the_refused_go_again() -> None:
    cluster, calls = Scripted(), []
    groups = [f"g{number}" for number in range(GROUPS_PER_REQUEST + 1)]

    def put(_peer: Any, some: Sequence[str]) -> Answers[str]:
        calls.append(list(some))
        if len(calls) == 1:
            moved = refusal("asking", some[3], ErrorCode.NOT_COORDINATOR)
            return dict.fromkeys(some, "answer") | {some[3]: moved}
        return dict.fromkeys(some, "answer")

    assert coordinators(cluster).ask(groups, put) == dict.fromkeys(groups, "answer")
    assert calls == [groups[:-1], groups[-1:], ["g3"]]


def test_brokers_that_find_one_at_a_time() -> None:
    cluster, asked = Scripted(), Asked()
    cluster.versions[FindCoordinatorRequest] = 3
    coordinators(cluster).ask(["a", "b"], putting(asked, []))
    assert [each.key for _, each in cluster.asked_for(FindCoordinatorRequest)] == ["a", "b"]
    assert asked == [("node 0", ["a", "b"])]


@pytest.mark.parametrize(
    ("named", "silent", "doubted"),
    [
        ({0: 0, 1: 0, 2: 0}, set(), False),
        ({0: 0, 1: 0, 2: 2}, set(), True),
        ({0: 0, 1: 0, 2: 0}, {1}, True),  # it may be taking over; the next look tells
        ({0: 0, 1: 2, 2: 0}, set(), False),  # who is none is named by one that has not heard
        ({0: 0, 1: None, 2: None}, set(), False),
        ({0: 2, 1: 0, 2: 0}, set(), False),
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_is_doubted_where_another_broker_is_one(
    named: dict[int, int | None], silent: set[int], doubted: bool, version: int
) -> None:
    """Goal: an answer from the memory of who stood still, and was replaced, is known as such."""
    cluster = Scripted()
    cluster.versions[FindCoordinatorRequest] = version
    first = [0]  # what the first question, who coordinates at all, is answered

    def find(node: int, _: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if node in silent:
            raise AnswerLostError("no answer")
        says = first.pop() if first else named[node]
        code = ErrorCode.NONE if says is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
        there = -1 if says is None else says
        if version < FIRST_VERSION_OF_MANY:
            return FindCoordinatorResponse(node_id=there, error_code=code)
        told = FoundCoordinator(key="g", node_id=there, error_code=code)
        return FindCoordinatorResponse(coordinators=[told])

    cluster.answers[FindCoordinatorRequest] = find
    asked = coordinators(cluster)
    assert asked.ask(["g"], putting([], [])) == {"g": "answer"}
    assert asked.of("g").node == 0
    assert asked.is_doubted("g") is doubted
    if doubted:
        with pytest.raises(KeyError):
            asked.of("g")


def test_who_is_gone_casts_no_doubt_and_brokers_are_asked_for_only_once() -> None:
    cluster, brokers = Scripted(), list[int]()

    def nodes() -> dict[int, tuple[str, int]]:
        brokers.append(1)
        return dict.fromkeys(range(3), ("h", 9))

    cluster.nodes = nodes  # type: ignore[method-assign]
    asked = coordinators(cluster)
    asked.ask(["g"], putting([], []))
    cluster.alive = {0}
    assert [asked.is_doubted("g") for _ in range(2)] == [False, False]
    assert brokers == [1]
