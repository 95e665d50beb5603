"""Goal: what `make compare` has found in answers about groups stays as Apache Kafka 4.3.1 has it.

Method: the request that it has seen answered differently, to a simulated cluster.

Rules: committed-offsets.md#topics-and-partitions, committed-offsets.md#deletion,
classic-groups.md#describing, classic-groups.md#refused-appends.
"""

from __future__ import annotations

import pytest
from tests.coordinator.coordinator_world import GroupClient, play_groups
from tests.group.shard_kit import commit_request

from holdfast.node.api import offset_fetch
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

E = ErrorCode
# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, each as a bit.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def test_who_asks_what_it_may_do_to_a_group_is_told() -> None:
    """Before, the broker lost the group's shard over it, and the client its connection."""

    async def story(_cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", {("t", 0): 1})
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        for version in range(3, 7):
            (found,) = (await groups.ask("g", request, version=version)).groups
            assert (found.error_code, found.group_state) == (E.NONE, "Empty")
            assert found.authorized_operations == ALL_OPERATIONS

    play_groups(story, brokers=1)


def test_old_versions_have_words_for_a_coordinator_that_was_found() -> None:
    async def story(_cluster: SimulatedCluster, groups: GroupClient) -> None:
        node = await groups.coordinator("g")
        for version in range(1, 4):
            request = FindCoordinatorRequest(key="g", key_type=0)
            found = await groups.client.ask(request, node=node, version=version)
            assert (found.error_code, found.error_message) == (E.NONE, "NONE")
            request = FindCoordinatorRequest(key="g", key_type=9)
            found = await groups.client.ask(request, node=node, version=version)
            assert found.error_code == E.INVALID_REQUEST
            assert "groups (0)" in found.error_message

    play_groups(story, brokers=1)


def test_a_topic_has_one_entry_whatever_becomes_of_its_partitions() -> None:
    async def story(_cluster: SimulatedCluster, groups: GroupClient) -> None:
        request = commit_request("g", {("t", 0): 1, ("t", 9): 1, ("t", 2): 1})
        (topic,) = (await groups.ask("g", request, version=9)).topics
        told = {each.partition_index: each.error_code for each in topic.partitions}
        assert told == {0: E.NONE, 2: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
        deleted = (await groups.ask("g", _delete("g", "t", 0, 9))).topics
        (topic,) = deleted
        told = {each.partition_index: each.error_code for each in topic.partitions}
        assert told == {0: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}

    play_groups(story, brokers=1)


def test_a_topic_without_partitions_is_not_answered() -> None:
    async def story(_cluster: SimulatedCluster, groups: GroupClient) -> None:
        request = commit_request("g", {("t", 0): 1})
        request.topics[0].partitions = []
        assert (await groups.ask("g", request, version=9)).topics == []

    play_groups(story, brokers=1)


def test_a_group_that_is_not_there_is_said_before_a_topic_that_is_not() -> None:
    async def story(_cluster: SimulatedCluster, groups: GroupClient) -> None:
        found = await groups.ask("g", _delete("g", "absent", 0))
        assert (found.error_code, found.topics) == (E.GROUP_ID_NOT_FOUND, [])
        await groups.commit("g", {("t", 0): 1})
        found = await groups.ask("g", _delete("g", "absent", 0))
        assert found.error_code == E.NONE
        assert found.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION

    play_groups(story, brokers=1)


def test_the_group_of_no_name_is_deleted_as_any_other() -> None:
    """OffsetCommit makes it, so who may delete groups may delete this one."""

    async def story(_cluster: SimulatedCluster, groups: GroupClient) -> None:
        request = DeleteGroupsRequest(groups_names=[""])
        (result,) = (await groups.ask("", request, version=2)).results
        assert result.error_code == E.GROUP_ID_NOT_FOUND
        await groups.commit("", {("t", 0): 1})
        (result,) = (await groups.ask("", request, version=2)).results
        assert result.error_code == E.NONE
        assert await groups.offsets("") == {}

    play_groups(story, brokers=1)


@pytest.mark.parametrize(
    "code",
    [
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_ENOUGH_REPLICAS,
        E.REQUEST_TIMED_OUT,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_who_reads_offsets_is_told_to_look_for_the_coordinator(code: ErrorCode) -> None:
    """Java's consumers before 4.3 give up at COORDINATOR_NOT_AVAILABLE in this answer alone."""
    assert offset_fetch._refused("g", code).error_code == E.NOT_COORDINATOR
    assert offset_fetch._refused("g", E.COORDINATOR_LOAD_IN_PROGRESS).error_code == (
        E.COORDINATOR_LOAD_IN_PROGRESS
    )


def _delete(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    named = [OffsetDeleteRequestPartition(partition_index=one) for one in partitions]
    return OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=named)]
    )
