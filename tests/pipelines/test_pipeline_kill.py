"""Goal: whatever dies, and whoever comes back from the dead, every record is in the table once.

Method: real driver processes, held at the moment that matters, then SIGKILL or SIGSTOP; who takes
over from them is a fresh query in the session that tests share; and the plain-append control, which
has to fail under the same treatment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sql
from tests.pipelines import committed
from tests.pipelines.here import LinesHere

from holdfast.cluster.processes import wait_until
from holdfast.pipelines.driver import FENCED, STOPPED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Topics

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("held_driver.py")
WAIT_S_MAX = 240
wait = partial(wait_until, timeout_s=WAIT_S_MAX, poll_s=0.05)


class Driver:
    """One driver process with a folder of its own for what it holds and says."""

    def __init__(self, folder: Path, where: str, *options: str) -> None:
        self.folder = folder
        folder.mkdir()
        self._said = (folder / "said").open("w")
        self._log = (folder / "log").open("w")
        # A process group of its own: a signal has to reach Python and the JVM at one instant.
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder), where, *options],
            stdout=self._said,
            stderr=self._log,
            start_new_session=True,
        )

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait(WAIT_S_MAX)
        self._said.close()
        self._log.close()

    def held(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()[-3000:]
        return (self.folder / "held").exists()

    def go(self) -> None:
        (self.folder / "go").touch()

    def events(self, kind: str) -> list[dict[str, int]]:
        told = [json.loads(line) for line in (self.folder / "said").read_text().splitlines()]
        return [event for event in told if event["event"] == kind]


class Scene:
    """A topic of numbered lines, a database, a checkpoint, and drivers over them."""

    def __init__(self, spark: SparkSession, folder: Path, topics: Topics) -> None:
        self.spark = spark
        self.folder = folder
        self.topics = topics
        self.topic = topics.create(2)
        self.url = f"sqlite:///{folder}/table.db"
        self.drivers: list[Driver] = []
        self.others: list[LinesHere] = []
        self._lines = 0

    def write(self, count: int) -> None:
        for number in range(self._lines, self._lines + count):
            value = json.dumps({"line": number, "text": f"line {number}"}).encode()
            self.topics.write(self.topic, number % 2, [value])
        self._lines += count

    def driver(self, where: str, *options: str) -> Driver:
        """Start a driver that can be held and killed."""
        folder = self.folder / f"driver-{len(self.drivers)}"
        driver = Driver(folder, where, *self._words("checkpoint", options))
        self.drivers.append(driver)
        return driver

    def here(self, *options: str, checkpoint: str = "checkpoint") -> LinesHere:
        """Start what nobody kills."""
        made = LinesHere(self.spark, self._words(checkpoint, options))
        self.others.append(made)
        return made

    def _words(self, checkpoint: str, options: Sequence[str]) -> list[str]:
        return [
            *("--bootstrap-server", self.topics.bootstrap, "--topic", self.topic),
            *("--database", self.url, "--checkpoint", str(self.folder / checkpoint)),
            *("--query", "scene", "--trigger-ms", "100", *options),
        ]

    def finish(self, *options: str) -> None:
        """Read all that is there now."""
        assert self.here("--once", *options).follow() == STOPPED

    def end(self) -> None:
        for driver in self.drivers:
            driver.kill()
        for other in self.others:
            other.end()

    def line_numbers(self) -> list[int]:
        engine = sql.create_engine(self.url)
        with engine.connect() as connection:
            found = connection.execute(sql.text("SELECT line_number FROM lines")).scalars().all()
        engine.dispose()
        return sorted(found)


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path, topics: Topics) -> Iterator[Scene]:
    made = Scene(spark, tmp_path, topics)
    yield made
    made.end()


def test_killed_between_the_tables_commit_and_sparks(scene: Scene) -> None:
    """The first kill meets batch 0 of a query at latest, whose beginning must not wander past what
    is written meanwhile; the second one a batch with rows, which Spark then runs again.
    """
    scene.write(4)  # before the query: not its business
    latest = ("--starting-offsets", "latest")
    first = scene.driver("commit", *latest)
    wait(first.held, what="batch 0")
    first.kill()
    scene.write(20)
    second = scene.driver("commit", *latest)
    wait(second.held, what="a batch with rows")
    assert scene.line_numbers() == list(range(4, 24)), "committed, and Spark does not know"
    second.kill()
    scene.write(10)
    scene.finish(*latest)
    assert scene.line_numbers() == list(range(4, 34))


def test_killed_between_the_tables_commit_and_the_groups(scene: Scene) -> None:
    """The table has rows that the group of `progressGroup` does not know of. Nothing more comes:
    who takes over tells them when it runs the batch again.
    """
    told = partial(committed.offsets, scene.topics.bootstrap, scene.topic)
    group = ("--progress-group", scene.topic)
    scene.write(20)
    driver = scene.driver("commit", *group)
    wait(driver.held, what="batch 0")
    driver.go()
    wait(lambda: driver.held() and bool(scene.line_numbers()), what="a batch with rows")
    assert told() == {0: 0, 1: 0}
    driver.kill()
    scene.finish(*group)
    assert told() == {0: 10, 1: 10}
    assert scene.line_numbers() == list(range(20))


def test_the_plain_append_control_doubles_rows(scene: Scene) -> None:
    scene.write(20)
    append = ("--sink", "append")
    first = scene.driver("commit", *append)
    wait(first.held, what="batch 0")
    first.go()
    wait(lambda: first.held() and bool(scene.line_numbers()), what="a batch with rows")
    first.kill()
    scene.finish(*append)
    found = scene.line_numbers()
    assert set(found) == set(range(20))
    assert len(found) > 20, "the control must double rows, or the other test proves nothing"


def test_a_zombie_commits_nothing(scene: Scene) -> None:
    """A driver is stopped in the middle of a batch, replaced, and continued when its successor has
    read everything. The successor has another checkpoint, so that nothing of Spark's own is in the
    zombie's way: only the fence is.
    """
    scene.write(20)
    zombie = scene.driver("rows")
    wait(zombie.held, what="a batch that has read its rows")
    zombie.signal(signal.SIGSTOP)
    successor = scene.here(checkpoint="another checkpoint")
    wait(lambda: len(scene.line_numbers()) == 20, what="the successor's rows")
    scene.write(10)
    wait(lambda: len(scene.line_numbers()) == 30, what="the successor's further rows")
    zombie.go()
    zombie.signal(signal.SIGCONT)
    assert zombie.process.wait(WAIT_S_MAX) == FENCED
    assert not any(event["rows"] for event in zombie.events("committed"))
    assert "was taken over" in str(zombie.events("failed"))
    assert successor.query.isActive, "the successor goes on"
    assert scene.line_numbers() == list(range(30))
