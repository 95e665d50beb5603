"""`__consumer_offsets` is made when a coordinator is first looked for, as it should be.

Goal: whoever asks for it, and however often, it is made once, with its own settings and as many
replicas as it may have; what stands against it is told in the log, and asked for again. Method:
clusters in virtual time.
Rules: group-records.md#the-topic, topics.md#automatic-creation.
"""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.control.control_world import described
from tests.coordinator.coordinator_world import GroupClient, play_groups

from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest

E = ErrorCode


def _replicas(cluster: SimulatedCluster) -> list[int]:
    topic = cluster.image.topics[GROUP_OFFSETS]
    return [len(partition.replicas) for partition in topic.partitions]


def test_it_is_made_once_for_all_who_look_for_a_coordinator() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        assert GROUP_OFFSETS not in cluster.image.topics
        found = await asyncio.gather(
            *(groups.find(f"g{number}", node=number % 3) for number in range(30))
        )
        assert {each.error_code for each in found} == {E.COORDINATOR_NOT_AVAILABLE}
        assert {each.node_id for each in found} == {-1}
        await groups.coordinator("g0")
        assert _replicas(cluster) == [3] * 4
        configs = dict(cluster.image.topic_configs(GROUP_OFFSETS))
        assert configs["cleanup.policy"] == "compact"
        assert configs["compression.type"] == "producer"

    play_groups(story)


def test_many_keys_are_all_found_in_their_order() -> None:
    """Among them some that take a millisecond each."""

    async def story(_: SimulatedCluster, groups: GroupClient) -> None:
        await groups.coordinator("g")
        keys = [f"g{number}" for number in range(2000)] + ["k" * 32_767] * 5
        for key_type, codes in ((0, {E.NONE}), (7, {E.INVALID_REQUEST})):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            response = await groups.client.ask(request, version=6)
            assert [each.key for each in response.coordinators] == keys
            assert {each.error_code for each in response.coordinators} == codes
        one = await groups.find("g77")
        again = await groups.client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys))
        assert again.coordinators[77] == one

    play_groups(story)


def test_it_has_as_many_replicas_as_there_are_brokers() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.coordinator("g")
        assert _replicas(cluster) == [1] * 4

    play_groups(story, brokers=1, default_replication_factor="1")


def test_it_waits_for_brokers_that_are_on_their_way() -> None:
    """Goal: a consumer that is there before the other brokers does not have all that groups ever
    commit kept by one of them.

    Method: a new cluster, whose brokers come a second or two after one another.
    """

    async def story(cluster: SimulatedCluster) -> None:
        for node in (CONTROLLER, 0):
            cluster.start_node(node)
        await cluster.until_ready(0)
        groups = GroupClient(cluster.client())
        for node in (1, 2):
            for _ in range(4):
                found = await groups.find("g")
                assert found.error_code == E.COORDINATOR_NOT_AVAILABLE
                await asyncio.sleep(0.5)
            cluster.start_node(node)
        await groups.coordinator("g")
        assert _replicas(cluster) == [3] * 4

    world = World(1)
    config = {"offsets.topic.num.partitions": "4"}

    async def main() -> None:
        await story(SimulatedCluster(world, brokers=3, config=config))

    world.run(main)


def test_a_number_of_replicas_that_can_not_be_had_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        for _ in range(5):
            assert (await groups.find("g")).error_code == E.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(1)
        assert GROUP_OFFSETS not in cluster.image.topics, "with fewer it would not be as it is set"

    with caplog.at_level(logging.WARNING, "holdfast.groups"):
        play_groups(story, brokers=2, offsets_topic_replication_factor="3")
    told = [each.getMessage() for each in caplog.records if "is not made" in each.getMessage()]
    assert told, "an operator has to know why nobody finds a coordinator"
    assert "INVALID_REPLICATION_FACTOR" in told[0]


def test_it_is_made_although_nobody_answers_at_first() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        (controller,) = cluster.controllers
        cluster.crash(controller)
        for _ in range(3):
            assert (await groups.find("g")).error_code == E.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(2)
        cluster.start_node(controller)
        await groups.coordinator("g")

    play_groups(story)


def test_who_names_it_gets_no_other_topic_made_of_that_name() -> None:
    """Made as any other it would have one partition, and forget offsets after a week."""

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        for name in (GROUP_OFFSETS, "__transaction_state"):
            told = await described(groups.client, name, create=True)
            assert told.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.until(lambda: GROUP_OFFSETS in cluster.image.topics, "it is made")
        assert _replicas(cluster) == [3] * 4
        assert cluster.image.topic_configs(GROUP_OFFSETS)["cleanup.policy"] == "compact"
        assert "__transaction_state" not in cluster.image.topics

    play_groups(story, auto_create_topics_enable="true")


def test_it_gets_no_more_partitions() -> None:
    """Groups live where its number of partitions says."""

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", {("t", 0): 7})
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=GROUP_OFFSETS, count=9)], timeout_ms=5000
        )
        (result,) = (await groups.client.ask(request)).results
        assert result.error_code == E.INVALID_PARTITIONS
        assert "groups would be looked for where they are not" in result.error_message
        assert len(_replicas(cluster)) == 4
        assert await groups.offsets("g") == {("t", 0): 7}

    play_groups(story)
