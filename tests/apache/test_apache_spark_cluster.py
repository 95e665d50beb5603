"""Goal: the how-to's program does the same on local Spark, on a standalone cluster and over
Connect, against holdfast and Apache Kafka, into PostgreSQL; a password is resolved where it is
needed and is told nowhere; and an environment that is sent along is all that executors need.

Method: real masters, workers and servers; one of Apache Kafka asks for the password; what Spark and
all its processes have written is searched for it.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sql
from tests.apache.conftest import wait_until_served
from tests.pipelines.conftest import Topics
from tests.pipelines.packed import pack
from tests.pipelines.spark_cluster import (
    SparkProcesses,
    files_rows,
    program_of_the_how_to,
    running,
    who_tells,
)

from holdfast.cluster import LocalCluster
from holdfast.cluster.ports import free_ports
from holdfast.lab import postgresql as postgresql_server

pytestmark = [
    pytest.mark.apache,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
]

KAFKA_SECRET = "swordfish-of-kafka-91"
DATABASE_SECRET = "swordfish-of-the-database-17"
LOGIN = (
    "kafka.sasl.mechanism=PLAIN",
    "kafka.sasl.username=reader",
    "kafka.sasl.password=env:READER_PASSWORD",
)
_names = itertools.count()


@dataclass
class Broker:
    """Where topics are made, where they are read, and how one logs in there."""

    bootstrap: str
    readers: str
    login: tuple[str, ...]


@pytest.fixture(scope="module", params=["holdfast", "apache"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """Run a broker of ours, and one of Apache Kafka that lets nobody in without a password."""
    folder = tmp_path_factory.mktemp("broker")
    if request.param == "holdfast":
        with LocalCluster.create(folder, brokers=1, port=0) as cluster:
            cluster.start()
            yield Broker(cluster.bootstrap_servers, cluster.bootstrap_servers, LOGIN)
        return
    kafka: Path = request.getfixturevalue("kafka_tools")
    plain, secured = free_ports(2)
    controller = plain + 10_000  # as the script has it
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{secured}"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
    user = f'user_reader="{KAFKA_SECRET}"'
    settings = (
        f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners={listeners}",
        f"listener.security.protocol.map={protocols}",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl.plain.sasl.jaas.config={module} required {user};",
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [kafka, "single", folder, str(plain), *settings], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until_served(f"127.0.0.1:{plain}")
        login = ("kafka.security.protocol=SASL_PLAINTEXT", *LOGIN)
        yield Broker(f"127.0.0.1:{plain}", f"127.0.0.1:{secured}", login)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    found = postgresql_server.programs()
    if found is None:
        pytest.skip("PostgreSQL's server is not on this machine (Debian: postgresql)")
    with postgresql_server.server(found) as url:
        yield url


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcesses]:
    """Run a master and a worker, which have the passwords, and nothing of them a client."""
    secrets = {"READER_PASSWORD": KAFKA_SECRET, "DB_PASSWORD": DATABASE_SECRET}
    with running(tmp_path_factory.mktemp("cluster"), secrets) as processes:
        processes.start_standalone()
        yield processes


def filled(bootstrap: str) -> str:
    topics = Topics(bootstrap)
    topic = topics.create(2)
    for partition in range(2):
        topics.write(topic, partition, [f"p{partition}-{n}".encode() for n in range(4)])
    return topic


EXPECTED = [(p, n, f"p{p}-{n}") for p in range(2) for n in range(4)]


@pytest.mark.parametrize("where", ["local", "standalone", "connect"])
def test_one_program_everywhere(
    where: str, broker: Broker, database: str, spark: SparkProcesses
) -> None:
    name = f"{where}_{os.getpid()}_{next(_names)}"
    engine = sql.create_engine(database, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    url = database.replace("/postgres?", f"/{name}?")
    arguments = [
        *(broker.readers, filled(broker.bootstrap)),
        *(url.replace("holdfast@", "holdfast:env:DB_PASSWORD@"), str(spark.folder / name)),
        *broker.login,
    ]
    program = program_of_the_how_to(spark.folder)
    with ExitStack() as ending:
        if where == "connect":
            server = ending.enter_context(running(spark.folder, spark.secrets))
            server.cluster = spark.cluster
            status = server.connect(name, program, arguments, server.start_connect())
        else:
            more = {"spark.master": "local[2]"} if where == "local" else {}
            status = spark.submit(name, program, arguments, more)
    assert status == 0, spark.log(name)
    engine = sql.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            'SELECT "partition", "offset", body FROM orders ORDER BY 1, 2'
        ).all()
    engine.dispose()
    assert [tuple(row) for row in found] == EXPECTED
    if where != "connect":
        here = "Starting executor ID driver" in spark.log(name)
        assert here == (where == "local"), "it has run elsewhere"
    for secret in (KAFKA_SECRET, DATABASE_SECRET):
        assert who_tells(spark.folder, secret) == []


def test_an_environment_that_is_sent_along_is_all_that_executors_need(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The worker's own Python has nothing of ours, and the driver's is the one that was packed."""
    archive = pack(tmp_path)
    with (
        LocalCluster.create(tmp_path_factory.mktemp("broker"), brokers=1, port=0) as cluster,
        running(tmp_path, {}, own_home=False) as spark,
    ):
        cluster.start()
        spark.environment["PYSPARK_PYTHON"] = "/usr/bin/false"
        spark.start_standalone()
        packed = {"PYSPARK_PYTHON": "environment/bin/python"}
        packed["PYSPARK_DRIVER_PYTHON"] = packed["PYSPARK_PYTHON"]
        address = cluster.bootstrap_servers
        arguments = [address, filled(address), f"parquet://{tmp_path}/tables", f"{tmp_path}/check"]
        program = program_of_the_how_to(tmp_path)
        archives = {"spark.archives": f"{archive}#environment"}
        status = spark.submit("packed", program, arguments, archives, packed)
        assert status == 0, spark.log("packed")
    assert files_rows(tmp_path / "tables" / "orders") == EXPECTED
    unpacked = list((tmp_path / "work").glob("*/*/environment"))
    assert unpacked, "executors have used something else"
