"""Goal: one program brings a topic into a table on a standalone cluster and over Spark Connect; a
secret is resolved in each process that needs it, and told nowhere.

Method: the program of the how-to, a real master, worker and executor, and a driver that is a
Connect server as well. tests/apache has what takes longer: PostgreSQL, a server that is nothing
else, Apache Kafka, an environment that is sent along.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.bench import values
from tests.pipelines.spark_cluster import (
    SparkProcesses,
    connect_settings,
    files_rows,
    program_of_the_how_to,
    running,
    who_tells,
)

if TYPE_CHECKING:
    from tests.pipelines.conftest import Topics

pytestmark = [pytest.mark.turns, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

SECRET = "swordfish-7f3a91"
# The broker asks for no password; but who is given one has to find it, and reads over librdkafka.
LOGIN = (
    "kafka.sasl.mechanism=PLAIN",
    "kafka.sasl.username=reader",
    "kafka.sasl.password=env:READER_PASSWORD",
)
STAYING = Path(__file__).with_name("staying_program.py")


class Scene:
    """A cluster, the program, and a topic with eight records."""

    def __init__(self, spark: SparkProcesses, topics: Topics) -> None:
        self.spark = spark
        self.program = program_of_the_how_to(spark.folder)
        self.server, self.listening = connect_settings()
        self.topic = topics.create(2)
        for partition in range(2):
            topics.write(self.topic, partition, values(f"p{partition}-", 4))
        self._bootstrap = topics.bootstrap

    def arguments(self, name: str, target: str, *options: str) -> list[str]:
        checkpoint = self.spark.folder / f"checkpoint-{name}"
        return [self._bootstrap, self.topic, target, str(checkpoint), *options]

    def parquet(self, name: str) -> str:
        return f"parquet://{self.spark.folder}/{name}"

    def owners(self, name: str) -> list[str]:
        """Return the epochs of those who have owned a table."""
        areas = self.spark.folder / name / "orders" / "_holdfast" / "orders"
        return sorted(path.name for path in areas.iterdir())

    def expected(self) -> list[tuple[int, int, str]]:
        return [(p, n, f"p{p}-{n}") for p in range(2) for n in range(4)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, topics: Topics) -> Iterator[Scene]:
    """Run the program on the cluster, in a driver that stays for Connect's clients."""
    secrets = {"READER_PASSWORD": SECRET}
    with running(tmp_path_factory.mktemp("cluster"), secrets) as spark:
        spark.start_standalone()
        scene = Scene(spark, topics)
        plugin = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}
        arguments = scene.arguments("classic", scene.parquet("classic"), *LOGIN)
        words = [str(scene.program), *arguments]
        spark.start_driver(STAYING, words, {**scene.listening, **plugin})
        spark.await_driver("the program has ended")
        yield scene


def test_a_program_runs_on_a_standalone_cluster(scene: Scene) -> None:
    assert files_rows(scene.spark.folder / "classic" / "orders") == scene.expected()
    assert len(scene.owners("classic")) == 1, "taken once for all batches"
    assert who_tells(scene.spark.folder, SECRET) == []
    said = who_tells(scene.spark.folder, scene.topic)
    for place in ("checkpoint-classic/", "events/"):
        assert any(name.startswith(place) for name in said), "looking there finds nothing"


def test_the_same_program_runs_over_connect(scene: Scene) -> None:
    """The client has no secret: who reads has it."""
    arguments = scene.arguments("connect", scene.parquet("connect"), *LOGIN)
    status = scene.spark.connect("client", scene.program, arguments, scene.server)
    assert status == 0, scene.spark.log("client")
    assert files_rows(scene.spark.folder / "connect" / "orders") == scene.expected()
    assert len(scene.owners("connect")) == 1, "taken once, where the batches are written"
    assert who_tells(scene.spark.folder, SECRET) == []


def test_what_breaks_a_batch_comes_to_the_client(scene: Scene) -> None:
    target = f"sqlite:///{scene.spark.folder}/orders.db"
    arguments = scene.arguments("sqlite", target)
    assert scene.spark.connect("refused", scene.program, arguments, scene.server) != 0
    said = scene.spark.log("refused")
    assert "StreamingQueryException" in said
    assert "TargetError: SQLite has one file on one machine" in said
    assert not (scene.spark.folder / "orders.db").exists()
