"""What pipeline tests run on: databases, a broker, one Spark session for all of them.

The broker is ours, or what HOLDFAST_TEST_BOOTSTRAP names: that is how these tests are shown to be
right on Apache Kafka.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from holdfast.cluster import LocalCluster
from holdfast.lab import postgresql as postgresql_server
from holdfast.wire.uuids import uuid_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from redis import Redis
    from sqlalchemy.engine import Engine
    from tests.pipelines.bench import Bench

    from holdfast.lab.soak.redis_server import RedisServer

EXTERNAL = os.environ.get("HOLDFAST_TEST_BOOTSTRAP")


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("pipelines-cluster")
    config = {
        "log.retention.check.interval.ms": "100",
        "log.initial.task.delay.ms": "100",
        # Spark takes both cores of a small machine for seconds: heartbeats may come late.
        "broker.session.timeout.ms": "8000",
    }
    with LocalCluster.create(directory, brokers=3, port=0, config=config) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture(scope="package")
def bootstrap(request: pytest.FixtureRequest) -> str:
    if EXTERNAL:
        return EXTERNAL
    cluster: LocalCluster = request.getfixturevalue("cluster")
    return cluster.bootstrap_servers


class Topics:
    """Makes topics and fills them; offsets are known, since nobody else writes there."""

    _names = itertools.count()

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = self._fresh_producer()

    def _fresh_producer(self) -> Producer:
        # idempotent: a topic just made may refuse the first batch and take the second, and a retry
        # without sequences then comes behind it, so that offsets are not known any more
        settings = {
            "bootstrap.servers": self.bootstrap,
            "linger.ms": 1,
            "enable.idempotence": True,
        }
        return Producer(settings, logger=None)

    def create(
        self, partitions: int = 2, *, copies: int = 1, name: str | None = None, **config: str
    ) -> str:
        """Make a topic; configuration keys with underscores for dots."""
        name = name or f"pipelines-{os.getpid()}-{next(self._names)}"
        named = {key.replace("_", "."): value for key, value in config.items()}
        named.setdefault("min.insync.replicas", str(min(copies, 2)))
        topic = NewTopic(name, partitions, copies, config=named)
        self._admin.create_topics([topic])[name].result(30)
        return name

    def make_anew(self, topic: str, partitions: int = 2) -> tuple[str, str]:
        """Delete a topic and create another one of its name; return both ids."""
        old = self.id_of(topic)
        self._admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + 30
        for address in self.bootstrap.split(","):
            while self._known_by(address, topic):
                assert time.monotonic() < deadline, f"{address} still has {topic}"
        self.create(partitions, name=topic)
        self.settle(topic, partitions)
        self._producer = self._fresh_producer()
        return old, self.id_of(topic)

    def id_of(self, topic: str) -> str:
        """Ask until the broker that is asked knows the topic."""
        deadline = time.monotonic() + 30
        while True:
            described = self._admin.describe_topics(TopicCollection([topic]))[topic]
            error = described.exception(30)
            if error is None:
                told = described.result().topic_id
                halves = (told.get_most_significant_bits(), told.get_least_significant_bits())
                return uuid_text(struct.pack(">qq", *halves))  # as Kafka's own tools spell it
            assert time.monotonic() < deadline, error

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, and wait until every broker knows them."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self.settle(topic, partitions)
        self._producer = self._fresh_producer()  # the old one remembers how many there were

    def settle(self, topic: str, partitions: int) -> None:
        """Wait until every broker knows the topic and its partitions."""
        deadline = time.monotonic() + 30
        for address in self.bootstrap.split(","):
            # A new client has nobody else to ask.
            while self._known_by(address, topic) < partitions:
                assert time.monotonic() < deadline, f"{address} does not know {topic}"

    @staticmethod
    def _known_by(address: str, topic: str) -> int:
        """Return how many partitions a broker knows. Asking for the list would make the topic."""
        admin = AdminClient({"bootstrap.servers": address})
        described = admin.describe_topics(TopicCollection([topic]))[topic]
        error = described.exception(10)
        assert error is None or error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return 0 if error is not None else len(described.result().partitions)

    def age_out(self, topic: str, partition: int, values: list[bytes]) -> int:
        """Write `values` so that they are deleted, and one record more; return where that is."""
        self.write(topic, partition, values)
        end = len(values)
        if EXTERNAL:
            self.write(topic, partition, [b"stays"])
            where = TopicPartition(topic, partition, end)
            self._admin.delete_records([where])[where].result(30)
            return end
        # Time-based retention takes whole segments: the next record begins a new one.
        deadline = time.monotonic() + 30
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused"})
        while True:
            self.write(topic, partition, [b"stays"])
            where = TopicPartition(topic, partition)
            low, _ = consumer.get_watermark_offsets(where, timeout=10)
            if low >= end:
                consumer.close()
                return int(low)
            assert time.monotonic() < deadline, "nothing was deleted"

    def write(
        self,
        topic: str,
        partition: int,
        values: list[bytes],
        key: bytes = b"k",
        timestamps_ms: Sequence[int] | None = None,
    ) -> None:
        """Write records and see each of them acknowledged."""
        failed: list[str] = []

        def answered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error.str())

        stamps = timestamps_ms or [0] * len(values)  # 0: the client's own clock
        for value, stamp in zip(values, stamps, strict=True):
            self._producer.produce(
                topic, value, key, partition, on_delivery=answered, timestamp=stamp
            )
        assert self._producer.flush(60) == 0
        assert not failed


@pytest.fixture(scope="package")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture(scope="module")
def no_consumer_outlives_the_cluster() -> Iterator[None]:
    """What is kept for the next range would go on talking on standard error to brokers gone."""
    from holdfast.pipelines import read_range  # noqa: PLC0415 - only who asks pays
    from holdfast.pipelines.reading import told_offsets, wire_range  # noqa: PLC0415 - as above

    yield
    for module in (read_range, wire_range):
        while module._idle:
            module._idle.popitem()[1].close()
    told_offsets.admins.clear()


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    from holdfast.pipelines.session import local_session  # noqa: PLC0415 - only who asks pays

    session = local_session("holdfast tests")
    yield session
    session.stop()


@pytest.fixture
def bench(spark: SparkSession, topics: Topics, tmp_path: Path) -> Bench:
    from tests.pipelines.bench import Bench  # noqa: PLC0415 - only who asks pays

    return Bench(spark, topics, tmp_path, 2)


@pytest.fixture(scope="package")
def postgresql() -> Iterator[str]:
    """Return the URL of a server of our own."""
    found = postgresql_server.programs()
    if found is None:
        pytest.skip(
            "PostgreSQL's server is not on this machine (Debian: apt-get install postgresql)"
        )
    with postgresql_server.server(found) as url:
        yield url


@pytest.fixture(scope="package")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return a server that nobody kills."""
    from holdfast.lab.soak import redis_server as redis  # noqa: PLC0415 - redis-py is an extra

    if redis.program() is None:
        pytest.skip(redis.MISSING)
    server = redis.RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    """Return a client of a server that is empty."""
    with closing(redis_server.client()) as client:
        client.flushall()
        yield client


_databases = itertools.count()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database: SQLite, and PostgreSQL where there is a server."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/table.db"
    import sqlalchemy as sql  # noqa: PLC0415 - beside its use

    server: str = request.getfixturevalue("postgresql")
    name = f"test_{os.getpid()}_{next(_databases)}"
    engine = sql.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    """Return the engine of a database, as sinks have it."""
    from holdfast.pipelines.fence import open_engine  # noqa: PLC0415 - only who asks pays

    engine = open_engine(database)
    yield engine
    engine.dispose()
