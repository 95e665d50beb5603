"""All members of a plan's groups, and the topics that groups alone read.

Owns their beginning and their end, what must come by itself once all is healed, and the last look
at what coordinators and replicas have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.log.log import Log
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.simulated_client import ClusterClient, check
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.member_offsets import BY_NAME
from holdfast.testing.simulation.groups.member_seat import Seat
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
from holdfast.testing.simulation.metadata import Metadata
from holdfast.testing.simulation.plan import GroupPlan, Plan, TopicPlan
from holdfast.wire.batch_header import batches
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_LEAVE_S: Final = 4.0
_DESCRIBED_S: Final = 20.0  # within which a group is described as it is
_LOOK_S: Final = 0.5
_RECORDS: Final = 3  # of each partition of a topic that groups alone read


class Described(NamedTuple):
    """What is told of a group: its state, and what each member has."""

    state: str
    members: Mapping[str, frozenset[Any]]


class GroupWork:
    """The groups of one run."""

    def __init__(self, plan: Plan, cluster: SimulatedCluster, oracle: GroupOracle) -> None:
        self.plan: Final = plan
        self._cluster: Final = cluster
        self.oracle: Final = oracle
        self.seats: Final[list[Seat]] = []
        self.missing: dict[str, None] = {}  # topics that an event has deleted
        for group in plan.groups:
            for member in group.members:
                self.seats.append(Seat(len(self.seats), group, member, cluster, oracle))

    async def start(self) -> None:
        """Have the topics made, and let members begin, each when it is to."""
        with closing(self._cluster.client("groups")) as client:
            for topic in self.plan.group_topics:
                await self.make_topic(client, topic)
            for group in self.plan.groups:
                await client.until(partial(find_coordinator, client, group.name))
        loop = asyncio.get_running_loop()
        for seat in self.seats:
            loop.call_later(seat.plan.begins_s, self._begin, seat)

    def _begin(self, seat: Seat) -> None:
        if not seat.is_taken:
            seat.start()

    async def make_topic(self, client: ClusterClient, topic: TopicPlan) -> None:
        """Make a topic and put a little into each partition."""
        await client.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=topic.configs,
        )
        for partition in range(topic.partitions):
            await client.until(partial(self._fill, client, topic.name, partition))

    async def _fill(self, client: ClusterClient, name: str, partition: int) -> None:
        leader = await client.leader(name, partition)
        values = [f"{number}".encode() for number in range(_RECORDS)]
        await client.produce(name, partition, values, acks=1, node=leader)

    async def heal(self) -> None:
        """Let everybody go on, and come back who is away; and make topics that were deleted.

        But for those who die now, and stay dead.
        """
        for seat in self.seats:
            seat.is_taken = seat.plan.stays_dead
            seat.machine.resume()
            if seat.plan.stays_dead:
                seat.kill(silently=False)
            else:
                seat.start()
        with closing(self._cluster.client("groups")) as client:
            for topic in self.plan.group_topics:
                if topic.name in self.missing:
                    await self.make_topic(client, topic)
        self.missing.clear()

    async def describe(self, *, is_well: Callable[[str, int], bool]) -> None:
        """Have each group described, which is stable now, and by whom it is kept."""
        with closing(self._cluster.client("groups")) as client:
            await client.until(partial(client.refresh, self.plan.topics[0].name))
            for group in self.plan.groups:
                if is_well(GROUP_OFFSETS, self.oracle.index_of(group.name)):
                    await self._describe(client, group)

    async def _describe(self, client: ClusterClient, group: GroupPlan) -> None:
        """Ask until it is described as its members know it; a rebalance may go on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _DESCRIBED_S
        told = known = None
        while loop.time() < until:
            told = await client.until(partial(self._described, client, group.name))
            known = _as_described(self.oracle, group.name)
            if told == known:
                self.oracle.counts["groups described as they are"] += 1
                return
            await asyncio.sleep(_LOOK_S)
        self.oracle.fail(
            Invariant.GROUPS_AS_LOGGED, f"{group.name} is described as {told}; it is {known}"
        )

    async def _described(self, client: ClusterClient, group: str) -> Described:
        """Ask once for what its coordinator has of a group, whichever its kind."""
        node = await self._coordinator(client, group)
        answer = await client.ask(ConsumerGroupDescribeRequest(group_ids=[group]), node=node)
        (one,) = answer.groups
        if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(f"describe {group}", one.error_code)
            members = {
                each.member_id: held(each.assignment.topic_partitions) for each in one.members
            }
            return Described(one.group_state, members)
        answer = await client.ask(DescribeGroupsRequest(groups=[group]), node=node)
        (one,) = answer.groups
        check(f"describe {group}", one.error_code)
        return Described(
            one.group_state, {each.member_id: named(each.member_assignment) for each in one.members}
        )

    async def _coordinator(self, client: ClusterClient, group: str) -> int:
        host = await find_coordinator(client, group)
        return next(
            each for each in self._cluster.brokers if self._cluster.machine(each).name == host
        )

    async def stop(self) -> None:
        """Have every other member leave, and the rest die: nobody reads or commits any more."""
        for seat in self.seats:
            seat.is_taken = True
            life = seat.life
            if seat.is_up and life is not None and not seat.number % 2:
                life.leave()
        await asyncio.sleep(_LEAVE_S)
        for seat in self.seats:
            seat.kill(silently=False)

    # -- the last word ---------------------------------------------------------------------------

    async def last_word(self, is_led: Callable[[str, int], bool]) -> None:
        """Hold what coordinators tell, and what replicas have, against what is committed.

        `is_led`: whether a partition has a leader: else its replicas may have nothing.
        """
        for index, shard in self.oracle.shards.items():
            for node, log in self._cluster.logs(GROUP_OFFSETS, index).items():
                if log is not None and is_led(GROUP_OFFSETS, index):
                    self._compare(node, index, log, shard)
        with closing(self._cluster.client("groups")) as client:
            await client.until(partial(client.refresh, self.plan.topics[0].name))
            for group in self.plan.groups:
                if is_led(GROUP_OFFSETS, self.oracle.index_of(group.name)):
                    await client.until(partial(self._ask_all, client, group.name))

    def _compare(self, node: int, index: int, log: Log, shard: ShardTruth) -> None:
        """Read a replica, and make of its records what they say."""
        state = ShardState()
        data = memoryview(self._cluster.bytes_of(node, GROUP_OFFSETS, index, log.high_watermark))
        for at, header in batches(data):
            for key, value in records_in(data[at : at + header.size]):
                state.apply(key, value)
        shard.look()
        self.oracle.counts["replicas of groups read at the end"] += 1
        if state.facts != shard.state.facts:
            self.oracle.fail(
                Invariant.GROUPS_AS_LOGGED,
                f"{GROUP_OFFSETS}-{index}, node {node}: {state.facts}\n{shard.state.facts}",
            )

    async def _ask_all(self, client: ClusterClient, group: str) -> None:
        """Ask a coordinator for all that a group has committed."""
        node = await self._coordinator(client, group)
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = await client.ask(asked, node=node, version=BY_NAME)
        (found,) = answer.groups
        check(f"offsets of {group}", found.error_code)
        told = {
            offset_of(group, topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }
        shard = self.oracle.shard_of(group)
        assert shard is not None, "it has a coordinator"
        shard.look()
        known = {fact: at for fact, at in shard.state.offsets().items() if fact[1] == group}
        self.oracle.counts["offsets told at the end"] += len(told)
        if told != known:
            self.oracle.fail(
                Invariant.GROUPS_AS_LOGGED, f"{group}: {told} is told, {known} committed"
            )

    # -- what must come by itself ----------------------------------------------------------------

    def waiting(
        self, metadata: Metadata, *, since: float, is_well: Callable[[str, int], bool]
    ) -> list[str]:
        """Tell which members or partitions wait for what.

        `since`: after that a commit of each owner must have been acknowledged, and each partition
        read. `is_well`: whether enough replicas of a partition live.
        """
        found: list[str] = []
        for group in self.plan.groups:
            if is_well(GROUP_OFFSETS, self.oracle.index_of(group.name)):
                seats = [seat for seat in self.seats if seat.group is group]
                found += self._of_group(group, seats, metadata, since)
                found += [
                    f"{seat.life} has read {place} last at {read_s:.3f} s"
                    for seat in seats
                    if seat.life is not None and seat.is_up
                    for place in sorted(seat.life.light.assignment)
                    if is_well(*place) and (read_s := seat.life.read_s.get(place, -1.0)) < since
                ]
        return found

    def _of_group(
        self, group: GroupPlan, seats: list[Seat], metadata: Metadata, since: float
    ) -> list[str]:
        found = [
            f"{seat.life or seat.number} is not stable"
            for seat in seats
            if not seat.plan.stays_dead and not seat.is_stable()
        ]
        lives = [seat.life for seat in seats if seat.life is not None and seat.is_up]
        owned = [place for life in lives for place in sorted(life.light.assignment)]
        wanted = {
            (topic, key[1])
            for key in metadata.partitions
            if (topic := metadata.topics[key[0]]) in group.topics
        }
        if sorted(owned) != sorted(wanted):
            found.append(f"{group.name}: owned are {sorted(owned)} of {sorted(wanted)}")
        if len({life.light.epoch for life in lives}) > 1:
            found.append(f"{group.name}: its members are in several epochs")
        return found + [
            f"{life}: a commit was acknowledged last at {life.served_s:.3f} s"
            for life in lives
            if life.light.assignment and life.served_s < since
        ]


def _as_described(oracle: GroupOracle, group: str) -> Described | None:
    """Return what a description has to say: the log's state, if all of its members live."""
    shard = oracle.shard_of(group)
    assert shard is not None, "it has members"
    shard.look()
    living = sorted(view.member_id for view in oracle.views.of(group))
    classic = shard.state.facts.get(classic_of(group))
    members = shard.state.members.get(group) or (classic.members if classic is not None else {})
    if sorted(members) != living:
        return None
    return Described("Stable", {name: each.assigned for name, each in members.items()})


async def find_coordinator(client: ClusterClient, group: str) -> str:
    """Ask once where a group is kept; return the host. RetryError: nobody knows, or nobody yet."""
    answer = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    (found,) = answer.coordinators
    check(f"coordinator of {group}", found.error_code)
    return str(found.host)
