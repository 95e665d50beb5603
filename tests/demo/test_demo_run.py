"""Goal: the demo runs from one end to the other, and its verdict is about what is there.

Method: a short run for real, in which a user's file goes through, with a broker and Spark killed;
then a row is deleted. What else may go wrong happens on a cluster without Spark: a stand-in takes
its place, one that never writes a row, or a plain consumer whose table has caught up when losses
are planted in it and in the log.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sql
from tests.demo import idle_driver, plain_driver, plants

from holdfast import cli
from holdfast.judge.verdict import Anomaly
from holdfast.lab.demo import spark, steps
from holdfast.lab.demo.steps import Demo, DemoOptions, DemoResult, Scene, Standing
from holdfast.lab.journal import Exit

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.timeout(600)]

LINES = 900


class Silent:
    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, text: str) -> None:
        self.said.append(text)

    def standing(self, now: Standing) -> None:
        assert now.acknowledged <= now.events


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli", "check", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.spark
def test_a_users_file_goes_through_two_crashes_into_the_table_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "people.jsonl", tmp_path / "run"
    rows = [
        json.dumps({"id": n % 50, "name": f"Zoë {n}"}, ensure_ascii=False) for n in range(LINES)
    ]
    rows.insert(10, "this is no JSON")
    file.write_text("\n".join(rows) + "\n")
    demo = ["demo", "--input", str(file), "--key", "id", "--output", str(run), "--rate", "300"]
    assert cli.run([*demo, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["verdict"], result["acknowledged"]) == ("PASS", LINES)
    checks = {each["name"]: each["seen"] for each in result["checks"]}
    killed = checks["The Spark driver is killed between the table's commit and its own"]
    assert "not among Spark's commits" in killed
    aside = [json.loads(row) for row in (run / "malformed.jsonl").read_text().splitlines()]
    assert [(row["line"], row["text"]) for row in aside] == [(11, "this is no JSON")]
    assert "behind the log" in (run / "report.html").read_text()
    history = (run / "history" / "lab.jsonl").read_text()
    assert '"KILL"' in history
    assert '"start"' in history

    engine = sql.create_engine(f"sqlite:///{run}/table.db")
    with engine.begin() as connection:
        places = connection.execute(sql.text("SELECT line_number, key, text FROM lines"))
        assert {(row[0], row[1]) for row in places} >= {(1, "0"), (12, "10"), (LINES + 1, "49")}
        connection.execute(sql.text("DELETE FROM lines WHERE line_number = 500"))
    engine.dispose()
    assert cli.run(["demo", "--check", str(run)]) == 1
    assert "1 missing" in capsys.readouterr().out


def options(directory: Path, events: int = 1500) -> DemoOptions:
    return DemoOptions(directory=directory, events=events, rate=500.0)


class WithoutSpark(Demo):
    """The demo's clients and its end, on a cluster with a stand-in for Spark that does nothing."""

    def _steps(self, scene: Scene) -> None:
        scene.run.make_topic()
        scene.start_producer()
        self._while_it_sends(scene)
        scene.send_the_rest()
        scene.catch_up()
        self._before_the_last_read(scene)
        scene.conclude()

    def _while_it_sends(self, scene: Scene) -> None:
        """Do what a test is about, once there is something to read."""


class Planted(WithoutSpark):
    """Losses are planted when the table has caught up."""

    def _before_the_last_read(self, scene: Scene) -> None:
        for plant in plants.PLANTS.values():
            plant(scene)


class Killed(WithoutSpark):
    """The stand-in for Spark dies by itself."""

    def _while_it_sends(self, scene: Scene) -> None:
        driver = scene.driver
        scene.until("the stand-in to start", lambda: driver.heard("started"), 60.0)
        (scene.places.directory / "die").touch()


class Unmade(WithoutSpark):
    """A step can't be made, before anything has gone wrong."""

    def _before_the_last_read(self, scene: Scene) -> None:
        scene.until("what never comes", lambda: False, 0.1)


@pytest.fixture
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spark.MODULES, "payments", idle_driver.__name__)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.setattr(steps, "STANDSTILL_S", 1.0)


@pytest.mark.usefixtures("_without_spark")
def test_each_planted_loss_is_named_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is in a partition or a row of its own, so that each has to be found by itself."""
    monkeypatch.setitem(spark.MODULES, "payments", plain_driver.__name__)
    found = Planted(options(tmp_path / "run", 600), Silent()).run()
    verdict = found.verdict
    assert verdict.exit is Exit.BROKEN
    assert verdict.broke_off is None
    judged = {each.partition: each for each in verdict.evidence.judgement.partitions}
    assert judged[plants.RECORD].anomalies.keys() == {Anomaly.LOST}
    assert judged[plants.PREFIX].anomalies.keys() == {Anomaly.LOST}
    assert judged[plants.KEY].anomalies == {Anomaly.PHANTOM: 1}
    failed = {each.name: each.seen for each in verdict.checks if not each.kept}
    assert "lost" in failed["Every event was acknowledged, and is in the log once"]
    once = failed["Every event of the log is in the table once"]
    assert "1 missing" in once
    assert "from nowhere (partition" in once
    assert "1 changed" in failed["Every row says what its event says"]
    assert "Each balance is its opening plus what the ledger moved" in failed
    assert found.report.stat().st_size > 10_000
    assert verdict.sentence.startswith("FAIL: ")
    again = check(tmp_path / "run")
    assert again.returncode == 1
    assert "FAIL: " in again.stdout


CATCHES_UP = "The table catches up with the log"
GOES_ON = "The Spark driver runs until it is stopped"


@pytest.mark.usefixtures("_without_spark")
@pytest.mark.parametrize(
    ("demo", "name", "said"),
    [(WithoutSpark, CATCHES_UP, "nothing new for"), (Killed, GOES_ON, "it ended: out of memory")],
)
def test_events_that_never_come_to_the_table_are_a_verdict_not_a_wait(
    tmp_path: Path, demo: type[Demo], name: str, said: str
) -> None:
    """Goal: the demo that waits in vain still reads the log, and says FAIL with a report."""
    found = demo(options(tmp_path / "run", 300), Silent()).run()
    assert found.verdict.exit is Exit.BROKEN
    seen = {each.name: each.seen for each in found.verdict.checks if not each.kept}
    assert said in seen[name]
    assert found.report.exists()
    assert found.verdict.evidence.judgement.decided, "the log was read all the same"
    assert check(tmp_path / "run").returncode == 1


@pytest.mark.usefixtures("_without_spark")
def test_a_run_that_can_not_come_to_its_end_says_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scene, "catch_up", lambda _scene: None)
    found: DemoResult = Unmade(options(tmp_path / "run", 300), Silent()).run()
    assert found.verdict.exit is Exit.NOT_MADE
    assert "in vain for what never comes" in found.verdict.sentence
    assert "300 events were acknowledged" in found.verdict.sentence
    assert found.report.exists()
    again = check(tmp_path / "run")
    assert again.returncode == 2
    assert "UNDECIDED" in again.stdout
