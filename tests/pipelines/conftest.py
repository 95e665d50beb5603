"""What pipeline tests run on: databases, a broker, one Spark session for all of them.

The broker is ours, or what HOLDFAST_TEST_BOOTSTRAP names: that is how these tests are shown to be
right on Apache Kafka.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from holdfast.cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTERNAL = os.environ.get("HOLDFAST_TEST_BOOTSTRAP")
SERVER_USER = "nobody"  # PostgreSQL refuses to run as root
SERVER_TIMEOUT_S = 60


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
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
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1}, logger=None)

    def create(self, partitions: int = 2, *, copies: int = 1, **config: str) -> str:
        """Make a topic; configuration keys with underscores for dots."""
        name = f"pipelines-{os.getpid()}-{next(self._names)}"
        named = {key.replace("_", "."): value for key, value in config.items()}
        named.setdefault("min.insync.replicas", str(min(copies, 2)))
        topic = NewTopic(name, partitions, copies, config=named)
        self._admin.create_topics([topic])[name].result(30)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, and wait until every broker knows them."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        deadline = time.monotonic() + 30
        for address in self.bootstrap.split(","):
            # A new client has nobody else to ask.
            while self._known_by(address, topic) < partitions:
                assert time.monotonic() < deadline, f"{address} does not know the new partitions"
        self._producer = self._fresh_producer()  # the old one remembers how many there were

    @staticmethod
    def _known_by(address: str, topic: str) -> int:
        found = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=10)
        return len(found.topics[topic].partitions)

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

    def write(self, topic: str, partition: int, values: list[bytes], key: bytes = b"k") -> None:
        """Write records and see each of them acknowledged."""
        failed: list[str] = []

        def answered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error.str())

        for value in values:
            self._producer.produce(topic, value, key, partition, on_delivery=answered)
        assert self._producer.flush(60) == 0
        assert not failed


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from holdfast.pipelines.session import local_session  # noqa: PLC0415 - only who asks pays

    session = local_session("holdfast tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Return the URL of a server of our own on a Unix socket, run by an unprivileged user."""
    found = _server_programs()
    if found is None:
        pytest.skip(
            "PostgreSQL's server is not on this machine (Debian: apt-get install postgresql)"
        )
    # Not pytest's own directory: each session that starts closes that to other users.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgresql-"))
    prefix = _as_unprivileged(directory)
    data, sockets = directory / "data", directory / "s"

    def run(*command: str) -> None:
        done = subprocess.run(
            [*prefix, *command], capture_output=True, timeout=SERVER_TIMEOUT_S, cwd="/", check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    run("mkdir", str(sockets))
    run(str(found / "initdb"), "-D", str(data), "-U", "holdfast", "-A", "trust", "-E", "UTF8")
    options = f"-c listen_addresses= -c unix_socket_directories={sockets} -c fsync=off"
    log = str(directory / "log")
    run(str(found / "pg_ctl"), "-D", str(data), "-w", "-l", log, "-o", options, "start")
    try:
        yield f"postgresql+psycopg://holdfast@/postgres?host={sockets}"
    finally:
        run(str(found / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(directory)


def _server_programs() -> Path | None:
    folders = [Path("/usr/local/bin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    for folder in reversed(folders):
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return folder
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("pg_ctl") else None


def _as_unprivileged(directory: Path) -> list[str]:
    """Return the words that run a command as somebody who may run the server there."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(SERVER_USER)
    os.chown(directory, user.pw_uid, user.pw_gid)
    for parent in directory.parents:
        if parent.stat().st_uid == 0 and parent != Path("/") and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


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
