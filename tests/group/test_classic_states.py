"""Goal: every request gets its answer in every state of a classic group, and leads where it must.

Method: a table. A row is a request, a column the state in which the group is found; a cell is the
answer's code (or `parked`, or `-` without a request), and behind `>` the state that follows, if it
is another. `=` says that the answer has the generation that there is. Seen to fail: as each check
of `classic_requests` and `classic_joining` was taken out.

In the group are a, who leads, and b, who follows; both have sessions of 10 s. When it prepares a
rebalance, b has joined it.

Rules: classic-groups.md#states, classic-groups.md#joining, classic-groups.md#syncing,
classic-groups.md#heartbeats, classic-groups.md#leaving, committed-offsets.md#who-may-commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.group.shard_kit import Coordinator, subscription

from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import JoinGroupResponse

STATES: Final = {
    "D": "Dead",
    "E": "Empty",
    "P": "PreparingRebalance",
    "C": "CompletingRebalance",
    "S": "Stable",
}
CODES: Final = {
    "ILLEGAL": "ILLEGAL_GENERATION",
    "INCONSISTENT": "INCONSISTENT_GROUP_PROTOCOL",
    "NON_EMPTY": "NON_EMPTY_GROUP",
    "NOT_FOUND": "GROUP_ID_NOT_FOUND",
    "REBALANCE": "REBALANCE_IN_PROGRESS",
    "REQUIRED": "MEMBER_ID_REQUIRED",
    "SUBSCRIBED": "GROUP_SUBSCRIBED_TO_TOPIC",
    "UNKNOWN": "UNKNOWN_MEMBER_ID",
    "ok": "NONE",
}
TABLE: Final = """
request            | D               | E            | P            | C            | S
first join         | REQUIRED >E     | REQUIRED     | REQUIRED     | REQUIRED     | REQUIRED
first join, v3     | = >C            | = >C         | parked       | parked >P    | parked >P
first join, static | = >C            | = >C         | parked       | parked >P    | parked >P
join, unknown id   | UNKNOWN         | UNKNOWN      | UNKNOWN      | UNKNOWN      | UNKNOWN
join, other type   | UNKNOWN         | UNKNOWN      | INCONSISTENT | INCONSISTENT | INCONSISTENT
join, no protocol  | INCONSISTENT >E | INCONSISTENT | INCONSISTENT | INCONSISTENT | INCONSISTENT
leader as before   | UNKNOWN         | UNKNOWN      | = >C         | =            | parked >P
leader otherwise   | UNKNOWN         | UNKNOWN      | = >C         | parked >P    | parked >P
follower as before | UNKNOWN         | UNKNOWN      | parked       | =            | =
follower otherwise | UNKNOWN         | UNKNOWN      | parked       | parked >P    | parked >P
leader syncs       | UNKNOWN         | UNKNOWN      | REBALANCE    | ok >S        | ok
follower syncs     | UNKNOWN         | UNKNOWN      | REBALANCE    | parked       | ok
sync, old          | UNKNOWN         | UNKNOWN      | ILLEGAL      | ILLEGAL      | ILLEGAL
sync, unknown id   | UNKNOWN         | UNKNOWN      | UNKNOWN      | UNKNOWN      | UNKNOWN
sync, other name   | UNKNOWN         | UNKNOWN      | INCONSISTENT | INCONSISTENT | INCONSISTENT
sync, other type   | UNKNOWN         | UNKNOWN      | INCONSISTENT | INCONSISTENT | INCONSISTENT
beat               | UNKNOWN         | UNKNOWN      | REBALANCE    | ok           | ok
beat, old          | UNKNOWN         | UNKNOWN      | ILLEGAL      | ILLEGAL      | ILLEGAL
beat, unknown id   | UNKNOWN         | UNKNOWN      | UNKNOWN      | UNKNOWN      | UNKNOWN
beat, instance     | UNKNOWN         | UNKNOWN      | UNKNOWN      | UNKNOWN      | UNKNOWN
commit             | NOT_FOUND       | UNKNOWN      | ok           | REBALANCE    | ok
commit, v8         | ILLEGAL         | UNKNOWN      | ok           | REBALANCE    | ok
commit, old        | NOT_FOUND       | UNKNOWN      | ILLEGAL      | ILLEGAL      | ILLEGAL
commit, nobody's   | ok >E           | ok           | UNKNOWN      | UNKNOWN      | UNKNOWN
commit, id alone   | ok >E           | ok           | ILLEGAL      | ILLEGAL      | ILLEGAL
leader leaves      | UNKNOWN         | UNKNOWN      | ok >C        | ok >P        | ok >P
follower leaves    | UNKNOWN         | UNKNOWN      | ok           | ok >P        | ok >P
leave, unknown id  | UNKNOWN         | UNKNOWN      | UNKNOWN      | UNKNOWN      | UNKNOWN
leave, instance    | UNKNOWN         | UNKNOWN      | UNKNOWN      | UNKNOWN      | UNKNOWN
sessions end       | -               | -            | - >C         | - >E         | - >E
fetch              | ok              | ok           | ok           | ok           | ok
delete offset      | NOT_FOUND       | ok           | ok           | ok           | ok
delete, subscribed | NOT_FOUND       | ok           | SUBSCRIBED   | SUBSCRIBED   | SUBSCRIBED
delete             | NOT_FOUND       | ok >D        | NON_EMPTY    | NON_EMPTY    | NON_EMPTY
describe           | NOT_FOUND       | ok           | ok           | ok           | ok
describe, v5       | ok              | ok           | ok           | ok           | ok
"""
OTHERWISE: Final = {"range": subscription("t", "u")}


class Scene:
    """A group in one state, and its members."""

    def __init__(self, state: str) -> None:
        self.coordinator = coordinator = Coordinator()
        self.a, self.b = "a-1", "b-2"
        self.generation = 2
        if state == "Dead":
            return
        assert coordinator.stable("g", "a", "b") == [self.a, self.b]
        if state == "Empty":
            coordinator.leave("g", (self.a, None), (self.b, None))
        elif state == "PreparingRebalance":
            coordinator.join("g", self.b, protocols=OTHERWISE)
        elif state == "CompletingRebalance":
            coordinator.join("g", self.a)
            coordinator.join("g", self.b)
            self.generation = 3
        assert coordinator.state("g") == state

    def join(self, member_id: str = "", **more: Any) -> str:
        call = self.coordinator.join("g", member_id, client="n", **more)
        response = self.coordinator.answers.get(call)
        if isinstance(response, JoinGroupResponse) and not response.error_code:
            assert response.generation_id == self.coordinator.generation("g")
            return "="
        return code_of(response)

    def sync(self, member_id: str, generation: int = 0, **more: Any) -> str:
        generation = self.generation + generation
        assigned = {self.a: b"0", self.b: b"1"}
        call = self.coordinator.sync("g", member_id, generation, assigned, **more)
        return code_of(self.coordinator.answers.get(call))

    def beat(self, member_id: str, generation: int = 0, instance: str | None = None) -> str:
        return self.coordinator.beat("g", member_id, self.generation + generation, instance).name

    def commit(self, member_id: str, generation: int, version: int = 9) -> str:
        results = self.coordinator.commit(
            "g", {("t", 0): 1}, member_id=member_id, generation=generation, version=version
        )
        return results[("t", 0)].name

    def leave(self, member_id: str, instance: str | None = None) -> str:
        response = self.coordinator.leave("g", (member_id, instance))
        return ErrorCode(response.error_code or response.members[0].error_code).name

    def delete_offset(self, topic: str) -> str:
        response = self.coordinator.delete_offsets("g", (topic, 0))
        return ErrorCode(response.error_code or response.topics[0].partitions[0].error_code).name

    def end_sessions(self) -> str:
        self.coordinator.pass_time(10_000)
        return "-"


def code_of(response: Any) -> str:
    return "parked" if response is None else ErrorCode(response.error_code).name


REQUESTS: Final[dict[str, Callable[[Scene], str]]] = {
    "first join": lambda scene: scene.join(),
    "first join, v3": lambda scene: scene.join(version=3),
    "first join, static": lambda scene: scene.join(instance="i"),
    "join, unknown id": lambda scene: scene.join("nobody"),
    "join, other type": lambda scene: scene.join(scene.a, protocol_type="connect"),
    "join, no protocol": lambda scene: scene.join(protocols={}),
    "leader as before": lambda scene: scene.join(scene.a),
    "leader otherwise": lambda scene: scene.join(scene.a, protocols=OTHERWISE),
    "follower as before": lambda scene: scene.join(scene.b),
    "follower otherwise": lambda scene: scene.join(scene.b, protocols=OTHERWISE),
    "leader syncs": lambda scene: scene.sync(scene.a),
    "follower syncs": lambda scene: scene.sync(scene.b),
    "sync, old": lambda scene: scene.sync(scene.b, -1),
    "sync, unknown id": lambda scene: scene.sync("nobody"),
    "sync, other name": lambda scene: scene.sync(scene.b, protocol_name="rr"),
    "sync, other type": lambda scene: scene.sync(scene.b, protocol_type="connect"),
    "beat": lambda scene: scene.beat(scene.b),
    "beat, old": lambda scene: scene.beat(scene.b, -1),
    "beat, unknown id": lambda scene: scene.beat("nobody"),
    "beat, instance": lambda scene: scene.beat(scene.b, 0, "i"),
    "commit": lambda scene: scene.commit(scene.b, scene.generation),
    "commit, v8": lambda scene: scene.commit(scene.b, scene.generation, version=8),
    "commit, old": lambda scene: scene.commit(scene.b, scene.generation - 1),
    "commit, nobody's": lambda scene: scene.commit("", -1),
    "commit, id alone": lambda scene: scene.commit(scene.b, -1),
    "leader leaves": lambda scene: scene.leave(scene.a),
    "follower leaves": lambda scene: scene.leave(scene.b),
    "leave, unknown id": lambda scene: scene.leave("nobody"),
    "leave, instance": lambda scene: scene.leave("", "i"),
    "sessions end": lambda scene: scene.end_sessions(),
    "fetch": lambda scene: code_of(scene.coordinator.fetch("g")),
    "delete offset": lambda scene: scene.delete_offset("v"),
    "delete, subscribed": lambda scene: scene.delete_offset("t"),
    "delete": lambda scene: scene.coordinator.delete_group("g").name,
    "describe": lambda scene: code_of(scene.coordinator.describe("g")),
    "describe, v5": lambda scene: code_of(scene.coordinator.describe("g", version=5)),
}


def cells() -> list[tuple[str, str, str]]:
    head, *rows = (
        [cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()
    )
    assert head[1:] == list(STATES)
    assert [row[0] for row in rows] == list(REQUESTS), "a row for each request"
    return [
        (row[0], state, cell)
        for row in rows
        for state, cell in zip(STATES.values(), row[1:], strict=True)
    ]


@pytest.mark.parametrize(("request_name", "state", "expected"), cells())
def test_every_request_in_every_state(request_name: str, state: str, expected: str) -> None:
    scene = Scene(state)
    answered = REQUESTS[request_name](scene)
    after = scene.coordinator.state("g")
    code, _, follows = expected.partition(" >")
    assert answered == CODES.get(code, code)
    assert after == (STATES[follows] if follows else state)
