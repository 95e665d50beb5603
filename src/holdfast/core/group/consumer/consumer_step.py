"""One step of one member: what it tells is noted, the group's epoch follows, it moves on.

Whether it came by KIP-848's heartbeat or by a JoinGroup of the classic protocol, the parts are the
same and come in this order: `note_member`, `note_pattern`, `note_epoch`, `note_target`, `move`. The
group itself stays as it is: records gather here, and the log makes them true.

Rules: consumer-groups.md#group-epoch, consumer-groups.md#target-assignment,
consumer-groups.md#reconciliation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from holdfast.core.group.assignors import NOTHING, Partitions
from holdfast.core.group.consumer.consumer_core import ASSIGNMENT_TIMER, ConsumerCore, Timer
from holdfast.core.group.consumer.consumer_member import (
    FIRST_EPOCH,
    ConsumerMember,
    MemberState,
    current_record,
    metadata_record,
)
from holdfast.core.group.consumer.consumer_patterns import (
    PATTERNS_MAX,
    REFRESH_MIN_MS,
    PatternRefresh,
)
from holdfast.core.group.consumer.consumer_reconcile import Aim, reconcile
from holdfast.core.group.consumer.consumer_records import (
    epoch_record,
    old_metadata_tombstone,
    pattern_tombstone,
)
from holdfast.core.group.consumer.consumer_target import (
    Subscriptions,
    next_targets,
    preferred_assignor,
    target_records,
)
from holdfast.core.log_machine import Decision, KeyedRecord
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode


class MemberStep:
    """From `before`, as the group knows the member, to `after`."""

    __slots__ = (
        "_call",
        "_core",
        "_effects",
        "_now_ms",
        "_target",
        "_target_epoch",
        "after",
        "before",
        "epoch",
        "names_changed",
        "pattern_changed",
        "pattern_resolved",
        "records",
    )

    def __init__(
        self,
        core: ConsumerCore,
        before: ConsumerMember,
        after: ConsumerMember,
        records: list[KeyedRecord],
        *,
        now_ms: int,
        call: int,
    ) -> None:
        self._core = core
        self._now_ms = now_ms
        self._call = call
        self._effects: list[Callable[[], None]] = []
        self._target: Partitions = NOTHING
        self._target_epoch = core.state.assignment_epoch
        self.before = before
        self.after = after
        self.epoch = core.state.epoch
        self.names_changed = before.topics != after.topics
        self.pattern_changed = before.pattern != after.pattern
        self.pattern_resolved = False  # it changed, and what it matches now is known
        self.records = records

    @property
    def subscription_changed(self) -> bool:
        return self.names_changed or self.pattern_changed

    def note_member(self) -> None:
        """Write down what the member tells, if it is anything new."""
        if self.after != self.before:
            self._append(metadata_record(self._core.group_id, self.after))

    # -- patterns --------------------------------------------------------------------------------

    def note_pattern(self) -> Refusal | None:
        """Take note of a new pattern, and see whether the group's have to be resolved anew."""
        state = self._core.state
        old, new = self.before.pattern, self.after.pattern
        is_first = bool(new) and not state.pattern_users[new]
        if self.pattern_changed:
            if is_first:
                refusal = self._refuse_pattern(new)
                if refusal is not None:
                    return refusal
            if old and state.pattern_users[old] == 1:
                self._append(pattern_tombstone(state.group_id, old))
            self.pattern_resolved = not new or (not is_first and new in state.patterns)
        refresh = self._refresh(must=self.pattern_changed and is_first)
        if refresh is not None:
            self._effects.append(lambda: self._ask(refresh))
        return None

    def _refuse_pattern(self, new: str) -> Refusal | None:
        """Return a refusal of a pattern that no other member has."""
        if len(self._patterns_after()) > PATTERNS_MAX:
            return Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"The members of the group have {PATTERNS_MAX} regular expressions already.",
            )
        matches = self._core.around.compiled(new)
        return matches if isinstance(matches, Refusal) else None

    def _refresh(self, *, must: bool) -> PatternRefresh | None:
        core, state, journal = self._core, self._core.state, self._core.around.journal
        if core.is_refreshing or not (must or state.pattern_users):
            return None
        some = next(iter(state.patterns.values()), None)  # all are resolved together
        last_ms = [core.refresh_failed_ms, None if some is None else some.at_ms]
        if any(ms is not None and self._is_within(REFRESH_MIN_MS, ms) for ms in last_ms):
            return None
        patterns = self._patterns_after()
        unknown = len(patterns) != len(state.patterns)
        interval_ms = core.settings.regex_refresh_interval_ms
        is_old = some is not None and not self._is_within(interval_ms, some.at_ms)
        has_new_topics = (some.version if some is not None else 0) < journal.newest
        if not patterns or not (must or unknown or is_old or has_new_topics):
            return None
        since = self._known_since(patterns, interval_ms)
        return PatternRefresh(
            group_id=state.group_id,
            patterns=patterns,
            call=self._call,
            since=since,
            known={} if since is None else dict(state.patterns),
        )

    def _is_within(self, milliseconds: int, since_ms: int) -> bool:
        """Whether no more than that has passed since a time that the log tells.

        One that lies ahead was written by another clock, or before this one was set: nobody waits
        for it to come.
        """
        return 0 <= self._now_ms - since_ms <= milliseconds

    def _known_since(self, patterns: tuple[str, ...], interval_ms: int) -> int | None:
        """Return the version at which all of these were resolved; None: look at all topics.

        All are looked at once in an interval, since it may have changed who may see which.
        """
        resolved = self._core.state.patterns
        versions = {resolved[each].version if each in resolved else None for each in patterns}
        scanned_ms = self._core.scanned_ms
        if len(versions) != 1 or scanned_ms is None or self._now_ms > scanned_ms + interval_ms:
            return None
        return versions.pop()

    def _patterns_after(self) -> tuple[str, ...]:
        users = Counter(self._core.state.pattern_users)
        if self.before.pattern:
            users[self.before.pattern] -= 1
        if self.after.pattern:
            users[self.after.pattern] += 1
        return tuple(sorted(pattern for pattern, count in users.items() if count > 0))

    def _ask(self, refresh: PatternRefresh) -> None:
        self._core.is_refreshing = True
        self._core.around.refreshes[refresh.group_id] = refresh

    # -- the group's epoch, and what follows from it ----------------------------------------------

    def note_epoch(self, *, bump: bool) -> None:
        """Raise the group's epoch if `bump`, or if its topics are not what they were."""
        core, state = self._core, self._core.state
        if not bump and not core.metadata_is_old(self._now_ms):
            return
        metadata_hash = core.metadata_hash(self._names_after())
        if bump or metadata_hash != state.metadata_hash:
            self.epoch += 1
            self._append(epoch_record(state.group_id, self.epoch, metadata_hash))
        if state.has_old_metadata:
            self._append(old_metadata_tombstone(state.group_id))
        self._effects.append(lambda: core.metadata_is_new(self._now_ms))

    def _names_after(self) -> list[str]:
        state, old = self._core.state, self.before.pattern
        last = self.pattern_changed and state.pattern_users[old] == 1
        return state.names_after(
            gone=[self.before], come=self.after, patterns=[(old, ())] if old and last else []
        )

    def note_target(self) -> None:
        """Assign for the group's new epoch, if it has one."""
        core, state = self._core, self._core.state
        if self.epoch > state.assignment_epoch and self._may_assign():
            assignor = preferred_assignor(state, core.settings.assignors, self.before, self.after)
            targets = next_targets(state, core.around.topics, assignor, self.after)
            self.records += target_records(state, targets, self.epoch, self._now_ms)
            self._target = targets[self.after.member_id]
            self._target_epoch = self.epoch
            self._effects.append(lambda: core.timers.cancel(ASSIGNMENT_TIMER))
        else:
            self.keep_target()

    def keep_target(self) -> None:
        """Go on towards the target that there is."""
        self._target = self._core.state.target_of(self.after)

    def _may_assign(self) -> bool:
        """Whether the last assignment is long enough ago. A group that has none is not kept."""
        core, state = self._core, self._core.state
        interval_ms = core.settings.assignment_interval_ms
        if state.assignment_epoch <= FIRST_EPOCH:
            return True
        if not self._is_within(interval_ms - 1, state.assigned_ms):
            return True
        at_ms = state.assigned_ms + interval_ms
        self._effects.append(lambda: core.timers.set(ASSIGNMENT_TIMER, at_ms))
        return False

    def move(self, owned: Partitions | None) -> Refusal | None:
        """Move the member towards its target. `owned` is what it says that it has."""
        core, state = self._core, self._core.state
        if not self.subscription_changed and self.after.settled(self._target_epoch):
            return None
        aim = Aim(
            epoch=self._target_epoch,
            target=self._target,
            subscribed=Subscriptions(state, core.around.topics).of(self.after),
            subscription_changed=self.subscription_changed,
            owned=owned,
            taken=lambda topic_id, index: state.owner(topic_id, index) is not None,
        )
        moved = reconcile(self.after, aim)
        if isinstance(moved, Refusal):
            return moved
        if moved != self.after:
            self.after = moved
            self._append(current_record(state.group_id, moved))
            self._effects.append(lambda: self._await_revocation(moved))
        return None

    def _await_revocation(self, member: ConsumerMember) -> None:
        key = (Timer.REBALANCE, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._core.timers.set(key, self._now_ms + member.rebalance_timeout_ms)
        else:
            self._core.timers.cancel(key)

    # --------------------------------------------------------------------------------------------

    def _append(self, record: KeyedRecord) -> None:
        self.records.append(record)

    def put_into(self, decision: Decision) -> None:
        """Decide it: the records, and what follows once they are in the log."""
        for record in self.records:
            decision.append(*record)
        for effect in self._effects:
            decision.once_applied(effect)
