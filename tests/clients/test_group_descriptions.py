"""Groups of both kinds, and of brokers of all ages, described alike.

Goal: what Kafka's own tool shows is there to be shown, whoever answers. Method: a scripted cluster.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.scripted import Scripted

from holdfast.clients import group_descriptions
from holdfast.clients.group_changes import commit_offsets, delete_groups, delete_offsets
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import (
    CLASSIC,
    CONSUMER,
    Committed,
    Description,
    committed,
    described,
    listed,
)
from holdfast.clients.group_lags import ELECTION_S, lags, lags_of
from holdfast.clients.log_offsets import Found, LogOffset
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerTopicPartitions,
    encode_assignment,
)
from holdfast.wire.messages import consumer_group_describe as modern
from holdfast.wire.messages import describe_groups as classic
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

GARBAGE = b"\0\1\0\0\0\5"


def assigned(topic: str, *partitions: int) -> bytes:
    part = ConsumerTopicPartitions(topic=topic, partitions=list(partitions))
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[part]))


def has(topic: str, *partitions: int) -> modern.ConsumerGroupDescribeAssignment:
    part = modern.ConsumerGroupDescribeTopicPartitions(
        topic_name=topic, partitions=list(partitions)
    )
    return modern.ConsumerGroupDescribeAssignment(topic_partitions=[part])


def modern_answer(_node: int, request: Any) -> Any:
    groups = [
        modern.ConsumerGroupDescribedGroup(
            group_id=group,
            group_state="Stable",
            group_epoch=7,
            assignment_epoch=6,
            assignor_name="uniform",
            members=[
                modern.ConsumerGroupDescribeMember(
                    member_id="m1",
                    member_epoch=5,
                    client_id="c",
                    client_host="/h",
                    assignment=has("t", 1, 0),
                    target_assignment=has("t", 0),
                    member_type=1,
                )
            ],
        )
        if group == "modern"
        else modern.ConsumerGroupDescribedGroup(
            group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND
        )
        for group in request.group_ids
    ]
    return modern.ConsumerGroupDescribeResponse(groups=groups)


def classic_answer(_node: int, request: Any) -> Any:
    members = [
        classic.DescribedGroupMember(
            member_id="m2", client_id="c", client_host="/h", member_assignment=assigned("t", 3)
        ),
        classic.DescribedGroupMember(member_id="m3", member_assignment=GARBAGE),
        classic.DescribedGroupMember(member_id="m4", group_instance_id="i"),
    ]
    kinds = {
        "classic": classic.DescribedGroup(
            group_id="classic",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=members,
        ),
        "connect": classic.DescribedGroup(group_id="connect", protocol_type="connect"),
        "gone": classic.DescribedGroup(
            group_id="gone", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="Group gone."
        ),
    }
    return classic.DescribeGroupsResponse(groups=[kinds[group] for group in request.groups])


@pytest.fixture
def cluster() -> Scripted:
    made = Scripted()
    made.answers[ConsumerGroupDescribeRequest] = modern_answer
    made.answers[DescribeGroupsRequest] = classic_answer
    return made


def asking(cluster: Any) -> Coordinators:
    return Coordinators(cluster, patience_s=0)


def test_both_kinds_of_groups(cluster: Scripted) -> None:
    found = described(asking(cluster), ["modern", "classic"])
    new, old = found["modern"], found["classic"]
    assert isinstance(new, Description)
    assert (new.type, new.state, new.assignor) == (CONSUMER, "Stable", "uniform")
    assert (new.epoch, new.target_epoch) == (7, 6)
    (member,) = new.members
    assert (member.assignment, member.target, member.epoch, member.upgraded) == (
        {"t": [1, 0]},
        {"t": [0]},
        5,
        True,
    )
    assert isinstance(old, Description)
    assert (old.type, old.assignor, old.epoch, old.target_epoch) == (CLASSIC, "range", None, None)
    assert [each.assignment for each in old.members] == [{"t": [3]}, {}, {}]
    assert [each.instance_id for each in old.members] == [None, None, "i"]
    assert [each.target for each in old.members] == [None, None, None]


def test_groups_that_are_none(cluster: Scripted) -> None:
    found = described(asking(cluster), ["gone", "connect"])
    codes = {
        group: answer.code for group, answer in found.items() if isinstance(answer, AdminError)
    }
    assert codes == {
        "gone": ErrorCode.GROUP_ID_NOT_FOUND,
        "connect": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }


def test_brokers_from_before_the_new_protocol(cluster: Scripted) -> None:
    del cluster.answers[ConsumerGroupDescribeRequest]
    answer = described(asking(cluster), ["classic"])["classic"]
    assert isinstance(answer, Description)
    assert answer.type == CLASSIC


def listing(node: int, _request: Any) -> ListGroupsResponse:
    groups = {
        0: [("b", "consumer", "Stable", "classic"), ("c", "connect", "Stable", "classic")],
        1: [("a", "", "Empty", "classic"), ("b", "consumer", "Dead", "classic")],
        2: [("n", "consumer", "Reconciling", "consumer")],
    }
    return ListGroupsResponse(
        groups=[
            ListedGroup(group_id=name, protocol_type=kind, group_state=state, group_type=type_)
            for name, kind, state, type_ in groups[node]
        ]
    )


def test_groups_of_all_brokers(cluster: Any) -> None:
    """Connectors are no consumers; a group that moves meanwhile is there once."""
    cluster.answers[ListGroupsRequest] = listing
    found = listed(cluster)
    assert [(each.group, each.type, each.state) for each in found] == [
        ("a", "Classic", "Empty"),
        ("b", "Classic", "Stable"),
        ("n", "Consumer", "Reconciling"),
    ]
    listed(cluster, states=["Stable"], types=["Classic"])
    assert cluster.asked[-1][1] == ListGroupsRequest(
        states_filter=["Stable"], types_filter=["Classic"]
    )


@pytest.mark.parametrize(("version", "chosen"), [(3, {"states": ["Empty"]}), (4, {"types": ["x"]})])
def test_brokers_that_can_not_choose(cluster: Any, version: int, chosen: Any) -> None:
    cluster.answers[ListGroupsRequest] = listing
    cluster.versions[ListGroupsRequest] = version
    with pytest.raises(AdminError, match="too old"):
        listed(cluster, **chosen)


def test_a_broker_that_loads_is_waited_for(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_descriptions, "_PAUSE_S", 0)
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    def answer(node: int, request: Any) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=codes.pop()) if codes else listing(node, request)

    cluster.answers[ListGroupsRequest] = answer
    assert len(listed(cluster)) == 3
    codes.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(AdminError):
        listed(cluster, patience_s=0)


def offsets_of(group: str) -> list[OffsetFetchResponseTopic]:
    if group == "none":
        return []
    parts = [
        OffsetFetchResponsePartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=2, metadata="m"
        ),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
    ]
    if group == "unstable":
        parts[0].error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return [OffsetFetchResponseTopic(name="t", partitions=parts)]


@pytest.mark.parametrize("version", [9, 8, 7, 2])
def test_what_is_committed(cluster: Scripted, version: int) -> None:
    """Many groups at once or one by one; a partition without an offset isn't there."""

    def answer(_node: int, request: Any) -> OffsetFetchResponse:
        if version < 8:
            return OffsetFetchResponse(topics=offsets_of(request.group_id))
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=each.group_id, topics=offsets_of(each.group_id))
                for each in request.groups
            ]
        )

    cluster.answers[OffsetFetchRequest] = answer
    cluster.versions[OffsetFetchRequest] = version
    found = committed(asking(cluster), ["g", "none", "unstable"])
    assert (found["g"], found["none"]) == ({("t", 0): Committed(5, 2, "m")}, {})
    assert isinstance(found["unstable"], AdminError)
    assert len(cluster.asked_for(OffsetFetchRequest)) == (1 if version >= 8 else 3)


def test_offsets_are_set_as_by_a_consumer_without_a_group(cluster: Scripted) -> None:
    codes = {0: 0, 1: ErrorCode.UNKNOWN_MEMBER_ID}

    def answer(_node: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        parts = [
            OffsetCommitResponsePartition(
                partition_index=one.partition_index, error_code=codes[one.partition_index]
            )
            for one in request.topics[0].partitions
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=parts)])

    cluster.answers[OffsetCommitRequest] = answer
    found = commit_offsets(asking(cluster), "g", {("t", 0): 5, ("t", 1): 6})
    assert found["t", 0] is None
    refused = found["t", 1]
    assert refused is not None
    assert (refused.code, refused.subject) == (ErrorCode.UNKNOWN_MEMBER_ID, "t-1")
    ((_, sent),) = cluster.asked_for(OffsetCommitRequest)
    assert (sent.generation_id_or_member_epoch, sent.member_id) == (-1, "")
    assert [one.committed_offset for one in sent.topics[0].partitions] == [5, 6]
    codes[1] = ErrorCode.NOT_COORDINATOR
    with pytest.raises(AdminError) as caught:
        commit_offsets(asking(cluster), "g", {("t", 0): 5, ("t", 1): 6})
    assert caught.value.code == ErrorCode.NOT_COORDINATOR


def test_offsets_and_groups_go(cluster: Scripted) -> None:
    refused = OffsetDeleteResponsePartition(
        partition_index=1, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    )
    parts = [OffsetDeleteResponsePartition(partition_index=0), refused]
    topic = OffsetDeleteResponseTopic(name="t", partitions=parts)
    response = OffsetDeleteResponse(topics=[topic])
    cluster.answers[OffsetDeleteRequest] = lambda _node, _request: response
    found = delete_offsets(asking(cluster), "g", [("t", 0), ("t", 1)])
    assert {key: error and error.code for key, error in found.items()} == {
        ("t", 0): None,
        ("t", 1): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }
    response.error_code = ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(AdminError):
        delete_offsets(asking(cluster), "g", [("t", 0)])
    results = [
        DeletableGroupResult(group_id="a"),
        DeletableGroupResult(group_id="b", error_code=ErrorCode.NON_EMPTY_GROUP),
    ]
    cluster.answers[DeleteGroupsRequest] = lambda *_: DeleteGroupsResponse(results=results)
    gone = delete_groups(asking(cluster), ["a", "b"])
    assert gone["a"] is None
    assert isinstance(gone["b"], AdminError)


def test_lags(cluster: Scripted) -> None:
    """Who has most comes first, each by topic and partition; then what nobody has."""
    description = described(asking(cluster), ["modern"])["modern"]
    assert isinstance(description, Description)
    few = description.members[0]
    more = type(few)(
        id="m9", instance_id=None, client_id="c", host="/h", assignment={"u": [10, 9], "t": [2]}
    )
    offsets = {("t", 0): Committed(4), ("u", 9): Committed(7), ("v", 0): Committed(1)}
    ends: Found = {
        ("t", 0): LogOffset(10),
        ("u", 9): LogOffset(7),
        ("v", 0): AdminError("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    rows = lags([few, more], offsets, ends)
    assert [(row.topic, row.partition, row.member and row.member.id, row.lag) for row in rows] == [
        ("t", 2, "m9", None),
        ("u", 9, "m9", 0),
        ("u", 10, "m9", None),
        ("t", 0, "m1", 6),
        ("t", 1, "m1", None),
        ("v", 0, None, None),
    ]


def test_a_partition_without_a_leader_holds_nobody_up(
    cluster: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the rest is shown soon, whatever --timeout is. Method: how long ends are waited for."""
    waited: list[float] = []

    def ends(_driver: Any, keys: Any, *, patience_s: float) -> Found:
        waited.append(patience_s)
        return {key: AdminError("x", ErrorCode.LEADER_NOT_AVAILABLE) for key in keys}

    monkeypatch.setattr("holdfast.clients.group_lags.log_ends", ends)
    part = OffsetFetchResponseGroup(group_id="modern", topics=offsets_of("modern"))
    cluster.answers[OffsetFetchRequest] = lambda *_: OffsetFetchResponse(groups=[part])
    asked = asking(cluster)
    description = described(asked, ["modern"])["modern"]
    assert isinstance(description, Description)
    rows = lags_of(asked, {"modern": description}, patience_s=3600)["modern"]
    assert not isinstance(rows, AdminError)
    assert [(row.partition, row.log_end) for row in rows] == [(0, None), (1, None)]
    assert waited == [ELECTION_S]
