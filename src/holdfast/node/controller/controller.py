"""The controller at work: decide, append, apply, and answer once it is committed.

Owns the order of these four (docs/design/control-plane.md) and the timers that make the
controller act by itself. What is decided stands in `core`, who leads in `quorum`. Every answer to
a decision, reads too, waits until all that had been appended when it was decided is committed in
the epoch in which it was decided: nobody is told what a crash or another leader could take back.
Two do not wait: a heartbeat that changes nothing, and a change of voters that asks for its answer
at once. A controller that does not lead follows: it keeps the image of what is committed, so that
it can take over at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from holdfast.config.node import NodeSettings
from holdfast.core.controller.broker_sessions import expire_sessions, go_on, next_expiry_ms
from holdfast.core.controller.decisions import ControllerState, Decision
from holdfast.core.controller.elections import balance, elect_leaderless
from holdfast.core.metadata.feature_levels import bootstrap_records
from holdfast.core.metadata.image import ImageDelta, MetadataImage, MetadataRecord
from holdfast.core.quorum.leader_view import Observers, QuorumView
from holdfast.core.quorum.voter_changes import Situation
from holdfast.core.quorum.voter_set import VoterSet
from holdfast.core.refusal import Refusal
from holdfast.log.directories import LogDirectories, LogDirectory
from holdfast.log.errors import StorageError
from holdfast.node.controller.bootstrap_checkpoint import bootstrap_levels
from holdfast.node.controller.controller_reports import tell, view_of
from holdfast.node.door.admission import Admission, Limits
from holdfast.node.door.figures import Figures
from holdfast.node.door.request_context import Authorizer, Deferred, RequestContext
from holdfast.node.door.seldom import Seldom
from holdfast.node.metadata.metadata_log import CommittedBatch, MetadataLogError
from holdfast.node.metadata.metadata_snapshots import LoadedSnapshot, SnapshotMaker
from holdfast.node.quorum.quorum_member import QuorumMember
from holdfast.node.quorum.quorum_replica import QuorumReplica
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import ResourceType
from holdfast.wire.well_known import METADATA_VERSION

logger = logging.getLogger("holdfast.controller")

LATE_MS: Final = 250  # a timer later than this tells of a process that was stopped or starved
GRACE_MS_MAX: Final = (
    500  # so long heartbeats that wait in sockets are read before anybody is fenced
)
SLICE_BYTES: Final = 64 * 1024  # of the log, decoded in one turn of the loop while catching up
SNAPSHOT_LOOK_S: Final = 10  # an idle controller looks so often whether a snapshot is due
GRACES_MAX: Final = 3  # in a row; a process that is always late must fence the dead, too

SHUTDOWN_MS_MAX: Final = 500  # for telling the other voters that this one leaves
_OWN_DECISIONS: Final = ("balance", "unclean")  # timers that only the active controller has

Decide = Callable[[ControllerState, int], Decision]


class _Pending(NamedTuple):
    """An answer that leaves when everything below `offset` is committed."""

    offset: int
    deferred: Deferred
    response: Any


class Controller:
    """One controller of the quorum; `active` while it is the one that decides."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        directories: LogDirectories,
        authorizer: Authorizer,
        figures: Figures,
        admission: Admission,
    ) -> None:
        """Open the log and read what is there; nothing moves until `start`.

        The directories must have been loaded. `failed` ends with an exception when the log can't
        be written any more: the process must then end. MetadataLogError, StorageError: the log
        can't be used.
        """
        self.runtime = runtime
        self.settings = settings
        self.cluster_id = directories.cluster_id
        self.authorizer = authorizer
        self.figures = figures
        self._admission = admission
        self._configs_changed = False  # those of nodes, since the door heard of them
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whoever starts us hears of it as an exception, and of the rest while we serve.
        self.failed.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.readers: Final = Observers()  # without a vote
        self.unknown_keys: Final = Seldom(logger)
        self._pending: deque[_Pending] = deque()
        self._changed_at: dict[int, int] = {}  # broker -> log end after its last change here
        self._active = False
        self._catching_up = False
        self._closed = False
        self._observers: dict[Callable[[], bool], None] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_due_ms = 0
        self._graces = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._replica = QuorumReplica.open(runtime, settings, directories)
        self.log, self.snapshots = self._replica.log, self._replica.snapshots
        self._replica.voter_log.restart(self._restore())
        self._maker = SnapshotMaker(
            self.log.replica, self.snapshots, settings, self.fail, self._replica.voter_log.at
        )
        self.quorum = QuorumMember(self._replica, self)
        directories.watch_offline(self._directory_failed)

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Take part in the quorum; requests are served from now on."""
        self.quorum.start()
        self._tick("snapshots", SNAPSHOT_LOOK_S, self._consider_snapshot)

    async def shut_down(self) -> None:
        """Hand leadership to another voter, if there is one that answers soon."""
        await self.quorum.shut_down(timeout_ms=SHUTDOWN_MS_MAX)

    def close(self) -> None:
        """Stop deciding. Answers that still wait are never given: their connections close."""
        if self._closed:
            return
        self._closed = True
        self._stop_deciding()
        for timer in self._timers.values():
            timer.cancel()
        self._maker.close()
        self.quorum.close()
        self.wake_observers()
        self.failed.cancel()

    @property
    def active(self) -> bool:
        """Whether this controller decides: it leads, and its image holds all that is committed."""
        return self._active and self.quorum.leading

    @property
    def epoch(self) -> int:
        """The newest leader epoch of the quorum that this controller knows of."""
        return self.quorum.epoch

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version: from 1 on the voters stand in the log."""
        return self._replica.voter_log.history.kraft_version

    @property
    def image(self) -> MetadataImage:
        """The image up to the log's end: for deciding, not for showing."""
        return self.state.image

    # -- requests ------------------------------------------------------------------------------

    def decide(
        self, context: RequestContext, decide: Decide, *, about_broker: int | None = None
    ) -> Deferred:
        """Carry a decision out, and answer the request with its response once it is committed.

        With `about_broker` the response tells of that broker's registration and nothing else. A
        decision that changes nothing is then answered at once, if what last changed the
        registration is committed. So a heartbeat is answered while the disk is slow, and nobody
        takes a slow disk for a dead controller. Otherwise it waits for the log's end like any
        other: the answers that wait leave in the order of their offsets.
        """
        deferred = context.defer()
        if not self.active:
            deferred.abandon()
            return deferred
        before = self.log.end
        try:
            response = self._carry_out(decide)
        except StorageError as error:
            self.fail(error)
            deferred.abandon()
            return deferred
        required = self.log.end
        if about_broker is not None and self.log.end == before:
            required = self._changed_at.get(about_broker, 0)
        if required <= self.log.committed:
            deferred.answer(response)
        else:
            self._pending.append(_Pending(self.log.end, deferred, response))
        return deferred

    def observe(self, try_complete: Callable[[], bool]) -> Callable[[], None]:
        """Call `try_complete` whenever more is committed, until it returns True.

        Returns a function that ends this earlier.
        """
        self._observers[try_complete] = None
        return lambda: self._observers.pop(try_complete, None)

    # -- the quorum ----------------------------------------------------------------------------

    def describe_quorum(self) -> QuorumView | None:
        """The quorum as this controller sees it while it leads; None: it does not."""
        return view_of(self.quorum, self.readers) if self.active else None

    def change_voters(
        self,
        context: RequestContext,
        change: Callable[[Situation], VoterSet | Refusal],
        answer: Callable[[ErrorCode, str | None], Any],
        *,
        at_once: bool = False,
    ) -> Deferred:
        """Put another set of voters into force; answer once that is committed (KIP-853).

        With `at_once` the answer is given as soon as it is decided.
        """
        deferred = context.defer()
        if not self.active:
            deferred.answer(answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Another controller leads."))
            return deferred
        voters, wall_ms = self._replica.voter_log, self.runtime.clock.wall_ms()
        outcome = change(
            Situation(voters.history, self.log.committed, self.quorum.state.epoch_start, wall_ms)
        )
        if isinstance(outcome, Refusal):
            deferred.answer(answer(outcome.code, outcome.message))
            return deferred
        done = answer(ErrorCode.NONE, None)
        epoch = self.quorum.epoch
        try:
            last = self.log.append_control([voters.change(outcome)], epoch)
        except StorageError as error:
            self.fail(error)
            deferred.abandon()
            return deferred
        self.state.image.advance(last, epoch)
        if not at_once:
            self._pending.append(_Pending(self.log.end, deferred, done))
        self.quorum.appended()
        if at_once:
            deferred.answer(done)
        return deferred

    # -- decide, append, apply, commit ---------------------------------------------------------

    def _now_ms(self) -> int:
        return self.runtime.clock.monotonic_ms()

    def _restore(self) -> LoadedSnapshot | None:
        """Begin with what the newest snapshot says; the rest comes as it is known to be committed.

        MetadataLogError, SnapshotError, StorageError: that can't be read.
        """
        self.state = ControllerState(self.settings, self.cluster_id)
        self._configs_changed = True
        loaded = self._replica.load()
        if loaded is not None:
            self.state.image = loaded.image
        return loaded

    def _replayed(self, batch: CommittedBatch) -> None:
        if batch.records:
            delta = self.state.apply(batch.records, offset=batch.last_offset, epoch=batch.epoch)
            self._note_configs(delta)
        else:
            self.state.image.advance(batch.last_offset, batch.epoch)

    def _carry_out(self, decide: Decide) -> Any:
        decision = decide(self.state, self._now_ms())
        if decision.records:
            self._append(decision)
        if self._sweep is None:
            self._arm_sweep()
        elif self.state.is_unfinished:
            self._sweep_at(self._now_ms())
        return decision.response

    def _append(self, decision: Decision) -> None:
        assert self.quorum.leading, "only a leader appends"
        epoch = self.quorum.epoch
        last = self.log.append(decision.records, epoch)
        delta = self.state.apply(decision.records, offset=last, epoch=epoch)
        for broker_id in delta.brokers_changed:
            self._changed_at[broker_id] = self.log.end
        self._note_configs(delta)
        tell(self.state.image, delta)
        self.quorum.appended()

    def _note_configs(self, delta: ImageDelta) -> None:
        if any(kind == ResourceType.BROKER for kind, _ in delta.configs_changed):
            self._configs_changed = True

    def _tell_door(self) -> None:
        """Let the door know how many it may let in, once all that is known as committed is applied.

        What stands in the middle of the log may long be something else.
        """
        if self._configs_changed:
            self._configs_changed = False
            settings = self.settings.with_dynamic(
                cluster=self.image.cluster_configs(),
                broker=self.image.broker_configs(self.settings.node_id),
            )
            self._admission.limits = Limits.of(settings)

    # -- what the quorum tells -----------------------------------------------------------------

    def committed(self) -> None:
        """Answer what waited for this; one that doesn't lead applies it."""
        while self._pending and self._pending[0].offset <= self.log.committed:
            pending = self._pending.popleft()
            pending.deferred.answer(pending.response)
        if self._active:
            self._tell_door()
        else:
            self._catch_up_soon()
        self.wake_observers()
        self._consider_snapshot()

    def wake_observers(self) -> None:
        """Look at fetches that wait: voters read what is not committed yet, so that it can be."""
        for try_complete in list(self._observers):
            if try_complete():
                self._observers.pop(try_complete, None)

    def leading(self, epoch: int) -> None:
        """Elected. Decisions begin when all of the log is committed, our epoch's start too."""
        assert not self._active, f"active before epoch {epoch} began"
        self._catch_up_soon()

    def stopped_leading(self) -> None:
        """Whoever waits is told nothing: what it asked for may be carried out or not."""
        self._stop_deciding()
        if self.state.image.offset >= self.log.committed:
            try:
                self._restore()  # what was decided and is not committed may never be
            except StorageError as error:
                self.fail(error)
        self._catch_up_soon()

    def snapshot_loaded(self, image: MetadataImage) -> None:
        """What this controller follows has jumped ahead."""
        self.state = ControllerState(self.settings, self.cluster_id)
        self.state.image = image
        self._configs_changed = True

    def _stop_deciding(self) -> None:
        self._active = False
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for name in _OWN_DECISIONS:
            if name in self._timers:
                self._timers.pop(name).cancel()
        self._maker.forget()
        self._changed_at.clear()
        pending, self._pending = self._pending, deque()
        for each in pending:
            each.deferred.abandon()

    # -- following, and taking over ------------------------------------------------------------

    def _catch_up_soon(self) -> None:
        if not (self._catching_up or self._closed):
            self._catching_up = True
            asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        """Apply some of what is committed, or begin to decide when nothing is left."""
        self._catching_up = False
        if self._closed or self._active:
            return
        offset = self.state.image.offset + 1
        if offset < self.log.committed:
            try:
                for batch in self.log.read_committed(offset, SLICE_BYTES):
                    if batch.last_offset >= offset:
                        self._replayed(batch)
            except (MetadataLogError, StorageError) as error:
                self.fail(error)
                return
            self._catch_up_soon()
            return
        self._tell_door()
        self._consider_snapshot()
        if self._closed:
            return  # the disk failed as it was read
        if self.quorum.leading and self.log.committed == self.log.end:
            self._begin_deciding()

    def _begin_deciding(self) -> None:
        """Take over: the image is what is committed, and nothing has been appended since."""
        assert self.state.image.offset == self.log.end - 1, "the image is not at the log's end"
        self._active = True
        logger.info(
            "controller %d is active in epoch %d from offset %d",
            self.settings.node_id,
            self.quorum.epoch,
            self.log.end,
        )
        try:
            if METADATA_VERSION not in self.state.image.features:
                levels = bootstrap_levels(self.runtime.disk, self.settings)
                self._append(
                    Decision(None, bootstrap_records(self.settings.min_insync_replicas, levels))
                )
        except (MetadataLogError, StorageError) as error:
            self.fail(error)
            return
        self.state.activate(self._now_ms())
        self._graces = 0
        self._sweep_at(self._now_ms())
        if self.settings.auto_leader_rebalance_enable:
            self._every("balance", self.settings.leader_imbalance_check_interval_seconds, balance)
        self._every(
            "unclean", self.settings.unclean_leader_election_interval_ms / 1000, elect_leaderless
        )

    def _consider_snapshot(self) -> None:
        self._maker.consider(self.state.image, self.log.committed)

    def fail(self, error: BaseException) -> None:
        """The log can't be written: what was decided may be lost, so nothing may be answered."""
        logger.critical("the metadata log failed, the controller stops: %s", error)
        if not self.failed.done():
            self.failed.set_exception(error)
        self.close()

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Whoever met it, a checkpoint perhaps: without its log this is no controller."""
        if directory is self.log.replica.home and not self._closed:
            self.fail(StorageError(directory.path, directory.failure))

    # -- acting by itself ----------------------------------------------------------------------

    def _arm_sweep(self) -> None:
        """Set the one timer; a sweep's own decisions have set it already when the sweep ends."""
        due_ms = next_expiry_ms(self.state)
        if due_ms is not None:
            self._sweep_at(due_ms)
        elif self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _sweep_at(self, due_ms: int) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._closed:
            return
        self._sweep_due_ms = due_ms
        delay = max(0, due_ms - self._now_ms()) / 1000
        self._sweep = asyncio.get_running_loop().call_later(delay, self._sweep_sessions)

    def _sweep_sessions(self) -> None:
        """Fence brokers whose session has run out, and go on with what is unfinished.

        One decision in each turn of the loop: the quorum's requests are served between them.
        """
        self._sweep = None
        now_ms = self._now_ms()
        if now_ms - self._sweep_due_ms > LATE_MS and self._graces < GRACES_MAX:
            # This process stood still, so heartbeats may lie unread in its sockets: read them
            # first, or brokers that are well would be fenced.
            self._graces += 1
            grace_ms = min(GRACE_MS_MAX, self.settings.broker_heartbeat_interval_ms)
            self._sweep_due_ms = now_ms + grace_ms
            self._sweep = asyncio.get_running_loop().call_later(
                grace_ms / 1000, self._sweep_sessions
            )
            return
        self._graces = 0
        if self.active and (self._act(expire_sessions) or self._act(go_on)):
            self._sweep_at(self._now_ms())
        else:
            self._arm_sweep()

    def _act(self, decide: Decide) -> bool:
        """Carry out a decision of the controller's own. True if it changed anything."""
        before = self.log.end
        try:
            self._carry_out(decide)
        except StorageError as error:
            self.fail(error)
        return self.log.end > before

    def _every(
        self,
        name: str,
        seconds: float,
        changes: Callable[[ControllerState], Iterable[MetadataRecord]],
    ) -> None:
        assert name in _OWN_DECISIONS, "it would go on when another decides"
        self._tick(
            name,
            seconds,
            lambda: self._act(lambda state, _now_ms: Decision(None, list(changes(state)))),
        )

    def _tick(self, name: str, seconds: float, act: Callable[[], object]) -> None:
        def fire() -> None:
            if not self._closed:
                act()
                self._tick(name, seconds, act)

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, fire)
