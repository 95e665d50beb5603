"""When committed offsets expire, and groups that nobody uses.

Every `offsets.retention.check.interval.ms`, counted from the load, is a check. A group is looked at
in the first check after one of its offsets may have expired, or after something has changed in what
may expire: never all groups. A group that is empty and has no offsets (any more) is removed.

Rules: committed-offsets.md#expiry.
"""

from __future__ import annotations

from holdfast.core.deadlines import NEVER_MS, Deadlines
from holdfast.core.group.any_group import AnyGroup
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.group.offsets.offset_store import OffsetStore
from holdfast.core.group.offsets.tombstone_batch import TombstoneBatch
from holdfast.core.log_machine import Decision
from holdfast.wire.records.offset_records import NO_EXPIRY, CommittedOffset, OffsetKey


class OffsetRetention:
    """Which groups have to be looked at, and when."""

    __slots__ = ("_check_ms", "_deadlines", "_loaded_ms", "_retention_ms", "_store")

    def __init__(self, store: OffsetStore, settings: GroupSettings) -> None:
        self._store = store
        self._retention_ms = settings.offsets_retention_ms
        self._check_ms = settings.offsets_retention_check_ms
        self._loaded_ms = 0
        # Not later than something of the group can expire; a check makes it exact.
        self._deadlines: Deadlines[str] = Deadlines()

    def loaded(self, now_ms: int) -> None:
        self._loaded_ms = now_ms

    def committed(self, group_id: str, committed_ms: int, expires_ms: int) -> None:
        """Note an offset that was written."""
        if expires_ms == NO_EXPIRY:
            expires_ms = committed_ms + self._retention_ms
        # Never before the commit: a client may have asked for a time long past, and so for a check
        # that was long ago.
        self._deadlines.bring_forward(group_id, max(expires_ms, committed_ms))

    def changed(self, group_id: str, now_ms: int) -> None:
        """Note that other offsets of the group may expire than before, or the group itself."""
        self._deadlines.bring_forward(group_id, now_ms + 1)  # in the next check, not in this one

    def removed(self, group_id: str) -> None:
        self._deadlines.cancel(group_id)

    @property
    def deadline_ms(self) -> int:
        """The first check in which a group may have to be looked at."""
        at_ms = self._deadlines.wake_ms
        if at_ms == NEVER_MS:
            return NEVER_MS
        checks = -(-(at_ms - self._loaded_ms) // self._check_ms)
        return self._loaded_ms + max(checks, 1) * self._check_ms

    def take(self, now_ms: int) -> str | None:
        """Return the group to be looked at first; None when none is due."""
        return None if now_ms < self.deadline_ms else self._deadlines.take(now_ms)

    def expire(self, group: AnyGroup, decision: Decision, now_ms: int) -> None:
        """Append what removes the expired offsets of a group, and the group if nothing is left."""
        batch = TombstoneBatch(decision)
        next_ms = self._look_at(group, batch, now_ms)
        if group.is_empty and not self._keeps_more(group.group_id, batch.count):
            group.tombstones(decision)
        elif next_ms != NEVER_MS:
            self._deadlines.set(group.group_id, next_ms)
        if decision.records:
            # The same again in the next check.
            decision.once_refused(lambda _: self._deadlines.set(group.group_id, now_ms + 1))

    def _look_at(self, group: AnyGroup, batch: TombstoneBatch, now_ms: int) -> int:
        """Append what has expired, or as much as there is room for. Return when more may expire."""
        next_ms = NEVER_MS
        for topic, partitions in self._store.topics_of(group.group_id):
            if group.subscribes_to(topic):
                continue
            for partition, kept in partitions.items():
                expires_ms = self._expires_ms(group, CommittedOffset._make(kept))
                if expires_ms is None:
                    return NEVER_MS  # nothing of the group does, until it says otherwise
                if expires_ms > now_ms:
                    next_ms = min(next_ms, expires_ms)
                    continue
                key = OffsetKey(group.group_id, topic, partition)
                if not batch.add(key):
                    return self._check_before(now_ms)
        return next_ms

    def _check_before(self, now_ms: int) -> int:
        """Return when the check was that goes on now."""
        return now_ms - (now_ms - self._loaded_ms) % self._check_ms

    def _expires_ms(self, group: AnyGroup, committed: CommittedOffset) -> int | None:
        base_ms = group.offsets_expire_from(committed.committed_ms)
        if base_ms is None or committed.expires_ms == NO_EXPIRY:
            return None if base_ms is None else base_ms + self._retention_ms
        return committed.expires_ms

    def _keeps_more(self, group_id: str, count: int) -> bool:
        """Whether the group has more offsets than so many."""
        return sum(len(partitions) for _, partitions in self._store.topics_of(group_id)) > count
