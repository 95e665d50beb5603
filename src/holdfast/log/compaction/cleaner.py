"""The rounds of one node: which log has the next one, and each round's way through its steps.

Owns the turns. A log is looked at `log.cleaner.backoff.ms` after something of it has changed;
`cleaner_queue` knows which, so that ten thousand logs of which nothing changes cost nothing. So
many rounds at a time as `log.cleaner.threads` says. What is a job goes to the worker, in a lane of
the round's own; what is not is done here, in slices with rests between them. All rounds together
read and write no more than `log.cleaner.io.max.bytes.per.second`.

A log of which a file is not what it should be has no more rounds until the next start, and is told
of; the others go on. Never touches a log whose topic's settings are not known yet.

Rules: compaction.md#when-a-round-is-due.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.node import NodeSettings
from holdfast.log.checkpoints import CLEANED
from holdfast.log.compaction.cleaner_queue import CleanerQueue
from holdfast.log.directory import LogDirectory
from holdfast.log.errors import CorruptFileError, StorageError
from holdfast.log.log import Log
from holdfast.runtime.own_time import OwnTime
from holdfast.runtime.ports import Runtime, WorkerFullError
from holdfast.runtime.sliced_work import PAUSE_S, Job, Steps
from holdfast.wire.well_known import METADATA_TOPIC

if TYPE_CHECKING:
    from holdfast.log.compaction.compaction_round import Round
    from holdfast.log.compaction.compaction_steps import Throttle

logger = logging.getLogger("holdfast.compaction")

LOOKED_AT: Final = 20  # logs in one turn of the loop
TOLD_MAX: Final = 20  # logs that are named in a figure
_LOOK_S_MIN: Final = 0.01  # however small the backoff
_LOOK_S_MAX: Final = 600  # the clock may jump ahead
_PAUSE_FACTOR: Final = 2  # so many times what a slice took is for others
_MAP_BYTES_MAX: Final = 2**31 - 1  # as Apache Kafka
_SMALL_MAP_BYTES: Final = 24 * 10


class _Running:
    """A round under way."""

    __slots__ = ("ended", "log", "number", "steps", "timer", "told", "wanted", "work")

    def __init__(self, log: Log, number: int, work: Round, steps: Steps[int | None]) -> None:
        self.log = log
        self.number = number  # of its lane
        self.work = work
        self.steps = steps
        self.wanted: Job | str | None = None  # what they have yielded last
        self.told = 0  # bytes of it that were counted
        self.timer: asyncio.TimerHandle | None = None  # while it rests
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Cleaner:
    """All rounds of one node. `start`, then at the end `await close`."""

    def __init__(
        self, runtime: Runtime, settings: NodeSettings, retain: Callable[[Log], None]
    ) -> None:
        """`retain` is called behind each round: retention waits while a log is compacted."""
        self._runtime = runtime
        self._own_time = OwnTime()
        self._settings = settings
        self._retain = retain
        self._queue: CleanerQueue[Log] = CleanerQueue()
        self._running: dict[Log, _Running] = {}
        self._apart: dict[Log, str] = {}  # logs that have no more rounds, and why
        self._timer: asyncio.TimerHandle | None = None
        self._throttle: Throttle | None = None
        self._bytes_done = 0
        self.rounds = 0  # that were done (a metric)
        self._is_started = False

    def configure(self, settings: NodeSettings) -> None:
        """Take over settings that may change while the node runs."""
        self._settings = settings
        self._throttle = None
        if self._is_started:
            self._wake_in(0)  # there may be room for another round

    def start(self) -> None:
        """Begin: logs whose settings are known may be compacted from now on."""
        self._is_started = self._settings.log_cleaner_enable
        if self._is_started:
            self._schedule()

    @property
    def apart(self) -> str:
        """Which logs can't be compacted, and why; for people to read."""
        found = [f"{log.topic}-{log.partition}: {why}" for log, why in self._apart.items()]
        more = [f"and {len(found) - TOLD_MAX} more"] if len(found) > TOLD_MAX else []
        return "; ".join(found[:TOLD_MAX] + more)

    # --- what is told ---

    def changed(self, log: Log) -> None:
        """Something of a log has changed: it was rolled, cut, configured, or has lost a segment."""
        if not _is_compacted(log) or log in self._apart:
            self._queue.forget(log)
            return
        self._queue.changed(log)
        if self._is_started:
            self._wake_in(self._backoff_s)

    def gone(self, log: Log) -> None:
        """A log was deleted. Its round ends with its next step."""
        self._queue.forget(log)
        self._apart.pop(log, None)
        self._hurry(log)

    def directory_failed(self, directory: LogDirectory) -> None:
        """A disk is lost: nothing in it is touched any more."""
        for log in [log for log in self._running if log.home is directory]:
            log.compaction.end()
            self._hurry(log)

    async def close(self) -> None:
        """End all rounds, and wait for the jobs that they have under way."""
        self._is_started = False
        if self._timer is not None:
            self._timer.cancel()
        ends = [running.ended for running in self._running.values()]
        for log in list(self._running):
            with suppress(StorageError):  # that directory is offline
                log.compaction.end()
            self._hurry(log)
        if ends:
            await asyncio.wait(ends)

    # --- turns ---

    @property
    def _backoff_s(self) -> float:
        return max(self._settings.log_cleaner_backoff_ms / 1000, _LOOK_S_MIN)

    def _wake_in(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._turn)

    def _schedule(self) -> None:
        """Look again when that can be of use."""
        if self._queue.has_changed or self._queue.is_behind:
            self._wake_in(self._backoff_s)
        at_ms = self._queue.next_ms
        if at_ms is not None:
            left_s = (at_ms - self._runtime.clock.wall_ms()) / 1000
            self._wake_in(min(max(left_s, 0), _LOOK_S_MAX))

    def _turn(self) -> None:
        self._timer = None
        self._queue.time_is(self._runtime.clock.wall_ms(), _reached)
        for log in self._queue.take_changed(LOOKED_AT):
            if log not in self._running:  # else it is looked at when its round is over
                self._look_at(log)
        if self._queue.has_changed:
            self._wake_in(0)
            return
        self._begin_rounds()
        self._schedule()

    def _look_at(self, log: Log) -> None:
        """Put a log where it belongs."""
        if not _is_compacted(log) or log.closed or log.offline:
            return
        compaction = log.compaction
        try:
            dirty = compaction.dirty(self._runtime.clock.wall_ms())
        except (OSError, CorruptFileError) as error:
            self._failed(log, error)
            return
        wanted = dirty.dirty_bytes > 0 and self._runtime.provoke("compaction.round")
        if dirty.is_due(log.settings) or wanted:
            self._queue.due(log, dirty.ratio)
        else:
            self._queue.look_later(
                log, offset=compaction.next_bound(dirty), at_ms=dirty.look_again_ms
            )

    def _begin_rounds(self) -> None:
        while len(self._running) < self._settings.log_cleaner_threads:
            log = self._queue.take_dirtiest()
            if log is None:
                return
            if log not in self._running and not log.closed and not log.offline:
                self._begin(log)

    def _begin(self, log: Log) -> None:
        """Begin a round over what is dirty of a log now."""
        threads = max(self._settings.log_cleaner_threads, 1)
        map_bytes = min(self._settings.log_cleaner_dedupe_buffer_size // threads, _MAP_BYTES_MAX)
        if self._runtime.provoke("compaction.small-map"):
            map_bytes = _SMALL_MAP_BYTES
        now_ms, secret = self._runtime.clock.wall_ms(), self._runtime.random.uuid()
        try:
            dirty = log.compaction.dirty(now_ms)
            if not dirty.dirty_bytes:
                self.changed(log)
                return
            compaction, work = log.compaction.begin(dirty, now_ms, secret, map_bytes)
        except (OSError, CorruptFileError, MemoryError) as error:
            self._failed(log, error)
            return
        taken = {running.number for running in self._running.values()}
        number = next(number for number in count() if number not in taken)
        running = _Running(log, number, work, compaction.steps())
        self._running[log] = running
        self._go_on(running, next)

    # --- the steps of a round ---

    def _go_on(self, running: _Running, advance: Callable[[Steps[int | None]], Any]) -> None:
        """Take a step of a round; what it wants next comes behind a rest."""
        log = running.log
        if log.offline:
            self._over(running, None)
            return
        began = self._own_time.begin(self._runtime.clock.monotonic_ms() / 1000)
        try:
            running.wanted = advance(running.steps)
        except StopIteration as end:
            self._over(running, end.value)
        except (OSError, CorruptFileError, WorkerFullError) as error:
            self._failed(log, error)
            self._over(running, None)
        except BaseException:
            self._over(running, None)
            raise
        else:
            rest_s = self._rest_s(running)
            if not callable(running.wanted):
                took_s = self._own_time.took(began, self._runtime.clock.monotonic_ms() / 1000)
                rest_s = max(PAUSE_S, _PAUSE_FACTOR * took_s, rest_s)
            if rest_s:
                loop = asyncio.get_running_loop()
                running.timer = loop.call_later(rest_s, self._rested, running)
            else:
                self._rested(running)

    def _rested(self, running: _Running) -> None:
        running.timer = None
        if not callable(running.wanted):
            self._go_on(running, next)
            return
        job = self._runtime.worker.submit(running.wanted, lane=f"compaction-{running.number}")
        job.add_done_callback(partial(self._job_done, running))

    def _job_done(self, running: _Running, job: asyncio.Future[Any]) -> None:
        failure = None if job.cancelled() else job.exception()
        if failure is not None:
            self._go_on(running, lambda steps: steps.throw(failure))
        elif not job.cancelled():
            self._go_on(running, lambda steps: steps.send(job.result()))

    def _rest_s(self, running: _Running) -> float:
        """Return how long the round has to rest, for all that was read and written."""
        from holdfast.log.compaction.compaction_steps import Throttle  # noqa: PLC0415 - rare

        now_ms = self._runtime.clock.monotonic_ms()
        done = running.work.tally.bytes_done
        self._bytes_done += done - running.told
        running.told = done
        if self._throttle is None:
            rate = self._settings.log_cleaner_io_max_bytes_per_second
            self._throttle = Throttle(rate, now_ms, self._bytes_done)
        return self._throttle.rest_ms(self._bytes_done, now_ms) / 1000

    def _hurry(self, log: Log) -> None:
        """A round is to end: if it rests, it does so no longer."""
        running = self._running.get(log)
        if running is not None and running.timer is not None:
            running.timer.cancel()
            running.timer = asyncio.get_running_loop().call_later(0, self._rested, running)

    def _over(self, running: _Running, checkpoint: int | None) -> None:
        """Take note of the end of a round. With a checkpoint it was done: the log is clean so far.

        Else it has ended in the middle: what is half done must not wait for somebody who cuts.
        """
        log, is_done = running.log, checkpoint is not None
        if not is_done:
            with suppress(StorageError):  # the directory is offline
                log.compaction.end()
        log.compaction.done(checkpoint)
        del self._running[log]
        running.steps.close()
        running.ended.set_result(None)
        if is_done:
            self.rounds += 1
            _tell(log, running.work)
            log.home.checkpoint(CLEANED)
        if log.closed or log.offline:
            self._queue.forget(log)
        elif self._is_started:
            try:
                self._retain(log)
            except StorageError as error:
                logger.warning("%s-%d: %s", log.topic, log.partition, error)
            self.changed(log)
        if self._is_started:
            # As in Apache Kafka: who has done a round looks for the next one at once.
            self._wake_in(0 if is_done else self._backoff_s)

    def _failed(self, log: Log, error: Exception) -> None:
        """A round, or what it should have been, could not go on."""
        name = f"{log.topic}-{log.partition}"
        if isinstance(error, CorruptFileError):
            self._apart[log] = str(error)
            self._queue.forget(log)
            logger.error(
                "%s is not compacted any more until the next start: %s. The other logs are.",
                name,
                error,
            )
        elif isinstance(error, OSError) and error.errno != errno.ENOMEM:
            log.home.fail(error)
        else:
            logger.warning("%s: a round is given up, and tried again: %s", name, error)
            self.changed(log)


def _is_compacted(log: Log) -> bool:
    return (
        log.is_configured
        and "compact" in log.settings.cleanup_policy
        and log.topic != METADATA_TOPIC
    )


def _reached(log: Log) -> int:
    """Return up to where a log is synced and committed; undecided transactions are looked at."""
    return min(log.high_watermark, log.recovery_point)


def _tell(log: Log, work: Round) -> None:
    tally, plan = work.tally, work.plan
    logger.info(
        "%s-%d: compacted, offsets %d to %d were dirty: %d bytes read, %d written, %d batches gone",
        log.topic, log.partition, plan.first_dirty, work.map_end - 1,
        tally.bytes_read, tally.bytes_written, tally.batches_dropped,
    )  # fmt: skip
    if tally.unreadable:
        logger.error(
            "%s-%d: %d batches can't be read, and stay as they are: %s",
            log.topic, log.partition, tally.unreadable, "; ".join(tally.named),
        )  # fmt: skip
    if tally.keyless:
        logger.warning(
            "%s-%d: %d records without a key are gone", log.topic, log.partition, tally.keyless
        )
