"""`follow`: what Spark has done of a query is committed to its sources' groups, until it ends.

For sinks that are not ours: those commit by themselves. What is done, Spark's commit log says; how
far that is, the offset log. Nothing is taken from progress events, which may be lost.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from holdfast.pipelines.planned import Checkpoint, PlanError
from holdfast.pipelines.progress import commits
from holdfast.pipelines.progress.ends import metadata, of_plan
from holdfast.pipelines.progress.group import OPTION

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

LOOK_S = 0.5
log = logging.getLogger(__name__)


def follow(query: StreamingQuery, checkpoint: str | os.PathLike[str]) -> None:
    """Wait until a query ends, and commit meanwhile what is done of it, the last batch as well.

    In place of `query.awaitTermination()`, for a query whose source has the option `progressGroup`
    and whose sink is not of this package. `checkpoint` is its checkpointLocation, which this
    process has to reach, as it has to reach the brokers. What is done already is committed at once.

    PlanError: it is the checkpoint of another query. Whatever ends the query comes as Spark says it
    (StreamingQueryException), after the last commit.
    """
    followed = Followed(query, checkpoint)
    try:
        while not query.awaitTermination(LOOK_S):
            followed.look()
    finally:
        followed.finish()


class Followed:
    """How far a query was told to be."""

    def __init__(self, query: StreamingQuery, checkpoint: str | os.PathLike[str]) -> None:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - after Java is chosen

        self._query = query
        self._name = query.name or str(query.id)
        self._checkpoint = Checkpoint(checkpoint, SparkSession.getActiveSession())
        self._checkpoint.must_be_of(str(query.id))
        self._told: int | None = None
        self._has_group = False
        self._seen: object = object()  # no batch is this one, so the first look is a real one
        self._warned = False

    def look(self) -> None:
        """Commit what is new. The log is listed only when Spark has told of another batch."""
        told = self._query.lastProgress
        newest = None if told is None else told["batchId"]
        if newest != self._seen and self._commit():
            self._seen = newest

    def finish(self) -> None:
        """Commit what was done last, also where that was in vain before: nothing comes later."""
        self._told = None
        self._commit()
        if self._told is not None and not self._has_group:
            log.warning("no source of query %s has the option %s", self._name, OPTION)

    def _commit(self) -> bool:
        """Commit what Spark's log says is done; return whether the log could be read."""
        try:
            done = self._checkpoint.done()
            if done is None or done == self._told:
                return True
            ends = of_plan(self._checkpoint.positions(done))
        except PlanError as error:
            if not self._warned:
                self._warned = True
                log.warning("how far query %s is can't be told: %s", self._name, error)
            return False
        commits.commit(ends, metadata(self._name, done))
        self._told = done
        self._has_group = self._has_group or bool(ends)
        return True
