"""Members as they see themselves: what each believes to own, and when it was last told that it may.

Owns when somebody may have been given up by its coordinator. What must follow is for the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from holdfast.clients.group_member.light_member import LightMember, Phase
from holdfast.testing.simulation.groups.shard_state import Held, Named
from holdfast.testing.simulation.plan import CONSUMER, GroupPlan, MemberPlan

# Of a time-out: a coordinator's clock may be fast.
_SURELY: Final = 0.9


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

    def may_be_out(self, now_s: float) -> bool:
        """Whether its coordinator may have given it up by now: it has not heard of it for long."""
        silence_ms = min(self.group.session_ms, self.group.rebalance_ms)
        return now_s - self.ok_s >= _SURELY * silence_ms / 1000

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
