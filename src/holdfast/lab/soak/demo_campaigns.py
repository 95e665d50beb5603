"""The Spark half of `make soak`: drivers killed at random moments, and the control that doubles.

Owns two campaigns. One run is one cluster, one topic of payments, a few SIGKILLs of the driver's
whole process group with a new driver after each, and one check. It waits on conditions; only the
moments of the kills are drawn.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from holdfast.lab.background import PIPELINE
from holdfast.lab.demo.database import connected
from holdfast.lab.demo.demo_check import check_demo
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.demo.steps import SPARK_S, Scene, Standing
from holdfast.lab.parameters import LabError
from holdfast.lab.prove import PROBLEMS
from holdfast.lab.run import Run
from holdfast.lab.soak.campaign import Campaign

EVENTS = 15_000
RATE = 1_500.0
KILLS = 4  # in one run
# Half of the kills come in the query's first batches, half after its first rows: in the midst of
# batches in a row, and in the quiet after the last event. The machine's speed does not matter.
KILL_AFTER_S_MAX = 4.0


class _Silent:
    def step(self, text: str) -> None:
        """Say nothing."""

    def standing(self, now: Standing) -> None:
        """Show nothing."""


@contextmanager
def _scene(directory: Path) -> Iterator[Scene]:
    """One cluster with a producer behind its gate. PROBLEMS, once the journal says so."""
    plan = DemoPlan(
        kind="payments",
        events=EVENTS,
        rate=RATE,
        topic="payments",
        query="soak",
        seed=random.SystemRandom().randrange(1 << 30),
    )
    directory.mkdir(parents=True)
    plan.write(directory, "make soak")
    places = Places(directory)
    run = Run(plan.parameters, directory, lambda _line: None)
    run.topic = plan.topic
    scene = Scene(run, plan, places, _Silent())
    broke_off = None
    with run:
        try:
            run.make_topic()
            scene.start_producer()
            yield scene
        except PROBLEMS as problem:
            broke_off = str(problem)
            scene.break_off()
    run.journal.end(places.manifest, broke_off, run.tables)
    if broke_off is not None:
        raise LabError(broke_off)


def kill_drivers(directory: Path) -> dict[str, Any]:
    """Kill the driver at random moments while events flow; check the table at the end."""
    kills: list[dict[str, Any]] = []
    result: dict[str, Any] = {"kept": None, "kills": kills}
    try:
        # What a run that broke off has seen broken is broken: the folder says so.
        with suppress(LabError), _scene(directory) as scene:
            for number in range(1, KILLS + 1):
                kill = _kill_one(scene, EVENTS * number // (KILLS + 1))
                kills.append(kill)  # what was done stays known if the next one fails
            scene.start_driver()
            scene.send_the_rest()
            scene.catch_up()
            scene.conclude()
        verdict = check_demo(directory)
    except PROBLEMS as problem:
        return result | {"verdict": str(problem)}
    return result | {"kept": verdict.exit.kept, "verdict": verdict.sentence}


def _kill_one(scene: Scene, events: int) -> dict[str, Any]:
    """Start a driver, let events flow, kill it; return when that was and what it had done."""
    chance = random.SystemRandom()
    after_s = chance.uniform(0, KILL_AFTER_S_MAX)
    after_rows = chance.random() < 0.5
    driver = scene.start_driver()
    scene.until("Spark to start", lambda: driver.heard("started"), SPARK_S)
    scene.open_gate(events)
    if after_rows:
        scene.until("the first rows", lambda: driver.rows > 0, SPARK_S)
    moment_s = time.monotonic() + after_s
    scene.until("the moment", lambda: time.monotonic() >= moment_s, SPARK_S)
    driver.kill()
    return {
        "after": "rows" if after_rows else "start",
        "after_s": round(after_s, 3),
        "batch": driver.words.last.get("committed", {}).get("batch", 0),
        "rows": driver.rows,
    }


def append_control(directory: Path) -> dict[str, Any]:
    """Kill the plain-append driver as soon as it says that rows are on disk: they come again."""
    result: dict[str, Any] = {"kept": None}
    try:
        with _scene(directory) as scene:
            scene.send_the_rest()
            append = ("--sink", "append", "--max-offsets-per-trigger", str(EVENTS // 5))
            first = scene.start_driver(*append)
            scene.until("rows in the table", lambda: first.rows > 0, SPARK_S)
            first.kill()
            second = scene.start_driver(*append, "--once")
            second.may_end()
            second.wait(SPARK_S)
        rows, distinct = _count(scene.places.database(scene.plan))
    except PROBLEMS as problem:
        return result | {"verdict": str(problem)}
    return result | {
        "kept": rows > distinct == EVENTS,
        "rows": rows,
        "distinct": distinct,
        "verdict": f"{rows - distinct:,} of {distinct:,} rows stand there twice, as they must.",
    }


def _count(database: str) -> tuple[int, int]:
    with connected(database) as connection:
        rows = connection.scalar(sql.text("SELECT COUNT(*) FROM ledger"))
        distinct = connection.scalar(sql.text("SELECT COUNT(DISTINCT id) FROM ledger"))
    return int(rows or 0), int(distinct or 0)


CAMPAIGNS = (
    Campaign(
        name="spark-driver-kills",
        text=f"the Spark driver is killed with SIGKILL at {KILLS} random moments, another one is "
        "started after each; every event must be in the table once.",
        runs=20 // KILLS,
        run=kill_drivers,
        exercises=PIPELINE,
    ),
    Campaign(
        name="spark-append-control",
        text="the control: a plain-append sink is killed between its commit and Spark's; "
        "rows must be there twice.",
        runs=3,
        run=append_control,
        exercises=PIPELINE,
    ),
)
