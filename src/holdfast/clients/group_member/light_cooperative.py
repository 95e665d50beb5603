"""A classic member that keeps what it has while its group rebalances (KIP-429).

It tells the leader what it has. A leader gives to others only what nobody has, so what is to move
takes two rebalances: who finds that something of his is not his any more gives it up, and joins
again. All members of a group have to be of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.clients.group_member.light_assignors import Shares, assign_range
from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_member import Partition, Plan
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    encode_subscription,
)

COOPERATIVE: Final = "cooperative-sticky"


class CooperativeMember(ClassicMember):
    """See the module."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, (COOPERATIVE,))

    def _subscribes(self) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic, index in sorted(self.assignment):
            owned.setdefault(topic, []).append(index)
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=[topic.name for topic in self.plan.topics],
                owned_partitions=[
                    ConsumerTopicPartitions(topic=topic, partitions=indexes)
                    for topic, indexes in owned.items()
                ],
                generation_id=self.epoch,
            )
        )

    def _rejoins(self) -> None:
        owned, epoch = self.assignment, self.epoch
        super()._rejoins()
        self.assignment, self.epoch = owned, epoch

    def _shares(self, told: Mapping[str, ConsumerProtocolSubscription]) -> Shares:
        """Aim at ranges; what another one has is nobody's this time."""
        partitions = {topic.name: topic.partitions for topic in self.plan.topics}
        aim = assign_range(partitions, {member: each.topics for member, each in told.items()})
        owners = _owners(told)
        return {
            member: {
                topic: [n for n in indexes if owners.get((topic, n), member) == member]
                for topic, indexes in share.items()
            }
            for member, share in aim.items()
        }

    def _given_out(self, owned: frozenset[Partition], now_ms: int) -> None:
        gives_up = not self.assignment <= owned
        super()._given_out(owned, now_ms)
        if gives_up:
            self._rejoins()
            self.due_ms = now_ms


def _owners(told: Mapping[str, ConsumerProtocolSubscription]) -> dict[Partition, str]:
    """Return who has what: of several who say so the one that was told last."""
    owners: dict[Partition, str] = {}
    since: dict[Partition, int] = {}
    for member in sorted(told):
        each = told[member]
        for topic in each.owned_partitions:
            for index in topic.partitions:
                place = (topic.topic, index)
                if each.generation_id > since.get(place, -1):
                    owners[place], since[place] = member, each.generation_id
    return owners
