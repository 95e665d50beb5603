"""The Spark half of `make soak`: drivers killed at random moments, and the control that doubles.

Owns two campaigns. One run is one cluster, one topic of payments, a few SIGKILLs of the driver's
whole process group with a new driver after each, and one check. It waits on conditions; only the
moments of the kills are drawn.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from holdfast.cluster import ClusterError, LocalCluster
from holdfast.lab.background import PIPELINE
from holdfast.lab.demo_check import check_demo
from holdfast.lab.demo_parts import (
    BROKERS,
    create_topic,
    open_gate,
    read_log,
    send_bound_s,
    start_driver,
    start_producer,
    table_at,
    take_down,
)
from holdfast.lab.demo_plan import DemoError, DemoPlan, Places
from holdfast.lab.demo_process import Child
from holdfast.lab.demo_report import verdict_sentence
from holdfast.lab.soak import Campaign

EVENTS = 15_000
RATE = 1_500.0
START_TIMEOUT_S = 180.0
LOOK_S = 0.02
KILLS = 4  # in one run
# Half of the kills come in the query's first batches, half after its first rows: in the midst of
# batches in a row, and in the quiet after the last event. The machine's speed does not matter.
KILL_AFTER_S_MAX = 4.0


def _plan(directory: Path) -> DemoPlan:
    places = Places(directory)
    places.history.mkdir(parents=True)
    plan = DemoPlan(
        kind="payments",
        events=EVENTS,
        rate=RATE,
        topic="payments",
        query="soak",
        seed=random.SystemRandom().randrange(1 << 30),
    )
    plan.write(directory)
    return plan


def _until(reached: Callable[[], bool], what: str, *alive: Child) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    pause = threading.Event()
    while not reached():
        for child in alive:
            child.raise_if_ended()
        if time.monotonic() > deadline:
            raise DemoError(f"Waited {START_TIMEOUT_S:.0f} s for {what}, in vain.")
        pause.wait(LOOK_S)


class _Scene:
    """One cluster with a producer at work."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.plan = _plan(directory)
        self.places = Places(directory)
        self.cluster = LocalCluster.create(self.places.cluster, brokers=BROKERS, port=0)
        stack.callback(take_down, self.cluster)
        self.cluster.start()
        create_topic(self.plan, self.cluster)
        self.producer = stack.enter_context(start_producer(self.plan, self.places, self.cluster))
        self._stack = stack

    def driver(self, *options: str) -> Child:
        return self._stack.enter_context(
            start_driver(self.plan, self.places, self.cluster, *options)
        )

    def table_reaches(self, ends: dict[int, int]) -> Callable[[], bool]:
        return lambda: table_at(self.plan, self.places) == ends

    def send_everything(self) -> None:
        self.producer.wait(send_bound_s(self.plan))


def kill_drivers(directory: Path) -> dict[str, Any]:
    """Kill the driver at random moments while events flow; check the table at the end."""
    kills: list[dict[str, Any]] = []
    result: dict[str, Any] = {"kept": None, "kills": kills}
    try:
        with ExitStack() as stack:
            scene = _Scene(directory, stack)
            for number in range(1, KILLS + 1):
                kill = _kill_one(scene, EVENTS * number // (KILLS + 1))
                kills.append(kill)  # what was done stays known if the next one fails
            last = scene.driver()
            open_gate(scene.producer, EVENTS)
            scene.send_everything()
            ends = read_log(scene.plan, scene.places, scene.cluster)
            _until(
                lambda: table_at(scene.plan, scene.places) == ends, "the table to catch up", last
            )
            last.stop()
        verdict = check_demo(directory)
    except (DemoError, ClusterError) as error:
        return result | {"verdict": str(error)}
    return result | {"kept": verdict.kept, "verdict": verdict_sentence(scene.plan, verdict)}


def _kill_one(scene: _Scene, events: int) -> dict[str, Any]:
    """Start a driver, let events flow, kill it; return when that was and what it had done."""
    chance = random.SystemRandom()
    after_s = chance.uniform(0, KILL_AFTER_S_MAX)
    after_rows = chance.random() < 0.5
    driver = scene.driver()
    _until(lambda: driver.heard("started"), "Spark to start", driver)
    open_gate(scene.producer, events)
    if after_rows:
        _until(lambda: driver.rows > 0, "the first rows", driver)
    threading.Event().wait(after_s)
    driver.raise_if_ended()
    driver.kill()
    return {
        "after": "rows" if after_rows else "start",
        "after_s": round(after_s, 3),
        "batch": driver.value("committed", "batch"),
        "rows": driver.rows,
    }


def append_control(directory: Path) -> dict[str, Any]:
    """Kill the plain-append driver as soon as it says that rows are on disk: they come again."""
    result: dict[str, Any] = {"kept": None}
    try:
        with ExitStack() as stack:
            scene = _Scene(directory, stack)
            open_gate(scene.producer, EVENTS)
            scene.send_everything()
            append = ("--sink", "append", "--max-offsets-per-trigger", str(EVENTS // 5))
            first = scene.driver(*append)
            _until(lambda: first.rows > 0, "rows in the table", first)
            first.kill()
            second = scene.driver(*append, "--once")
            second.wait(START_TIMEOUT_S)
        rows, distinct = _count(scene.places.database(scene.plan))
    except (DemoError, ClusterError) as error:
        return result | {"verdict": str(error)}
    return result | {
        "kept": rows > distinct == EVENTS,
        "rows": rows,
        "distinct": distinct,
        "verdict": f"{rows - distinct:,} of {distinct:,} rows stand there twice, as they must.",
    }


def _count(database: str) -> tuple[int, int]:
    engine = sql.create_engine(database)
    with engine.connect() as connection:
        rows = connection.scalar(sql.text("SELECT COUNT(*) FROM ledger"))
        distinct = connection.scalar(sql.text("SELECT COUNT(DISTINCT id) FROM ledger"))
    engine.dispose()
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
