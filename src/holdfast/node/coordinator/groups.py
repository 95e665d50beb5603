"""A broker's door to its group coordinator, which is imported when it is first needed.

Most of what groups need is not on the way to a broker that serves: a broker without a shard of
`__consumer_offsets`, and whom nobody asks, does without. Who has a shard, if only to follow it,
imports it by turns with other work: in one go it would hold the loop for as long as ten slices, in
the middle of a fail-over at that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final

from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS, OffsetsTopic

if TYPE_CHECKING:
    from holdfast.core.metadata.image import ImageDelta
    from holdfast.node.coordinator.coordinator import GroupCoordinator
    from holdfast.node.coordinator.surroundings import Replica, Surroundings

IMPORTS: Final = (
    "holdfast.core.group.assignors",
    "holdfast.core.group.consumer.consumer_patterns",
    "holdfast.core.group.consumer.consumer_core",
    "holdfast.core.group.classic.classic_group",
    "holdfast.core.group.consumer.consumer_group",
    "holdfast.core.group.consumer_shard",
    "holdfast.node.coordinator.led_shard",
    "holdfast.node.coordinator.coordinator",
)
"""The coordinator, and before it parts of what it imports: a few milliseconds each."""


class Groups:
    """The topic of groups, and the coordinator of those that are kept here."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.topic = OffsetsTopic(around)
        self._coordinator: GroupCoordinator | None = None
        self._is_imported = False
        self._importing: asyncio.Handle | None = None
        self._roles: list[Replica] = []  # that have changed before there was a coordinator

    @property
    def coordinator(self) -> GroupCoordinator:
        """It, made now if there is none: who asks does not wait for the turns of its imports."""
        if self._coordinator is None:
            from holdfast.node.coordinator.coordinator import GroupCoordinator

            self._is_imported = True
            self._coordinator = GroupCoordinator(self._around, self.topic)
            for partition in self._roles:
                self._coordinator.role_changed(partition)
            self._roles.clear()
        return self._coordinator

    def role_changed(self, partition: Replica) -> None:
        """Act on a replica that leads in a new epoch, or no longer."""
        if partition.topic != GROUP_OFFSETS:
            return
        if not self._is_imported:
            self._roles.append(partition)
            if self._importing is None:
                self._import_next(iter(IMPORTS))
        elif self._coordinator or partition.leading:
            self.coordinator.role_changed(partition)

    def _import_next(self, names: Iterator[str]) -> None:
        """Import one of them in each turn of the loop; then who leads here has a coordinator."""
        name = next(names, None)
        if name is not None:
            import_module(name)
            self._importing = asyncio.get_running_loop().call_soon(self._import_next, names)
            return
        self._is_imported = True
        roles, self._roles = self._roles, []
        for partition in roles:
            self.role_changed(partition)

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Act on what has changed in the image, which holds it already."""
        if self._coordinator is not None:
            self._coordinator.metadata_changed(delta)

    def close(self) -> None:
        if self._importing is not None:
            self._importing.cancel()
        if self._coordinator is not None:
            self._coordinator.close()
