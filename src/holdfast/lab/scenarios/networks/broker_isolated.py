"""A leader is cut off from everybody, clients included, and comes back.

The one cut that needs not be known of any client: so it is made on clusters elsewhere as well, by
their owner's command.
"""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.cut_off import CUTS, CutOff
from holdfast.lab.steps.sides import AGAIN_S, PATIENT, READING
from holdfast.lab.steps.usual import elect_preferred, expect_consumed
from holdfast.lab.steps.wants import want, whole, without

PARTITION = 1  # whose leader is cut off
GOES_ON = "every partition goes on while a broker is cut off"


def steps(run: Run) -> None:
    """The others go on without it; it follows, and nothing is lost."""
    run.make_topic()
    producer, raw = run.start_producer(**PATIENT), run.start_raw()
    reader = run.start_readers(**READING)
    for sender in (producer, raw):
        run.must_flow(sender)
    run.steady(producer)
    leader, *followers = run.replicas[PARTITION]
    epoch = run.view.partitions[PARTITION].leader_epoch
    cut_off = CutOff(run, leader)
    cut_off.begin()
    left = without(run.replicas, {leader})
    led = run.expect(f"{leader} is cut off", left, run.parameters.noticed_s)
    now = run.view.partitions[PARTITION].leader_epoch
    run.check("leader epoch", f"above {epoch}", str(now), kept=now > epoch, given=led)
    if run.expect_flow(raw, GOES_ON, run.parameters.noticed_s):
        run.expect_flow(producer, f"{leader} is cut off: the reliable producer", AGAIN_S)
        expect_consumed(run, reader, f"{leader} is cut off")
    cut_off.end()
    run.expect(f"{leader} is back, and in sync again", whole(run.replicas), AGAIN_S)
    if run.parameters.servers is None:
        # A cluster elsewhere may have given leadership back by itself, by auto.leader.rebalance.
        run.expect(f"{leader} leads no more", {PARTITION: want(followers[0])})
    elect_preferred(run, producer)
    run.steady(producer)


SCENARIO = Scenario(
    name="broker-isolated",
    summary="A leader is cut off from everybody, clients included, and comes back.",
    text=(
        "All links of one broker are cut: to other brokers, to controllers, to clients. After the "
        "session the others lead what it led, and every partition goes on. The broker believes "
        "that it leads until its links are whole; then it follows, and is in sync again, and "
        "nothing is lost. In the control min.insync.replicas is 3, and nothing goes on without it. "
        "On a cluster that is there its owner's commands cut and heal."
    ),
    defaults=Parameters(network=True),
    parts=(
        Part(name="main", title="min ISR 2", steps=steps, hurts=CUTS),
        Part(
            name="control",
            title="Control: min ISR 3, so no broker can be spared",
            steps=steps,
            change={"min_isr": 3},
            breaks_check=GOES_ON,
            hurts=CUTS,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
