"""Goal: DescribeQuorum tells the truth, to whoever asks a broker or the controller.

Method: a simulated cluster; what it says is compared with the nodes' own offsets.
"""

from __future__ import annotations

from tests.control.control_world import controller, play

from holdfast.core.quorum.leader_view import OBSERVERS_MAX, Observers
from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.runtime.dial import dial
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import CONTROLLER, CONTROLLER_PORT, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from holdfast.wire.uuids import NULL_UUID
from holdfast.wire.well_known import METADATA_TOPIC


def question(topic: str = METADATA_TOPIC) -> DescribeQuorumRequest:
    partition = RequestPartitionData(partition_index=0)
    return DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name=topic, partitions=[partition])]
    )


def test_leader_voters_and_observers_as_they_are() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        image = controller(cluster).image
        await cluster.until(
            lambda: all(
                node.broker is not None and node.broker.image.offset == image.offset
                for number, node in cluster.nodes.items()
                if number != CONTROLLER
            ),
            "brokers are caught up",
        )
        connection = await dial(client.runtime, "controller", CONTROLLER_PORT, "test")
        answers = [await client.ask(question()), await connection.send(question())]
        for answer in answers:
            assert answer.error_code == ErrorCode.NONE
            found = answer.topics[0].partitions[0]
            assert (found.leader_id, found.leader_epoch) == (CONTROLLER, image.epoch)
            assert found.high_watermark == image.offset + 1
            assert [voter.replica_id for voter in found.current_voters] == [CONTROLLER]
            assert found.current_voters[0].log_end_offset == image.offset + 1
            # Its voters stand in the properties file, and that names no directories.
            assert bytes(found.current_voters[0].replica_directory_id) == NULL_UUID
            assert [each.replica_id for each in found.observers] == cluster.brokers
            for each in found.observers:
                broker = cluster.nodes[each.replica_id].broker
                assert broker is not None
                (directory,) = broker.directories.directories
                assert bytes(each.replica_directory_id) == directory.directory_id != NULL_UUID
            assert answer.nodes[0].node_id == CONTROLLER
            assert answer.nodes[0].listeners[0].port == CONTROLLER_PORT
        unknown = await connection.send(question("t"))
        refused = unknown.topics[0].partitions[0]
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert METADATA_TOPIC in refused.error_message
        assert unknown.nodes == []
        nothing = await connection.send(DescribeQuorumRequest(topics=[]))
        assert (nothing.error_code, nothing.topics) == (ErrorCode.NONE, [])
        connection.close()

    play(story)


def test_each_version_is_answered_where_voters_have_directories() -> None:
    """Seen failing when the directories, which version 2 brought, were put into each version."""
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, dynamic=True)
        await cluster.start()
        connection = await dial(cluster.client().runtime, "controller", CONTROLLER_PORT, "test")
        for version in range(DescribeQuorumRequest.MIN_VERSION, 3):
            answer = await connection.send(question(), version=version)
            (voter,) = answer.topics[0].partitions[0].current_voters
            assert voter.replica_id == CONTROLLER
            assert any(voter.replica_directory_id) == (version >= 2)
            assert len(answer.nodes) == (version >= 2)
        connection.close()

    world.run(main)


def test_observers_are_forgotten_after_a_while_and_never_too_many() -> None:
    seen = Observers()
    for node in range(OBSERVERS_MAX + 10):
        seen.fetched(ReplicaKey(node), 5, 10, node)
    assert len(seen.shown(OBSERVERS_MAX)) == OBSERVERS_MAX
    seen.fetched(ReplicaKey(7), 10, 10, 300_500)
    seen.fetched(ReplicaKey(7), 11, 12, 300_600)
    shown = seen.shown(500_000)
    assert [each.key.node_id for each in shown] == [7]
    assert (shown[0].log_end, shown[0].caught_up_wall_ms) == (11, 300_500)
