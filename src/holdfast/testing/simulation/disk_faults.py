"""Which nodes' disks have failed, and until when that excuses what they lose.

An excuse needs a fault that has struck. It ends when the disk is replaced, or when a process that
began on the healed disk has taken up all that it found: what that one has, it may not lose.
"""

from __future__ import annotations

from holdfast.testing.ground.disk import DiskFault


class DiskFaults:
    """Faults by node."""

    def __init__(self) -> None:
        self._faults: dict[int, list[DiskFault]] = {}
        self._all: list[tuple[int, DiskFault]] = []
        self._healed: set[int] = set()
        self._begun_anew: set[int] = set()  # the process, or the next one, has met no fault

    def laid_in(self, node: int, fault: DiskFault) -> None:
        """A node's disk may fail from now on."""
        self._faults.setdefault(node, []).append(fault)
        self._all.append((node, fault))
        self._healed.discard(node)
        self._begun_anew.discard(node)

    def healed(self, node: int, *, up: bool) -> None:
        """A node's disk fails no more; the process that is `up` may have met what it did."""
        self._healed.add(node)
        if not up:
            self._begun_anew.add(node)

    def died(self, node: int, *, replaced: bool) -> None:
        """A node's process is dead."""
        if replaced:
            self._faults.pop(node, None)
        if node in self._healed:
            self._begun_anew.add(node)

    def recovered(self, node: int) -> None:
        """A process has taken up all that it found."""
        if node in self._begun_anew:
            self._faults.pop(node, None)

    def excuses(self, node: int) -> bool:
        """Whether a node may have lost something by a fault."""
        return any(fault.struck for fault in self._faults.get(node, ()))

    @property
    def harmed(self) -> set[int]:
        """Who has met a fault at some time: who may lead was decided with that."""
        return {node for node, fault in self._all if fault.struck}
