"""Retention overtakes a query that was away: what it can't read any more is named."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.lab.parameters import Parameters
from holdfast.lab.pipelines.pipeline import SPARK_S, STAGED, Pipeline
from holdfast.lab.pipelines.plain_log import Row, read_log
from holdfast.lab.pipelines.tables import SqlTable, compare
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.expiry import HOUR_MS, expect_begins, hour_of_small_segments
from holdfast.lab.steps.usual import must_acknowledge

NAMED = "what was gone before it was read is named, offset by offset"
SKIP = {"goneData": "skip"}


class Events:
    """Events in every partition, sent so many at a time; what the log held is remembered."""

    def __init__(self, run: Run) -> None:
        run.make_topic(configs=hour_of_small_segments(run))
        self._run = run
        self._client: RawProducer = run.raw_client("producer", acks="all")
        self.ends = dict.fromkeys(run.partitions, 0)
        self.seen: set[Row] = set()

    def send(self) -> None:
        count = self._run.parameters.count
        for partition in self._run.partitions:
            must_acknowledge(self._run, self._client, partition, count)
            self.ends[partition] += count
        bootstrap = self._run.cluster.bootstrap_servers
        self.seen |= set(read_log(bootstrap, self._run.topic, self.ends))


def overtake(run: Run, pipeline: Pipeline) -> tuple[Events, dict[int, int], dict[int, int]]:
    """Have the query read some, stop it, and let retention take more than that.

    Return the events, where the query was, and where the log begins now.
    """
    events = Events(run)
    events.send()
    pipeline.start()
    pipeline.wait_rows(events.ends)
    pipeline.stop()
    read = dict(events.ends)
    events.send()
    return events, read, take_all(run, events, "a millisecond's retention")


def take_all(run: Run, events: Events, name: str) -> dict[int, int]:
    """Let retention take all that there is, and have more; return where the log begins now."""
    begins = dict(events.ends)
    run.alter_topic(retention_ms="1")
    expect_begins(run, name, begins)
    run.alter_topic(retention_ms=str(HOUR_MS))
    events.send()
    return begins


def overtake_a_batch(
    run: Run, pipeline: Pipeline, events: Events
) -> tuple[dict[int, int], dict[int, int]]:
    """Have a driver die when a batch is planned and not read, and let retention take its records.

    So what is gone stands in no plan. Return as `overtake`.
    """
    read, driver = dict(events.ends), pipeline.driver
    driver.arm(STAGED, "before")
    events.send()
    run.wait("a batch to be planned", driver.is_there, SPARK_S)
    pipeline.kill("a batch is planned and not read")
    return read, take_all(run, events, "a millisecond's retention, behind a plan")


def steps(run: Run) -> None:
    """By default the query ends and says what is gone; told to go on, it writes that down."""
    pipeline = Pipeline(run, watch=[STAGED])
    events, read, begins = overtake(run, pipeline)
    pipeline.start()
    pipeline.expect_end(
        "a query that was told nothing ends before it leaves something out",
        [f"{run.topic}-0", "goneData"],
    )
    before = pipeline.table.positions()
    run.check("its table meanwhile", f"next offsets {read}", str(before), kept=before == read)
    pipeline.start(**SKIP)
    pipeline.catch_up(events.ends)
    again, anew = overtake_a_batch(run, pipeline, events)
    pipeline.start()
    pipeline.catch_up(events.ends)
    pipeline.stop()
    expect_named(
        run,
        pipeline,
        events,
        lambda p: {*range(read[p], begins[p]), *range(again[p], anew[p])},
    )


def unnamed(run: Run) -> None:
    """Control: a sink that has no place for what is gone."""
    pipeline = Pipeline(run, sink="append", options=SKIP)
    events, read, begins = overtake(run, pipeline)
    pipeline.start()
    pipeline.catch_up(events.ends)
    pipeline.stop()
    expect_named(run, pipeline, events, lambda p: set(range(read[p], begins[p])))


def expect_named(
    run: Run, pipeline: Pipeline, events: Events, gone_of: Callable[[int], set[int]]
) -> None:
    """Check that each record is in the table once, or named as gone, and neither too much."""
    assert isinstance(pipeline.table, SqlTable), "the steps have made it"
    gone = {partition: gone_of(partition) for partition in run.partitions}
    left = [row for row in events.seen if row.offset not in gone[row.partition]]
    wrong = compare(pipeline.table.rows(), left)
    run.check(
        "the table has each record once that could be read, and nothing else",
        f"{len(left):,} rows",
        wrong or f"{len(left):,} rows, these",
        kept=not wrong,
    )
    named = {partition: pipeline.table.gaps().get(partition, set()) for partition in gone}
    run.check(NAMED, _text(gone), _text(named), kept=named == gone)


def _text(offsets: dict[int, set[int]]) -> str:
    told = [
        f"P{partition} {min(each)} to {max(each)}, {len(each)} offsets"
        for partition, each in sorted(offsets.items())
        if each
    ]
    return "; ".join(told) or "nothing"


SCENARIO = Scenario(
    name="pipeline-data-gone",
    summary="Retention overtakes a Spark query: it ends and says so, or writes down what is gone.",
    text=(
        "A query copies the topic into a table and is stopped. More comes, and retention takes "
        "all of it; then more again. Started again the query ends, and names what is gone: "
        "nothing was left out. With goneData=skip it goes on where the log begins, and its sink "
        "writes the offsets that it could not read beside the table, in the batch's transaction. "
        "Then its driver dies when it has planned a batch and read nothing of it, and retention "
        "takes those records: the next driver has the old plan, and names them too. "
        "In the control a plain append goes on in the same way: its table has a hole, and nothing "
        "in the database says so."
    ),
    parts=(
        Part(name="main", title="Named, and only then passed over", steps=steps),
        Part(
            name="control",
            title="Control: passed over by a sink that names nothing",
            steps=unnamed,
            breaks_check=NAMED,
        ),
    ),
    defaults=Parameters(
        retries=0,
        config={"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "0"},
    ),
    fixed=frozenset({"acks", "brokers", "replication_factor", "min_isr", "signal", "elr"}),
)
