"""The Spark driver dies at each step of its sink's commit, and another one goes on."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.pipelines.events import begin
from holdfast.lab.pipelines.pipeline import (
    APPENDED,
    COMMITTED,
    DATABASE_COMMIT,
    ONCE,
    TAKEN_IN,
    Pipeline,
)
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario

# Ways to where the driver is killed. A batch has more commits than that of its rows: one that looks
# how far the table is comes first.
PLACES = (
    (((COMMITTED, "after"),), "the table has the batch, and Spark does not know"),
    (
        ((TAKEN_IN, "before"), (DATABASE_COMMIT, "before")),
        "the rows are written, and not committed",
    ),
    (((TAKEN_IN, "before"),), "no row is written"),
)
WATCHED = (COMMITTED, TAKEN_IN, DATABASE_COMMIT)


def steps(run: Run) -> None:
    """Kill the driver at one place after the other."""
    producer = begin(run)
    pipeline = Pipeline(run, watch=WATCHED)
    pipeline.start()
    pipeline.expect_progress("the first driver")
    for number in range(run.parameters.kills):
        way, said = PLACES[number % len(PLACES)]
        for step, (place, when) in enumerate(way):
            pipeline.hold(place, when, goes_on=step > 0)
        pipeline.kill(said)
        pipeline.start()
        pipeline.expect_progress(f"kill {number + 1} ({said})")
    producer.stop()
    pipeline.finish()


def append(run: Run) -> None:
    """Control: a sink that appends, killed between its commit and Spark's."""
    producer = begin(run)
    pipeline = Pipeline(run, sink="append", watch=[APPENDED])
    pipeline.start()
    pipeline.expect_progress("the first driver")
    pipeline.hold(APPENDED, "after")
    pipeline.kill("the table has the batch, and Spark does not know")
    pipeline.start()
    pipeline.expect_progress("the kill")
    producer.stop()
    pipeline.finish()


SCENARIO = Scenario(
    name="pipeline-driver-killed",
    summary="A Spark driver dies at each step of its commit, and the table has each row once.",
    text=(
        "A query copies the topic into a table of SQLite while events flow. Its driver is held "
        "where the table has a batch and Spark does not know, where the rows are written and not "
        "committed, and before any is; there it is killed with all its processes, and another one "
        "goes on. At the end the table is held against the log, row for row, by plain Python. In "
        "the control each batch is simply appended: the batch of the kill is there twice."
    ),
    defaults=Parameters(kills=3),
    parts=(
        Part(name="main", title="Killed at each step of the commit", steps=steps),
        Part(name="control", title="Control: a plain append", steps=append, breaks_check=ONCE),
    ),
    fixed=frozenset({"brokers", "signal"}),
)
