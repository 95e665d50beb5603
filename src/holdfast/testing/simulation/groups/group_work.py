"""All members of a plan's groups, and the topics that groups alone read.

Owns their beginning and their end, and what must come by itself once all is healed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.testing.simulated_client import ClusterClient, check
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.groups.member_seat import Seat
from holdfast.testing.simulation.metadata import Metadata
from holdfast.testing.simulation.plan import GroupPlan, Plan, TopicPlan
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest

_LEAVE_S: Final = 4.0
_DESCRIBED_S: Final = 20.0  # within which a group is described as it is
_LOOK_S: Final = 0.5
_RECORDS: Final = 3  # of each partition of a topic that groups alone read

Well = Callable[[str, int], bool]  # whether enough replicas of a partition live


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

    async def make_topic(
        self, client: ClusterClient, topic: TopicPlan, *, is_well: Well = lambda *_: True
    ) -> None:
        """Make a topic and put a little into each partition that is well."""
        await client.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=topic.configs,
            is_awaited=is_well,
        )
        for partition in range(topic.partitions):
            await client.until(partial(self._fill, client, topic.name, partition, is_well))

    async def _fill(self, client: ClusterClient, name: str, partition: int, is_well: Well) -> None:
        if not is_well(name, partition):
            return
        leader = await client.leader(name, partition)
        values = [f"{number}".encode() for number in range(_RECORDS)]
        await client.produce(name, partition, values, acks=1, node=leader)

    async def heal(self, is_well: Well) -> None:
        """Let everybody go on, and come back who is away; and make topics that were deleted.

        But for those who die now, and stay dead. A topic may be there although its maker was not
        answered, and all that was in sync with one of its partitions belong to the dead.
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
                    await self.make_topic(client, topic, is_well=is_well)
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

    # -- what must come by itself ----------------------------------------------------------------

    def waiting(self, metadata: Metadata, *, since: float, is_well: Well) -> list[str]:
        """Tell which members or partitions wait for what.

        `since`: after that a commit of each owner must have been acknowledged, and each partition
        read.
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


async def find_coordinator(client: ClusterClient, group: str) -> str:
    """Ask once where a group is kept; return the host. RetryError: nobody knows, or nobody yet."""
    answer = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    (found,) = answer.coordinators
    check(f"coordinator of {group}", found.error_code)
    return str(found.host)
