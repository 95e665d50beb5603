"""What coordinators and replicas have of groups, held against what is committed.

Owns two looks: in the calm, when members live, and in the end, when nobody commits any more. A
session may run out at any moment, so each look is repeated for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.simulated_client import ClusterClient, check
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.group_work import Well, find_coordinator
from holdfast.testing.simulation.groups.member_offsets import BY_NAME
from holdfast.testing.simulation.groups.shard_state import (
    ShardState,
    classic_of,
    held,
    named,
    offset_of,
    records_in,
)
from holdfast.testing.simulation.groups.shard_truth import ShardTruth
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.plan import Plan
from holdfast.wire.batch_header import batches
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_LOOKS_MAX: Final = 40  # until both are the same
_LOOK_S: Final = 0.5


class Described(NamedTuple):
    """What is told of a group: its state, and what each member has."""

    state: str
    members: Mapping[str, frozenset[Any]]


class GroupChecks:
    """Looks at all groups of a run."""

    def __init__(self, plan: Plan, cluster: SimulatedCluster, oracle: GroupOracle) -> None:
        self._plan: Final = plan
        self._cluster: Final = cluster
        self._oracle: Final = oracle

    async def describe(self, is_well: Well) -> None:
        """Have each group described that is kept where that can be written."""
        with closing(self._cluster.client("groups")) as client:
            await client.until(partial(client.refresh, self._plan.topics[0].name))
            for group in self._plan.groups:
                if is_well(GROUP_OFFSETS, self._oracle.index_of(group.name)):
                    await self._until_same(partial(self._describe, client, group.name))
                    self._oracle.counts["groups described as they are"] += 1

    async def last_word(self, is_led: Callable[[str, int], bool]) -> None:
        """Read each replica, and ask each coordinator for all that was committed.

        `is_led`: whether a partition has a leader: else its replicas may have nothing.
        """
        for index in self._oracle.shards:
            if is_led(GROUP_OFFSETS, index):
                for node in self._cluster.logs(GROUP_OFFSETS, index):
                    await self._until_same(partial(self._read, node, index))
        with closing(self._cluster.client("groups")) as client:
            await client.until(partial(client.refresh, self._plan.topics[0].name))
            for group in self._plan.groups:
                if is_led(GROUP_OFFSETS, self._oracle.index_of(group.name)):
                    await self._until_same(partial(self._ask, client, group.name))

    async def _until_same(self, look: Callable[[], Awaitable[str]]) -> None:
        """Look until there is no difference to tell any more; fail when that takes too long."""
        difference = ""
        for _ in range(_LOOKS_MAX):
            difference = await look()
            if not difference:
                return
            await asyncio.sleep(_LOOK_S)
        self._oracle.fail(Invariant.GROUPS_AS_LOGGED, difference)

    # -- each look -------------------------------------------------------------------------------

    async def _describe(self, client: ClusterClient, group: str) -> str:
        told = await client.until(partial(self._described, client, group))
        known = self._known(group)
        return "" if told == known else f"{group} is described as {told}; it is {known}"

    async def _described(self, client: ClusterClient, group: str) -> Described:
        """Ask once for what its coordinator has of a group, whichever its kind."""
        node = await self._coordinator(client, group)
        answer = await client.ask(ConsumerGroupDescribeRequest(group_ids=[group]), node=node)
        (one,) = answer.groups
        if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(f"describe {group}", one.error_code)
            owned = {each.member_id: held(each.assignment.topic_partitions) for each in one.members}
            return Described(one.group_state, owned)
        answer = await client.ask(DescribeGroupsRequest(groups=[group]), node=node)
        (one,) = answer.groups
        check(f"describe {group}", one.error_code)
        given = {each.member_id: named(each.member_assignment) for each in one.members}
        return Described(one.group_state, given)

    def _known(self, group: str) -> Described | None:
        """Return what a description has to say; None: others live than the log has."""
        shard = self._shard(group)
        living = sorted(view.member_id for view in self._oracle.views.of(group))
        classic = shard.state.facts.get(classic_of(group))
        members = shard.state.members.get(group) or (classic.members if classic is not None else {})
        if sorted(members) != living:
            return None
        return Described("Stable", {name: each.assigned for name, each in members.items()})

    async def _coordinator(self, client: ClusterClient, group: str) -> int:
        host = await find_coordinator(client, group)
        return next(
            each for each in self._cluster.brokers if self._cluster.machine(each).name == host
        )

    async def _read(self, node: int, index: int) -> str:
        """Read a replica, and make of its records what they say."""
        log = self._cluster.logs(GROUP_OFFSETS, index).get(node)
        if log is None:
            return ""
        state = ShardState()
        data = memoryview(self._cluster.bytes_of(node, GROUP_OFFSETS, index, log.high_watermark))
        for at, header in batches(data):
            for key, value in records_in(data[at : at + header.size]):
                state.apply(key, value)
        shard = self._oracle.shards[index]
        shard.look()
        if state.facts != shard.state.facts:
            facts = f"{state.facts}\n{shard.state.facts}"
            return f"{GROUP_OFFSETS}-{index}, node {node}: {facts}"
        self._oracle.counts["replicas of groups read at the end"] += 1
        return ""

    async def _ask(self, client: ClusterClient, group: str) -> str:
        """Ask a coordinator for all that a group has committed."""
        found = await client.until(partial(self._fetch_all, client, group))
        told = {
            offset_of(group, topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }
        shard = self._shard(group)
        # That a topic was deleted may be forgotten with its coordinator: then its offsets stay, and
        # are told to nobody once there is another topic of its name.
        known = {
            fact: at
            for fact, at in shard.state.offsets().items()
            if fact[1] == group and not self._oracle.may_be_forgotten(shard, fact)
        }
        if told != known:
            return f"{group}: {told} is told, {known} committed"
        self._oracle.counts["offsets told at the end"] += len(told)
        return ""

    async def _fetch_all(self, client: ClusterClient, group: str) -> Any:
        node = await self._coordinator(client, group)
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = await client.ask(asked, node=node, version=BY_NAME)
        (found,) = answer.groups
        check(f"offsets of {group}", found.error_code)
        return found

    def _shard(self, group: str) -> ShardTruth:
        shard = self._oracle.shard_of(group)
        assert shard is not None, "it has a coordinator"
        shard.look()
        return shard
