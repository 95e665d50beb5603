"""The demo: events, a broker killed in their midst, a Spark table; and the evidence at the end.

Owns the order of the steps and every wait in it, each with a bound. Cluster, producer and Spark
are processes of their own; what is seen of them goes into the run's directory. It decides nothing
about the verdict: that is `demo_check`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.clients.recorder import Recorder
from holdfast.cluster import LocalCluster
from holdfast.judge.history import Fault, Note
from holdfast.lab import demo_input
from holdfast.lab.demo_check import DemoVerdict, check_demo
from holdfast.lab.demo_parts import (
    BROKERS,
    STEP_TIMEOUT_S,
    create_topic,
    open_gate,
    read_log,
    refuse_used,
    send_bound_s,
    start_driver,
    start_producer,
    table_at,
    take_down,
)
from holdfast.lab.demo_plan import DemoError, DemoPlan, Places
from holdfast.lab.demo_process import Child
from holdfast.lab.demo_report import report_demo
from holdfast.lab.observer import Observer

LOOK_S = 0.05
SPARK_TIMEOUT_S = 120.0
# What may be sent before the crash, and until the cluster is whole again: so some events are sent
# before, some while there is no leader, some after, however slow Spark or the machine is.
BEFORE_SHARE = 0.4
# Until the crash events come at a part of the rate, so that they still flow when Spark is there.
TRICKLE = 0.25
DURING_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user asked for. `input` None: payments."""

    directory: Path
    events: int = 30_000
    rate: float = 2_500.0
    seed: int = 1
    accounts: int = 20
    input: Path | None = None
    key: str | None = None
    database: str | None = None
    command: str = "holdfast demo"


@dataclass(slots=True)
class Standing:
    """How far everything is, for whoever shows it."""

    events: int = 0
    acknowledged: int = 0
    rows: int = 0
    leaders: dict[int, int] = field(default_factory=dict)


class Progress(Protocol):
    """What shows the run to a person. Called from the demo's thread only."""

    def step(self, text: str) -> None:
        """Something happened that is worth a line."""

    def standing(self, now: Standing) -> None:
        """The counts of this moment; called many times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    verdict: DemoVerdict
    plan: DemoPlan
    report: Path
    seconds: float


class Demo:
    """One run. DemoError, ClusterError or InputError: it could not be made."""

    def __init__(self, options: DemoOptions, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._places = Places(options.directory.absolute())
        self._now = Standing()

    def run(self) -> DemoResult:
        begin = time.monotonic()
        plan = self._prepare()
        with ExitStack() as stack:
            self._perform(plan, stack)
        verdict = check_demo(self._places.directory)
        report_demo(self._places, plan, verdict, self._options.command)
        return DemoResult(
            verdict=verdict,
            plan=plan,
            report=self._places.report,
            seconds=time.monotonic() - begin,
        )

    def _prepare(self) -> DemoPlan:
        """Make the directory, read the input once, write the plan."""
        directory = self._places.directory
        is_new = not directory.exists()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise DemoError(f"{directory} is not empty; name another with --output.")
            self._places.history.mkdir()
        except OSError as error:
            raise DemoError(f"{directory}: {error.strerror}.") from error
        try:
            plan = self._plan(f"demo {directory.name}")
        except (DemoError, demo_input.InputError):
            if is_new and not self._kept_aside():  # a refusal leaves nothing behind
                shutil.rmtree(directory)
            raise
        plan.write(directory)
        self._now.events = plan.events
        return plan

    def _kept_aside(self) -> bool:
        """Whether there are malformed lines for the user to look at."""
        malformed = self._places.malformed
        return malformed.exists() and malformed.stat().st_size > 0

    def _plan(self, query: str) -> DemoPlan:
        options = self._options
        if options.input is None:
            plan = DemoPlan(
                kind="payments",
                database=options.database,
                events=options.events,
                rate=options.rate,
                topic="payments",
                query=query,
                seed=options.seed,
                accounts=options.accounts,
            )
        else:
            plan = self._lines_plan(options.input.absolute(), query)
        if options.database:
            refuse_used(options.database)
        return plan

    def _lines_plan(self, path: Path, query: str) -> DemoPlan:
        summary = demo_input.summarise(path, self._options.key, self._places.malformed)
        if not (summary.well_formed or summary.malformed):
            raise DemoError(f"--input {path}: there is no event in it; it is empty.")
        if not summary.well_formed:
            raise DemoError(
                f"--input {path}: no line of it is well formed; {summary.malformed:,} are not, "
                f"see {self._places.malformed}."
            )
        if summary.malformed:
            self._progress.step(
                f"malformed lines: {summary.malformed:,}, kept aside in {self._places.malformed}"
            )
        return DemoPlan(
            kind="lines",
            database=self._options.database,
            events=summary.well_formed,
            rate=self._options.rate,
            topic="lines",
            query=query,
            input=str(path),
            key=self._options.key,
            malformed=summary.malformed,
            sha256=summary.sha256,
        )

    def _perform(self, plan: DemoPlan, stack: ExitStack) -> None:
        begin = time.monotonic()
        cluster = LocalCluster.create(self._places.cluster, brokers=BROKERS, port=0)
        recorder = stack.enter_context(Recorder(self._places.history / "lab.jsonl", "lab"))
        # Spark takes its time to start: it does so while the cluster is already at work.
        driver = stack.enter_context(start_driver(plan, self._places, cluster))
        stack.callback(take_down, cluster)
        cluster.start()
        took = time.monotonic() - begin
        nodes = f"{len(cluster.broker_ids)} brokers and {len(cluster.controller_ids)} controllers"
        self._progress.step(f"{nodes} serve requests after {took:.1f} s")
        create_topic(plan, cluster)
        observer = Observer(
            cluster, plan.topic, self._places.history / "observer.jsonl", lambda _change: None
        )
        observer.start()
        stack.callback(observer.stop)
        producer = stack.enter_context(start_producer(plan, self._places, cluster))
        run = _Run(self, plan, cluster, driver, producer, observer)
        self._progress.step("events flow; Spark is starting")
        trickle = run.trickle()
        run.until(lambda: trickle() and driver.heard("started"), SPARK_TIMEOUT_S, "Spark to start")
        self._progress.step("the Spark query runs")
        run.until(
            lambda: trickle() and driver.rows > 0, SPARK_TIMEOUT_S, "the first rows in the table"
        )
        self._crash(run, recorder)
        open_gate(producer, plan.events)
        run.until(lambda: producer.heard("done"), send_bound_s(plan), "every outcome")
        producer.wait(STEP_TIMEOUT_S)
        ends = read_log(plan, self._places, cluster)
        self._progress.step(f"the log was read back: {sum(ends.values()):,} records")
        # The driver's word first: the database is asked when it may have everything.
        run.until(
            lambda: driver.rows >= plan.events and table_at(plan, self._places) == ends,
            SPARK_TIMEOUT_S,
            "the table to catch up",
        )
        self._progress.step(f"the table has caught up: {driver.rows:,} rows")
        driver.stop()

    def _crash(self, run: _Run, recorder: Recorder) -> None:
        """SIGKILL the leader of partition 0, see another one lead, start the dead one again."""
        cluster, plan, producer = run.cluster, run.plan, run.producer
        leader = cluster.wait_for_leader(plan.topic, 0).leader
        begin = time.monotonic()
        cluster.kill(leader, "KILL")
        recorder.record(Fault, action="KILL", node=leader, detail="leader of partition 0")
        recorder.flush()
        self._progress.step(f"broker {leader}, the leader of partition 0, was killed with SIGKILL")
        during = int(plan.events * DURING_SHARE)
        open_gate(producer, during)
        run.until(
            lambda: run.leaders().get(0, -1) not in {leader, -1}, STEP_TIMEOUT_S, "another leader"
        )
        took = time.monotonic() - begin
        self._progress.step(f"broker {run.leader()} leads partition 0 after {took:.1f} s")
        goal = min(during, producer.value("sent", "acknowledged") + 1)
        run.until(
            lambda: producer.value("sent", "acknowledged") >= goal,
            STEP_TIMEOUT_S,
            "acknowledgements without the dead broker",
        )
        cluster.start_node(leader)
        recorder.record(Fault, action="start", node=leader)
        recorder.flush()
        self._progress.step(f"broker {leader} was started again")
        run.until(run.whole, STEP_TIMEOUT_S, "whole in-sync replicas")
        recorder.record(Note, text="every replica is in sync again")
        self._progress.step("every replica is in sync again")


@dataclass(frozen=True, slots=True)
class _Run:
    """What is under way, and the one way to wait for something in it."""

    demo: Demo
    plan: DemoPlan
    cluster: LocalCluster
    driver: Child
    producer: Child
    observer: Observer

    def until(self, reached: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for a condition, showing how far everything is. DemoError: too long, or one died."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            self.show()
            self.driver.raise_if_ended()
            if not self.producer.heard("done"):
                self.producer.raise_if_ended()
            if time.monotonic() > deadline:
                raise DemoError(f"Waited {timeout_s:.0f} s for {what}, in vain.")
            time.sleep(LOOK_S)
        self.show()

    def trickle(self) -> Callable[[], bool]:
        """Return what opens the gate little by little, each time it is called; always true."""
        begin = time.monotonic()
        before = int(self.plan.events * BEFORE_SHARE)

        def widen() -> bool:
            due = int((time.monotonic() - begin) * self.plan.rate * TRICKLE)
            open_gate(self.producer, min(due, before))
            return True

        return widen

    def show(self) -> None:
        now = self.demo._now  # noqa: SLF001 - its own module
        kind = "done" if self.producer.heard("done") else "sent"
        now.acknowledged = self.producer.value(kind, "acknowledged")
        now.rows = self.driver.rows
        now.leaders = self.leaders()
        self.demo._progress.standing(now)  # noqa: SLF001 - its own module

    def leaders(self) -> dict[int, int]:
        """Return each partition's leader as seen last; -1: none."""
        seen = sorted(self.observer.view.partitions.items())
        return {number: state.leader for number, state in seen}

    def leader(self) -> int:
        """Return partition 0's leader as seen last; -1: none."""
        return self.leaders().get(0, -1)

    def whole(self) -> bool:
        """Every partition has a leader and all its replicas in sync."""
        seen = self.observer.view.partitions.values()
        return bool(seen) and all(s.leader >= 0 and len(s.isr) == BROKERS for s in seen)
