"""Brokers die under a query: others lead, and the table goes on."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.pipelines.events import begin
from holdfast.lab.pipelines.pipeline import Pipeline
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.usual import bring_back, elect_preferred
from holdfast.lab.steps.wants import without

READ_S = 5.0  # in which the table gets what had been read of a broker before it died
AWAY_S = 15.0  # longer than a session, and than any retry of the query


def steps(run: Run) -> None:
    """Kill the leader of one partition after the other."""
    producer = begin(run)
    pipeline = Pipeline(run)
    pipeline.start()
    pipeline.expect_progress("the first driver")
    for number in range(run.parameters.kills):
        leader = run.view.partitions[number % run.parameters.partitions].leader
        others = without(run.replicas, {leader})
        since_s = run.fault("KILL", leader) / 1000
        run.expect(f"SIGKILL of broker {leader}: others lead", others, run.parameters.noticed_s)
        run.must_flow(producer)  # by now others lead: what follows was not read of the dead one
        ends = producer.tail.poll().ends
        pipeline.expect_progress(f"SIGKILL of broker {leader}", behind=ends, since_s=since_s)
        bring_back(run, leader, f"broker {leader} is back, kill {number + 1}")
        # Who leads on at the next kill is known only where nobody else is preferred: a controller
        # gives leadership back by itself whenever it looks.
        elect_preferred(run, producer, f"after a preferred election, kill {number + 1}")
    producer.stop()
    pipeline.finish()


def one_copy(run: Run) -> None:
    """Control: each partition has one copy, and nobody can take over."""
    producer = begin(run)
    pipeline = Pipeline(run)
    pipeline.start()
    pipeline.expect_progress("the first driver", partitions=run.partitions)
    leader = run.view.partitions[0].leader
    pipeline.driver.may_end()  # it says that it can't go on
    run.fault("KILL", leader)
    run.steady_view(READ_S)
    # On a slow machine what was read of it may come later still; but nothing behind its last ends.
    ends = producer.tail.poll().ends
    pipeline.expect_progress(f"SIGKILL of broker {leader}", AWAY_S, behind=ends)
    bring_back(run, leader)
    run.must_flow(producer)
    producer.stop()
    pipeline.revive_until(producer.tail.poll().ends, "it is back")
    pipeline.finish()


SCENARIO = Scenario(
    name="pipeline-broker-killed",
    summary="Brokers die under a Spark query, and its table goes on and has each row once.",
    text=(
        "A query copies the topic into a table while events flow. The leader of one partition "
        "after the other is killed: another broker leads, and rows of every partition must come "
        "while the dead one is away. In the control each partition has one copy: nothing comes of "
        "those that the dead broker leads; all of it comes when it is back."
    ),
    defaults=Parameters(kills=2),
    parts=(
        Part(name="main", title="Leaders killed, three copies", steps=steps),
        Part(
            name="control",
            title="Control: one copy of each partition",
            steps=one_copy,
            change={"replication_factor": 1, "min_isr": 1},
            breaks_check="SIGKILL of broker",
        ),
    ),
    fixed=frozenset({"acks", "brokers", "combined", "min_isr", "replication_factor", "signal"}),
)
