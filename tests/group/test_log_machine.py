"""Goal: a decision takes effect once, by its records or by their refusal, and its answers follow.

Method: a machine of one dictionary. Seen to fail: with effects before the replay, with a refusal
that replays, and without the note that a decision is done.
"""

from __future__ import annotations

import pytest

from holdfast.core.log_machine import Answer, Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.group_tables import GroupMetadataKey, GroupMetadataValue
from holdfast.wire.schema import Struct

KEY = GroupMetadataKey(group="g")
VALUE = GroupMetadataValue(generation=1)


class Machine:
    def __init__(self) -> None:
        self.state: dict[str, Struct] = {}
        self.seen: list[dict[str, Struct]] = []

    def replay(self, key: Struct, value: Struct | None) -> None:
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            del self.state[key.group]
        else:
            self.state[key.group] = value

    def look(self) -> None:
        self.seen.append(dict(self.state))


def test_records_come_true_before_what_follows_from_them() -> None:
    machine, decision = Machine(), Decision()
    decision.append(KEY, VALUE)
    decision.once_applied(machine.look)
    decision.once_applied(lambda: decision.answer(2, "later"))
    decision.once_refused(lambda _: machine.look())
    decision.answer(1, "done", lambda code: code)
    assert machine.state == {}
    assert decision.apply(machine.replay) == [Answer(1, "done"), Answer(2, "later")]
    assert machine.seen == [{"g": VALUE}]


def test_a_refused_decision_changes_nothing_and_says_so() -> None:
    machine, decision = Machine(), Decision()
    decision.append(KEY, VALUE)
    decision.once_applied(machine.look)
    decision.once_refused(lambda code: decision.answer(3, code.name))
    decision.answer(1, "done", lambda code: f"refused: {code.name}")
    decision.answer(2, "said in any case")
    assert decision.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) == [
        Answer(1, "refused: NOT_ENOUGH_REPLICAS"),
        Answer(2, "said in any case"),
        Answer(3, "NOT_ENOUGH_REPLICAS"),
    ]
    assert machine.state == {}
    assert machine.seen == []


def test_a_tombstone_removes() -> None:
    machine, decision = Machine(), Decision()
    machine.replay(KEY, VALUE)
    decision.append(KEY, None)
    decision.apply(machine.replay)
    assert machine.state == {}


def test_a_decision_without_records_gives_its_answers_and_cannot_be_refused() -> None:
    decision = Decision()
    decision.answer(1, "read")
    with pytest.raises(AssertionError, match="nothing was appended"):
        decision.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert decision.apply(Machine().replay) == [Answer(1, "read")]


def test_a_decision_is_done_once() -> None:
    decision = Decision()
    decision.append(KEY, VALUE)
    decision.apply(Machine().replay)
    with pytest.raises(AssertionError, match="once"):
        decision.apply(Machine().replay)
    with pytest.raises(AssertionError, match="once"):
        decision.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(AssertionError, match="no more records"):
        decision.append(KEY, VALUE)
    with pytest.raises(AssertionError, match="can't be refused"):
        decision.once_refused(lambda _: None)
