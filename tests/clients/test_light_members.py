"""Goal: a light member asks, waits, joins again and gives up as its protocol says.

Method: tables of what it is answered where it stands, and where that leads; the requests themselves
where a field means something; how a leader shares out; commits and what is read of their answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.clients.group_member.light_assignors import ASSIGNORS
from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_cooperative import CooperativeMember
from holdfast.clients.group_member.light_member import LightMember, Phase, Plan, Topic
from holdfast.clients.group_member.light_offsets import (
    commit_of,
    fetch_of,
    offsets_of,
    refusals_of,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from holdfast.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from holdfast.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

TOPIC_ID = b"t" * 16
PLAN = Plan(group_id="g", topics=(Topic("t", TOPIC_ID, 4),))
STATIC = Plan(group_id="g", topics=PLAN.topics, instance_id="i")
NOW = 1_000
SOON = PLAN.retry_ms
E = ErrorCode


def found(code: int = 0) -> FindCoordinatorResponse:
    one = Coordinator(key="g", node_id=1, host="h", port=9, error_code=code)
    return FindCoordinatorResponse(coordinators=[one])


def ask(member: LightMember, expected: type) -> Any:
    """What it asks next, when that is due."""
    request = member.poll(member.due_ms)
    assert isinstance(request, expected), request
    assert member.poll(member.due_ms) is None, "it asks twice at once"
    return request


def exchange(member: LightMember, expected: type, answer: Any, now_ms: int = NOW) -> Any:
    request = ask(member, expected)
    member.answered(answer, now_ms)
    return request


def joined(**fields: Any) -> JoinGroupResponse:
    values: dict[str, Any] = {
        "generation_id": 3,
        "protocol_name": "range",
        "leader": "other",
        "member_id": "m",
    }
    return JoinGroupResponse(**(values | fields))


def classic(phase: Phase, plan: Plan = PLAN) -> ClassicMember:
    """A member that has come so far, and asks next what belongs to that."""
    member = ClassicMember(plan)
    exchange(member, FindCoordinatorRequest, found())
    required = JoinGroupResponse(error_code=E.MEMBER_ID_REQUIRED, member_id="m")
    exchange(member, JoinGroupRequest, required)
    if phase in {Phase.SYNCING, Phase.STABLE}:
        exchange(member, JoinGroupRequest, joined())
    if phase is Phase.STABLE:
        exchange(member, SyncGroupRequest, SyncGroupResponse())
    assert member.phase is phase
    return member


ASKED: dict[Phase, tuple[type, type]] = {
    Phase.JOINING: (JoinGroupRequest, JoinGroupResponse),
    Phase.SYNCING: (SyncGroupRequest, SyncGroupResponse),
    Phase.STABLE: (HeartbeatRequest, HeartbeatResponse),
}


@pytest.mark.parametrize(
    ("phase", "code", "after", "named", "placed", "wait_ms"),
    [
        (Phase.JOINING, E.UNKNOWN_MEMBER_ID, Phase.JOINING, False, True, SOON),
        (Phase.JOINING, E.REBALANCE_IN_PROGRESS, Phase.JOINING, True, True, SOON),
        (Phase.JOINING, E.NOT_COORDINATOR, Phase.JOINING, True, False, SOON),
        (Phase.JOINING, E.COORDINATOR_LOAD_IN_PROGRESS, Phase.JOINING, True, True, SOON),
        (Phase.JOINING, E.GROUP_MAX_SIZE_REACHED, Phase.FAILED, True, True, None),
        (Phase.JOINING, E.INCONSISTENT_GROUP_PROTOCOL, Phase.FAILED, True, True, None),
        (Phase.SYNCING, E.REBALANCE_IN_PROGRESS, Phase.JOINING, True, True, 0),
        (Phase.SYNCING, E.ILLEGAL_GENERATION, Phase.JOINING, True, True, SOON),
        (Phase.SYNCING, E.UNKNOWN_MEMBER_ID, Phase.JOINING, False, True, SOON),
        (Phase.SYNCING, E.NOT_COORDINATOR, Phase.JOINING, True, False, SOON),
        (Phase.STABLE, E.NONE, Phase.STABLE, True, True, PLAN.heartbeat_ms),
        (Phase.STABLE, E.REBALANCE_IN_PROGRESS, Phase.JOINING, True, True, 0),
        (Phase.STABLE, E.ILLEGAL_GENERATION, Phase.JOINING, True, True, SOON),
        (Phase.STABLE, E.UNKNOWN_MEMBER_ID, Phase.JOINING, False, True, SOON),
        (Phase.STABLE, E.COORDINATOR_NOT_AVAILABLE, Phase.STABLE, True, False, SOON),
        (Phase.STABLE, E.FENCED_INSTANCE_ID, Phase.FAILED, True, True, None),
        (Phase.STABLE, 32_000, Phase.FAILED, True, True, None),
    ],
)
def test_what_a_classic_member_does_with_a_code(
    phase: Phase, code: int, after: Phase, named: bool, placed: bool, wait_ms: int | None
) -> None:
    member = classic(phase)
    request, response = ASKED[phase]
    exchange(member, request, response(error_code=code), now_ms=NOW)
    assert member.phase is after
    assert (member.member_id == "m") is named
    assert (member.place is not None) is placed
    if after is Phase.FAILED:
        assert member.over
        assert member.failure
        assert member.poll(NOW * 1000) is None
    else:
        assert member.due_ms == NOW + (wait_ms or 0)
        assert member.poll(member.due_ms - 1) is None


def test_a_leader_shares_out_and_others_do_not() -> None:
    member = classic(Phase.JOINING)
    subscription = ask(member, JoinGroupRequest).protocols[0].metadata
    members = [JoinGroupResponseMember(member_id=name, metadata=subscription) for name in "nm"]
    member.answered(joined(leader="m", members=members), NOW)
    shared = ask(member, SyncGroupRequest)
    assert (shared.generation_id, shared.protocol_name) == (3, "range")
    given = {each.member_id: decode_assignment(each.assignment) for each in shared.assignments}
    assert [topic.partitions for topic in given["m"].assigned_partitions] == [[0, 1]]
    assert [topic.partitions for topic in given["n"].assigned_partitions] == [[2, 3]]
    mine = next(each.assignment for each in shared.assignments if each.member_id == "m")
    member.answered(SyncGroupResponse(assignment=mine), NOW)
    assert member.assignment == {("t", 0), ("t", 1)}
    assert ask(member, HeartbeatRequest).generation_id == 3
    member.answered(HeartbeatResponse(error_code=E.REBALANCE_IN_PROGRESS), NOW)
    assert not member.assignment, "it gives all up before it joins again"

    assert not ask(classic(Phase.SYNCING), SyncGroupRequest).assignments


def test_a_leader_that_is_to_skip_it_shares_nothing_out() -> None:
    member = classic(Phase.JOINING)
    subscription = ask(member, JoinGroupRequest).protocols[0].metadata
    members = [JoinGroupResponseMember(member_id="m", metadata=subscription)]
    member.answered(joined(leader="m", members=members, skip_assignment=True), NOW)
    assert not ask(member, SyncGroupRequest).assignments


def test_a_leader_shares_out_anew_when_there_are_other_partitions() -> None:
    """Goal: what came since is somebody's. Method: a leader, and one who is none, learn of it."""
    grown = (Topic("t", TOPIC_ID, 6),)
    member = classic(Phase.JOINING)
    subscription = ask(member, JoinGroupRequest).protocols[0].metadata
    members = [JoinGroupResponseMember(member_id="m", metadata=subscription)]
    member.answered(joined(leader="m", members=members), NOW)
    exchange(member, SyncGroupRequest, SyncGroupResponse())
    member.learn(PLAN.topics)
    exchange(member, HeartbeatRequest, HeartbeatResponse())
    member.learn(grown)
    exchange(member, HeartbeatRequest, HeartbeatResponse())
    assert (member.phase, member.due_ms) == (Phase.JOINING, NOW)
    exchange(member, JoinGroupRequest, joined(leader="m", members=members))
    (mine,) = exchange(member, SyncGroupRequest, SyncGroupResponse()).assignments
    assert decode_assignment(mine.assignment).assigned_partitions[0].partitions == [*range(6)]
    exchange(member, HeartbeatRequest, HeartbeatResponse())
    assert member.phase is Phase.STABLE, "once is enough"

    follower = classic(Phase.STABLE)
    follower.learn(grown)
    exchange(follower, HeartbeatRequest, HeartbeatResponse())
    assert follower.phase is Phase.STABLE


def cooperative(*owned: int, generation: int = 3) -> CooperativeMember:
    """One that is stable and owns these."""
    member = CooperativeMember(PLAN)
    exchange(member, FindCoordinatorRequest, found())
    exchange(member, JoinGroupRequest, joined(generation_id=generation))
    exchange(member, SyncGroupRequest, SyncGroupResponse(assignment=assigned(*owned)))
    assert member.phase is Phase.STABLE
    return member


def assigned(*indexes: int) -> bytes:
    topics = [ConsumerTopicPartitions(topic="t", partitions=list(indexes))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics))


def test_a_cooperative_member_keeps_what_it_has_until_it_is_told_to_give_it_up() -> None:
    member = cooperative(0, 1, 2, 3)
    rebalance = HeartbeatResponse(error_code=E.REBALANCE_IN_PROGRESS)
    exchange(member, HeartbeatRequest, rebalance)
    asked = exchange(member, JoinGroupRequest, joined(generation_id=4))
    told = decode_subscription(asked.protocols[0].metadata)
    assert [topic.partitions for topic in told.owned_partitions] == [[0, 1, 2, 3]]
    assert (asked.protocols[0].name, told.generation_id) == ("cooperative-sticky", 3)
    assert len(member.assignment) == 4
    exchange(member, SyncGroupRequest, SyncGroupResponse(assignment=assigned(0, 1)), NOW)
    assert member.assignment == {("t", 0), ("t", 1)}
    assert (member.phase, member.due_ms) == (Phase.JOINING, NOW), "others wait for the rest"
    exchange(member, JoinGroupRequest, joined(generation_id=5))
    exchange(member, SyncGroupRequest, SyncGroupResponse(assignment=assigned(0, 1)))
    assert member.phase is Phase.STABLE


@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION])
def test_a_cooperative_member_that_is_none_any_more_has_nothing(code: int) -> None:
    member = cooperative(0, 1)
    exchange(member, HeartbeatRequest, HeartbeatResponse(error_code=code))
    assert (member.assignment, member.epoch) == (frozenset(), -1)


def test_a_cooperative_leader_gives_nobody_what_another_has() -> None:
    """Goal: one owner at a time. Method: two claim all, one of them in an older generation."""
    old, new = cooperative(0, 1, 2, 3, generation=2), cooperative(0, 1, 2, generation=3)
    said = {}
    for name, each in (("a", old), ("b", new)):
        rebalance = HeartbeatResponse(error_code=E.REBALANCE_IN_PROGRESS)
        exchange(each, HeartbeatRequest, rebalance)
        said[name] = ask(each, JoinGroupRequest).protocols[0].metadata
    members = [
        JoinGroupResponseMember(member_id=name, metadata=each) for name, each in said.items()
    ]
    new.answered(joined(leader="m", members=members), NOW)
    shared = ask(new, SyncGroupRequest)
    given = {
        each.member_id: [
            topic.partitions for topic in decode_assignment(each.assignment).assigned_partitions
        ]
        for each in shared.assignments
    }
    assert given == {"a": [[]], "b": [[2]]}, "3 is a's, and b's to be; 0 and 1 are b's still"


@pytest.mark.parametrize("damaged", [b"\0", b"\0\1\0\0\0\1"])
def test_what_is_damaged_ends_the_member_and_says_so(damaged: bytes) -> None:
    member = classic(Phase.SYNCING)
    exchange(member, SyncGroupRequest, SyncGroupResponse(assignment=damaged))
    assert member.phase is Phase.FAILED
    assert "damaged" in str(member.failure)


@pytest.mark.parametrize(
    ("phase", "after"),
    [
        (Phase.JOINING, Phase.JOINING),
        (Phase.SYNCING, Phase.JOINING),
        (Phase.STABLE, Phase.STABLE),
    ],
)
def test_after_a_lost_answer_it_looks_for_its_coordinator(phase: Phase, after: Phase) -> None:
    member = classic(phase)
    ask(member, ASKED[phase][0])
    member.lost(NOW)
    assert (member.phase, member.place, member.due_ms) == (after, None, NOW + SOON)
    exchange(member, FindCoordinatorRequest, found(E.COORDINATOR_NOT_AVAILABLE))
    exchange(member, FindCoordinatorRequest, FindCoordinatorResponse())
    exchange(member, FindCoordinatorRequest, found(), NOW)
    assert (member.place, member.due_ms) == (("h", 9), NOW)
    assert ask(member, ASKED[after][0]).member_id == "m"


def test_an_answer_may_take_as_long_as_it_is_parked() -> None:
    for phase, parked_ms in (
        (Phase.JOINING, PLAN.rebalance_timeout_ms),
        (Phase.SYNCING, PLAN.rebalance_timeout_ms),
        (Phase.STABLE, 0),
    ):
        member = classic(phase)
        due_ms = member.due_ms
        ask(member, ASKED[phase][0])
        assert member.due_ms == due_ms + PLAN.answer_ms + parked_ms


@pytest.mark.parametrize("phase", ASKED)
def test_a_classic_member_leaves_once_no_request_is_on_its_way(phase: Phase) -> None:
    member = classic(phase)
    request, response = ASKED[phase]
    ask(member, request)
    member.leave(NOW)
    member.answered(response(error_code=E.REBALANCE_IN_PROGRESS), NOW)
    said = exchange(member, LeaveGroupRequest, LeaveGroupResponse(error_code=E.UNKNOWN_MEMBER_ID))
    assert [each.member_id for each in said.members] == ["m"]
    assert member.phase is Phase.LEFT


def test_who_need_not_say_that_it_leaves() -> None:
    """Who never joined, and who has an instance's id: it is expected back."""
    for member in (ClassicMember(PLAN), ConsumerMember(PLAN, "c"), classic(Phase.STABLE, STATIC)):
        member.leave(NOW)
        assert member.phase is Phase.LEFT
        assert member.poll(member.due_ms) is None


def test_a_farewell_that_is_lost_is_not_repeated_and_any_other_request_is_no_farewell() -> None:
    member = classic(Phase.STABLE)
    ask(member, HeartbeatRequest)
    member.leave(NOW)
    member.lost(NOW)
    exchange(member, FindCoordinatorRequest, found())
    ask(member, LeaveGroupRequest)
    member.lost(NOW)
    assert member.phase is Phase.LEFT


# -- KIP-848 -----------------------------------------------------------------------------------


def beat(epoch: int, *partitions: int, nothing_new: bool = False) -> Any:
    held = ConsumerGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))
    assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=[held] if partitions else [])
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=None if nothing_new else assignment,
    )


def consumer(*partitions: int, plan: Plan = PLAN) -> ConsumerMember:
    """A member in epoch 1 that owns these, and has said so."""
    member = ConsumerMember(plan, "c", "uniform")
    exchange(member, FindCoordinatorRequest, found())
    exchange(member, ConsumerGroupHeartbeatRequest, beat(1, *partitions))
    if partitions:
        exchange(member, ConsumerGroupHeartbeatRequest, beat(1, nothing_new=True))
    assert member.phase is Phase.STABLE
    return member


def held(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [index for topic in request.topic_partitions for index in topic.partitions]


def test_a_consumer_confirms_at_once_and_then_says_only_that_it_lives() -> None:
    member = ConsumerMember(PLAN, "c", "uniform")
    exchange(member, FindCoordinatorRequest, found())
    first = exchange(member, ConsumerGroupHeartbeatRequest, beat(1, 0, 1, 2), NOW)
    assert (first.member_epoch, first.subscribed_topic_names, held(first)) == (0, ["t"], [])
    assert (first.server_assignor, first.rebalance_timeout_ms) == ("uniform", 300_000)
    assert (member.phase, member.due_ms, len(member.assignment)) == (Phase.RECONCILING, NOW, 3)

    second = exchange(member, ConsumerGroupHeartbeatRequest, beat(1, nothing_new=True), NOW)
    assert (second.member_epoch, held(second)) == (1, [0, 1, 2])
    assert second.subscribed_topic_names is None
    assert (second.server_assignor, second.rebalance_timeout_ms) == (None, -1)
    assert (member.phase, member.due_ms) == (Phase.STABLE, NOW + 5_000)

    # It is to give 2 up, and is in the new epoch once the coordinator knows.
    third = exchange(member, ConsumerGroupHeartbeatRequest, beat(1, 0, 1), NOW)
    assert held(third) is None
    assert member.phase is Phase.RECONCILING
    assert member.assignment == {("t", 0), ("t", 1)}
    fourth = exchange(member, ConsumerGroupHeartbeatRequest, beat(2, nothing_new=True), NOW + 1)
    assert held(fourth) == [0, 1]
    assert (member.phase, member.epoch, member.changed_ms) == (Phase.STABLE, 2, NOW + 1)


def test_a_consumer_knows_a_topic_that_was_made_anew_by_its_name() -> None:
    member = ConsumerMember(PLAN, "c")
    exchange(member, FindCoordinatorRequest, found())
    member.learn((Topic("t", b"u" * 16, 4),))
    exchange(member, ConsumerGroupHeartbeatRequest, beat(1, 0))
    assert member.assignment == {(TOPIC_ID.hex(), 0)}
    member.learn(PLAN.topics)
    exchange(member, ConsumerGroupHeartbeatRequest, beat(1, 1))
    assert member.assignment == {("t", 1)}


def test_all_is_said_again_after_an_answer_was_lost() -> None:
    member = consumer(0, 1)
    ask(member, ConsumerGroupHeartbeatRequest)
    member.lost(NOW)
    exchange(member, FindCoordinatorRequest, found())
    again = ask(member, ConsumerGroupHeartbeatRequest)
    assert (again.member_epoch, held(again)) == (1, [0, 1])
    assert again.subscribed_topic_names == ["t"]


@pytest.mark.parametrize(
    ("code", "after", "epoch", "owns", "placed"),
    [
        (E.FENCED_MEMBER_EPOCH, Phase.JOINING, 0, False, True),
        (E.UNKNOWN_MEMBER_ID, Phase.JOINING, 0, False, True),
        (E.NOT_COORDINATOR, Phase.STABLE, 1, True, False),
        (E.COORDINATOR_NOT_AVAILABLE, Phase.STABLE, 1, True, False),
        (E.COORDINATOR_LOAD_IN_PROGRESS, Phase.STABLE, 1, True, True),
        (E.UNRELEASED_INSTANCE_ID, Phase.FAILED, 1, False, True),
        (E.GROUP_MAX_SIZE_REACHED, Phase.FAILED, 1, False, True),
        (E.UNSUPPORTED_ASSIGNOR, Phase.FAILED, 1, False, True),
    ],
)
def test_what_a_consumer_does_with_a_code(
    code: int, after: Phase, epoch: int, owns: bool, placed: bool
) -> None:
    member = consumer(0, 1)
    refusal = ConsumerGroupHeartbeatResponse(error_code=code)
    exchange(member, ConsumerGroupHeartbeatRequest, refusal, NOW)
    assert (member.phase, member.epoch, bool(member.assignment)) == (after, epoch, owns)
    assert (member.place is not None) is placed
    if after is Phase.FAILED:
        return
    assert member.due_ms == NOW + SOON
    if not placed:
        exchange(member, FindCoordinatorRequest, found())
    again = ask(member, ConsumerGroupHeartbeatRequest)
    assert held(again) == ([0, 1] if owns else [])
    assert (again.member_id, again.subscribed_topic_names) == ("c", ["t"])


@pytest.mark.parametrize(("plan", "epoch"), [(PLAN, -1), (STATIC, -2)])
def test_a_consumer_leaves_with_an_epoch_of_its_own(plan: Plan, epoch: int) -> None:
    member = consumer(0, plan=plan)
    ask(member, ConsumerGroupHeartbeatRequest)
    member.leave(NOW)
    member.answered(beat(1, nothing_new=True), NOW)
    said = exchange(member, ConsumerGroupHeartbeatRequest, beat(epoch))
    assert (said.member_epoch, said.instance_id) == (epoch, plan.instance_id)
    assert member.phase is Phase.LEFT
    assert not member.assignment


# -- what a leader shares out, and offsets ------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "partitions", "wanted", "shares"),
    [
        ("range", {"t": 5}, {"b": ["t"], "a": ["t"]}, {"a": {"t": [0, 1, 2]}, "b": {"t": [3, 4]}}),
        ("range", {"t": 1}, {"a": ["t"], "b": ["t"]}, {"a": {"t": [0]}, "b": {}}),
        ("range", {"t": 2}, {"a": ["u"], "b": ["t", "t"]}, {"a": {}, "b": {"t": [0, 1]}}),
        (
            "range",
            {"u": 2, "t": 3},
            {"a": ["t", "u"], "b": ["u", "t"]},
            {"a": {"t": [0, 1], "u": [0]}, "b": {"t": [2], "u": [1]}},
        ),
        (
            "roundrobin",
            {"u": 2, "t": 3},
            {"a": ["t", "u"], "b": ["u", "t"]},
            {"a": {"t": [0, 2], "u": [1]}, "b": {"t": [1], "u": [0]}},
        ),
        ("roundrobin", {"t": 0}, {"a": ["t"]}, {"a": {}}),
    ],
)
def test_how_a_leader_shares_out(
    name: str,
    partitions: dict[str, int],
    wanted: dict[str, list[str]],
    shares: dict[str, dict[str, list[int]]],
) -> None:
    assert ASSIGNORS[name](partitions, wanted) == shares


def test_a_commit_bears_its_member_and_its_refusals_are_read() -> None:
    member = consumer(0, 1, plan=STATIC)
    request = commit_of(member, {("t", 0): 5, ("u", 1): 6, ("t", 1): 7})
    assert (request.member_id, request.generation_id_or_member_epoch) == ("c", 1)
    assert request.group_instance_id == "i"
    committed = {
        (topic.name, one.partition_index): one.committed_offset
        for topic in request.topics
        for one in topic.partitions
    }
    assert committed == {("t", 0): 5, ("u", 1): 6, ("t", 1): 7}
    partitions = [
        OffsetCommitResponsePartition(partition_index=0),
        OffsetCommitResponsePartition(partition_index=1, error_code=E.STALE_MEMBER_EPOCH),
    ]
    topic = OffsetCommitResponseTopic(name="t", partitions=partitions)
    refusals = refusals_of(OffsetCommitResponse(topics=[topic]))
    assert refusals == {("t", 1): E.STALE_MEMBER_EPOCH}


def test_offsets_are_asked_for_as_the_protocol_does_and_read() -> None:
    (group,) = fetch_of(consumer(0), [("t", 0), ("t", 2)]).groups
    assert (group.member_id, group.member_epoch) == ("c", 1)
    assert group.topics is not None
    assert [(topic.name, topic.partition_indexes) for topic in group.topics] == [("t", [0, 2])]
    (group,) = fetch_of(classic(Phase.STABLE), [("t", 0)]).groups
    assert (group.member_id, group.member_epoch) == (None, -1)

    partitions = [
        OffsetFetchResponsePartition(partition_index=0, committed_offset=4),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
    ]
    topic = OffsetFetchResponseTopic(name="t", partitions=partitions)
    answered = OffsetFetchResponseGroup(group_id="g", topics=[topic])
    assert offsets_of(OffsetFetchResponse(groups=[answered])) == ({("t", 0): 4}, 0)
    partitions[1].error_code = E.UNSTABLE_OFFSET_COMMIT
    read = offsets_of(OffsetFetchResponse(groups=[answered]))
    assert read == ({("t", 0): 4}, E.UNSTABLE_OFFSET_COMMIT)
