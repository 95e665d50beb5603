"""A topic as it is, copied into a table, by a driver process that can be held. `python -m` this.

Owns the query of the lab's scenarios: each record is a row of topic, partition, offset, key and
value. It is written by `write`, or by one of the sinks that keep nothing (`--sink`). What is said
and heard is `holding`'s: where it is watched it can be held, and killed.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.pipelines.proving.careless_sinks import FromTasks, PlainAppend, SwallowsErrors
from holdfast.pipelines.proving.holding import Places, follow
from holdfast.pipelines.session import local_session
from holdfast.pipelines.sinks.writing import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

HEAP_MB = 512
SINKS = ("write", "append", "swallow", "tasks")


def frame_of(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - after Java is chosen

    texts = [f.col(name).cast("string").alias(name) for name in ("key", "value")]
    return records.select("topic", "partition", "offset", *texts)


def start(records: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    frame = frame_of(records)
    trigger = {"processingTime": f"{options.trigger_ms} milliseconds"}
    if options.sink == "write":
        return write(
            frame,
            options.target,
            table=options.table,
            query=options.query,
            checkpoint=options.checkpoint,
            trigger=trigger,
            begin_anew=options.begin_anew,
        )
    writer = frame.writeStream.queryName(options.query).trigger(**trigger)
    writer = writer.option("checkpointLocation", options.checkpoint)
    return writer.foreachBatch(_careless(options)).start()


def _careless(options: argparse.Namespace) -> Any:
    if options.sink == "tasks":
        return FromTasks(Path(options.target), Path(f"{options.target}.hold"))
    kind = PlainAppend if options.sink == "append" else SwallowsErrors
    return kind(options.target, options.table)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.pipelines.proving.copying",
        description="Copies a topic into a table, record by record, by a driver that can be held.",
    )
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...")
    add("--topic", required=True)
    add("--target", required=True, metavar="URL", help="of write; with --sink tasks a folder")
    add("--table", required=True, metavar="NAME")
    add("--checkpoint", required=True, metavar="DIR")
    add("--query", required=True, metavar="NAME")
    add("--begin-anew", action="append", default=[], metavar="ID", help="as write's begin_anew")
    add("--sink", choices=SINKS, default="write")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the source")
    add("--trigger-ms", type=int, default=200, metavar="MS", help="least time between batches")
    add("--watch", action="append", default=[], metavar="MODULE:NAME")
    add("--master", default="local[2,4]", help="the second number: attempts of a task")
    add("--heap-mb", type=int, default=HEAP_MB)
    add("--nice", type=int, default=5, help="lower the priority: brokers share this machine")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    os.nice(options.nice)
    threading.Thread(target=Places(options.watch).hear, daemon=True).start()
    executor = f"{options.heap_mb}m"
    extra = {"spark.master": options.master, "spark.executor.memory": executor}
    session = local_session("holdfast copying", heap_mb=options.heap_mb, extra=extra)
    reader = session.readStream.format("holdfast")
    reader = reader.option("kafka.bootstrap.servers", options.bootstrap_server)
    given = dict(one.split("=", 1) for one in options.option)
    if not given.keys() & {"assign", "subscribePattern"}:
        reader = reader.option("subscribe", options.topic)
    reader = reader.options(**{"startingOffsets": "earliest", **given})
    return follow(start(reader.load(), options))


if __name__ == "__main__":
    sys.exit(main())
