"""Three racks of two brokers, and one rack is gone at once, with all it held."""

from __future__ import annotations

from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.dead_disks import lose_replicas
from holdfast.lab.steps.usual import acknowledge, elect_preferred, start_clients, tally
from holdfast.lab.steps.wants import lists_text, want, whole, without

RACKS = ("a", "a", "b", "b", "c", "c")
LOST_RACK = "a"
VICTIMS = tuple(node for node, rack in enumerate(RACKS) if rack == LOST_RACK)


def steps(run: Run) -> None:
    """Replicas as the cluster places them: every partition goes on with two."""
    assignment = run.place_topic()
    expect_spread(run, assignment)
    producer, raw, _ = start_clients(run)
    run.steady(producer)

    run.fault("KILL", *VICTIMS)
    gone = f"rack {LOST_RACK} is gone"
    left = without(assignment, set(VICTIMS))
    noticed = run.expect(gone, left, run.parameters.noticed_s)
    sizes = {p: len(state.isr) for p, state in run.view.partitions.items()}
    run.check(
        "every partition, in-sync replicas",
        "2 or more",
        ", ".join(f"P{p}: {size}" for p, size in sorted(sizes.items())),
        kept=min(sizes.values()) >= run.parameters.min_isr,
        given=noticed,
    )
    run.expect_flow(raw, gone, 20.0)
    run.expect_flow(producer, gone, 20.0)
    run.steady(producer)

    for node in VICTIMS:
        lose_replicas(run, node, [p for p, nodes in assignment.items() if node in nodes])
    run.start_node(*VICTIMS)
    run.expect(f"rack {LOST_RACK} is back with nothing, and has copied", whole(assignment), 60.0)
    elect_preferred(run, producer)


def expect_spread(run: Run, assignment: dict[int, tuple[int, ...]]) -> None:
    """Check that no partition has two replicas in one rack, and show where they are."""
    racks = {p: [RACKS[node] for node in nodes] for p, nodes in assignment.items()}
    together = [p for p, names in racks.items() if len(set(names)) < len(names)]
    run.check(
        "replicas, as the cluster places them",
        "each of a partition's in another rack",
        lists_text(assignment),
        kept=not together,
    )
    run.tables.append(
        Table(
            title="Where the cluster has placed the replicas",
            header=["partition", "brokers", "racks"],
            rows=[
                [f"P{p}", " ".join(map(str, nodes)), " ".join(racks[p])]
                for p, nodes in sorted(assignment.items())
            ],
            note="Brokers 0 and 1 are in rack a, 2 and 3 in b, 4 and 5 in c.",
        )
    )


def inside_one_rack(run: Run) -> None:
    """Both replicas in the rack: offline while it is gone, and lost with its disks."""
    parameters = run.parameters
    run.make_topic({0: VICTIMS, 1: VICTIMS[::-1]})
    client = run.raw_client("producer", acks="all", timeout_ms=2000)
    before = sum(acknowledge(run, client, p, parameters.count) for p in run.partitions)
    run.fault("KILL", *VICTIMS)
    run.expect(
        f"rack {LOST_RACK} is gone",
        dict.fromkeys(run.partitions, want(-1)),
        parameters.noticed_s,
    )
    during, _ = tally(client.send(p) for p in run.partitions for _ in range(3))
    run.check(f"acknowledged while rack {LOST_RACK} is gone", "0", str(during), kept=during == 0)
    for node in VICTIMS:
        lose_replicas(run, node, run.partitions)
    run.start_node(*VICTIMS)
    run.expect(
        f"rack {LOST_RACK} is back with nothing",
        dict.fromkeys(run.partitions, want(isr=VICTIMS)),
        45.0,
    )
    for partition in run.partitions:
        acknowledge(run, client, partition, 1)
    run.lost_expected = before


SCENARIO = Scenario(
    name="rack-loss",
    summary="Of three racks with two brokers each, one is gone at once, with all that it held.",
    text=(
        "The cluster has placed every partition's three replicas in three racks. So each partition "
        "keeps two of them in sync, finds a leader within the session, and goes on acknowledging. "
        "The rack comes back without the topic's files and copies everything. In the control a "
        "partition's replicas are all inside the one rack: it is offline while the rack is gone, "
        "and what it held is lost with the rack's files."
    ),
    defaults=Parameters(brokers=len(RACKS), racks=RACKS, partitions=6),
    parts=(
        Part(name="main", title="One replica in each rack", steps=steps),
        Control(
            title="Control: all replicas inside one rack",
            steps=inside_one_rack,
            change={"replication_factor": 2, "min_isr": 2, "partitions": 2, "retries": 0},
        ),
    ),
    fixed=frozenset({"acks", "brokers", "replication_factor", "min_isr", "signal"}),
)
