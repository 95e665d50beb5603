"""One query into one target of `write`, as a driver process that can be held. `python -m` this.

Owns two queries over a topic of events, `{"id":7,"amount":3}` with a key each: `rows` takes them as
they are, `windows` counts and sums them by key. Whoever started it is told when a function that
`--watch` names is reached, may have the driver wait there, and kills what it likes meanwhile: this
process, a worker of Spark's, a broker, the database. Without `write` (`--sink append`) it is the
control, which appends as Spark does. What is said on standard output is one JSON object a line, and
so is what is heard (`holding`).
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.pipelines.proving.holding import Places, follow
from holdfast.pipelines.session import HEAP_MB, local_session
from holdfast.pipelines.sinks.writing import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

DELAY = "10 seconds"
WINDOW = "1 second"
EVENT = "id BIGINT, amount BIGINT"
KEYS = {"rows": ["key"], "windows": ["begin_ms", "key"]}


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
        prog="python -m holdfast.pipelines.proving.target_driver",
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
    return follow(_started(records.load(), options))


if __name__ == "__main__":
    sys.exit(main())
