"""A shard of the group coordinator as a state machine: its log, its time, its open decisions.

Owns the order in which things happen to a shard. What its clients ask is in `shard`.

Rules: classic-groups.md#refused-appends, classic-groups.md#sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from holdfast.core.group.any_group import GroupKind
from holdfast.core.group.classic.classic_group import ClassicGroups
from holdfast.core.group.group_directory import GroupDirectory
from holdfast.core.group.group_memory import GroupMemory
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.group.offsets.deleted_topics import DeletedTopic, DeletedTopics
from holdfast.core.group.offsets.offset_retention import OffsetRetention
from holdfast.core.group.offsets.offset_store import OffsetStore
from holdfast.core.log_machine import Answer, Decision, RecordPart
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.group_tables import OffsetCommitKey, OffsetCommitValue
from holdfast.wire.records.offset_records import CommittedOffset, OffsetKey
from holdfast.wire.schema import Struct
from holdfast.wire.uuids import NULL_UUID

GROUPS_PER_TURN: Final = 50  # whose timers one call of `due` looks at


class ShardMachine:
    """What a shard is beside what it is asked: what it holds, and how decisions take effect.

    `new_id` gives a new UUID at each call, as text. `kinds` are groups of other kinds than classic.
    """

    __slots__ = (
        "_classic",
        "_deleted_topics",
        "_groups",
        "_memory",
        "_noted_bytes",
        "_now_ms",
        "_offsets",
        "_retention",
        "_settings",
        "_undone",
    )

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        kinds: Iterable[GroupKind] = (),
        memory: GroupMemory | None = None,
    ) -> None:
        self._settings = settings
        self._memory = memory or GroupMemory()
        self._noted_bytes = 0  # of this shard, in what all take
        self._classic = ClassicGroups(settings, new_id, self._memory)
        self._groups = GroupDirectory([self._classic, *kinds])
        self._offsets = OffsetStore()
        self._retention = OffsetRetention(self._offsets, settings)
        self._deleted_topics = DeletedTopics(self._offsets)
        self._now_ms = 0
        self._undone: list[Decision] = []  # decided, and neither applied nor refused yet

    # -- the log ---------------------------------------------------------------------------------

    def replay(self, key: RecordPart, value: RecordPart | None) -> None:
        """Make true what a record of the log says."""
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, CommittedOffset)
            self.replay_offset(key, value)
        elif isinstance(key, OffsetCommitKey):  # of another version than is written now
            assert value is None or isinstance(value, OffsetCommitValue)
            where = OffsetKey(key.group, key.topic, key.partition)
            self.replay_offset(where, None if value is None else _committed(value))
        else:
            assert isinstance(key, Struct)
            assert value is None or isinstance(value, Struct)
            group_id = self._groups.replay(key, value)
            if self._groups.get(group_id) is None:
                self._retention.removed(group_id)

    def replay_offset(self, key: OffsetKey, committed: CommittedOffset | None) -> None:
        """Make true what a record says of an offset. None: it is gone."""
        group_id, topic, partition = key
        if committed is not None:
            self._offsets.put(group_id, topic, partition, committed)
            self._groups.make_sure(group_id)
            self._retention.committed(group_id, committed.committed_ms, committed.expires_ms)
            return
        self._offsets.remove(group_id, topic, partition)
        if not self._offsets.has_any(group_id):
            self._retention.changed(group_id, self._now_ms)

    def loaded(self, now_ms: int) -> None:
        """Begin to lead: all that the log has was replayed. Sessions begin anew now."""
        for _ in self.begin(now_ms):
            pass

    def begin(self, now_ms: int) -> Iterator[None]:
        """Do the same by steps, a group each. Nothing may be asked before the last."""
        self._now_ms = now_ms
        self._retention.loaded(now_ms)
        for group in self._groups.all():
            group.loaded(now_ms)
            self._groups.settle(group.group_id)
            if not self._offsets.has_any(group.group_id):
                self._retention.changed(group.group_id, now_ms)
            yield
        self._note_bytes()

    def apply(self, decision: Decision) -> list[Answer]:
        """Take effect: the records are in the log."""
        return self._done(decision, decision.apply(self.replay))

    def refuse(self, decision: Decision, code: ErrorCode) -> list[Answer]:
        """Do without: the log did not take the records, and said `code`."""
        return self._done(decision, decision.refuse(code))

    def _begin(self, now_ms: int, *, may_share_batch: bool = False) -> Decision:
        assert all(each.may_share_batch for each in self._undone), "an open decision comes first"
        assert may_share_batch or not self._undone, "an open decision comes first"
        self._now_ms = now_ms
        return Decision(may_share_batch=may_share_batch)

    def _decided(self, decision: Decision, group_id: str | None = None) -> Decision:
        if group_id is not None:
            self._settle(group_id)
        if decision.records:
            self._undone.append(decision)
        return decision

    def _done(self, decision: Decision, answers: list[Answer]) -> list[Answer]:
        if decision.records:
            self._undone.remove(decision)
        for answer in answers:
            self._groups.answered(answer.call)
        touched = (
            key.group if isinstance(key, OffsetKey) else self._groups.id_of(key)
            for key, _ in decision.records
        )
        for group_id in dict.fromkeys(touched):
            self._settle(group_id)
        self._note_bytes()
        return answers

    def _note_bytes(self) -> None:
        size = self._offsets.bytes + self._groups.bytes
        self._memory.bytes += size - self._noted_bytes
        self._noted_bytes = size

    def let_go(self) -> None:
        """Note that the shard is thrown away: what it has taken is free."""
        self._memory.bytes -= self._noted_bytes
        self._noted_bytes = 0

    def put_away(self) -> Iterator[None]:
        """Let go of all that the shard holds, by steps; it is not asked any more.

        A million offsets that are freed in one go hold up everybody for a tenth of a second.
        """
        self.let_go()
        yield from self._offsets.put_away()
        yield from self._groups.put_away()

    def _settle(self, group_id: str) -> None:
        if self._groups.settle(group_id):
            self._retention.changed(group_id, self._now_ms)

    # -- time and connections --------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int:
        """When `due` has something to do, or earlier; or `core.deadlines.NEVER_MS`."""
        return min(
            self._groups.deadline_ms,
            self._deleted_topics.deadline_ms,
            self._retention.deadline_ms,
        )

    def due(self, now_ms: int) -> Decision:
        """Do a part of what is due: sessions and rebalances first, then what is thrown away."""
        decision = self._begin(now_ms)
        for _ in range(GROUPS_PER_TURN):
            group = self._groups.take_due(now_ms)
            if group is None:
                break
            group.due(decision, now_ms)
            self._settle(group.group_id)
            if decision.records:
                return self._decided(decision)
        if self._deleted_topics.deadline_ms <= now_ms:
            self._deleted_topics.due(decision, now_ms)
        for _ in range(GROUPS_PER_TURN):
            group_id = None if decision.records else self._retention.take(now_ms)
            if group_id is None:
                break
            group = self._groups.get(group_id)
            if group is not None:
                self._retention.expire(group, decision, now_ms)
        return self._decided(decision)

    def forget(self, call: int) -> None:
        """Note that the connection of a parked call is gone. Its member stays."""
        self._groups.forget(call)

    def resign(self, code: ErrorCode) -> list[Answer]:
        """Answer all that is parked. The shard may not be asked any more."""
        decision = Decision()
        for group in self._groups.all():
            group.resign(decision, code)
        return decision.apply(self.replay)

    @property
    def deleted_topics(self) -> list[DeletedTopic]:
        """Topics that are gone, and whose offsets are not all removed yet."""
        return self._deleted_topics.topics

    def topics_deleted(self, topics: Iterable[DeletedTopic], now_ms: int) -> None:
        """Note that topics are gone: their offsets are removed by the next calls of `due`."""
        self._now_ms = now_ms
        self._deleted_topics.add(topics, now_ms)


def _committed(value: OffsetCommitValue) -> CommittedOffset:
    topic_id = value.topic_id
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        NULL_UUID if topic_id == NULL_UUID else bytes(topic_id),
    )
