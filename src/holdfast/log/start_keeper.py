"""Making log starts durable, off the loop: what DeleteRecords waits for.

Owns which replicas of a log directory wait for that. All that one turn of the loop names is written
together; what comes meanwhile goes with the next round, so that the writing grows with the rounds
and not with the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from holdfast.log.checkpoints import PARTITION_METADATA
from holdfast.log.files import sync_file
from holdfast.runtime.ports import Disk, Runtime, T

SLICE: Final = 20  # replicas whose names one job makes durable: a flush may wait behind it
RETRY_S: Final = 0.05  # when too many jobs wait, or a log was cut meanwhile


class Log(Protocol):
    """What is asked of a replica, and told to it."""

    start: int

    @property
    def directory(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    @property
    def is_new(self) -> bool: ...

    def start_is_kept(self, start: int) -> None: ...


class Home(Protocol):
    """What is asked of the log directory."""

    runtime: Runtime
    online: bool

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]: ...

    def settle(self, future: asyncio.Future[None]) -> bool: ...

    def write_starts(self, done: Callable[[bool], None]) -> None: ...


class StartKeeper:
    """Of one log directory."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._due: dict[Log, None] = {}
        self._busy = False

    def keep(self, log: Log) -> None:
        """Make this log's start durable, as it is or will be; then `log.start_is_kept` is called.

        When the disk fails it never is: the directory goes offline.
        """
        self._due[log] = None
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        due, self._due = list(self._due), {}
        if due and self._home.online:
            self._name(due, [log for log in due if log.is_new])
        else:
            self._busy = False

    def _again(self, due: Sequence[Log]) -> None:
        self._due.update(dict.fromkeys(due))
        asyncio.get_running_loop().call_later(RETRY_S, self._begin)

    def _name(self, due: Sequence[Log], unnamed: Sequence[Log]) -> None:
        """Make topics' ids and names durable, a few at a time: without them a start is lost."""
        due = [log for log in due if not log.closed]
        if not due:
            self._begin()
            return
        if not unnamed:
            self._write(due)
            return
        job = self._home.submit(partial(_sync_names, self._home.runtime.disk, unnamed[:SLICE]))
        job.add_done_callback(lambda job: self._named(job, due, unnamed))

    def _named(self, job: asyncio.Future[None], due: Sequence[Log], unnamed: Sequence[Log]) -> None:
        if self._home.settle(job):
            self._name(due, unnamed[SLICE:])
        else:
            self._again(due)

    def _write(self, due: Sequence[Log]) -> None:
        starts = [log.start for log in due]

        def written(durable: bool) -> None:
            if not durable:
                self._again(due)
                return
            for log, start in zip(due, starts, strict=True):
                log.start_is_kept(start)
            self._begin()

        self._home.write_starts(written)


def _sync_names(disk: Disk, logs: Sequence[Log]) -> None:
    """In the worker. A log that is deleted meanwhile loses its name to another one, perhaps."""
    for log in logs:
        try:
            with disk.inside(log.directory) as files:
                if not log.closed:
                    sync_file(files, f"{log.directory}/{PARTITION_METADATA}")
                    files.sync_directory(log.directory)
        except FileNotFoundError:
            if not log.closed:
                raise
