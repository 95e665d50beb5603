"""A Spark driver process for one recipe: source, query, sink, and word of each step on stdout.

Owns the process's life: SIGTERM and SIGINT stop the query, a driver that was replaced ends with
exit status 3. What happens is told as JSON lines, one event each, so that whoever started the
process can follow it: session, started, committed, held, stopped, failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.java import JavaError
from holdfast.pipelines.planned import Checkpoint
from holdfast.pipelines.session import HEAP_MB, local_session
from holdfast.pipelines.sink import AppendSink, ExactlyOnceSink, Recipe
from holdfast.pipelines.sinks.database_url import shown
from holdfast.pipelines.sinks.store import FullDiskError
from holdfast.pipelines.sinks.table_sink import OnCommit
from holdfast.pipelines.spark_home import SparkHomeError
from holdfast.pipelines.unfinished import is_unfinished, remedy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

STOPPED, FAILED, FENCED = 0, 1, 3
LOOK_S = 0.2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what every driver has: where from, where to, and how."""
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...")
    add("--topic", required=True)
    add("--database", required=True, metavar="URL", help="SQLAlchemy's; a password is env:NAME")
    add("--checkpoint", required=True, metavar="DIR", help="Spark's own memory of the query")
    add("--query", required=True, metavar="NAME", help="the tables' memory of it; keep it stable")
    add(
        "--begin-anew",
        action="append",
        default=[],
        metavar="ID",
        help="forget how far the tables are with this topic or checkpoint, as an error named it",
    )
    add("--sink", choices=("exactly-once", "append"), default="exactly-once")
    add("--starting-offsets", default="earliest", metavar="earliest|latest|JSON")
    add("--max-offsets-per-trigger", type=int, metavar="ROWS")
    add("--progress-group", metavar="GROUP", help="a consumer group to commit to, for lag tools")
    add("--trigger-ms", type=int, default=500, metavar="MS", help="least time between batches")
    add("--once", action="store_true", help="stop when all that is there now has been read")
    add("--cores", type=int, default=2)
    add("--heap-mb", type=int, default=HEAP_MB)
    add("--nice", type=int, default=0, help="lower the priority: others share this machine")
    add("--hold", type=Path, metavar="FILE", help="while it is there, wait after a table's commit")


def say(event: str, **values: Any) -> None:
    """Tell it on standard output, with the monotonic clock that this machine's processes share."""
    at_ms = time.monotonic_ns() // 1000 / 1000
    sys.stdout.write(json.dumps({"event": event, "at_ms": at_ms, **values}) + "\n")
    sys.stdout.flush()


def say_committed(batch: int, rows: int) -> None:
    say("committed", batch=batch, rows=rows)


def run(
    options: argparse.Namespace,
    recipe: Recipe,
    frame: Callable[[DataFrame], DataFrame],
    *,
    on_commit: OnCommit = say_committed,
) -> int:
    """Run the query until it is stopped, fenced, done (`--once`) or fails. Returns exit status.

    `on_commit` is called when a batch is on disk and before Spark knows. While the file of `--hold`
    is there the driver stays at that point, so that it can be killed between the two commits.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    os.nice(options.nice)
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: stopping.append(received))
    name = f"holdfast {options.query}"
    try:
        session = local_session(name, cores=options.cores, heap_mb=options.heap_mb)
    except (JavaError, SparkHomeError) as error:
        say("failed", error=str(error))
        return FAILED
    say("session")
    if stopping:
        return STOPPED
    try:
        sink = _sink(options, recipe, _holding(options.hold, on_commit))
    except FencedError as error:
        say("failed", error=str(error))
        return FENCED
    except (FullDiskError, OptionError) as error:
        say("failed", error=str(error))
        return FAILED
    except SQLAlchemyError as error:
        say("failed", error=f"{shown(options.database)}: {error}")
        return FAILED
    query = _start(session, options, frame, sink)
    say("started")
    status = _follow(query, sink, options.checkpoint, stopping)
    sink.close()
    return status


def _holding(hold: Path | None, on_commit: OnCommit) -> OnCommit:
    """Call `on_commit`, and then stay there for as long as the file `hold` is there."""

    def committed(batch: int, rows: int) -> None:
        on_commit(batch, rows)
        if hold is not None and hold.exists():
            say("held", batch=batch, rows=rows)
            while hold.exists():
                time.sleep(LOOK_S)

    return committed


def _sink(
    options: argparse.Namespace, recipe: Recipe, on_commit: OnCommit
) -> ExactlyOnceSink | AppendSink:
    if options.sink == "append":
        return AppendSink(options.database, recipe, on_commit=on_commit)
    return ExactlyOnceSink(
        options.database,
        options.query,
        recipe,
        checkpoint=options.checkpoint,
        begin_anew=options.begin_anew,
        on_commit=on_commit,
    )


def _start(
    session: SparkSession,
    options: argparse.Namespace,
    frame: Callable[[DataFrame], DataFrame],
    sink: ExactlyOnceSink | AppendSink,
) -> StreamingQuery:
    reader = (
        session.readStream.format("holdfast")
        .option("kafka.bootstrap.servers", options.bootstrap_server)
        .option("subscribe", options.topic)
        .option("startingOffsets", options.starting_offsets)
    )
    if options.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    if options.progress_group is not None:
        reader = reader.option("progressGroup", options.progress_group)
    writer = (
        frame(reader.load())
        .writeStream.queryName(options.query)
        .option("checkpointLocation", options.checkpoint)
        .foreachBatch(sink)
    )
    if options.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{options.trigger_ms} milliseconds").start()


def cause(text: str) -> str:
    """Return what our own code said, out of Spark's report with its plans and stack traces."""
    ours = [line for line in text.splitlines() if line.startswith("holdfast.")]
    return ours[-1] if ours else text.partition("\n")[0]


def why(said: str, sink: ExactlyOnceSink | AppendSink, checkpoint: str) -> dict[str, Any]:
    """Return what to say of a query that Spark has ended with these words."""
    if sink.failure is None and is_unfinished(said):
        memory = sink.ownership.memory() if isinstance(sink, ExactlyOnceSink) else None
        removable, error = remedy(checkpoint, Checkpoint(checkpoint), memory)
        return {"error": error, "unfinished": removable}
    return {"error": str(sink.failure or cause(said))}


def _follow(
    query: StreamingQuery,
    sink: ExactlyOnceSink | AppendSink,
    checkpoint: str,
    stopping: list[int],
) -> int:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after Java is chosen

    try:
        while not query.awaitTermination(LOOK_S):
            if stopping:
                query.stop()
                break
    except StreamingQueryException as error:
        if isinstance(sink.failure, FencedError):
            say("failed", error=str(sink.failure), fenced=True)
            return FENCED
        sys.stderr.write(f"{error}\n")
        say("failed", **why(str(error), sink, checkpoint))
        return FAILED
    say("stopped")
    return STOPPED
