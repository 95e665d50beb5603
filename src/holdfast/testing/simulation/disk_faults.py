"""Which nodes' disks have failed, or were full, and until when that excuses losses and refusals.

An excuse needs a fault that has struck. It ends when the disk is replaced, or when a process that
began on the healed disk has taken up all that it found: what that one has, it may not lose.
"""

from __future__ import annotations

from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.disk_quota import Quota


class DiskFaults:
    """Faults by node."""

    def __init__(self) -> None:
        self._faults: dict[int, list[DiskFault]] = {}
        self._all: list[tuple[int, DiskFault]] = []
        self._full: dict[int, list[Quota]] = {}  # nothing is lost by these
        self._has_room: set[int] = set()  # again
        self._healed: set[int] = set()
        self._begun_anew: set[int] = set()  # the process, or the next one, has met no fault

    def laid_in(self, node: int, fault: DiskFault) -> None:
        """A node's disk may fail from now on."""
        self._faults.setdefault(node, []).append(fault)
        self._all.append((node, fault))
        self._healed.discard(node)
        self._begun_anew.discard(node)

    def filled(self, node: int, room: Quota) -> None:
        """A node's disk has only so much room from now on."""
        self._full.setdefault(node, []).append(room)
        self._has_room.discard(node)

    def healed(self, node: int, *, up: bool) -> None:
        """A node's disk fails no more; the process that is `up` may have met what it did."""
        self._healed.add(node)
        self._has_room.add(node)
        if not up:
            self._begun_anew.add(node)

    def died(self, node: int, *, replaced: bool) -> None:
        """A node's process is dead."""
        if replaced:
            self._faults.pop(node, None)
        if replaced or node in self._has_room:
            self._full.pop(node, None)
        if node in self._healed:
            self._begun_anew.add(node)

    def recovered(self, node: int) -> None:
        """A process has taken up all that it found."""
        if node in self._begun_anew:
            self._faults.pop(node, None)

    def excuses(self, node: int) -> bool:
        """Whether a node may have lost something by a fault."""
        return any(fault.struck for fault in self._faults.get(node, ()))

    def offline(self, node: int) -> bool:
        """Whether a log directory of a node may be out of use."""
        return self.excuses(node) or any(room.struck for room in self._full.get(node, ()))

    @property
    def harmed(self) -> set[int]:
        """Who has met a fault at some time: who may lead was decided with that."""
        return {node for node, fault in self._all if fault.struck}
