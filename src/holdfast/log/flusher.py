"""Flushing one replica: one job at a time, and the recovery point that follows from it.

Owns the recovery point. A job gets a plan made of values; while it runs the log goes on, and what
is truncated meanwhile limits what the job may claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.log.directory import LogDirectory
from holdfast.log.errors import TOO_MUCH, StorageError
from holdfast.log.files import sync_file
from holdfast.log.index import IndexWrite, write_index
from holdfast.log.producers import SnapshotEntry, encode_snapshot
from holdfast.runtime.ports import Files, WorkerFullError


@dataclass(slots=True, kw_only=True)
class FlushPlan:
    """What a job does, in this order. `up_to` is the recovery point when it is done."""

    up_to: int
    indexes: Sequence[IndexWrite]
    logs: Sequence[str]  # synced
    stale_snapshots: Mapping[int, str]  # offset -> path; removed, they may not be there
    snapshots: Mapping[int, tuple[str, Sequence[SnapshotEntry]]]  # offset -> path and content
    epochs: tuple[str, bytes] | None
    directory: str  # the replica's own
    has_new_names: bool  # it is synced, after all that is in it
    is_name_new: bool  # the log directory is synced, last
    names: int  # replicas in the log directory when it was planned

    @property
    def is_empty(self) -> bool:
        return not (
            self.indexes
            or self.logs
            or self.stale_snapshots
            or self.snapshots
            or self.epochs
            or self.has_new_names
            or self.is_name_new
        )

    def run(self, files: Files, *, sync: bool) -> None:
        """In the worker, inside of the replica's directory. OSError: nothing of it is certain.

        A file that is gone was truncated meanwhile; who did it knows. Without `sync` all of it is
        written, and somebody else makes it durable.
        """
        for write in self.indexes:
            write_index(files, write, sync=sync)
        for path in self.logs if sync else ():
            sync_file(files, path)
        for path in self.stale_snapshots.values():
            if files.exists(path):
                files.remove(path)
        # One sync of the directory for all names. Whoever finds one of these files half written
        # after a power cut does without it: older snapshots and the batches say the same.
        for path, entries in self.snapshots.values():
            files.write_atomic(path, encode_snapshot(entries), sync=False)
            if sync:
                sync_file(files, path)
        if self.epochs is not None:
            files.write_atomic(*self.epochs, sync=False)
            if sync:
                sync_file(files, self.epochs[0])
        if self.has_new_names and sync:
            files.sync_directory(self.directory)


class Flusher:
    """`make_plan(whole)` captures what there is to do; `undo` takes back a plan that never ran."""

    def __init__(
        self,
        home: LogDirectory,
        recovery_point: int,
        *,
        make_plan: Callable[[bool], FlushPlan],
        done: Callable[[FlushPlan], None],
        undo: Callable[[FlushPlan], None],
    ) -> None:
        self.recovery_point = recovery_point
        self._home = home
        self._make_plan = make_plan
        self._done = done
        self._undo = undo
        self._running: FlushPlan | None = None
        self._limit = recovery_point  # the running job may not claim more
        self._wanted = False  # a flush of sealed segments is wanted after the running one
        self._all_wanted = False  # so is one of everything, for which nobody waits
        self._waiting: list[asyncio.Future[None]] = []  # these want a whole flush
        self._closed = False

    def sealed(self) -> None:
        """Flush sealed segments in the background."""
        self._wanted = True
        if self._running is None:
            self._start()

    @property
    def planned(self) -> int:
        """Everything below is durable, or will be once the job that runs is done."""
        if self._running is None:
            return self.recovery_point
        return max(self.recovery_point, min(self._running.up_to, self._limit))

    def everything(self) -> None:
        """Flush everything in the background, with what is appended until that begins."""
        self._all_wanted = True
        if self._running is None:
            self._start()

    def whole(self) -> asyncio.Future[None]:
        """Flush everything; the future ends when it is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._running is None:
            self._start()
        return future

    def truncated(self, offset: int) -> bool:
        """Nothing from `offset` on is flushed any more. True: the recovery point went back."""
        self._limit = min(self._limit, offset)
        if offset >= self.recovery_point:
            return False
        self.recovery_point = offset
        return True

    def abandon(self) -> None:
        """The replica was deleted: whatever a running job says is of no interest."""
        self._closed = True
        self._fail_waiting(self._deleted())

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, []
        whole, self._wanted, self._all_wanted = bool(waiting) or self._all_wanted, False, False
        if not self._home.online:
            self._answer(waiting, StorageError(self._home.path, self._home.failure))
            return
        plan = self._make_plan(whole or self._home.runtime.provoke("flush.of-all"))
        if plan.is_empty:
            self.recovery_point = max(self.recovery_point, plan.up_to)
            self._answer(waiting, None)
            return
        self._running = plan
        self._limit = plan.up_to
        job = self._home.submit(lambda: self._run(plan))
        job.add_done_callback(lambda future: self._finish(future, plan, waiting))

    def _run(self, plan: FlushPlan) -> None:
        """In the worker.

        A replica that is deleted loses its name at once, and the next topic of that name may have
        it when this job's turn comes, or in the middle of it. So the directory is held first and
        only then asked whether it is ours still: a deletion says so before it renames.
        """
        disk, sync = self._home.runtime.disk, not self._home.synced_at_end
        try:
            with disk.inside(plan.directory) as files:
                if self._closed:
                    return
                plan.run(files, sync=sync)
        except FileNotFoundError:
            if not self._closed:
                raise
        else:
            if plan.is_name_new and sync:
                disk.sync_directory(self._home.path)

    def _finish(
        self, job: asyncio.Future[None], plan: FlushPlan, waiting: list[asyncio.Future[None]]
    ) -> None:
        assert self._running is plan, "two flushes of one replica at a time"
        self._running = None
        error = None if job.cancelled() else job.exception()
        if self._closed:
            self._answer(waiting, self._deleted())
            return
        if job.cancelled() or isinstance(error, WorkerFullError):
            self._undo(plan)
            refusal = StorageError(self._home.path, TOO_MUCH, is_offline=False)
            self._answer(waiting, refusal)
            self._fail_waiting(refusal)  # nothing else would begin what they wait for
            return
        if isinstance(error, OSError):
            failure = self._home.fail(error)
            self._answer(waiting, failure)
            self._fail_waiting(failure)
            return
        if error is not None:
            raise error
        self.recovery_point = max(self.recovery_point, min(plan.up_to, self._limit))
        self._done(plan)
        self._answer(waiting, None)
        if self._wanted or self._all_wanted or self._waiting:
            self._start()

    def _deleted(self) -> StorageError:
        return StorageError(self._home.path, "the replica was deleted", is_offline=False)

    def _fail_waiting(self, error: StorageError) -> None:
        waiting, self._waiting = self._waiting, []
        self._answer(waiting, error)

    @staticmethod
    def _answer(waiting: Sequence[asyncio.Future[None]], error: StorageError | None) -> None:
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
