"""One broker that nobody reaches: by the links of a run's network, or by its owner's commands."""

from __future__ import annotations

from holdfast.cluster.network.addresses import HOST
from holdfast.judge.timeline import CUT, HEAL
from holdfast.lab.run import Run
from holdfast.lab.steps.sides import Sides

CUTS = frozenset({CUT, HEAL})  # what is done to it, as a part's `hurts` has it


class CutOff:
    """One broker, and whether anybody reaches it."""

    def __init__(self, run: Run, node: int) -> None:
        self._run, self._node = run, node
        self._sides = Sides(run) if run.parameters.network else None

    def begin(self) -> None:
        """Cut it from all other nodes, and from clients."""
        if self._sides is None:
            self._run.fault(CUT, self._node)
            return
        others = [str(node.id) for node in self._run.cluster.nodes if node.id != self._node]
        self._sides.look_past(self._node)
        self._sides.cut(str(self._node), ",".join([*others, HOST]), [self._node], "from everybody")

    def end(self) -> None:
        """Let everybody reach it again."""
        if self._sides is None:
            self._run.fault(HEAL, self._node)
            return
        self._sides.heal()
        self._sides.look_again(self._node)
