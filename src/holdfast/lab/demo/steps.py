"""The demo's steps: events, a broker and the Spark driver killed in their midst, the last read.

Owns the order of the steps and every wait in it, each with a bound. The cluster, its faults, the
clients and the last read are the lab's `Run`. It decides nothing about the verdict: that is
`check`, which reads what the run has left in its directory.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from holdfast.judge.history import Acknowledged
from holdfast.lab.demo import user_file
from holdfast.lab.demo.database import connected, parted, without_password
from holdfast.lab.demo.demo_check import DemoVerdict, check_demo
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.demo.demo_report import DRIVER_KILLED, report_demo
from holdfast.lab.demo.readers import GROUP, Readers
from holdfast.lab.demo.result_table import table_at
from holdfast.lab.demo.spark import SparkDriver
from holdfast.lab.parameters import LabError
from holdfast.lab.prove import PROBLEMS
from holdfast.lab.run import Run
from holdfast.lab.steps.closing import conclude, settled_ends
from holdfast.lab.workload_processes import Worker

STEP_S = 60.0
SPARK_S = 240.0  # for Spark to start, and for a batch; beside others it may starve
STANDSTILL_S = 60.0  # a table that takes in nothing for so long will not catch up
LOOK_S = 0.1
# Until the crash events come at a part of the rate, so that they still flow when Spark is there.
TRICKLE = 0.25
SOURCE = "holdfast.lab.demo.event_source"
DELIVERY_MS = 60_000


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


@dataclass(frozen=True, slots=True)
class Gates:
    """How many events may have been sent before the crash, until all is whole, until Spark's kill.

    So some are sent before, some while there is no leader, some for the batch that Spark is killed
    behind, and some after it, however slow Spark or the machine is.
    """

    before: int
    during: int
    held: int  # as many as `during`: there is no event left for a batch to be held

    @classmethod
    def of(cls, events: int) -> Gates:
        before = max(1, int(events * 0.4))
        during = max(before, min(int(events * 0.7), events - 1))
        return cls(before, during, min(events, max(during + 1, int(events * 0.85))))


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    verdict: DemoVerdict
    report: Path
    seconds: float


class Demo:
    """One run. PROBLEMS and InputError: it could not even begin."""

    def __init__(self, options: DemoOptions, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._database, password = None, None
        self._command = options.command
        if options.database is not None:
            self._database, password = parted(options.database)
            self._command = without_password(options.command, options.database, self._database)
        self._places = Places(options.directory.absolute(), password)

    def run(self) -> DemoResult:
        begin = time.monotonic()
        plan = self._prepare()
        self._progress.step(f"everything of this run is kept in {self._options.directory}")
        self._perform(plan)
        verdict = check_demo(self._places.directory, self._places.password)
        report_demo(self._places, verdict, self._command)
        return DemoResult(
            verdict=verdict, report=self._places.report, seconds=time.monotonic() - begin
        )

    def _prepare(self) -> DemoPlan:
        """Make the directory, read the input once, write the plan."""
        directory = self._places.directory
        is_new = not directory.exists()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise LabError(f"{directory} is not empty; name another with --output.")
        except OSError as error:
            raise LabError(f"{directory}: {error.strerror}.") from error
        try:
            plan = self._plan(f"demo {directory.name}")
        except (LabError, user_file.InputError):
            if is_new and not self._kept_aside():  # a refusal leaves nothing behind
                shutil.rmtree(directory)
            raise
        plan.write(directory, self._command)
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
                database=self._database,
                events=options.events,
                rate=options.rate,
                topic="payments",
                query=query,
                seed=options.seed,
                accounts=options.accounts,
            )
        else:
            plan = self._lines_plan(options.input.absolute(), query)
        if plan.database:
            refuse_used(self._places.database(plan), plan.database)
        return plan

    def _lines_plan(self, path: Path, query: str) -> DemoPlan:
        summary = user_file.summarise(path, self._options.key, self._places.malformed)
        if not (summary.well_formed or summary.malformed):
            raise LabError(f"--input {path}: there is no event in it; it is empty.")
        if not summary.well_formed:
            raise LabError(
                f"--input {path}: no line of it is well formed; {summary.malformed:,} are not, "
                f"see {self._places.malformed}."
            )
        if summary.malformed:
            self._progress.step(
                f"malformed lines: {summary.malformed:,}, kept aside in {self._places.malformed}"
            )
        return DemoPlan(
            kind="lines",
            database=self._database,
            events=summary.well_formed,
            rate=self._options.rate,
            topic="lines",
            query=query,
            input=str(path),
            key=self._options.key,
            malformed=summary.malformed,
            sha256=summary.sha256,
        )

    def _perform(self, plan: DemoPlan) -> None:
        """Run the steps, and whatever becomes of them read back what is there."""
        run = Run(plan.parameters, self._places.directory, lambda _line: None)
        run.topic = plan.topic
        scene = Scene(run, plan, self._places, self._progress)
        broke_off = None
        with ExitStack() as stack:
            stack.callback(scene.kill_drivers)  # if the cluster does not start
            # Spark takes its time to start: it does so while the cluster is already at work.
            scene.start_driver()
            stack.enter_context(run)
            try:
                self._steps(scene)
            except PROBLEMS as problem:
                broke_off = str(problem)
                scene.step(f"the run breaks off: {broke_off}")
                scene.break_off()
        run.journal.end(self._places.manifest, broke_off, run.tables)

    def _steps(self, scene: Scene) -> None:
        scene.begin()
        scene.crash_a_broker()
        scene.crash_the_driver()
        scene.send_the_rest()
        scene.catch_up()
        scene.group_catches_up()
        self._before_the_last_read(scene)
        scene.conclude()

    def _before_the_last_read(self, scene: Scene) -> None:
        """Do nothing. A test damages log or table here, to see the verdict."""


class Scene:
    """A run with the demo's clients and Spark drivers, and what is done to them, step by step."""

    def __init__(self, run: Run, plan: DemoPlan, places: Places, progress: Progress) -> None:
        self.run = run
        self.plan = plan
        self.places = places
        self.drivers: list[SparkDriver] = []
        self._progress = progress
        self._gates = Gates.of(plan.events)
        self._now = Standing(events=plan.events)
        self._producer: Worker | None = None
        self._readers: Readers | None = None
        self._shown_s = 0.0
        self._concluding = False

    # -- what is shown, and waiting ------------------------------------------------------------

    def step(self, text: str) -> None:
        """Say it to the user, and to the history."""
        self.run.note(text)
        self._progress.step(text)

    def until(self, what: str, reached: Callable[[], bool], bound_s: float) -> None:
        """Wait for a condition, showing how far everything is. LabError: too long, or one died."""

        def shown() -> bool:
            self._show()
            return reached()

        self.run.wait(what, shown, bound_s)

    def _show(self) -> None:
        if time.monotonic() - self._shown_s < LOOK_S:
            return
        self._shown_s = time.monotonic()
        now = self._now
        now.acknowledged = self.acknowledged
        now.rows = self.rows
        seen = sorted(self.run.view.partitions.items())
        now.leaders = {number: state.leader for number, state in seen}
        self._progress.standing(now)

    @property
    def producer(self) -> Worker:
        assert self._producer is not None, "nothing is sent yet"
        return self._producer

    @property
    def acknowledged(self) -> int:
        return 0 if self._producer is None else self._producer.tail.poll().count(Acknowledged)

    @property
    def rows(self) -> int:
        """How many rows the table has, as the drivers told."""
        return sum(driver.rows for driver in self.drivers)

    @property
    def driver(self) -> SparkDriver:
        return self.drivers[-1]

    # -- the steps -----------------------------------------------------------------------------

    def start_driver(self, *options: str) -> SparkDriver:
        driver = SparkDriver(
            self.plan,
            self.places,
            self.run.cluster.bootstrap_servers,
            len(self.drivers) + 1,
            *options,
            environment=self.run.guard.environment,
        )
        self.drivers.append(driver)
        self.run.watch(driver)
        return driver

    def kill_drivers(self) -> None:
        for driver in self.drivers:
            driver.kill()

    def begin(self) -> None:
        """Let events trickle until Spark has written the first of them."""
        run = self.run
        took = time.monotonic() - run.begin_s
        brokers, controllers = len(run.cluster.broker_ids), len(run.cluster.controller_ids)
        self.step(f"{brokers} brokers and {controllers} controllers serve after {took:.1f} s")
        run.make_topic()
        self.start_producer()
        self._readers = Readers(run)
        self.step(f"events flow; Spark is starting, and two consumers of group {GROUP}")
        trickle = self._trickle()
        driver = self.driver
        self.until("Spark to start", lambda: trickle() and driver.heard("started"), SPARK_S)
        self.step("the Spark query runs")
        self.until("the first rows in the table", lambda: trickle() and driver.rows > 0, SPARK_S)

    def start_producer(self) -> None:
        """Start the producer behind its gate: `open_gate` lets it send."""
        plan = self.plan
        flags: dict[str, Any] = {"seed": plan.seed, "accounts": plan.accounts}
        if plan.input is not None:
            flags = {"input": plan.input} | ({} if plan.key is None else {"key": plan.key})
        self._producer = self.run.start_producer(
            module=SOURCE,
            gated=True,
            max_messages=plan.events,
            delivery_timeout_ms=DELIVERY_MS,
            queue_wait=DELIVERY_MS / 1000,
            config=["linger.ms=5"],
            **flags,
        )

    def open_gate(self, events: int) -> None:
        """Allow so many events to be sent, those included that have been."""
        self.producer.tell(str(events))

    def _trickle(self) -> Callable[[], bool]:
        """Return what opens the gate little by little, each time it is called; always true."""
        begin = time.monotonic()
        told = 0

        def widen() -> bool:
            nonlocal told
            due = int((time.monotonic() - begin) * self.plan.rate * TRICKLE)
            due = min(due, self._gates.before)
            if due > told:
                told = due
                self.open_gate(due)
            return True

        return widen

    def crash_a_broker(self) -> None:
        """SIGKILL the leader of partition 0, see another one lead, start the dead one again."""
        run = self.run
        leader = run.view.partitions[0].leader
        begin = time.monotonic()
        run.fault("KILL", leader)
        self.step(f"broker {leader}, the leader of partition 0, was killed with SIGKILL")
        during = self._gates.during
        self.open_gate(during)
        self.until("another leader", lambda: self._leader() not in {leader, -1}, STEP_S)
        took = time.monotonic() - begin
        self.step(f"broker {self._leader()} leads partition 0 after {took:.1f} s")
        goal = min(during, self.acknowledged + 1)
        self.until(
            "acknowledgements without the dead broker", lambda: self.acknowledged >= goal, STEP_S
        )
        run.start_node(leader)
        self.step(f"broker {leader} was started again")
        self.until("whole in-sync replicas", self._whole, STEP_S)
        self.step("every replica is in sync again")

    def _leader(self) -> int:
        return self.run.view.partitions[0].leader

    def _whole(self) -> bool:
        """Every partition has a leader and all its replicas in sync."""
        seen = self.run.view.partitions.values()
        return all(s.leader >= 0 and len(s.isr) == len(s.replicas) for s in seen)

    def crash_the_driver(self) -> None:
        """SIGKILL Spark where the table has a batch and Spark does not know; start another one."""
        driver = self.driver
        if self._gates.held == self._gates.during:
            self.step("there are too few events for one more batch: Spark is not killed")
            return
        self.places.hold.touch()
        self.open_gate(self._gates.held)
        self.until("a batch in the table", lambda: driver.held is not None, SPARK_S)
        held = driver.held
        assert held is not None
        batch, rows = held["batch"], held["rows"]
        driver.kill()
        self.step(
            f"{DRIVER_KILLED}: batch {batch}, {rows:,} rows, is in the table, and Spark does not "
            "know"
        )
        known = (self.places.checkpoint / "commits" / str(batch)).exists()
        self.run.check(
            "The Spark driver is killed between the table's commit and its own",
            f"batch {batch} is in the table and not among Spark's commits",
            f"batch {batch}: {rows:,} rows in the table, {'' if known else 'not '}among Spark's "
            "commits",
            kept=not known,
        )
        self.places.hold.unlink()
        self.start_driver()
        if self._readers is not None:
            self.step(self._readers.replace_one())
        self.step("events flow on; another Spark driver is starting")

    def send_the_rest(self) -> None:
        producer, bound_s = self.producer, send_bound_s(self.plan)
        producer.may_end()
        self.open_gate(self.plan.events)
        self.until("every outcome", lambda: not producer.running, bound_s)
        producer.wait(STEP_S)
        self.step(f"the last event was sent: {self.acknowledged:,} are acknowledged")

    def catch_up(self) -> None:
        """Wait until the table is where the log ends, or has stood still for too long."""
        ends = settled_ends(self.run, self.plan.topic)
        at: dict[int, int] = {}
        driver, seen, moved_s = self.driver, -1, time.monotonic()
        self.until("Spark to start again", lambda: driver.heard("started"), SPARK_S)

        def done() -> bool:
            nonlocal at, seen, moved_s
            if driver.rows != seen:
                seen, moved_s = driver.rows, time.monotonic()
            at = table_at(self.places.database(self.plan), self.plan)
            return at == ends or time.monotonic() - moved_s > STANDSTILL_S

        self.until("the table to catch up", done, SPARK_S + send_bound_s(self.plan))
        kept = self.run.check(
            "The table catches up with the log",
            f"next offsets {ends}",
            f"next offsets {at}"
            + ("" if at == ends else f", and nothing new for {STANDSTILL_S:.0f} s"),
            kept=at == ends,
        )
        word = "has caught up" if kept else "does not catch up"
        self.step(f"the table {word}: {self.rows:,} rows")

    def group_catches_up(self) -> None:
        """Wait until the group has processed all, or has stood still for too long."""
        if self._readers is None:
            return
        bound_s = SPARK_S + send_bound_s(self.plan)
        kept = self._readers.catch_up(
            self.producer, lambda done: self.until(f"group {GROUP} to catch up", done, bound_s)
        )
        word = "has caught up, and its consumers leave" if kept else "does not catch up"
        self.step(f"group {GROUP} {word}")

    def conclude(self) -> None:
        """Stop Spark, read the whole log back, and keep what its replicas hold."""
        with suppress(LabError):  # how it ends does not matter any more: the table is there
            self.driver.stop()
        self.step("reading the whole log back")
        self._concluding = True
        conclude(self.run)

    def break_off(self) -> None:
        """Read back what can be read when the steps have not come to their end.

        A last read that had begun has read what it could.
        """
        driver = self.driver
        if driver.ended_by_itself:
            self.run.check(
                "The Spark driver runs until it is stopped",
                "it runs",
                f"it ended: {driver.last_words()}",
                kept=False,
            )
        self.kill_drivers()
        if self._producer is None or self._concluding:
            return
        with suppress(LabError):
            self._producer.stop()
        try:
            conclude(self.run)
        except PROBLEMS as problem:
            self.step(f"the log can't be read back: {problem}")


def send_bound_s(plan: DemoPlan) -> float:
    """How long sending everything may take, with time to spare for a fault or two."""
    return 2 * STEP_S + 2 * plan.events / plan.rate


def refuse_used(database: str, shown: str) -> None:
    """A database of the user's own must be empty of our tables: sums would be mixed up."""
    try:
        with connected(database) as connection:
            used = sql.inspect(connection).has_table("holdfast_query")
    except (SQLAlchemyError, ImportError) as error:
        reason = getattr(error, "orig", None) or error  # the driver's own words, no more
        raise LabError(f"--database {shown}: {str(reason).splitlines()[0]}") from error
    if used:
        raise LabError(f"--database {shown}: it holds tables of an earlier run; name another.")
