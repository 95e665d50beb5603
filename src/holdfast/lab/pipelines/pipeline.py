"""One query of a run, over all the drivers that it takes, and the checks of its table.

Owns which driver is at work, every wait for it, and the three checks that scenarios share: that a
table goes on, that it comes to where the log ends, and that it has what the log has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from holdfast.lab.pipelines.driver_process import DriverProcess
from holdfast.lab.pipelines.plain_log import Row, read_log
from holdfast.lab.pipelines.tables import (
    MISSING,
    NAME,
    STRANGE,
    TWICE,
    SqlTable,
    Table,
    differences,
    refuse_without_spark,
    told,
)
from holdfast.lab.report import Table as ReportTable
from holdfast.lab.report.scales import duration
from holdfast.lab.run import Run
from holdfast.lab.steps.closing import settled_ends
from holdfast.lab.steps.wants import names

SPARK_S = 240.0  # for Spark to start, and for a batch; beside others it may starve
STANDSTILL_S = 60.0  # a table that takes in nothing for so long will not catch up
GOES_ON_S = 90.0
DRIVERS_MAX = 5
LOOK_S = 0.2
QUERY = "copy"
# Three checks: a control has to break the one that it is about, and no other.
WHOLE = "the table has each record of the log"
ONCE = "the table has no record twice"
NOTHING_ELSE = "the table has nothing that is not in the log"
CHECKS = {WHOLE: MISSING, ONCE: TWICE, NOTHING_ELSE: STRANGE}
GOES_ON = "the table goes on"
EXECUTORS = "local-cluster[1,2,512]"  # a process beside the driver's, which can be killed
# Where a driver is at work on a batch, in the order in which it comes there.
_SINKS = "holdfast.pipelines.sinks"
STAGED = f"{_SINKS}.sql_store:SqliteStore.stage"
TAKEN_IN = f"{_SINKS}.sql_store:SqliteStore.take_in"
DATABASE_COMMIT = "sqlalchemy.engine.default:DefaultDialect.do_commit"
COMMITTED = f"{_SINKS}.sql_store:SqlStore.commit"  # "after": Spark does not know yet
APPENDED = "holdfast.pipelines.proving.careless_sinks:PlainAppend.insert"  # the control's


class Pipeline:
    """A query that copies a topic into a table. `sink`: one of `copying`'s."""

    def __init__(
        self,
        run: Run,
        *,
        topic: str | None = None,
        table: Table | None = None,
        sink: str = "write",
        watch: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        master: str | None = None,
    ) -> None:
        """`topic`: None for the run's. `options` are the source's, `watch` where it can be held."""
        refuse_without_spark()
        self.run = run
        self.topic = run.topic if topic is None else topic
        self.folder = run.history.parent
        self.table = SqlTable(f"sqlite:///{self.folder / 'table.db'}") if table is None else table
        self.checkpoint = self.folder / "checkpoint"
        self.options = dict(options or {})
        self.drivers: list[DriverProcess] = []
        self._sink = sink
        self._watch = list(watch)
        self._master = master
        self._rows: list[list[str]] = []
        self._looked_s = 0.0
        self._positions: dict[int, int] = {}
        self._is_whole = True  # so far as anybody has looked

    # -- drivers ---------------------------------------------------------------------------------

    def start(self, *words: str, **options: str) -> DriverProcess:
        """Start a driver and wait for its query. LabError: Spark does not start.

        `options` of the source are added to the rest; `words` are this driver's own.
        """
        self.options |= options
        given = [f"{name}={value}" for name, value in self.options.items()]
        named = [word for each in given for word in ("--option", each)]
        watched = [word for place in self._watch for word in ("--watch", place)]
        arguments = [
            *("--bootstrap-server", self.run.cluster.bootstrap_servers, "--topic", self.topic),
            *("--target", self.table.target, "--table", NAME, "--query", QUERY),
            *("--checkpoint", str(self.checkpoint), "--sink", self._sink),
            *(("--master", self._master) if self._master else ()),
            *named,
            *watched,
            *words,
        ]
        name = f"driver-{len(self.drivers) + 1}"
        driver = DriverProcess(name, arguments, self.folder, self.run.guard.environment)
        self.drivers.append(driver)
        self.run.watch(driver)
        self.run.note(f"{name} of the query is starting")
        self.run.wait(f"{name} to start", lambda: driver.told("started"), SPARK_S)
        return driver

    @property
    def driver(self) -> DriverProcess:
        return self.drivers[-1]

    def hold(self, place: str, when: str, *, goes_on: bool = False) -> None:
        """Have the driver wait at a place; `goes_on` from where it waits. LabError: it does not."""
        driver = self.driver
        driver.arm(place, when)
        if goes_on:
            driver.go()
        said = f"{driver.name} to be {when} {place.rpartition(':')[2]}"
        self.run.wait(said, driver.is_there, SPARK_S)

    def kill(self, what: str = "") -> None:
        """SIGKILL to the driver, its JVM and its workers, at one instant."""
        self.run.note(f"{self.driver.name} is killed with SIGKILL{what and ', '}{what}")
        self.driver.kill()

    def stop(self) -> None:
        """Let the driver end. What it has begun comes again at the next start."""
        self.run.note(f"{self.driver.name} is asked to end")
        self.driver.stop(SPARK_S)

    def expect_end(self, name: str, words: Sequence[str]) -> str:
        """Check that the query ends by itself, and says these words; return what it says."""
        driver = self.driver
        driver.may_end()
        self.run.soon(lambda: not driver.running, SPARK_S)
        seen = "it goes on" if driver.running else driver.last_words()
        kept = not driver.running and all(word in seen for word in words)
        expected = f"it ends, and names {', '.join(words)}"
        self.run.check(name, expected, seen[:600], kept=kept, late=driver.running)
        driver.kill()
        return seen

    # -- the table -------------------------------------------------------------------------------

    def positions(self) -> dict[int, int]:
        """Return how far the table is; looked at a few times a second at most."""
        if time.monotonic() - self._looked_s >= LOOK_S:
            self._positions = self.table.positions() or self._positions
            self._looked_s = time.monotonic()
        return self._positions

    def wait_rows(self, ends: Mapping[int, int]) -> None:
        """Wait until the table is so far. LabError: it does not come there."""
        self.run.wait(f"rows up to {dict(ends)}", lambda: self.is_at(ends), SPARK_S)

    def is_at(self, ends: Mapping[int, int]) -> bool:
        there = self.positions()
        return all(there.get(partition, 0) >= end for partition, end in ends.items())

    def expect_progress(
        self,
        when: str,
        bound_s: float = GOES_ON_S,
        partitions: Sequence[int] | None = None,
        *,
        behind: Mapping[int, int] | None = None,
        since_s: float | None = None,
    ) -> bool:
        """Check that rows of every partition come which are not in the table by now.

        `behind`: they stand behind these offsets, too. What a query that goes on had read before
        something happened shows nothing. `since_s`: when that was, as `time.monotonic` has it.
        """
        begin_s = time.monotonic() if since_s is None else since_s
        self._looked_s = 0.0
        before = dict(self.positions())
        for partition, end in (behind or {}).items():
            before[partition] = max(before.get(partition, 0), end)
        wanted = self.run.partitions if partitions is None else partitions

        def silent() -> list[int]:
            now = self.positions()
            return [p for p in wanted if now.get(p, 0) <= before.get(p, 0)]

        self.run.soon(lambda: not silent(), bound_s)
        left, took_ms = silent(), (time.monotonic() - begin_s) * 1000
        self._rows.append([when, "-" if left else duration(took_ms)])
        seen = f"nothing of {names(left)} in {bound_s:.0f} s" if left else "rows of all of them"
        return self.run.check(
            f"{when}: {GOES_ON}", f"rows of {names(wanted)}", seen, kept=not left, late=True
        )

    def catch_up(self, ends: Mapping[int, int]) -> None:
        """Check that the table comes to where the log ends, as long as it moves at all."""
        seen, moved_s = self.positions(), time.monotonic()

        def done() -> bool:
            nonlocal seen, moved_s
            now = self.positions()
            if now != seen:
                seen, moved_s = dict(now), time.monotonic()
            return self.is_at(ends) or time.monotonic() - moved_s > STANDSTILL_S

        self.run.wait("the table to catch up", done, SPARK_S + 2 * STANDSTILL_S)
        self._is_whole = self.is_at(ends)
        self.run.check(
            "the table comes to the log's end",
            f"next offsets {dict(ends)}",
            f"next offsets {dict(sorted(self.positions().items()))}",
            kept=self._is_whole,
            late=True,
        )

    def revive_until(self, ends: Mapping[int, int], when: str) -> None:
        """Check that the table comes so far, by as many drivers as it takes.

        One that ends because what it needs is away is no mishap: it is started again.
        """
        for number in range(DRIVERS_MAX):
            if number:
                self.run.note(f"{self.driver.name} has ended: {self.driver.last_words()}")
                self.start()
            driver = self.driver
            driver.may_end()
            over = lambda: self.is_at(ends) or not driver.running  # noqa: B023, E731 - of this round
            self.run.soon(over, SPARK_S)
            if self.is_at(ends) or driver.running:
                break
        seen = f"next offsets {dict(sorted(self.positions().items()))}"
        late = self.driver.running  # those that have all ended are not late
        self.run.check(
            f"{when}: {GOES_ON}", f"up to {dict(ends)}", seen, kept=self.is_at(ends), late=late
        )

    def expect_exact(self, log: Sequence[Row]) -> None:
        """Check the table row for row. What it came too late for may be missing, at its end."""
        rows, there = self.table.rows(), self.table.positions()
        wrong = differences(rows, log)
        has_hole = any(row.offset < there.get(row.partition, 0) for row in wrong[MISSING])
        for name, kind in CHECKS.items():
            seen = told(kind, wrong[kind]) if wrong[kind] else f"none of {len(rows):,}"
            given = kind != MISSING or has_hole or self._is_whole
            expected = f"{len(log):,} rows, none {kind}"
            self.run.check(name, expected, seen, kept=not wrong[kind], given=given)

    def finish(self) -> None:
        """Bring the table to the end of the run's own topic, and hold it against that.

        Nobody writes to it any more.
        """
        ends = settled_ends(self.run, self.topic)
        self.catch_up(ends)
        self.stop()
        self.expect_exact(read_log(self.run.cluster.bootstrap_servers, self.topic, ends))
        self.tell()

    def tell(self) -> None:
        """Put what was measured into the report."""
        if self._rows:
            self.run.tables.append(
                ReportTable(
                    title="Until the table had new rows of every partition",
                    header=["after", "took"],
                    rows=self._rows,
                    note="Measured, not asserted.",
                )
            )
