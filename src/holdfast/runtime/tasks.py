"""What is done when a task or a worker's job ends. Owns neither."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

logger = logging.getLogger("holdfast.tasks")

Ended: TypeAlias = Callable[[asyncio.Task[None]], None]


def report_bug(task: asyncio.Task[None]) -> None:
    """Log the error with which a loop has died: it is our own mistake, and must be seen.

    A loop that was cancelled, or has ended by itself, is nothing to report.
    """
    if not task.cancelled() and task.exception() is not None:
        logger.critical("a loop of this node has died: a bug", exc_info=task.exception())


async def cancelled(task: asyncio.Task[None] | None) -> None:
    """End a loop that may have been started: cancel it, and wait until it is over."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def outcome_of(job: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Run a job; return its result, or what it raised: that belongs to who awaits the job."""
    try:
        return job(), None
    except BaseException as error:  # noqa: BLE001 - see above
        # What the failed calls held ends here: megabytes that a job gives up are not given back by
        # whoever hears of it, with the loop waiting.
        traceback.clear_frames(error.__traceback__)
        return None, error


def settle(future: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    """Tell who awaits a job how it ended, if somebody still does."""
    if future.cancelled():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
