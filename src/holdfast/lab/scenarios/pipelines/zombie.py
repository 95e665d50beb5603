"""A driver that stood still for long goes on beside the one that has taken its place."""

from __future__ import annotations

from holdfast.lab.pipelines.driver_process import DriverProcess
from holdfast.lab.pipelines.events import begin
from holdfast.lab.pipelines.pipeline import APPENDED, ONCE, SPARK_S, STAGED, Pipeline
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario

# Of the epoch's check: that comes before any other one, so no other one may have found the fault.
REFUSED = ("FencedError", "was taken over")


def replace_driver(run: Run, pipeline: Pipeline, place: str, when: str) -> DriverProcess:
    """Stop a driver in the middle of a batch, start another one, and let the first go on.

    Return the first; it is to end by itself.
    """
    pipeline.start()
    pipeline.expect_progress("the first driver")
    pipeline.hold(place, when)
    zombie = pipeline.driver
    zombie.pause()
    run.note(f"{zombie.name} stands still in the middle of a batch (SIGSTOP)")
    pipeline.start()
    pipeline.expect_progress("the second driver")
    # The batch before is committed by then; else the first driver, unfenced, could commit it first.
    pipeline.expect_progress("the second driver's next batch")
    run.note(f"{zombie.name} goes on beside {pipeline.driver.name} (SIGCONT)")
    zombie.may_end()
    # Not before: a process stands still only once one of its threads has got to see the signal.
    # What it hears until then it does, and would stop amid its transaction, with the table locked.
    zombie.go()
    zombie.go_on()
    return zombie


def steps(run: Run) -> None:
    """The sink of the first one finds that its query is another driver's."""
    producer = begin(run)
    pipeline = Pipeline(run, watch=[STAGED])
    zombie = replace_driver(run, pipeline, STAGED, "after")
    run.soon(lambda: not zombie.running, SPARK_S)
    goes_on = zombie.running
    said = "it goes on" if goes_on else zombie.last_words()
    run.check(
        "why the driver that stood still has ended",
        f"{': the query '.join(REFUSED)}",
        said[:600],
        kept=not goes_on and all(word in said for word in REFUSED),
        late=goes_on,
    )
    zombie.kill()
    pipeline.expect_progress("the first one has ended")
    producer.stop()
    pipeline.finish()


def unfenced(run: Run) -> None:
    """Control: a plain append asks nobody."""
    producer = begin(run)
    pipeline = Pipeline(run, sink="append", watch=[APPENDED])
    zombie = replace_driver(run, pipeline, APPENDED, "before")
    run.wait(f"{zombie.name} to end", lambda: not zombie.running, SPARK_S)
    run.note(f"{zombie.name} has ended: {zombie.last_words()}")
    pipeline.expect_progress("the first one has ended")
    producer.stop()
    pipeline.finish()


SCENARIO = Scenario(
    name="pipeline-zombie",
    summary="A Spark driver that stood still goes on beside its successor, and writes nothing.",
    text=(
        "A query copies the topic into a table while events flow. Its driver, the JVM and the "
        "workers are stopped (SIGSTOP) when the rows of a batch are computed and not written. "
        "Another one is started in its place, and takes the query over. Then the first one goes "
        "on: its batch must be refused, and it must end and say why. In the control each batch is "
        "simply appended: that one is there twice."
    ),
    parts=(
        Part(name="main", title="Fenced", steps=steps),
        Part(name="control", title="Control: a plain append", steps=unfenced, breaks_check=ONCE),
    ),
    fixed=frozenset({"brokers", "signal"}),
)
