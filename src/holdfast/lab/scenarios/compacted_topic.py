"""A compacted topic is killed under load: of each key the last record stays, on each replica.

Rounds are as many as they can be: segments of some dozens of batches, and looks at short intervals.
So kills meet them at any moment, and readers meet the holes that they leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from holdfast.clients.replica_files import DamagedFileError, stored_records
from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.judge.history import Acknowledged
from holdfast.lab.parameters import Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.closing import replica_directory
from holdfast.lab.steps.dead_disks import lose_replicas
from holdfast.lab.steps.expiry import small_segments
from holdfast.lab.steps.usual import (
    Clients,
    bring_back,
    elect_preferred,
    expect_consumed,
    start_clients,
)
from holdfast.lab.steps.wants import names
from holdfast.wire.administration import alter_configs
from holdfast.wire.structs import ResourceType

VICTIM_PARTITION = 1  # the broker that leads it is the first one that goes
COMPACTED_S = 30.0  # for rounds to take what is replaced, on a slow machine
SEGMENT_BATCHES = 50
OFTEN = {"min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "100"}
COMPACTED = {"cleanup.policy": "compact"}
NODES = {"log.cleaner.backoff.ms": "20", "log.cleaner.threads": "2"}
ONLY = "only"  # the key of a record that stays, since none comes later
SINGLE = 20  # such records of each partition, each time that some are written


def held(run: Run, node: int, partition: int) -> int:
    """Return how many records one replica's files hold; -1: they can't be read just now."""
    try:
        directory = replica_directory(run, node, partition)
        return sum(1 for _ in stored_records(directory))
    except (OSError, DamagedFileError):
        return -1  # a round has put a segment in the place of others


def expect_compacted(run: Run, clients: Clients, when: str) -> None:
    """Check that every replica comes to hold less than half of what was acknowledged by now."""
    sent: dict[int, int] = {}
    seen: dict[tuple[int, int], int] = {}

    def compacted() -> bool:
        for p in run.partitions:
            sent[p] = sum(each.tail.poll().count(Acknowledged, p) for each in clients.senders)
        for partition, nodes in run.replicas.items():
            for node in nodes:
                seen[partition, node] = held(run, node, partition)
        return all(0 <= found < sent[p] / 2 for (p, _), found in seen.items())

    kept = run.soon(compacted, COMPACTED_S)
    words = (f"P{p} on {node}: {found} of {sent[p]}" for (p, node), found in sorted(seen.items()))
    seen_words = ", ".join(words)
    run.check(f"records in files, {when}", "less than half", seen_words, kept=kept, late=True)
    rows = [[f"P{p}", str(node), f"{sent[p]:,}", f"{n:,}"] for (p, node), n in sorted(seen.items())]
    run.tables.append(
        Table(
            title=f"What replicas held, {when}",
            header=["partition", "broker", "acknowledged", "in its files"],
            rows=rows,
            note="Files hold what was written since the last round as well.",
        )
    )


def write_single(run: Run, client: RawProducer, keys: Iterator[int]) -> None:
    """Write records whose keys never come again: each round has to keep every one of them.

    Of the others each is replaced soon: whatever took it by mistake would be excused.
    """
    for partition in run.partitions:
        for _ in range(SINGLE):
            client.send(partition, f"{ONLY}-{next(keys)}")


def steps(run: Run) -> None:
    """Kill a leader, then a follower whose copies are lost, and read from the beginning again."""
    run.make_topic(configs={**small_segments(run, SEGMENT_BATCHES), **OFTEN, **COMPACTED})
    clients = start_clients(run)
    single, keys = run.raw_client(ONLY, acks="all"), count()
    write_single(run, single, keys)
    run.steady(clients.producer)
    expect_compacted(run, clients, "before anybody dies")
    victim = run.replicas[VICTIM_PARTITION][0]
    for _ in range(run.parameters.kills):
        run.fault("KILL", victim)
        run.expect_flow(clients.producer, f"while {victim} is down (SIGKILL)", 20.0)
        bring_back(run, victim)
        elect_preferred(run, clients.producer)
        write_single(run, single, keys)
    run.start_reader("late-reader")
    other = run.replicas[VICTIM_PARTITION][-1]
    run.fault("KILL", other)
    lose_replicas(run, other, run.partitions, f"its copies of {names(run.partitions)} are gone")
    bring_back(run, other, f"{other} has copied what compaction has left")
    elect_preferred(run, clients.producer)
    expect_consumed(run, clients.reader, "behind all that was compacted")
    run.steady(clients.producer)
    expect_compacted(run, clients, "in the end")


def unsaid(run: Run) -> None:
    """Let somebody have the topic compacted, and no event of the history allows it.

    The first record of all stays, so that the log begins where it did.
    """
    run.make_topic(configs={**small_segments(run, SEGMENT_BATCHES), **OFTEN})
    outcome = run.raw_client("only", acks="all").send(0, ONLY)
    refuse_if(not isinstance(outcome, Acknowledged), f"the first record: {outcome}")
    clients = start_clients(run)
    run.steady(clients.producer)
    run.driver.perform(alter_configs(ResourceType.TOPIC, run.topic, {"cleanup.policy": "compact"}))
    run.note("somebody has set cleanup.policy=compact, and the history does not say so")
    run.steady(clients.producer)
    expect_compacted(run, clients, "with cleanup.policy=compact")
    # From here on files stay as they are, so that nothing goes behind the last read.
    run.driver.perform(alter_configs(ResourceType.TOPIC, run.topic, {"cleanup.policy": "delete"}))
    run.steady(clients.producer, 1.0)


SCENARIO = Scenario(
    name="compacted-topic",
    summary="A compacted topic under load: leaders die in the middle of rounds, copies are lost.",
    text=(
        "Producers write the same few keys again and again into segments of a few batches, and "
        "every replica compacts them as fast as it can. Leaders are killed meanwhile, and come "
        "back; a follower loses its copies and copies what compaction has left; consumers read "
        "through the holes, one from the beginning when most of it is gone. Of each key the last "
        "record stays, on each replica: a record may be missing only where a later one of its key "
        "stands, and the verdict counts how many are. In the control the same is done behind the "
        "history's back: then what compaction takes is lost."
    ),
    defaults=Parameters(kills=2, config=NODES),
    parts=(
        Part(name="main", title="Leaders die while their logs are compacted", steps=steps),
        Control(
            title="Control: compaction of which the history does not speak",
            steps=unsaid,
            # One replica: several would differ besides, where nothing says that they may.
            change={"partitions": 1, "replication_factor": 1, "min_isr": 1},
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
)
