"""One owner at a time: what the log says of it, and what members believe.

Owns the two rules. In the log nobody has what another has, nor gives it to who comes next before it
was given up. And who believes to own something loses it only when it was silent for long.

Rules: consumer-groups.md#one-owner, classic-groups.md#rebalances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from holdfast.testing.simulation.groups.shard_state import Held, Member
from holdfast.testing.simulation.groups.shard_truth import ShardTruth
from holdfast.testing.simulation.groups.views import View, Views
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.plan import CONSUMER


class _Owner(NamedTuple):
    member_id: str
    instance: str | None


class Owners:
    """Of all groups."""

    def __init__(
        self,
        fail: Callable[[Invariant, str], None],
        views: Views,
        index_of: Callable[[str], int],
        id_of: Callable[[str], bytes | None],
    ) -> None:
        """`index_of`: the partition of a group. `id_of`: of a topic that there is, by its name."""
        self._fail: Final = fail
        self._views: Final = views
        self._index_of: Final = index_of
        self._id_of: Final = id_of
        # By group: what was told in which generation, and to whom.
        self._told: dict[str, dict[tuple[Hashable, int], _Owner]] = {}

    def forget(self, group: str) -> None:
        """The group begins anew: generations are given again."""
        self._told.pop(group, None)

    def forget_all(self, index: int) -> None:
        """Something of these groups is lost: generations may be given again."""
        for group in [group for group in self._told if self._index_of(group) == index]:
            self.forget(group)

    # -- what the log says -----------------------------------------------------------------------

    def consumer_changed(self, shard: ShardTruth, group: str, members: dict[str, Member]) -> None:
        """A group of KIP-848 is like this now."""
        owners: dict[Hashable, str] = {}
        for member_id, member in members.items():
            for each in sorted(member.has):
                other = owners.setdefault(each, member_id)
                if other != member_id:
                    self._fail(
                        Invariant.ONE_OWNER,
                        f"{group}: {other} and {member_id} both have {each}: {members}",
                    )
        for view in self._views.of(group):
            for each in sorted(self._ids(view)):
                owner = owners.get(each, view.member_id)
                if owner != view.member_id:
                    self._lost(shard, view, each, _Owner(owner, members[owner].instance))

    def _ids(self, view: View) -> Held:
        """What a member believes to own, by ids; a classic one knows the names alone."""
        if view.plan.protocol == CONSUMER:
            return view.ids
        ids = ((self._id_of(topic), index) for topic, index in view.names)
        return frozenset((topic_id, index) for topic_id, index in ids if topic_id is not None)

    def _lost(self, shard: ShardTruth, view: View, partition: Hashable, owner: _Owner) -> None:
        """Somebody else has what a member believes to own."""
        now_s = asyncio.get_running_loop().time()
        if (view.instance is not None and view.instance == owner.instance) or (
            view.may_be_out(now_s) or view.ok_s <= shard.lost_s
        ):
            return
        self._fail(
            Invariant.OWNER_KEEPS,
            f"{view.group.name}: {partition} is {owner.member_id}'s at {now_s:.3f} s, and {view}"
            f" believes to own it",
        )

    # -- what members are told -------------------------------------------------------------------

    def told(self, view: View, partition: Hashable, epoch: int) -> None:
        """A member is told that it owns a partition, in this generation or member epoch."""
        told = self._told.setdefault(view.group.name, {})
        owner = _Owner(view.member_id, view.instance)
        other = told.setdefault((partition, epoch), owner)
        same_instance = owner.instance is not None and owner.instance == other.instance
        if other.member_id == owner.member_id:
            return
        if not same_instance:
            self._fail(
                Invariant.ONE_OWNER,
                f"{view.group.name}: {partition} was given to {other} and {owner} in {epoch}",
            )
        told[partition, epoch] = owner

    def told_name(
        self, shard: ShardTruth, view: View, partition: tuple[str, int], generation: int
    ) -> None:
        """A classic member is told that it owns a partition: then nobody else believes to.

        But who is in a later generation by then: it was paused, say, while it was answered, and is
        out of the group without knowing.
        """
        owner = _Owner(view.member_id, view.instance)
        for other in self._views.of(view.group.name):
            if other is not view and partition in other.names and other.light.epoch <= generation:
                self._lost(shard, other, partition, owner)
