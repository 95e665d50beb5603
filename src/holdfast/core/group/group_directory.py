"""The groups of a shard by id, whichever their kind, and when each has something to do.

Rules: group-records.md#unknown-types, classic-groups.md#kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.deadlines import NEVER_MS, Deadlines
from holdfast.core.group.any_group import AnyGroup, GroupKind
from holdfast.wire.schema import Struct


class GroupDirectory:
    """All groups; a group has one kind at a time.

    The first of `kinds` is that of a group of which nothing is known but its offsets.
    """

    __slots__ = (
        "_bytes",
        "_deadlines",
        "_default",
        "_groups",
        "_kinds",
        "_parked",
        "_versions",
        "bytes",
    )

    def __init__(self, kinds: Iterable[GroupKind]) -> None:
        kinds = list(kinds)
        self._default = kinds[0]
        self._kinds = {key_type: kind for kind in kinds for key_type in kind.key_types}
        self._groups: dict[str, AnyGroup] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self._versions: dict[str, int] = {}  # of what each last said of its offsets' retention
        self._parked: dict[int, str] = {}  # call to group
        self._bytes: dict[str, int] = {}  # of what each took when it was settled last
        self.bytes = 0  # of all

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def all(self) -> Iterable[AnyGroup]:
        return self._groups.values()

    def some(self, group_ids: Iterable[str]) -> Iterable[AnyGroup]:
        """Go through those of these that are there."""
        return filter(None, map(self._groups.get, group_ids))

    def put_away(self) -> Iterator[None]:
        """Let go of all groups, one a step: nobody may ask for them any more."""
        while self._groups:
            self._groups.popitem()
            yield

    # -- from the log ----------------------------------------------------------------------------

    def id_of(self, key: Struct) -> str:
        """Return the id of the group that a record is about."""
        return self._kinds[type(key)].group_id_of(key)

    def replay(self, key: Struct, value: Struct | None) -> str:
        """Make true what a record says of a group, and return the group's id."""
        kind = self._kinds[type(key)]
        group_id = kind.group_id_of(key)
        group = self._groups.get(group_id)
        if group is not None and not self._is_of(group, kind):
            if value is None or not group.is_empty:
                return group_id  # what it was before: its end is written before another begins
            group = None
        if group is None:
            if value is None:
                return group_id
            group = self._groups[group_id] = kind.make(group_id)
            self._versions.pop(group_id, None)
        if value is None and type(key) is kind.existence_type:
            self._remove(group_id)
        else:
            group.replay(key, value)
        return group_id

    def make_sure(self, group_id: str) -> None:
        """Have a group for offsets that were committed without one."""
        if group_id not in self._groups:
            self._groups[group_id] = self._default.make(group_id)

    def _is_of(self, group: AnyGroup, kind: GroupKind) -> bool:
        return group.kind == kind.name

    def _remove(self, group_id: str) -> None:
        del self._groups[group_id]
        self._deadlines.cancel(group_id)
        self._versions.pop(group_id, None)
        self.bytes -= self._bytes.pop(group_id, 0)

    # -- what a group wants ----------------------------------------------------------------------

    def settle(self, group_id: str) -> bool:
        """Look at a group after it was asked. True: other offsets of it may expire than before."""
        group = self._groups.get(group_id)
        if group is None:
            return False
        size = group.bytes
        self.bytes += size - self._bytes.get(group_id, 0)
        self._bytes[group_id] = size
        deadline_ms = group.deadline_ms
        if deadline_ms == NEVER_MS:
            self._deadlines.cancel(group_id)
        else:
            self._deadlines.set(group_id, deadline_ms)
        version = group.retention_version
        if self._versions.get(group_id) == version:
            return False
        self._versions[group_id] = version
        return True

    @property
    def deadline_ms(self) -> int:
        return self._deadlines.wake_ms

    def take_due(self, now_ms: int) -> AnyGroup | None:
        """Return the group that is due first. It has to be settled."""
        group_id = self._deadlines.take(now_ms)
        return None if group_id is None else self._groups[group_id]

    # -- calls that wait -------------------------------------------------------------------------

    def park(self, call: int, group_id: str) -> None:
        """Note where a call is, unless it is answered (`answered`)."""
        self._parked[call] = group_id

    def answered(self, call: int) -> None:
        self._parked.pop(call, None)

    def forget(self, call: int) -> None:
        group = self._groups.get(self._parked.pop(call, ""))
        if group is not None:
            group.forget(call)
