"""Queries with state, as a driver process that can be told where to die. `python -m` this.

Owns three queries over one topic of events, each with a table of its own: `windows` counts and
sums, `sessions` finds pauses, `pairs` joins the topic with itself. They show that the sink keeps
what a user's own stateful query gives it. An event's value is `{"kind":"left","id":7,"amount":3}`;
its time is the record's, and it may be late by less than DELAY. `--die-at` ends the process and its
JVM with SIGKILL at a named place: what a crash leaves there has to be enough for the next driver.
`--sink append` is the control, which a death between the two commits makes double its rows.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from holdfast.pipelines.driver import FAILED, LOOK_S, STOPPED, say, why
from holdfast.pipelines.session import HEAP_MB, local_session
from holdfast.pipelines.sink import AppendSink, ExactlyOnceSink, SinkRow
from holdfast.pipelines.sinks.table_sink import OnCommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DELAY = "10 seconds"
WINDOW = "5 seconds"
GAP = "2050 milliseconds"
PAIR = "5 seconds"  # a right event belongs to a left one of its id for so long
EVENT = "kind STRING, id BIGINT, amount BIGINT"
COMMIT_MS_MAX = 5.0  # about as long as a commit takes
SPARK_COMMIT_MS_MAX = 40.0
LOOK_PAUSE_S = 0.0002

metadata = sql.MetaData()
TABLES = {
    "windows": sql.Table(
        "windows",
        metadata,
        sql.Column("begin_ms", sql.BigInteger, nullable=False),
        sql.Column("key", sql.String(255), nullable=False),
        sql.Column("events", sql.BigInteger, nullable=False),
        sql.Column("amount", sql.BigInteger, nullable=False),
    ),
    "sessions": sql.Table(
        "sessions",
        metadata,
        sql.Column("begin_ms", sql.BigInteger, nullable=False),
        sql.Column("end_ms", sql.BigInteger, nullable=False),
        sql.Column("key", sql.String(255), nullable=False),
        sql.Column("events", sql.BigInteger, nullable=False),
    ),
    "pairs": sql.Table(
        "pairs",
        metadata,
        sql.Column("id", sql.BigInteger, nullable=False),
        sql.Column("left_amount", sql.BigInteger, nullable=False),
        sql.Column("right_amount", sql.BigInteger),  # null: no right event came in time
    ),
}


def _events(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - the tables are for others too

    body = f.from_json(f.col("value").cast("string"), EVENT)
    return records.select(
        f.col("timestamp").alias("at"), f.col("key").cast("string").alias("key"), body.alias("body")
    ).select("at", "key", "body.*")


def _windows(read: Callable[[], DataFrame]) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - see above

    grouped = _events(read()).withWatermark("at", DELAY).groupBy(f.window("at", WINDOW), "key")
    counted = grouped.agg(f.count("id").alias("events"), f.sum("amount").alias("amount"))
    begin_ms = f.unix_millis("window.start").alias("begin_ms")
    return counted.select(begin_ms, "key", "events", "amount")


def _sessions(read: Callable[[], DataFrame]) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - see above

    session = f.session_window("at", GAP)
    grouped = _events(read()).withWatermark("at", DELAY).groupBy(session, "key")
    return grouped.agg(f.count("id").alias("events")).select(
        f.unix_millis("session_window.start").alias("begin_ms"),
        f.unix_millis("session_window.end").alias("end_ms"),
        "key",
        "events",
    )


def _pairs(read: Callable[[], DataFrame]) -> DataFrame:
    """Join the topic with itself: two sources of it in one query."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - see above

    left = _events(read()).where("kind = 'left'").withWatermark("at", DELAY).alias("l")
    right = _events(read()).where("kind = 'right'").withWatermark("at", DELAY).alias("r")
    near = f"l.id = r.id AND r.at >= l.at AND r.at <= l.at + INTERVAL {PAIR}"
    return left.join(right, f.expr(near), "leftOuter").select(
        f.col("l.id").alias("id"),
        f.col("l.amount").alias("left_amount"),
        f.col("r.amount").alias("right_amount"),
    )


QUERIES: dict[str, Callable[[Callable[[], DataFrame]], DataFrame]] = {
    "windows": _windows,
    "sessions": _sessions,
    "pairs": _pairs,
}


class IntoTable:
    """The recipe: rows as they are, into the table of the query. It has no key, on purpose."""

    def __init__(self, name: str) -> None:
        self._table = TABLES[name]

    def prepare(self, connection: Connection) -> None:
        self._table.create(connection, checkfirst=True)

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        connection.execute(self._table.insert(), [dict(row) for row in rows])


@dataclass(frozen=True, slots=True)
class Death:
    """Where a driver dies: the n-th time that its first query is at a place."""

    place: str
    times: int

    @classmethod
    def parse(cls, text: str) -> Death:
        place, _, times = text.partition(":")
        if place not in PLACES:
            raise argparse.ArgumentTypeError(f"{place!r} is none of {', '.join(PLACES)}")
        return cls(place, int(times or 1))


class _Reaper:
    """Counts what a sink comes past, and kills at the place that was named."""

    def __init__(self, death: Death, table: str, checkpoint: Path) -> None:
        self._death = death
        self._table = table
        self._checkpoint = checkpoint
        self._seen = 0
        self._noted = False  # this transaction has noted its batch: it is no mere look

    def watch(self, sink: ExactlyOnceSink) -> None:
        engine = sink.ownership.engine
        sql.event.listen(engine, "after_cursor_execute", self._executed)
        sql.event.listen(engine, "commit", self._commits)

    def _arrived(self) -> bool:
        self._seen += 1
        return self._seen >= self._death.times

    def _executed(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        place, words = self._death.place, statement.lower()
        changes = words.startswith(("insert", "update"))
        self._noted |= changes and "set checkpoint" in words
        offsets = changes and "holdfast_offset" in words
        rows = changes and f"into {self._table}" in words
        here = (place == "advance" and offsets) or (place == "write" and rows)
        if here and self._arrived():
            die(place)

    def _commits(self, _connection: Any) -> None:
        """Come before the database does it: one thread kills, the other commits."""
        noted, self._noted = self._noted, False
        if noted and self._death.place == "commit" and self._arrived():
            self._soon(COMMIT_MS_MAX, lambda: False)

    def committed(self, batch: int, rows: int) -> None:
        """Come after it: Spark is about to write down that the batch is done."""
        if self._death.place == "between" and rows and self._arrived():
            die("between")
        if self._death.place != "spark-commit" or not self._arrived():
            return
        commits = self._checkpoint / "commits"
        done = commits / str(batch)
        begun = f".{batch}."

        def writing() -> bool:
            return done.exists() or any(path.name.startswith(begun) for path in commits.iterdir())

        self._soon(SPARK_COMMIT_MS_MAX, writing if random.random() < 0.5 else done.exists)  # noqa: S311

    def _soon(self, ms_max: float, seen: Callable[[], bool]) -> None:
        """Die within `ms_max`, or as soon as something is seen, while the query goes on."""
        deadline = time.monotonic() + random.uniform(0, ms_max) / 1000  # noqa: S311 - any moment

        def wait() -> None:
            while time.monotonic() < deadline and not seen():
                time.sleep(LOOK_PAUSE_S)
            die(self._death.place)

        threading.Thread(target=wait).start()


def die(place: str) -> NoReturn:
    """Kill this process and its JVM as one: nothing is flushed, closed or taken back."""
    say("dies", place=place)
    os.killpg(os.getpgid(0), signal.SIGKILL)
    raise AssertionError("SIGKILL was survived")


PLACES = ("advance", "write", "commit", "between", "spark-commit")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.pipelines.stateful", description="Queries with state, by Spark."
    )
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...")
    add("--topic", required=True)
    add("--database", required=True, metavar="URL", help="{query} in it becomes the query's name")
    add("--checkpoint", required=True, metavar="DIR", help="a folder for one of each query")
    add("--query", action="append", choices=sorted(QUERIES), required=True)
    add("--max-offsets-per-trigger", type=int, default=1_000, metavar="ROWS")
    add("--sink", choices=("exactly-once", "append"), default="exactly-once")
    add("--once", action="store_true", help="stop when all that is there now has been read")
    add("--heap-mb", type=int, default=HEAP_MB)
    add("--die-at", type=Death.parse, metavar="PLACE:N", help=f"one of {', '.join(PLACES)}")
    return parser.parse_args(arguments)


def _sink(
    options: argparse.Namespace, name: str, checkpoint: Path, committed: OnCommit
) -> ExactlyOnceSink | AppendSink:
    url, recipe = options.database.format(query=name), IntoTable(name)
    if options.sink == "append":
        return AppendSink(url, recipe, on_commit=committed)
    return ExactlyOnceSink(url, name, recipe, checkpoint=str(checkpoint), on_commit=committed)


@dataclass(frozen=True, slots=True)
class Running:
    """A query, and what it writes through."""

    name: str
    query: StreamingQuery
    sink: ExactlyOnceSink | AppendSink
    checkpoint: str

    def wait_for_sources(self, pause: threading.Event) -> None:
        """Wait until Spark has its Python workers: it gives each ten seconds to start, however
        many start at once.
        """
        while self.query.isActive and self.query.status["message"] == "Initializing sources":
            pause.wait(LOOK_S)

    def tell_failure(self) -> None:
        said = str(self.query.exception())
        sys.stderr.write(f"{said}\n")
        say("failed", query=self.name, **why(said, self.sink, self.checkpoint))


def _start(session: SparkSession, options: argparse.Namespace, name: str) -> Running:
    checkpoint = Path(options.checkpoint, name)
    reaper = None
    if options.die_at is not None and name == options.query[0]:
        reaper = _Reaper(options.die_at, name, checkpoint)

    def committed(batch: int, rows: int) -> None:
        say("committed", query=name, batch=batch, rows=rows)
        if reaper is not None:
            reaper.committed(batch, rows)

    sink = _sink(options, name, checkpoint, committed)
    if reaper is not None and isinstance(sink, ExactlyOnceSink):
        reaper.watch(sink)

    def read() -> DataFrame:
        return (
            session.readStream.format("holdfast")
            .option("kafka.bootstrap.servers", options.bootstrap_server)
            .option("subscribe", options.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
            .load()
        )

    writer = (
        QUERIES[name](read)
        .writeStream.queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(sink)
    )
    query = writer.trigger(availableNow=True).start() if options.once else writer.start()
    return Running(name, query, sink, str(checkpoint))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    session = local_session("holdfast stateful", heap_mb=options.heap_mb)
    say("session")
    running: list[Running] = []
    pause = threading.Event()
    for name in options.query:
        running.append(_start(session, options, name))
        if len(running) == 1:
            say("started")
        running[-1].wait_for_sources(pause)
    while not stopping and all(one.query.exception() is None for one in running):
        if not any(one.query.isActive for one in running):
            break
        pause.wait(LOOK_S)
    if failed := [one for one in running if one.query.exception() is not None]:
        for one in failed:
            one.tell_failure()
        return FAILED
    for one in running:
        one.query.stop()
    say("stopped")
    return STOPPED


if __name__ == "__main__":
    sys.exit(main())
