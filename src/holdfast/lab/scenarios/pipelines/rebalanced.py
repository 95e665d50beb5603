"""A topic gets partitions while a query reads it, and while its driver is away."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.pipelines.pipeline import WHOLE, Pipeline
from holdfast.lab.pipelines.plain_log import SideTopic
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.usual import must_acknowledge

FIRST, LATER, LAST = 2, 5, 6  # partitions


def topic_of(run: Run, partitions: int) -> SideTopic:
    """Make a topic with events, besides the run's own, which gets some, too."""
    run.make_topic()
    client = run.raw_client("producer", acks="all")
    for partition in run.partitions:
        must_acknowledge(run, client, partition, run.parameters.count)
    topic = SideTopic(run, "side", partitions)
    topic.write(run.parameters.count)
    return topic


def steps(run: Run) -> None:
    """Add partitions twice; the query finds them by itself."""
    topic = topic_of(run, FIRST)
    pipeline = Pipeline(run, topic=topic.name)
    pipeline.start()
    pipeline.wait_rows(topic.ends)
    topic.add_partitions(LATER)
    topic.write(run.parameters.count)
    pipeline.wait_rows(topic.ends)
    pipeline.kill()
    topic.add_partitions(LAST)
    topic.write(run.parameters.count)
    pipeline.start()
    topic.write(run.parameters.count)
    pipeline.catch_up(topic.ends)
    pipeline.stop()
    pipeline.expect_exact(topic.read())


def by_number(run: Run) -> None:
    """Control: the query names its partitions, as they were when it was written."""
    topic = topic_of(run, FIRST)
    named = f'{{"{topic.name}":{list(topic.ends)}}}'
    pipeline = Pipeline(run, topic=topic.name, options={"assign": named})
    pipeline.start()
    pipeline.wait_rows(topic.ends)
    topic.add_partitions(LATER)
    topic.write(run.parameters.count)
    pipeline.wait_rows({partition: topic.ends[partition] for partition in range(FIRST)})
    pipeline.stop()
    pipeline.expect_exact(topic.read())


SCENARIO = Scenario(
    name="pipeline-rebalanced",
    summary="A topic gets partitions under a Spark query, and the table has their rows, too.",
    text=(
        "A query copies a topic of two partitions into a table. The topic gets three more while "
        "it runs, and one more while its driver is dead. Their records are read from the first "
        "one on. In the control the query names the partitions that it reads: those of the new "
        "ones are missing, and nothing says so."
    ),
    parts=(
        Part(name="main", title="Partitions are found", steps=steps),
        Part(
            name="control",
            title="Control: partitions by number",
            steps=by_number,
            breaks_check=WHOLE,
        ),
    ),
    defaults=Parameters(count=50),
    fixed=frozenset({"brokers", "signal"}),
)
