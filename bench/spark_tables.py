"""What it costs to bring a log into PostgreSQL with `write`, and what a worker of Spark's holds.

Three things, on one broker of ours and a server of PostgreSQL with fsync on. Rows a second: records
of 100 bytes are appended to a table with a primary key, by triggers of 100,000; counted is the time
of those triggers that have rows, but for the first. Latency: events are sent at a rate with default
triggers, and somebody looks at the table all the time; from an event's sending to the look that saw
it. Memory: the most that a Python worker held, reading little, and reading a long log with values
of 1 KB, beside its bound: the first, four times `maxBytesPerFetch`, and the largest inflated batch.
Prints medians; writes them to bench/results/TIME-spark-tables.json.

    python bench/spark_tables.py [--rounds 3] [--rows 1000000] [--rate 1000] [--seconds 60]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import sqlalchemy as sql
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from engines import ROOT, STEADY, Holdfast, machine
from holdfast.lab import postgresql
from holdfast.lab.pipelines.postgresql_server import PostgresqlServer
from holdfast.lab.pipelines.process_trees import below, command
from holdfast.pipelines import write
from holdfast.pipelines.session import local_session
from spark import PARTITIONS, fill

TRIGGER_ROWS: Final = 100_000
WARM_S: Final = 10.0  # of the events, in which Spark starts its workers
LOOK_S: Final = 0.005
FETCH_BYTES: Final = 16 << 20
INFLATED: Final = 1 << 20  # the largest batch of the producer here

Results = dict[str, list[float]]


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("holdfast").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


class Synced(PostgresqlServer):
    """A server that syncs what it commits, as one does that is in use."""

    def __init__(self, url: str) -> None:
        super().__init__(url, {})
        self._command += [b"-c", b"fsync=on"]  # the last word on it counts
        self.kill()
        self.start()
        engine = sql.create_engine(url, poolclass=sql.NullPool)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW fsync").scalar() == "on"


def append(spark: SparkSession, bootstrap: str, url: str, rows: int, number: int) -> float:
    """Return rows a second of one round."""
    records = stream(spark, bootstrap, "rows", maxOffsetsPerTrigger=str(TRIGGER_ROWS))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as checkpoint:
        query = write(
            records.select("topic", "partition", "offset", "value"),
            url,
            table=f"rows_{number}",
            keys=["partition", "offset"],
            query=f"rows {number}",
            checkpoint=checkpoint,
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        told = [each for each in query.recentProgress if each["numInputRows"]]
    assert sum(each["numInputRows"] for each in told) == rows, "rows are missing"
    later = told[1:]
    spent_ms = sum(each["durationMs"]["triggerExecution"] for each in later)
    return float(1_000 * sum(each["numInputRows"] for each in later) / spent_ms)


class Looker(threading.Thread):
    """Looks at a table all the time, and notes how old what it sees for the first time is."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._engine = sql.create_engine(url)
        self.ended = threading.Event()
        self.ages_ms: list[float] = []

    def run(self) -> None:
        seen = -1
        text = sql.text("SELECT id, sent_ms FROM events WHERE id > :seen ORDER BY id")
        while not self.ended.wait(LOOK_S):
            with suppress(sql.exc.ProgrammingError), self._engine.connect() as connection:
                rows = connection.execute(text, {"seen": seen}).all()
                now_ms = time.time() * 1_000
                self.ages_ms += [now_ms - sent_ms for _, sent_ms in rows]
                seen = rows[-1][0] if rows else seen


def latency(
    spark: SparkSession, bootstrap: str, url: str, rate: int, seconds: float
) -> list[float]:
    """Return the ages of all events, but for those of the first seconds, in ms."""
    value = f.col("value").cast("string")
    parts = enumerate(("id", "sent_ms"))
    columns = [f.split(value, " ")[place].cast("bigint").alias(name) for place, name in parts]
    frame = stream(spark, bootstrap, "events").select("topic", "partition", "offset", *columns)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as checkpoint:
        query = write(frame, url, table="events", query="events", checkpoint=checkpoint)
        looker = Looker(url)
        looker.start()
        sent = send(bootstrap, rate, WARM_S + seconds)
        until_s = time.monotonic() + 60
        while len(looker.ages_ms) < sent and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        query.stop()
        looker.ended.set()
        looker.join()
    assert len(looker.ages_ms) >= sent * 0.99, f"{len(looker.ages_ms)} of {sent} were seen"
    return looker.ages_ms[int(rate * WARM_S) :]


def send(bootstrap: str, rate: int, seconds: float) -> int:
    """Send events at a rate to one partition, so that they are seen in their order."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}, logger=None)
    begin_s, number = time.monotonic(), 0
    while (passed_s := time.monotonic() - begin_s) < seconds:
        while number < passed_s * rate:
            producer.produce("events", f"{number} {int(time.time() * 1_000)} ".ljust(100), None, 0)
            number += 1
        producer.poll(LOOK_S)
    producer.flush(30)
    return number


def workers_mb() -> float:
    """Return the most that one of our Python workers has held, in MB; others may have theirs."""
    found = [0.0]
    for pid in below(os.getpid()):
        with suppress(OSError, StopIteration):
            if "pyspark.daemon" in command(pid):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                peak = next(line for line in lines if line.startswith("VmHWM:"))
                found.append(int(peak.split()[1]) / 1024)
    return max(found)


def memory(bootstrap: str, topic: str) -> float:
    """Read a topic in a session of its own; return what a worker has held at most, in MB."""
    spark = local_session("bench memory")
    try:
        frame = spark.read.format("holdfast").option("kafka.bootstrap.servers", bootstrap)
        frame = frame.options(subscribe=topic, maxBytesPerFetch=str(FETCH_BYTES))
        frame.load().write.format("noop").mode("overwrite").save()
        return workers_mb()
    finally:
        spark.stop()


def measured(options: argparse.Namespace, engine: Holdfast, url: str) -> Results:
    results: Results = {}
    for topic, rows, size in (("little", 100, 100), ("long", options.rows // 4, 1024)):
        engine.create(topic, PARTITIONS)
        fill(engine.bootstrap, topic, rows, size)
        results[f"worker's peak, {topic} topic, MB"] = [memory(engine.bootstrap, topic)]
    (base,) = results["worker's peak, little topic, MB"]
    results["its bound, MB"] = [base + (4 * FETCH_BYTES + INFLATED) / (1 << 20)]
    engine.create("rows", PARTITIONS)
    fill(engine.bootstrap, "rows", options.rows, 100)
    engine.create("events", 1)
    spark = local_session("bench tables")
    try:
        for number in range(options.rounds + 1):
            found = append(spark, engine.bootstrap, url, options.rows, number)
            if number:  # the first round warms up
                results.setdefault("rows a second, PostgreSQL", []).append(found)
        results["latency, ms"] = latency(
            spark, engine.bootstrap, url, options.rate, options.seconds
        )
    finally:
        spark.stop()
    return results


def show(results: Results) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for case, values in results.items():
        told[case] = {"median": median(values), "values": len(values)}
        if len(values) > 1:
            cuts = quantiles(values, n=100, method="inclusive")
            told[case] |= {"p25": cuts[24], "p75": cuts[74], "p99": cuts[98]}
        print(case, ", ".join(f"{name} {value:,.0f}" for name, value in told[case].items()))
    return told


def main() -> None:
    """Measure, tell, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    assert options.rows >= 3 * TRIGGER_ROWS, "more triggers than the one that warms up"
    programs = postgresql.programs()
    if programs is None:
        print("without PostgreSQL's server nothing is measured: Debian's package is postgresql")
        return
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory,
        postgresql.server(programs) as url,
        ExitStack() as ending,
    ):
        ending.callback(Synced(url).kill)
        engine = Holdfast(Path(directory) / "cluster", STEADY)
        engine.start()
        try:
            told = show(measured(options, engine, url))
        finally:
            engine.stop()
    path = ROOT / "bench" / "results" / time.strftime("%Y-%m-%dT%H%M-spark-tables.json")
    settings = {"rows": options.rows, "rate": options.rate, "load before": load}
    path.write_text(json.dumps({"machine": machine(), **settings, "cases": told}, indent=1))
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
