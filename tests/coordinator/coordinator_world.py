"""What the tests of a broker's coordinator share: a simulated cluster, and a client of groups."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.control.control_world import play
from tests.group.shard_kit import Offsets, commit_request, subscription

from holdfast.node.coordinator.coordinator import GroupCoordinator
from holdfast.node.coordinator.led_shard import LedShard
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.simulated_client import ClusterClient, RetryError, check
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.messages.list_groups import ListGroupsRequest
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

E = ErrorCode
PASSES = {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS}
"""What a client of groups waits for, or looks for another coordinator."""


class GroupClient:
    """Asks the coordinator of a group, whoever it is by now."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client

    async def find(self, group: str, *, node: int | None = None) -> Any:
        """Ask once who keeps a group."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        response = await self.client.ask(request, node=node, version=4)
        return response.coordinators[0]

    async def coordinator(self, group: str) -> int:
        """Look for it until there is one; return the broker."""

        async def attempt() -> int:
            found = await self.find(group)
            if found.error_code:
                raise RetryError("find", found.error_code)
            await self.client.refresh(GROUP_OFFSETS)
            node: int = found.node_id
            return node

        return await self.client.until(attempt)

    async def ask(self, group: str, request: Any, *, version: int | None = None) -> Any:
        """Ask once."""
        node = await self.coordinator(group)
        return await self.client.ask(request, node=node, version=version)

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit until it is acknowledged."""

        async def attempt() -> None:
            response = await self.ask(group, commit_request(group, offsets), version=9)
            for topic in response.topics:
                for each in topic.partitions:
                    _pass(each.error_code)

        await self.client.until(attempt)

    async def offsets(self, group: str) -> Offsets:
        """Read what is committed, once there is a coordinator that answers."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])

        async def attempt() -> Offsets:
            found = (await self.ask(group, request, version=9)).groups[0]
            _pass(found.error_code)
            return {
                (topic.name, each.partition_index): each.committed_offset
                for topic in found.topics
                for each in topic.partitions
            }

        return await self.client.until(attempt)

    def joining(self, group: str, member: str = "", *, session_ms: int = 6000) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=60_000,
        )

    async def join(self, group: str, *, session_ms: int = 6000) -> tuple[str, int]:
        """Become the only member, with an assignment; return id and generation."""

        async def attempt() -> tuple[str, int]:
            first = await self.ask(group, self.joining(group, session_ms=session_ms), version=9)
            if first.error_code != E.MEMBER_ID_REQUIRED:
                _pass(first.error_code)
            member: str = first.member_id
            asked = self.joining(group, member, session_ms=session_ms)
            joined = await self.ask(group, asked, version=9)
            _pass(joined.error_code)
            part = SyncGroupRequestAssignment(member_id=member, assignment=b"all")
            synced = await self.ask(
                group,
                SyncGroupRequest(
                    group_id=group,
                    member_id=member,
                    generation_id=joined.generation_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=[part],
                ),
                version=5,
            )
            _pass(synced.error_code)
            return member, joined.generation_id

        return await self.client.until(attempt)

    async def beat(self, group: str, member: str, generation: int) -> ErrorCode:
        """Send one heartbeat; return what it was answered."""
        request = HeartbeatRequest(group_id=group, member_id=member, generation_id=generation)
        return ErrorCode((await self.ask(group, request, version=4)).error_code)

    async def listed(self, node: int) -> list[str]:
        """Return the groups that one broker tells."""
        response = await self.client.ask(ListGroupsRequest(), node=node, version=4)
        check("list groups", response.error_code)
        return sorted(each.group_id for each in response.groups)


def _pass(code: int) -> None:
    """Raise what is wrong; RetryError: it passes."""
    if code in PASSES:
        raise RetryError("a group", code)
    check("a group", code)


def coordinator_of(cluster: SimulatedCluster, node: int) -> GroupCoordinator:
    """A broker's coordinator, for looking at only."""
    broker = cluster.nodes[node].broker
    assert broker is not None
    return broker.groups.coordinator


def led(cluster: SimulatedCluster, node: int, group: str) -> LedShard:
    """The shard of a group at the broker that leads it."""
    found = coordinator_of(cluster, node)
    return found._shards[found.topic.partition_of(group)]


Story = Callable[[SimulatedCluster, GroupClient], Coroutine[Any, Any, None]]


def play_groups(story: Story, *, brokers: int = 3, **config: str) -> None:
    """Run a story on a cluster that has started, with a topic `t` of four partitions."""

    async def whole(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", partitions=4, replication_factor=1)
        await story(cluster, GroupClient(client))

    settings = {
        "offsets_topic_num_partitions": "4",
        "group_initial_rebalance_delay_ms": "0",
        "min_insync_replicas": "1",
        **config,
    }
    play(whole, brokers=brokers, seed=1, **settings)
