"""A topic is deleted and made anew under its name while a query is away."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from holdfast.lab.parameters import Parameters, refuse_if
from holdfast.lab.pipelines.pipeline import WHOLE, Pipeline
from holdfast.lab.pipelines.plain_log import Row, SideTopic
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.scenarios.pipelines.rebalanced import topic_of

PARTITIONS = 2


def make_anew(run: Run, pipeline: Pipeline, topic: SideTopic) -> list[Row]:
    """Have the query read all, and be stopped; make the topic anew, with more than it had.

    Return what the old one held.
    """
    pipeline.start()
    pipeline.wait_rows(topic.ends)
    pipeline.stop()
    before = topic.read()
    topic.delete()
    topic.make(PARTITIONS)
    run.note(f"topic {topic.name} was made anew")
    topic.write(2 * run.parameters.count)  # so that the old offsets are among the new ones
    return before


def expect_both(pipeline: Pipeline, before: Sequence[Row], topic: SideTopic) -> None:
    pipeline.wait_rows(topic.ends)
    pipeline.stop()
    pipeline.expect_exact([*before, *topic.read()])


def steps(run: Run) -> None:
    """The query ends and says that the topic is another one; then it is told to go on."""
    topic = topic_of(run, PARTITIONS)
    pipeline = Pipeline(run, topic=topic.name)
    before = make_anew(run, pipeline, topic)
    pipeline.start()
    pipeline.expect_end(
        "a query that was told nothing ends before it takes one topic for the other",
        [topic.name, "made anew"],
    )
    pipeline.start(goneData="reset")
    said = pipeline.expect_end(
        "told to read the new one from its beginning, it does not mix it with the old one's rows",
        [topic.name, "made anew", "--begin-anew"],
    )
    told = re.search(r"--begin-anew (\S+)", said)
    refuse_if(told is None, f"no id is told: {said}")
    assert told is not None, "or the run has ended"
    pipeline.start("--begin-anew", told[1])
    expect_both(pipeline, before, topic)


def by_name(run: Run) -> None:
    """Control: who goes on by name and number begins in the middle of the new topic."""
    topic = topic_of(run, PARTITIONS)
    pipeline = Pipeline(run, topic=topic.name, sink="append")
    ends = dict(topic.ends)
    before = make_anew(run, pipeline, topic)
    pipeline.checkpoint = pipeline.folder / "checkpoint-by-hand"
    at = {str(partition): end for partition, end in ends.items()}
    pipeline.start(startingOffsets=json.dumps({topic.name: at}))
    expect_both(pipeline, before, topic)


SCENARIO = Scenario(
    name="pipeline-topic-recreated",
    summary="A topic is made anew under a Spark query, and no row of the new one is passed over.",
    text=(
        "A query copies a topic into a table and is stopped. The topic is deleted and made anew "
        "under its name, with more records than it had, so that the old offsets are there again. "
        "Started again the query ends: it knows the topic by its id. With goneData=reset it would "
        "read the new one from its beginning, and the table's memory ends it: the new rows would "
        "stand among the old ones. Told to do that, too, it goes on. In the control somebody goes "
        "on by hand, with the offsets that were reached: the first records of the new one are "
        "missing."
    ),
    parts=(
        Part(name="main", title="Known by its id", steps=steps),
        Part(
            name="control",
            title="Control: gone on with by name and offset",
            steps=by_name,
            breaks_check=WHOLE,
        ),
    ),
    defaults=Parameters(count=50),
    fixed=frozenset({"brokers", "signal"}),
)
