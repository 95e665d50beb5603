"""The `range` assignor: each topic is cut into ranges, one a member, in the order of members.

Members that subscribe to topics with equal numbers of partitions get the same numbers of each, so
that they can join them. Nothing else is kept: who comes or goes shifts the ranges of those behind.
A static member keeps its place in the order when it comes back with another member id.

Rules: consumer-groups.md#range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.group.assignors.subscriber import Partitions, Subscriber


def assign_range(
    subscribers: Sequence[Subscriber], sizes: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Return what each member is to have. Work: one step a subscription and a partition."""
    ordered = sorted(subscribers, key=_place)
    subscriptions = {each.topics: tuple(sorted(each.topics)) for each in ordered}
    ranges: dict[bytes, _Ranges] = {}
    for each in ordered:
        for topic_id in subscriptions[each.topics]:
            cut = ranges.setdefault(topic_id, _Ranges(sizes[topic_id]))
            cut.members += 1
    return {
        each.member_id: {
            topic_id: share
            for topic_id in subscriptions[each.topics]
            if (share := ranges[topic_id].next_range())
        }
        for each in ordered
    }


def _place(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members come first, by instance id, since those stay the same."""
    dynamic = subscriber.instance_id is None
    return (dynamic, subscriber.instance_id or subscriber.member_id)


class _Ranges:
    """One topic, as it is cut up from its first partition to its last."""

    __slots__ = ("members", "partitions", "served", "start")

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.members = 0  # who subscribes
        self.served = 0  # how many of them have got their range
        self.start = 0

    def next_range(self) -> tuple[int, ...]:
        """Return the next member's range: as long as the others', the first ones one longer."""
        assert self.served < self.members, "more ranges than members"
        length, longer = divmod(self.partitions, self.members)
        stop = self.start + length + (self.served < longer)
        share = tuple(range(self.start, stop))
        self.served += 1
        self.start = stop
        return share
