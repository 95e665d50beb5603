"""Members as they see themselves: what each believes to own, and when it was last told that it may.

Owns when somebody may have been given up by its coordinator. What must follow is for the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from holdfast.clients.group_member.light_member import LightMember, Phase
from holdfast.testing.simulation.groups.shard_state import Held, Named
from holdfast.testing.simulation.plan import CONSUMER, GroupPlan, MemberPlan

# Of a time-out: a coordinator's clock may be fast.
_SURELY: Final = 0.9


class _Well(NamedTuple):
    """A member has asked, and was told that all is well."""

    asked_s: float
    node: int
    leads: bool  # whether the node that told it so led then


@dataclass(slots=True, eq=False)
class View:
    """One life of a member."""

    name: str
    group: GroupPlan
    plan: MemberPlan
    light: LightMember
    ok_s: float = -inf  # when it asked what it was last told is well, by who led then
    is_gone: bool = False  # it has died, or is leaving
    last_epoch: int = -1  # in which it was a member
    told: Held = frozenset()  # what it was last told to own, by ids: KIP-848
    _well: list[_Well] = field(default_factory=list)

    @property
    def member_id(self) -> str:
        return self.light.member_id

    @property
    def instance(self) -> str | None:
        return self.light.plan.instance_id

    @property
    def names(self) -> Named:
        """What it believes to own."""
        return frozenset() if self.is_gone else self.light.assignment

    @property
    def ids(self) -> Held:
        """The same, of a member of KIP-848."""
        nothing = self.is_gone or self.light.over or self.light.phase is Phase.JOINING
        return frozenset() if nothing or self.plan.protocol != CONSUMER else self.told

    def told_well(self, node: int, asked_s: float, *, leads: bool) -> None:
        """It is told that all is well, and asked then. `leads`: by who leads, and led then."""
        self._well.append(_Well(asked_s, node, leads))
        if leads:
            self.ok_s = asked_s

    def may_be_out(self, now_s: float) -> bool:
        """Whether its coordinator may have given it up by now: it has not heard of it for long."""
        return self._is_long(now_s - self.ok_s)

    def may_be_out_of(self, node: int, until_s: float, now_s: float) -> bool:
        """Whether this node may have given it up by now, that leads, or has led until then.

        Of what others were asked since then it has not heard; before, it began all sessions anew.
        """
        heard_s = (
            each.asked_s
            for each in self._well
            if each.node == node or (each.leads and each.asked_s <= until_s)
        )
        return self._is_long(now_s - max(heard_s, default=-inf))

    def _is_long(self, silence_s: float) -> bool:
        most_ms = min(self.group.session_ms, self.group.rebalance_ms)
        return silence_s >= _SURELY * most_ms / 1000

    def __str__(self) -> str:
        light = self.light
        return (
            f"{self.name} ({light.member_id}, {light.phase.name}, epoch {light.epoch}, owns "
            f"{sorted(light.assignment)}, well at {self.ok_s:.3f} s)"
        )


class Views:
    """All members that live."""

    def __init__(self) -> None:
        self._of_group: dict[str, list[View]] = {}

    def enter(self, view: View) -> None:
        self._of_group.setdefault(view.group.name, []).append(view)

    def leave(self, view: View) -> None:
        """It dies, or says that it leaves."""
        view.is_gone = True
        views = self._of_group.get(view.group.name, [])
        if view in views:
            views.remove(view)

    def of(self, group: str) -> Iterator[View]:
        return iter(self._of_group.get(group, ()))
