"""A shard that this broker leads, in one leader epoch: what it decides is done to its log.

Decide, append, apply at once, hold each answer until all is committed that was in the log by then
(`core.log_machine`). All of one decision happens in one go; only commits of offsets, which hold
whatever others say, wait for the end of the turn, so that those of one turn share a batch.

With the epoch the shard ends: who waits is told to look for the coordinator, and the next one
begins with what the log says.

Rules: classic-groups.md#refused-appends, committed-offsets.md#committing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from holdfast.core.deadlines import NEVER_MS
from holdfast.core.group.any_group import Caller
from holdfast.core.group.consumer.consumer_patterns import PatternRefresh
from holdfast.core.group.consumer_shard import ConsumerShard
from holdfast.core.log_machine import Answer, Decision
from holdfast.node.coordinator.calls import Calls
from holdfast.node.coordinator.held_answers import HeldAnswers
from holdfast.node.coordinator.record_batches import (
    BATCH_OVERHEAD,
    Bytes,
    batch_of,
    encoded,
    size_of,
)
from holdfast.node.coordinator.shard_time import ShardTime
from holdfast.node.coordinator.stalls import Stalls
from holdfast.node.coordinator.surroundings import Leading, Replica
from holdfast.node.door.waiting_room import WaitingRoom
from holdfast.runtime.ports import Clock
from holdfast.wire.batch import Codec
from holdfast.wire.errors import EncodeError, ErrorCode

logger = logging.getLogger("holdfast.groups")

Decide: TypeAlias = Callable[[ConsumerShard, Caller, int], Decision]
"""What a request asks of a shard: who asks, and the time, come with it."""

SLICE_S: Final = 0.005  # of what is due
SHARED_RECORDS_MAX: Final = 1000  # of commits in one batch
EARLY_MS: Final = 50  # how long answers are held where that is provoked


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSurroundings:
    """What the shards of a broker share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    waiting: WaitingRoom
    calls: Calls
    commit_timeout_ms: int  # offsets.commit.timeout.ms: how long an answer is held
    codec: Codec  # offsets.topic.compression.codec
    stalls: Stalls
    refresh: Callable[[LedShard, PatternRefresh], None]  # holds patterns to the names of topics
    clock_was_set: Callable[[LedShard], None]
    broken: Callable[[LedShard], None]  # by a mistake of ours: what it holds is not to be trusted
    provoke: Callable[[str], bool]


class LedShard:
    """The shard of one partition that is led here, from its load to the end of its epoch."""

    def __init__(
        self,
        around: ShardSurroundings,
        partition: Replica,
        leading: Leading,
        shard: ConsumerShard,
    ) -> None:
        self.partition = partition
        self.leading = leading
        self.shard = shard
        self.is_loaded = False
        self.time = ShardTime(around.clock)
        self._around = around
        # Where the log ended when the state came to be as it is: what is told of it waits for that.
        self._end = leading.log.end
        self._held: dict[HeldAnswers, None] = {}
        self._asked: dict[int, None] = {}  # calls that nothing was decided to say to yet
        self._commits: list[tuple[Decision, list[Bytes]]] = []  # decided, and not appended yet
        self._commits_bytes = self._commits_records = 0
        self._commits_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._more: asyncio.Handle | None = None  # the rest of what is due
        self._is_over = False

    def __repr__(self) -> str:
        return repr(self.partition)

    @property
    def is_current(self) -> bool:
        return not self._is_over and self.leading.is_current

    @property
    def index(self) -> int:
        return self.partition.index

    def loaded(self) -> None:
        """Serve: all that the log had at the epoch's beginning was replayed, and begun with."""
        self.is_loaded = True
        self._decided()

    # -- what is asked ---------------------------------------------------------------------------

    def refusal(self) -> ErrorCode:
        """Say why nothing can be decided here now; NONE: it can."""
        if not self.is_current:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if self.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def ask(self, decide: Decide, caller: Caller, *, shares_batch: bool = False) -> None:
        """Decide on a request, once `refusal` has nothing to say against it."""
        now_ms = self._now_ms()
        if not self.is_current:  # the clock was set: this shard is over
            self._around.calls.refuse(caller.call, ErrorCode.NOT_COORDINATOR)
            return
        self._asked[caller.call] = None
        with self._kept_whole():
            if shares_batch:
                self._share(decide(self.shard, caller, now_ms))
                return
            self._append_commits()
            if self.is_current:  # else the disk has failed, and this call was refused as well
                self.perform(decide(self.shard, caller, now_ms))

    def ask_at_once(self, decide: Decide, caller: Caller, wait: Callable[[], None]) -> Any:
        """Decide on a request; return its response, if that is nobody's to wait for.

        None: `wait` was called, behind which the call is known by its number, and it is answered as
        any other. Most of what is asked are heartbeats, whose answer tells of nothing that is not
        committed: they need no place among those that wait.
        """
        now_ms = self._now_ms()
        if not self.is_current or self._commits or not self._around.calls.is_quiet:
            wait()
            self.ask(decide, caller)
            return None
        try:
            decision = decide(self.shard, caller, now_ms)
            if decision.records or self.partition.acknowledgement(self._end) is None:
                wait()
                self._asked[caller.call] = None
                self.perform(decision)
                return None
            answers = self.shard.apply(decision)
            is_mine = len(answers) == 1 and answers[0].call == caller.call
            if is_mine and not self.shard.wants_refresh:
                self._arm()
                return answers[0].response
            wait()
            self._asked[caller.call] = None
            self._decided()
        except BaseException:
            self._break()
            raise
        self._hold(answers)
        return None

    def forget(self, call: int) -> None:
        """The connection of a call is gone."""
        self._around.calls.forget(call)
        self._asked.pop(call, None)
        if self.is_current and self.is_loaded:
            self.shard.forget(call)
            self._decided()

    def change(self, change: Callable[[ConsumerShard, int], Decision | None]) -> None:
        """Tell the shard of something that nobody asked for: a decision may follow."""
        if not (self.is_current and self.is_loaded):
            return
        now_ms = self._now_ms()
        with self._kept_whole():
            self._append_commits()
            if not self.is_current:
                return
            decision = change(self.shard, now_ms)
            if decision is None:
                self._decided()
            else:
                self.perform(decision)

    @contextmanager
    def _kept_whole(self) -> Iterator[None]:
        """Let go of the shard where a decision was begun and not brought to its end.

        It would take no other one: all its groups would stand still for good.
        """
        try:
            yield
        except BaseException:
            self._break()
            raise

    def _break(self) -> None:
        if not self._is_over:
            self._around.broken(self)

    def _now_ms(self) -> int:
        if self.time.is_wrong:
            self._around.clock_was_set(self)
        return self.time.now_ms()

    # -- decisions -------------------------------------------------------------------------------

    def perform(self, decision: Decision) -> None:
        """Append what was decided, apply it, and hold its answers."""
        records = self._encoded(decision)
        if records is None:
            self._settle([decision], ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._append([decision], records)

    def _encoded(self, decision: Decision) -> list[Bytes] | None:
        """Return the records of a decision as bytes; None: there are no bytes for them."""
        try:
            return encoded(decision.records)
        except EncodeError:
            # Its client is told, and its group goes on. What can't be written should have been
            # refused where it was decided.
            logger.exception("%s: a decision can't be written", self)
            return None

    def _share(self, decision: Decision) -> None:
        """Have a decision wait for the others of this turn; one without records need not."""
        records = self._encoded(decision)
        if not records:
            self.perform(decision)
            return
        size = size_of(records)
        is_full = self._commits_records + len(records) > SHARED_RECORDS_MAX
        if self._commits and (is_full or self._commits_bytes + size > self._batch_bytes_max):
            self._append_commits()
        self._commits.append((decision, records))
        self._commits_bytes += size
        self._commits_records += len(records)
        if self._around.provoke("commits.alone"):
            self._append_commits()
        elif self._commits_handle is None:
            self._commits_handle = self._around.loop.call_soon(self._append_commits)

    @property
    def _batch_bytes_max(self) -> int:
        return self.partition.settings.max_message_bytes - BATCH_OVERHEAD

    def _append_commits(self) -> None:
        """Append the commits of this turn as one batch."""
        if self._commits_handle is not None:
            self._commits_handle.cancel()
            self._commits_handle = None
        commits, self._commits = self._commits, []
        self._commits_bytes = self._commits_records = 0
        if commits:
            records = [record for _, some in commits for record in some]
            with self._kept_whole():
                self._append([decision for decision, _ in commits], records)

    def _append(self, decisions: list[Decision], records: list[Bytes]) -> None:
        self._settle(decisions, self._append_batch(records) if records else ErrorCode.NONE)

    def _settle(self, decisions: list[Decision], code: ErrorCode) -> None:
        """Let decisions take effect, or not, as the log has said."""
        if self._is_over:
            return  # the disk has failed: who asked was told so with all the others
        answers: list[Answer] = []
        for decision in decisions:
            if code is ErrorCode.NONE:
                answers += self.shard.apply(decision)
            else:
                answers += self.shard.refuse(decision, code)
        self._decided()  # before who asked is answered, and forgotten
        self._hold(answers)

    def _append_batch(self, records: list[Bytes]) -> ErrorCode:
        if not self.is_current:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._around.provoke("shard.append-refused"):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        batch = batch_of(records, self.time.now_ms(), self._around.codec)
        if len(batch) > self.partition.settings.max_message_bytes:
            logger.error(
                "%s: %d records of groups make a batch of %d bytes, and max.message.bytes is %d: "
                "they are refused",
                self, len(records), len(batch), self.partition.settings.max_message_bytes,
            )  # fmt: skip
            return ErrorCode.RECORD_LIST_TOO_LARGE
        appended = self.leading.append(batch, acks=-1)
        if appended.error is ErrorCode.NONE:
            self._end = appended.required
        return appended.error

    def _decided(self) -> None:
        """Do what follows from any change of the shard: its timer, and what it wants done."""
        while self.is_current and (refresh := self.shard.take_refresh()) is not None:
            self._around.refresh(self, refresh)
        self._arm()

    # -- answers ---------------------------------------------------------------------------------

    def _hold(self, answers: list[Answer]) -> None:
        """Send answers once all is committed that the log has now."""
        if not answers:
            return
        for answer in answers:
            self._asked.pop(answer.call, None)
        if self.is_current and self.partition.acknowledgement(self._end) is not None:
            self._around.calls.send(answers)
            return
        held = HeldAnswers(self._around.calls, answers, self._let_go)
        if not self.is_current:
            held.refuse(ErrorCode.NOT_COORDINATOR)
            return
        self._held[held] = None
        is_early = self._around.provoke("held.expire-early")
        timeout_ms = EARLY_MS if is_early else self._around.commit_timeout_ms
        held.begin(self._around.waiting, timeout_ms)
        self.partition.acknowledgements.add(self._end, held, 0)

    def _let_go(self, held: HeldAnswers) -> ErrorCode:
        """Return what holds of answers that wait no longer: NONE: all is committed."""
        self._held.pop(held, None)
        return ErrorCode.NONE if self.is_current else ErrorCode.NOT_COORDINATOR

    # -- time ------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have a timer that comes no later than the shard's next deadline."""
        due_ms = self.shard.deadline_ms if self.is_current and self.is_loaded else NEVER_MS
        if due_ms >= self._timer_ms or self._more is not None:
            return
        self._set_timer(due_ms)

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = max(0, due_ms - self.time.now_ms(), self._around.stalls.grace_ms)
        self._timer = self._around.loop.call_later(delay_ms / 1000, self._timed)

    def _timed(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        if self.is_current:
            self._do_what_is_due()

    def _do_what_is_due(self) -> None:
        """Do as much of it as is done in a slice; the rest when others have had their turn."""
        self._more = None
        now_ms = self._now_ms()
        if self._around.stalls.grace_ms > 0:  # asked after the time: also between two slices
            self._arm()
            return
        until = self._around.loop.time() + SLICE_S
        with self._kept_whole():
            while self.is_current and self.shard.deadline_ms <= now_ms:
                if self._around.loop.time() >= until or self._around.provoke("shard.due-by-turns"):
                    self._more = self._around.loop.call_soon(self._do_what_is_due)
                    return
                self._append_commits()
                if self.is_current:
                    self.perform(self.shard.due(now_ms))
        self._arm()

    # -- the end ---------------------------------------------------------------------------------

    def resign(self) -> None:
        """End: another epoch has begun. Who waits has to look for the coordinator anew.

        What was decided and not appended is forgotten with the shard.
        """
        if self._is_over:
            return
        self._is_over = True
        self.shard.let_go()
        for timer in (self._timer, self._more, self._commits_handle):
            if timer is not None:
                timer.cancel()
        self._commits.clear()
        for held in list(self._held):
            held.refuse(ErrorCode.NOT_COORDINATOR)
        self._held.clear()
        asked, self._asked = self._asked, {}
        for call in asked:
            self._around.calls.refuse(call, ErrorCode.NOT_COORDINATOR)
