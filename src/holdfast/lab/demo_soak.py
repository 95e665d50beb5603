"""The Spark half of `make soak`: drivers killed at random moments, and the control that doubles.

Owns two campaigns. One run is one cluster, one topic of payments, one SIGKILL of the driver's whole
process group, one restart, one check. It waits on conditions; only the moment of the kill is drawn.
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
# From the query's start on: its first batch, batches in a row, and the quiet after the last event.
KILL_AFTER_S_MAX = 12.0


def _plan(directory: Path) -> DemoPlan:
    places = Places(directory)
    places.history.mkdir(parents=True)
    plan = DemoPlan(
        kind="payments",
        database=f"sqlite:///{places.table}",
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

    def send_everything(self) -> None:
        self.producer.wait(send_bound_s(self.plan))


def kill_driver(directory: Path) -> dict[str, Any]:
    """Kill the driver at a random moment while events flow; start another; check the table."""
    after_s = random.SystemRandom().uniform(0, KILL_AFTER_S_MAX)
    result: dict[str, Any] = {"kept": None, "killed_after_s": round(after_s, 3)}
    try:
        with ExitStack() as stack:
            scene = _Scene(directory, stack)
            first = scene.driver()
            _until(lambda: first.heard("started"), "Spark to start", first)
            open_gate(scene.producer, EVENTS)
            threading.Event().wait(after_s)
            first.raise_if_ended()
            first.kill()
            result |= {"batch_seen": first.value("committed", "batch"), "rows_before": first.rows}
            second = scene.driver()
            scene.send_everything()
            ends = read_log(scene.plan, scene.places, scene.cluster)
            _until(lambda: table_at(scene.plan) == ends, "the table to catch up", second)
            second.stop()
            result["rows_after"] = second.rows
        verdict = check_demo(directory)
    except (DemoError, ClusterError) as error:
        return result | {"verdict": str(error)}
    return result | {"kept": verdict.kept, "verdict": verdict_sentence(scene.plan, verdict)}


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
        rows, distinct = _count(scene.plan.database)
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
        text="the Spark driver is killed with SIGKILL at a random moment and started again; "
        "every event must be in the table once.",
        runs=20,
        run=kill_driver,
    ),
    Campaign(
        name="spark-append-control",
        text="the control: a plain-append sink is killed between its commit and Spark's; "
        "rows must be there twice.",
        runs=3,
        run=append_control,
    ),
)
