"""All members of a plan's groups, and the topics that groups alone read.

Owns their beginning and their end, what must come by itself once all is healed, and the last look
at what coordinators and replicas have.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from typing import Final

from holdfast.log.log import Log
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.simulated_client import ClusterClient, check
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.member_offsets import BY_NAME
from holdfast.testing.simulation.groups.member_seat import Seat
from holdfast.testing.simulation.groups.shard_state import ShardState, offset_of, records_in
from holdfast.testing.simulation.groups.shard_truth import ShardTruth
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.metadata import Metadata
from holdfast.testing.simulation.plan import GroupPlan, Plan, TopicPlan
from holdfast.wire.batch_header import batches
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_LEAVE_S: Final = 4.0
_RECORDS: Final = 3  # of each partition of a topic that groups alone read


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
        """Let everybody go on, and come back who is away; and make topics that were deleted."""
        for seat in self.seats:
            seat.is_taken = False
            seat.machine.resume()
            seat.start()
        with closing(self._cluster.client("groups")) as client:
            for topic in self.plan.group_topics:
                if topic.name in self.missing:
                    await self.make_topic(client, topic)
        self.missing.clear()

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

    async def last_word(self) -> None:
        """Hold what coordinators tell, and what replicas have, against what is committed."""
        for index, shard in self.oracle.shards.items():
            for node, log in self._cluster.logs(GROUP_OFFSETS, index).items():
                if log is not None:
                    self._compare(node, index, log, shard)
        with closing(self._cluster.client("groups")) as client:
            await client.until(partial(client.refresh, self.plan.topics[0].name))
            for group in self.plan.groups:
                if self.oracle.shard_of(group.name) is not None:
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
        host = await find_coordinator(client, group)
        node = next(
            each for each in self._cluster.brokers if self._cluster.machine(each).name == host
        )
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

    def waiting(self, metadata: Metadata, *, since: float, reachable: dict[int, bool]) -> list[str]:
        """Tell which members or partitions wait for what. `reachable`: shards that can be written.

        `since`: a commit of each owner must have been acknowledged after that.
        """
        found: list[str] = []
        for group in self.plan.groups:
            if reachable.get(self.oracle.index_of(group.name), False):
                seats = [seat for seat in self.seats if seat.group is group]
                found += self._of_group(group, seats, metadata, since)
        return found

    def _of_group(
        self, group: GroupPlan, seats: list[Seat], metadata: Metadata, since: float
    ) -> list[str]:
        found = [
            f"{seat.life or seat.number} is not stable" for seat in seats if not seat.is_stable()
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


async def find_coordinator(client: ClusterClient, group: str) -> str:
    """Ask once where a group is kept; return the host. RetryError: nobody knows, or nobody yet."""
    answer = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    (found,) = answer.coordinators
    check(f"coordinator of {group}", found.error_code)
    return str(found.host)
