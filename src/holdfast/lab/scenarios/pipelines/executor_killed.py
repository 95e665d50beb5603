"""What computes a batch's rows dies in the middle of it, and they are computed again."""

from __future__ import annotations

import os
import random
import signal
import threading

from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.pipelines.events import begin
from holdfast.lab.pipelines.pipeline import EXECUTORS, ONCE, SPARK_S, STAGED, Pipeline
from holdfast.lab.pipelines.tables import FilesTable
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario

TRIES_MAX = 30


def kill_executor(run: Run, pipeline: Pipeline, when: str) -> None:
    executor = run.wait("an executor to be there", pipeline.driver.executor, SPARK_S)
    run.note(f"the executor, process {executor}, is killed with SIGKILL, {when}")
    os.kill(executor, signal.SIGKILL)


def kill_at_work(run: Run, pipeline: Pipeline) -> None:
    """Kill executors amid batches until Spark says that a task has died with one.

    LabError: none has. Who is killed before its tasks are there, or behind them, shows nothing.
    """
    driver = pipeline.driver
    for _ in range(TRIES_MAX):
        pipeline.hold(STAGED, "amid")  # it goes on at once
        threading.Event().wait(random.SystemRandom().uniform(0, driver.lasts_s()))
        lost, before = driver.lost_tasks(), dict(pipeline.positions())
        # A batch of which a task has died does not end before Spark knows of it.
        seen = lambda: driver.lost_tasks() > lost or pipeline.positions() != before  # noqa: B023, E731
        kill_executor(run, pipeline, "in the middle of a batch")
        run.wait("Spark to lose a task, or to end the batch", seen, SPARK_S)
        if died := driver.lost_tasks() - lost:
            run.note(f"{died} of its tasks have died with it")
            return
        run.note("no task was at work in it: the next one")
    raise LabError(f"{TRIES_MAX} executors were killed, and no task was at work in any")


def steps(run: Run) -> None:
    """Kill the executor while its tasks are at work on a batch."""
    producer = begin(run)
    pipeline = Pipeline(run, watch=[STAGED], master=EXECUTORS)
    pipeline.start()
    pipeline.expect_progress("the first executor")
    for number in range(run.parameters.kills):
        kill_at_work(run, pipeline)
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
        "events flow. That process is killed in the middle of a batch, with tasks at work; Spark "
        "starts another one and has the tasks run again. In the control tasks write their rows by "
        "themselves, and are killed behind the first one: it is there twice."
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
