"""Offsets by their leaders, and where a group's would be set to.

Goal: what moves is asked for again, within a bound; what isn't there is said partition by
partition; and a reset ends where Kafka's tool would end it. Method: a scripted cluster.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.scripted import Scripted

from holdfast.clients import log_offsets
from holdfast.clients.blocking_driver import AnswerLostError
from holdfast.clients.group_descriptions import Committed
from holdfast.clients.log_offsets import LogOffset, log_ends, offsets_at
from holdfast.clients.offset_resets import Aim, Plan, Reset, ResetError, plan, plan_of, within
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.well_known import EARLIEST, LATEST, MAX_TIMESTAMP

STARTS = {0: 10, 1: 0}
ENDS = {0: 100, 1: 50}
AT = {0: 42, 1: -1}  # at any time: the second partition has no record of then or later
KEYS = [("t", 0), ("t", 1)]
COMMITTED = {("t", 0): Committed(95)}


class Leaders:
    """Answers ListOffsets, and refuses first with what `codes` has for a partition."""

    def __init__(self, cluster: Scripted) -> None:
        self.codes: dict[int, list[int]] = {}
        self.lost = 0
        cluster.leaders = {("t", 0): 1, ("t", 1): 2}
        cluster.answers[ListOffsetsRequest] = self.answer

    def answer(self, _node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        if self.lost:
            self.lost -= 1
            raise AnswerLostError("the connection broke")
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[self._one(each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _one(self, asked: Any) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        if self.codes.get(index):
            code = self.codes[index].pop(0)
            return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
        table = {EARLIEST: STARTS, LATEST: ENDS}.get(asked.timestamp, AT)
        return ListOffsetsPartitionResponse(
            partition_index=index, offset=table[index], timestamp=5, leader_epoch=3
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(log_offsets, "_PAUSE_S", 0)
    return Scripted()


@pytest.fixture
def leaders(cluster: Scripted) -> Leaders:
    return Leaders(cluster)


@pytest.mark.usefixtures("leaders")
def test_each_leader_is_asked_once(cluster: Any) -> None:
    assert log_ends(cluster, KEYS) == {
        ("t", 0): LogOffset(100, 5, 3),
        ("t", 1): LogOffset(50, 5, 3),
    }
    assert [node for node, _ in cluster.asked_for(ListOffsetsRequest)] == [1, 2]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_what_passes_is_asked_again(cluster: Any, leaders: Leaders, code: ErrorCode) -> None:
    leaders.codes[1] = [code, code]
    assert log_ends(cluster, KEYS)["t", 1] == LogOffset(50, 5, 3)
    assert [node for node, _ in cluster.asked_for(ListOffsetsRequest)] == [1, 2, 2, 2]


def test_patience_ends(cluster: Any, leaders: Leaders) -> None:
    leaders.codes[1] = [ErrorCode.OFFSET_NOT_AVAILABLE] * 5
    found = log_ends(cluster, KEYS, patience_s=0)
    assert found["t", 0] == LogOffset(100, 5, 3)
    assert code_of(found["t", 1]) == ErrorCode.OFFSET_NOT_AVAILABLE


def code_of(answer: object) -> int:
    assert isinstance(answer, AdminError)
    return answer.code


def test_a_lost_answer_of_a_read_is_asked_for_again(cluster: Any, leaders: Leaders) -> None:
    leaders.lost = 1
    assert log_ends(cluster, [("t", 0)])["t", 0] == LogOffset(100, 5, 3)


@pytest.mark.usefixtures("leaders")
def test_what_is_not_there(cluster: Any) -> None:
    """A topic, a partition, a leader, and a broker that is gone."""
    cluster.leaders |= {("t", 2): -1, ("t", 3): 9}
    keys = [("nope", 0), ("t", 7), ("t", 2), ("t", 3), ("t", 0)]
    found = log_ends(cluster, keys, patience_s=0)
    assert [code_of(found[key]) for key in keys[:-1]] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    ]
    assert found["t", 0] == LogOffset(100, 5, 3)


@pytest.mark.usefixtures("leaders")
def test_an_old_broker_is_not_asked_what_it_does_not_know(cluster: Any) -> None:
    cluster.versions[ListOffsetsRequest] = 6
    found = offsets_at(cluster, {("t", 0): MAX_TIMESTAMP})
    assert code_of(found["t", 0]) == ErrorCode.UNSUPPORTED_VERSION
    assert cluster.asked_for(ListOffsetsRequest) == []


# Resets.

ABOVE = (
    "New offset (101) is higher than latest offset for topic partition t-0. "
    "Value will be set to 100"
)
BELOW = (
    "New offset (9) is lower than earliest offset for topic partition t-0. Value will be set to 10"
)


@pytest.mark.parametrize(
    ("wanted", "set_to", "notes"),
    [(10, 10, []), (100, 100, []), (55, 55, []), (101, 100, [ABOVE]), (9, 10, [BELOW])],
)
def test_offsets_stay_within_the_log(wanted: int, set_to: int, notes: list[str]) -> None:
    assert within({("t", 0): wanted}, {("t", 0): 10}, {("t", 0): 100}) == Plan(
        {("t", 0): set_to}, notes
    )


@pytest.mark.usefixtures("leaders")
@pytest.mark.parametrize(
    ("reset", "offsets", "noted"),
    [
        (Reset(Aim.EARLIEST), [10, 0], 0),
        (Reset(Aim.LATEST), [100, 50], 0),
        (Reset(Aim.OFFSET, 60), [60, 50], 1),
        (Reset(Aim.OFFSET, -1), [10, 0], 2),
        (Reset(Aim.TIMESTAMP, 1234), [42, 50], 1),
        (Reset(Aim.CURRENT), [95, 50], 0),
    ],
)
def test_where_offsets_are_set_to(
    cluster: Any, reset: Reset, offsets: list[int], noted: int
) -> None:
    found = plan(cluster, reset, KEYS[::-1], COMMITTED)
    assert list(found.offsets.items()) == list(zip(KEYS, offsets, strict=True))
    assert len(found.notes) == noted


@pytest.mark.usefixtures("leaders")
@pytest.mark.parametrize(("by", "to"), [(3, 98), (10, 100), (-90, 10), (-5, 90), (0, 95)])
def test_a_shift(cluster: Any, by: int, to: int) -> None:
    found = plan(cluster, Reset(Aim.SHIFT, by), KEYS[:1], COMMITTED)
    assert found.offsets == {("t", 0): to}


@pytest.mark.usefixtures("leaders")
def test_what_can_not_be_planned(cluster: Any) -> None:
    with pytest.raises(ResetError, match="nothing is committed of t-1"):
        plan(cluster, Reset(Aim.SHIFT, 1), KEYS, COMMITTED)
    with pytest.raises(ResetError, match="no partition t-7, u-0"):
        plan(cluster, Reset(Aim.LATEST), [("u", 0), ("t", 7), ("t", 0)], {})
    cluster.leaders["t", 1] = -1
    with pytest.raises(AdminError):
        plan(cluster, Reset(Aim.LATEST), KEYS, {}, patience_s=0)


@pytest.mark.usefixtures("leaders")
def test_a_plan_of_a_file(cluster: Any) -> None:
    found = plan_of(cluster, {("t", 1): 51, ("t", 0): 20})
    assert list(found.offsets.items()) == [(("t", 0), 20), (("t", 1), 50)]
    assert len(found.notes) == 1
