"""A broker's door to its group coordinator, which is imported when it is first needed.

Most of what groups need is not on the way to a broker that serves: a broker without a shard of
`__consumer_offsets`, and whom nobody asks, does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS, OffsetsTopic

if TYPE_CHECKING:
    from holdfast.core.metadata.image import ImageDelta
    from holdfast.node.coordinator.coordinator import GroupCoordinator
    from holdfast.node.coordinator.surroundings import Replica, Surroundings


class Groups:
    """The topic of groups, and the coordinator of those that are kept here."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.topic = OffsetsTopic(around)
        self._coordinator: GroupCoordinator | None = None

    @property
    def coordinator(self) -> GroupCoordinator:
        if self._coordinator is None:
            from holdfast.node.coordinator.coordinator import GroupCoordinator

            self._coordinator = GroupCoordinator(self._around, self.topic)
        return self._coordinator

    def role_changed(self, partition: Replica) -> None:
        """Act on a replica that leads in a new epoch, or no longer."""
        if partition.topic == GROUP_OFFSETS and (self._coordinator or partition.leading):
            self.coordinator.role_changed(partition)

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Act on what has changed in the image, which holds it already."""
        if self._coordinator is not None:
            self._coordinator.metadata_changed(delta)

    def close(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
