"""What it costs Spark to read a log: our source, the JVM connector, and the ceiling of the way.

The ceiling is a source in Python whose Arrow batches were made beforehand: no source in Python can
be faster. Each round has all of them in turn, in one session that has read before until none became
quicker; rows go to Spark's noop sink. CPU is that of this process, its JVM and the Python workers,
and nothing of the broker's. Trickle: a record every 50 ms, and how long a trigger takes
that has some. Without the JVM connector (`make apache`) there are the other two. Prints medians and
what half of the rounds lie between; writes them to bench/results/TIME-spark.json.

    python bench/spark.py [--rounds 5] [--rows 3000000] [--sizes 100 1024] [--trickle-s 20]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from engines import ROOT, STEADY, Holdfast, machine
from holdfast.pipelines.session import local_session
from holdfast.pipelines.source import SCHEMA

PARTITIONS: Final = 2
BATCH_ROWS: Final = 10_000
LIBS: Final = ROOT / ".cache" / "spark-kafka" / "libs"
JVM, OURS, CEILING = "JVM connector", "holdfast", "ceiling"
FORMATS: Final = {JVM: "kafka", OURS: "holdfast", CEILING: "premade"}
_TICKS: Final = os.sysconf("SC_CLK_TCK")
PAUSE_S: Final = 0.05
WARM_GAIN: Final = 0.03
WARM_IDLE: Final = 2
WARM_ROUNDS_MAX: Final = 15

Results = dict[str, dict[str, list[float]]]  # case, metric: a value a round


class Premade(DataSource):  # type: ignore[misc]
    """The ceiling: batches that lie in the worker's memory, with the columns of a log."""

    @classmethod
    def name(cls) -> str:
        return "premade"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return PremadeReader(int(self.options["rows"]), int(self.options["size"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        del schema
        return PremadeStream()


class PremadeReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, rows: int, size: int) -> None:
        self._rows, self._size = rows, size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = batch_of(BATCH_ROWS, self._size)
        left = self._rows // PARTITIONS + (self._rows % PARTITIONS if partition.value == 0 else 0)
        while left > 0:
            yield batch.slice(0, min(left, BATCH_ROWS))
            left -= BATCH_ROWS


class PremadeStream(DataSourceStreamReader):  # type: ignore[misc]
    """A source in Python that asks nobody: a row a trigger."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        del limit
        time.sleep(PAUSE_S)
        return {"at": start["at"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        del start, end
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        yield batch_of(1, 100)


def batch_of(rows: int, size: int) -> pa.RecordBatch:
    """Return rows as a source gives them."""
    moment = pa.scalar(1_700_000_000_000_000, pa.timestamp("us", tz="UTC"))
    columns = [
        pa.array([b"%08d" % number for number in range(rows)], pa.binary()),
        pa.array([bytes(size)] * rows, pa.binary()),
        pa.array(["bench"] * rows, pa.string()),
        pa.array([0] * rows, pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array([moment.as_py()] * rows, moment.type),
        pa.array([0] * rows, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, SCHEMA.names)


def cpu_s(others: Sequence[int]) -> float:
    """Return the CPU of this process and of all below it, those included that have ended.

    `others` are started here as well, and do not count: they and what is below them.
    """
    times: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        times[pid] = sum(map(int, fields[11:15])) / _TICKS
    found, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found += times.get(pid, 0.0)
        waiting += [child for child in children.get(pid, []) if child not in others]
    return found


def measured(read: Callable[[], None], rows: int, others: Sequence[int]) -> dict[str, float]:
    began_s, used_s = time.perf_counter(), cpu_s(others)
    read()
    return {
        "rows_per_s": rows / (time.perf_counter() - began_s),
        "rows_per_cpu_s": rows / (cpu_s(others) - used_s),
    }


def fill(bootstrap: str, topic: str, rows: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50}, logger=None)
    for number in range(rows):
        value = (b"%020d" % number + b"the same in each; " * 60)[:size]
        producer.produce(topic, value, b"%08d" % number, number % PARTITIONS)
        if number % BATCH_ROWS == 0:
            producer.flush(60)
    assert producer.flush(60) == 0, "not all of it was written"


class Bench:
    """One session, one broker, and who reads."""

    def __init__(self, spark: SparkSession, engine: Holdfast, engines: list[str]) -> None:
        self.spark, self.engine, self.engines = spark, engine, engines
        self.results: Results = {}

    def note(self, case: str, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.results.setdefault(case, {}).setdefault(name, []).append(value)

    def frame(self, engine: str, topic: str, rows: int, size: int, *, stream: bool) -> DataFrame:
        reader = self.spark.readStream if stream else self.spark.read
        reader = reader.format(FORMATS[engine])
        if engine == CEILING:
            return reader.options(rows=str(rows), size=str(size)).load()
        reader = reader.option("kafka.bootstrap.servers", self.engine.bootstrap)
        return reader.option("subscribe", topic).load()

    def throughput(self, rows: int, size: int, rounds: int) -> None:
        """Read all of a topic, each in turn, once all are warm."""
        topic = f"bench-{size}"
        self.engine.create(topic, PARTITIONS)
        fill(self.engine.bootstrap, topic, rows, size)
        for engine in self.engines:
            found = self.frame(engine, topic, rows, size, stream=False).count()
            assert found == rows, f"{engine} has read {found} rows of {rows}"
        self.warm(topic, rows, size)
        for _ in range(rounds):
            for engine in self.engines:
                self.note(f"{size} B, {engine}", self.read(engine, topic, rows, size))

    def read(self, engine: str, topic: str, rows: int, size: int) -> dict[str, float]:
        noop = self.frame(engine, topic, rows, size, stream=False).write.format("noop")
        return measured(noop.mode("overwrite").save, rows, self.engine.pids())

    def warm(self, topic: str, rows: int, size: int) -> None:
        """Read until none becomes quicker: a JVM compiles what it has long been doing."""
        best = dict.fromkeys(self.engines, 0.0)
        idle = 0  # rounds in which none has become quicker
        for number in range(WARM_ROUNDS_MAX):
            found = {each: self.read(each, topic, rows, size) for each in self.engines}
            rates = {each: values["rows_per_cpu_s"] for each, values in found.items()}
            quicker = any(rates[each] > best[each] * (1 + WARM_GAIN) for each in rates)
            best = {each: max(rate, best[each]) for each, rate in rates.items()}
            idle = 0 if quicker else idle + 1
            told = ", ".join(f"{each} {rate:,.0f}" for each, rate in rates.items())
            print(f"warming, {size} B, round {number + 1}: rows a CPU-second: {told}", flush=True)
            if idle == WARM_IDLE:
                return
        print("not warm yet: the figures below are of a JVM that still compiles")

    def trickle(self, seconds: float, folder: Path) -> None:
        """Write a record now and then, and see how long triggers take that have one."""
        for engine in self.engines:
            topic = f"trickle-{engine.replace(' ', '-')}"
            self.engine.create(topic, PARTITIONS)
            frame = self.frame(engine, topic, 0, 0, stream=True)
            writer = frame.writeStream.format("noop")
            query = writer.option("checkpointLocation", str(folder / topic)).start()
            ended = threading.Event()
            writing = threading.Thread(target=drip, args=(self.engine.bootstrap, topic, ended))
            writing.start()
            query.awaitTermination(seconds)
            ended.set()
            writing.join()
            told = [each for each in query.recentProgress if each["numInputRows"]]
            query.stop()
            later = told[len(told) // 4 :]  # the first ones start workers
            for each in later:
                self.note(
                    f"trickle, {engine}", {"trigger_ms": each["durationMs"]["triggerExecution"]}
                )


def drip(bootstrap: str, topic: str, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}, logger=None)
    while not ended.wait(PAUSE_S):
        producer.produce(topic, b"x" * 100)
        producer.poll(0)
    producer.flush(30)


def show(results: Results) -> None:
    for case, metrics in results.items():
        for name, values in metrics.items():
            low, _, high = quantiles(values, n=4) if len(values) > 1 else values * 3
            print(f"{case:28}{name:16}{median(values):12,.0f} ({low:,.0f}-{high:,.0f})")


def main() -> None:
    """Measure, tell, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1024])
    parser.add_argument("--trickle-s", type=float, default=20)
    options = parser.parse_args()
    jars = sorted(map(str, LIBS.glob("*.jar")))
    engines = [JVM, OURS, CEILING] if jars else [OURS, CEILING]
    if not jars:
        print("without the JVM connector: `make apache` brings it by Maven")
    more = {"spark.jars": ",".join(jars)} if jars else {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        engine = Holdfast(Path(directory) / "cluster", STEADY)
        engine.start()
        spark = local_session("bench", extra=more)
        spark.dataSource.register(Premade)
        bench = Bench(spark, engine, engines)
        try:
            for size in options.sizes:
                bench.throughput(options.rows, size, options.rounds)
            if options.trickle_s:
                bench.trickle(options.trickle_s, Path(directory))
        finally:
            spark.stop()
            engine.stop()
    show(bench.results)
    path = ROOT / "bench" / "results" / time.strftime("%Y-%m-%dT%H%M-spark.json")
    path.write_text(json.dumps({"machine": machine(), "cases": bench.results}, indent=1))
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
