"""The database of a query's table is killed, stays away for a while, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.pipelines import postgresql_server
from holdfast.lab.pipelines.events import begin
from holdfast.lab.pipelines.pipeline import WHOLE, Pipeline
from holdfast.lab.pipelines.postgresql_server import PostgresqlServer
from holdfast.lab.pipelines.tables import SqlTable
from holdfast.lab.postgresql import ServerError
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario

STORE = "holdfast.pipelines.sinks.postgresql_store:PostgresqlStore"
PLACES = ((f"{STORE}.take_in", "before"), (f"{STORE}.stage", "before"))
SWALLOWED = "holdfast.pipelines.proving.careless_sinks:SwallowsErrors.insert"


@contextmanager
def running(run: Run) -> Iterator[PostgresqlServer]:
    """Run PostgreSQL for as long as a run. LabError: it can't be had."""
    try:
        with postgresql_server.running(run.guard.environment) as server:
            yield server
    except ServerError as error:
        raise LabError(f"{error} Debian's package is postgresql.") from error


def steps(run: Run) -> None:
    """Kill the database in the middle of batches."""
    with running(run) as server:
        producer = begin(run)
        watch = [place for place, _ in PLACES]
        pipeline = Pipeline(run, table=SqlTable(server.url), watch=watch)
        pipeline.start()
        pipeline.expect_progress("the first driver")
        for number in range(run.parameters.kills):
            place, when = PLACES[number % len(PLACES)]
            pipeline.hold(place, when)
            pipeline.driver.may_end()
            run.note(f"PostgreSQL is killed with SIGKILL, {when} {place.rpartition('.')[2]}")
            server.kill()
            pipeline.driver.go()
            run.steady(producer)
            server.start()
            run.note("PostgreSQL is back")
            pipeline.revive_until(producer.tail.poll().ends, f"kill {number + 1}")
        producer.stop()
        pipeline.finish()


def swallowed(run: Run) -> None:
    """Control: a sink that writes an error into its log, and goes on with the next batch."""
    with running(run) as server:
        producer = begin(run)
        pipeline = Pipeline(run, table=SqlTable(server.url), sink="swallow", watch=[SWALLOWED])
        pipeline.start()
        pipeline.expect_progress("the first driver")
        pipeline.hold(SWALLOWED, "before")
        run.note("PostgreSQL is killed with SIGKILL")
        server.kill()
        pipeline.hold(SWALLOWED, "after", goes_on=True)
        server.start()
        run.note("PostgreSQL is back")
        pipeline.driver.go()
        pipeline.expect_progress("it is back")
        producer.stop()
        pipeline.finish()


SCENARIO = Scenario(
    name="pipeline-database-down",
    summary="The database under a Spark query dies and comes back, and has each row once.",
    text=(
        "A query copies the topic into a table of PostgreSQL while events flow. The server is "
        "killed, all of its processes, as it takes in a batch, and as tasks are about to copy "
        "theirs; it stays away for some seconds and goes through its log when it comes back. A "
        "driver that ends meanwhile is started again. In the control the sink writes the error "
        "into its log and goes on: that batch's rows are missing for good."
    ),
    defaults=Parameters(kills=2, duration_s=3.0),
    parts=(
        Part(name="main", title="Killed in the middle of batches", steps=steps),
        Part(
            name="control",
            title="Control: errors go into a log",
            steps=swallowed,
            breaks_check=WHOLE,
        ),
    ),
    fixed=frozenset({"brokers", "signal"}),
)
