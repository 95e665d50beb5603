"""One query into one target of `write`, as a driver process that can be held. `python -m` this.

Owns two queries over a topic of events, `{"id":7,"amount":3}` with a key each: `rows` takes them as
they are, `windows` counts and sums them by key. Whoever started it is told when a function that
`--watch` names is reached, may have the driver wait there, and kills what it likes meanwhile: this
process, a worker of Spark's, a broker, the database. Without `write` (`--sink append`) it is the
control, which appends as Spark does. What is said on standard output, and heard on standard input,
is one JSON object a line:

    {"place": "MODULE:NAME", "when": "before", "times": 2}   from the second time on: "at", and hold
    {"go": true}                                             go on

With `when` "amid" the driver says that it begins with the function, and goes on at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.pipelines.driver import FAILED, STOPPED, cause, say
from holdfast.pipelines.session import HEAP_MB, local_session
from holdfast.pipelines.sinks.writing import write
from holdfast.pipelines.unfinished import is_unfinished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

DELAY = "10 seconds"
WINDOW = "1 second"
EVENT = "id BIGINT, amount BIGINT"
HOLD_S_MAX = 600
FIRST_MS = 50.0  # how long a function takes that was not called before
KEYS = {"rows": ["key"], "windows": ["begin_ms", "key"]}


def found(place: str) -> tuple[Any, str]:
    """Return whose a function is, a module or a class, and its name there."""
    module, _, path = place.partition(":")
    *owners, last = path.split(".")
    return reduce(getattr, owners, import_module(module)), last


class Places:
    """Functions that are watched, and the one of them at which the driver is to be held."""

    def __init__(self, names: Sequence[str]) -> None:
        self._armed: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._lasted_ms: dict[str, float] = {}
        for name in names:
            owner, last = found(name)
            setattr(owner, last, self._watched(name, getattr(owner, last)))

    def hear(self) -> None:
        """Do what standard input says. When it ends, nobody is there any more: end as well."""
        for line in sys.stdin:
            told = json.loads(line)
            if "go" in told:
                self._go.set()
                continue
            with self._lock:
                self._armed = told
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(0), signal.SIGKILL)

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def watched(*arguments: Any, **named: Any) -> Any:
            self._reach(name, "before")
            self._reach(name, "amid")
            begin_s = time.monotonic()
            result = call(*arguments, **named)
            self._lasted_ms[name] = 1_000 * (time.monotonic() - begin_s)
            self._reach(name, "after")
            return result

        return watched

    def _reach(self, place: str, when: str) -> None:
        with self._lock:
            if (self._armed.get("place"), self._armed.get("when")) != (place, when):
                return
            self._armed["times"] -= 1
            if self._armed["times"] > 0:
                return
            self._armed = {}
            self._go.clear()
        say("at", place=place, when=when, lasted_ms=self._lasted_ms.get(place, FIRST_MS))
        if when != "amid":
            self._go.wait(HOLD_S_MAX)


def rows(records: DataFrame) -> DataFrame:
    """Keep each event, and where it is from. One without an amount says that its key is gone."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - after Java is chosen

    body = f.from_json(f.col("value").cast("string"), EVENT).alias("body")
    read = records.select(
        "topic", "partition", "offset", "timestamp", f.col("key").cast("string").alias("key"), body
    )
    at_ms = f.unix_millis("timestamp").alias("at_ms")
    return read.select("*", at_ms, "body.*").drop("body")


def windows(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    at_times = rows(records).withWatermark("timestamp", DELAY)
    grouped = at_times.groupBy(f.window("timestamp", WINDOW), "key")
    counted = grouped.agg(f.count("id").alias("events"), f.sum("amount").alias("amount"))
    begin_ms = f.unix_millis("window.start").alias("begin_ms")
    return counted.select(begin_ms, "key", "events", "amount")


QUERIES = {"rows": rows, "windows": windows}


def _started(records: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    frame = QUERIES[options.query](records)
    trigger = {"availableNow": True} if options.once else {"processingTime": "0 seconds"}
    if options.sink == "append":
        folder = f"{options.target}/{options.query}"

        def append(batch: DataFrame, _number: int) -> None:
            batch.write.mode("append").parquet(folder)

        writer = frame.writeStream.option("checkpointLocation", options.checkpoint)
        return writer.trigger(**trigger).foreachBatch(append).start()
    more: dict[str, Any] = {}
    if options.mode == "upsert":
        more = {"mode": "upsert", "keys": KEYS[options.query], "output_mode": "update"}
        if options.query == "rows":
            frame = frame.selectExpr("*", "amount IS NULL AS gone")
            more["deleted"] = "gone"
    return write(
        frame,
        options.target,
        table=f"{options.namespace}.{options.query}" if options.namespace else options.query,
        query=options.query,
        checkpoint=options.checkpoint,
        trigger=trigger,
        **more,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.pipelines.sinks.target_driver",
        description="A query into a target, by a driver that can be held.",
    )
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...")
    add("--topic", required=True)
    add("--target", required=True, metavar="URL", help="write's; with --sink append a folder")
    add("--checkpoint", required=True, metavar="DIR")
    add("--query", choices=sorted(QUERIES), required=True)
    add("--namespace", default="", metavar="NAME", help="of the table, where the target has any")
    add("--mode", choices=("append", "upsert"), default="append")
    add("--sink", choices=("write", "append"), default="write")
    add("--starting-offsets", default="earliest", metavar="earliest|latest")
    add("--max-offsets-per-trigger", type=int, default=1_000, metavar="ROWS")
    add("--watch", action="append", default=[], metavar="MODULE:NAME")
    add("--master", default="local[2,4]", help="the second number: attempts of a task")
    add("--heap-mb", type=int, default=HEAP_MB)
    add("--once", action="store_true", help="stop when all that is there now has been read")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    places = Places(options.watch)
    threading.Thread(target=places.hear, daemon=True).start()
    executor = f"{options.heap_mb}m"
    extra = {"spark.master": options.master, "spark.executor.memory": executor}
    session = local_session("holdfast target", heap_mb=options.heap_mb, extra=extra)
    records = (
        session.readStream.format("holdfast")
        .option("kafka.bootstrap.servers", options.bootstrap_server)
        .option("subscribe", options.topic)
        .option("startingOffsets", options.starting_offsets)
        .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    )
    query = _started(records.load(), options)
    say("started")
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after Java is chosen

    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        sys.stderr.write(f"{error}\n")
        say("failed", error=cause(str(error)), unfinished=is_unfinished(str(error)))
        return FAILED
    say("stopped")
    return STOPPED


if __name__ == "__main__":
    sys.exit(main())
