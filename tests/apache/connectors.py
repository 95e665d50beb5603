"""Spark's own Kafka connector and ours in one session: what both are given, and what they give."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from holdfast.cluster.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

LIBS: Final = Path(__file__).resolve().parents[2] / ".cache" / "spark-kafka" / "libs"
JVM: Final = "kafka"
OURS: Final = "holdfast"
BEGIN_MS: Final = 1_700_000_000_000
WAIT_S: Final = 300.0
Options = Mapping[str, str]
Headers = list[tuple[str, bytes | None]]


def jars() -> list[str]:
    """Return what `make apache` has brought of the JVM connector; nothing where it could not."""
    if not any(LIBS.glob("spark-sql-kafka-0-10_2.13-*.jar")):
        return []
    return sorted(map(str, LIBS.glob("*.jar")))


@dataclass
class Log:
    """One broker's topics, all of them with the same records on every broker."""

    bootstrap: str
    name: str
    _admin: AdminClient = field(init=False)
    _producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        self._producer = Producer(settings, logger=None)

    def close(self) -> None:
        """Leave no client that goes on talking to a broker that is gone."""
        del self._admin, self._producer

    def topic(self, suffix: str) -> str:
        return f"{self.name}-{suffix}"

    def create(self, suffix: str, partitions: int, **config: str) -> str:
        """Make a topic that never expires: its records are of 2023."""
        topic = self.topic(suffix)
        told = {"retention.ms": "-1", "min.insync.replicas": "1", **config}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=told)])[topic].result(30)
        return topic

    def grow(self, suffix: str, partitions: int) -> None:
        topic = self.topic(suffix)
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

        def known() -> bool:
            told = self._admin.list_topics(topic, timeout=10).topics[topic]
            return len(told.partitions) == partitions

        wait_until(known, timeout_s=30, what="the new partition")
        self.__post_init__()

    def cut(self, suffix: str, offset: int) -> None:
        """Delete what is before an offset of partition 0."""
        where = TopicPartition(self.topic(suffix), 0, offset)
        self._admin.delete_records([where])[where].result(30)

    def write(
        self,
        suffix: str,
        partition: int,
        count: int,
        first: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Write records a second apart, the first of them `first` seconds after the beginning."""
        for number in range(first, first + count):
            self._producer.produce(
                self.topic(suffix),
                None if number % 5 == 3 else f"value {number}".encode(),
                None if number % 4 == 2 else f"key {number}".encode(),
                partition,
                timestamp=BEGIN_MS + 1000 * number,
                headers=headers,
            )
        assert self._producer.flush(60) == 0

    def transact(self, suffix: str) -> bool:
        """Make a topic with an aborted record and a kept one. False: the broker can't."""
        topic = self.create(suffix, 1)
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": topic}
        producer = Producer(settings, logger=None)
        try:
            producer.init_transactions(30)
        except KafkaException as error:
            if error.args[0].fatal():  # as holdfast says that it serves none
                return False
            raise
        producer.begin_transaction()
        producer.produce(topic, b"aborted", partition=0)
        assert producer.flush(60) == 0
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, b"kept", partition=0)
        producer.commit_transaction(30)
        return True

    def fill(self) -> None:
        """Make the topics that batch queries read."""
        self.create("a", 3)
        self.write("a", 0, 8)
        self.write("a", 1, 5)
        self.write("a", 2, 2, headers=[("h", b"1"), ("h", None), ("", b"")])
        self.write("a", 2, 1, first=2)
        self.create("b", 1)
        self.write("b", 0, 4, first=4)
        self.create("empty", 2)
        self.create("cut", 1)
        self.write("cut", 0, 6)
        self.cut("cut", 3)


@dataclass
class Pair:
    """Both connectors, given the same options."""

    spark: SparkSession
    log: Log

    def options(self, options: Options) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.log.bootstrap, **options}

    def frame(self, connector: str, options: Options) -> DataFrame:
        return self.spark.read.format(connector).options(**self.options(options)).load()

    def rows(self, connector: str, options: Options) -> tuple[list[str], list[Any]]:
        """Return the columns, and the rows by topic, partition and offset."""
        frame = self.frame(connector, options)
        found = frame.collect()
        found.sort(key=lambda row: (row.topic, row.partition, row.offset))
        return frame.dtypes, found

    def tasks(self, connector: str, options: Options) -> set[tuple[tuple[str, int, int], ...]]:
        """Return which records each task reads."""
        frame = self.frame(connector, options)
        found: dict[int, list[tuple[str, int, int]]] = {}
        told = frame.selectExpr("spark_partition_id() AS task", "topic", "partition", "offset")
        for row in told.collect():
            found.setdefault(row.task, []).append((row.topic, row.partition, row.offset))
        return {tuple(sorted(records)) for records in found.values()}


class Stream:
    """One streaming query of one connector, and what its batches were."""

    def __init__(self, pair: Pair, connector: str, options: Options, checkpoint: Path) -> None:
        self._pair = pair
        self._connector = connector
        self._options = options
        self._checkpoint = checkpoint
        self.rows: list[tuple[str, int, int, bytes | None]] = []
        self.query: StreamingQuery | None = None

    def start(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        reader = self._pair.spark.readStream.format(self._connector)
        frame = reader.options(**self._pair.options(self._options)).load()

        def keep(batch: DataFrame, _number: int) -> None:
            found = batch.select("topic", "partition", "offset", "value").collect()
            self.rows += [(r.topic, r.partition, r.offset, r.value) for r in found]

        writer = frame.writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger)
        self.query = writer.start()
        return self.query

    def read_all(self) -> None:
        """Read what is there now, and end."""
        self.start({"availableNow": True}).awaitTermination()

    def see(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Wait until the source has seen that the log ends here."""
        self._await(lambda told: self._plain(told["latestOffset"]) == offsets)

    def come_to(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Wait until a batch has ended here."""
        self._await(lambda told: self._plain(told["endOffset"]) == offsets)

    def _await(self, seen: Callable[[Any], bool]) -> None:
        query = self.query
        assert query is not None

        def ready() -> bool:
            if (error := query.exception()) is not None:
                raise error
            told = query.lastProgress
            return told is not None and seen(told["sources"][0])

        wait_until(ready, timeout_s=WAIT_S, what=f"{self._connector} to be there")

    def ends(self) -> list[dict[str, dict[str, int]]]:
        """Return where batches ended. Without our first one, which is empty on purpose."""
        entries = sorted(
            (path for path in (self._checkpoint / "offsets").iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        found = [self._plain(path.read_text().splitlines()[2]) for path in entries]
        return found if self._connector == JVM else found[1:]

    @staticmethod
    def _plain(told: Any) -> dict[str, dict[str, int]]:
        """Return offsets by topic and partition, without our topics' ids."""
        told = json.loads(told) if isinstance(told, str) else told
        return {
            topic: {number: at for number, at in places.items() if number.isdigit()}
            for topic, places in (told or {}).items()
        }


def changes(ends: Sequence[Any]) -> list[Any]:
    """Return the ends that differ from the one before."""
    return [end for at, end in enumerate(ends) if at == 0 or end != ends[at - 1]]


def fresh_name(prefix: str) -> str:
    return f"{prefix}-{time.time_ns()}"
