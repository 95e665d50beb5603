"""The value of min.insync.replicas is raised to 2 at run time, and a broker is killed."""

from __future__ import annotations

from holdfast.judge.history import Acknowledged, Delivered, Refused
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.two_brokers_down import unclean_return
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.steps.usual import REFUSAL, acknowledge, bring_back
from holdfast.lab.steps.wants import without
from holdfast.lab.workload_processes import Worker

VICTIM = 2
HIDDEN = "hidden"  # the client whose acks=1 events must stay invisible


def steps(run: Run) -> None:
    parameters = run.parameters
    run.make_topic(configs={"min.insync.replicas": "1"})
    touched = [p for p, replicas in run.replicas.items() if VICTIM in replicas]
    # What waits for the dead replica is given up after this: the ISR will not do without it.
    producer = run.start_producer(config="request.timeout.ms=3000")
    run.start_readers()
    run.must_flow(producer)
    run.steady(producer)
    run.alter_topic(min_insync_replicas=str(parameters.min_isr))
    run.expect_flow(producer, f"min.insync.replicas is {parameters.min_isr}, all are up", 20.0)

    run.fault("KILL", VICTIM)
    run.expect(f"{VICTIM} is down", without(run.replicas, {VICTIM}), parameters.noticed_s)
    expect_refusals(run, producer, touched)
    expect_invisible(run, touched)

    bring_back(run, VICTIM)
    run.expect_flow(producer, f"{VICTIM} is back", 20.0)


def expect_refusals(run: Run, producer: Worker, touched: list[int]) -> None:
    """Under min ISR acks=all is refused; elsewhere it is acknowledged."""
    must_come(
        run,
        f"{REFUSAL} in each partition under min ISR",
        lambda: all(producer.tail.poll().errors[REFUSAL, p] or p not in touched
                    for p in run.partitions),
        30.0,
    )  # fmt: skip
    before = producer.tail.poll().counts.copy()
    run.steady(producer)
    since = producer.tail.poll().counts - before
    for partition in run.partitions:
        acknowledged = since[Acknowledged.KIND, partition]
        refused = since[Refused.KIND, partition]
        seen = f"{acknowledged} acknowledged, {refused} refused"
        if partition in touched:
            run.check(
                f"P{partition}, one of its replicas is down",
                f"every event refused, {REFUSAL}",
                seen,
                kept=acknowledged == 0 and refused > 0,
                late=acknowledged == 0,  # only that nothing is refused may be for want of time
            )
        else:
            name, kept = f"P{partition}, untouched", acknowledged > 0
            run.check(name, "acknowledges", seen, kept=kept, late=True)


def expect_invisible(run: Run, touched: list[int]) -> None:
    """acks=1 is accepted under min ISR, and nobody may read it until the ISR is back."""
    count = run.parameters.count
    accepted = acknowledge(run, run.raw_client(HIDDEN, acks="1"), touched[0], count)
    name, kept = "acks=1 under min ISR", accepted == count
    run.check(name, f"{count} accepted", f"{accepted}", kept=kept, late=True)
    reader = run.start_reader("during", until_eof=True, timeout=30, partition=touched)
    reader.wait()
    read = [e for e in events_of([reader.history]) if isinstance(e, Delivered)]
    hidden = sum(e.id is not None and e.id.startswith(f"{HIDDEN}:") for e in read)
    run.check("of these, read under min ISR", "0", str(hidden), kept=hidden == 0)
    run.check("what was there before", "readable", f"{len(read):,} events read", kept=bool(read))


SCENARIO = Scenario(
    name="min-insync-replicas",
    summary="min.insync.replicas is raised at run time, and one broker is killed.",
    text=(
        "Where a replica is missing, acks=all is refused with NOT_ENOUGH_REPLICAS: a refusal that "
        "is certain, so none of those events ever appears. What is there stays readable. acks=1 is "
        "accepted there, but nobody can read it until the ISR is back. In the control min ISR "
        "stays 1: one copy acknowledges, and an unclean election loses what it had."
    ),
    defaults=Parameters(replication_factor=2, min_isr=2, retries=0),
    parts=(
        Part(name="main", title="min.insync.replicas=2 at run time", steps=steps),
        Control(
            title="Control: min.insync.replicas=1, unclean election on",
            steps=unclean_return,
            change={"min_isr": 1, "unclean": True},
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
)
