"""What computes a batch's rows dies in the middle of it, and they are computed again."""

from __future__ import annotations

import os
import signal

from holdfast.lab.parameters import Parameters
from holdfast.lab.pipelines.events import begin
from holdfast.lab.pipelines.pipeline import EXECUTORS, ONCE, SPARK_S, STAGED, Pipeline
from holdfast.lab.pipelines.tables import FilesTable
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario


def kill_executor(run: Run, pipeline: Pipeline, when: str) -> None:
    executor = pipeline.driver.executor()
    run.note(f"the executor, process {executor}, is killed with SIGKILL, {when}")
    os.kill(executor, signal.SIGKILL)


def steps(run: Run) -> None:
    """Kill the executor whenever it has begun with a batch."""
    producer = begin(run)
    pipeline = Pipeline(run, watch=[STAGED], master=EXECUTORS)
    pipeline.start()
    pipeline.expect_progress("the first executor")
    for number in range(run.parameters.kills):
        pipeline.hold(STAGED, "amid")  # it goes on at once
        kill_executor(run, pipeline, "in the middle of a batch")
        pipeline.expect_progress(f"kill {number + 1}", behind=producer.tail.poll().ends)
    producer.stop()
    pipeline.finish()


def from_tasks(run: Run) -> None:
    """Control: tasks write by themselves, and one is killed behind its first row."""
    producer = begin(run)
    folder = run.history.parent / "files"
    hold = folder.with_name("files.hold")
    hold.touch()
    pipeline = Pipeline(run, table=FilesTable(folder), sink="tasks", master=EXECUTORS)
    pipeline.start()
    run.wait("a task to write its first row", pipeline.table.rows, SPARK_S)
    kill_executor(run, pipeline, "behind the first row of a task")
    hold.unlink()
    pipeline.expect_progress("the kill")
    producer.stop()
    pipeline.finish()


SCENARIO = Scenario(
    name="pipeline-executor-killed",
    summary="A Spark executor dies in the middle of a batch, and the table has each row once.",
    text=(
        "A query whose tasks run in a process of their own copies the topic into a table while "
        "events flow. That process is killed as it begins with a batch; Spark starts another one "
        "and has the tasks run again. In the control tasks write their rows by themselves, and "
        "are killed behind the first one: it is there twice."
    ),
    defaults=Parameters(kills=2),
    parts=(
        Part(name="main", title="Killed in the middle of batches", steps=steps),
        Part(
            name="control",
            title="Control: tasks that write by themselves",
            steps=from_tasks,
            breaks_check=ONCE,
        ),
    ),
    fixed=frozenset({"brokers", "signal"}),
)
