"""A broker is killed, gets an empty disk, and is back before anybody has missed it.

It has to wait until its session is over all the same (DUPLICATE_BROKER_REGISTRATION, KIP-631): two
processes can't be one broker.
"""

from __future__ import annotations

from holdfast.cluster.layout import EMBEDDED
from holdfast.judge.history import Acknowledged, IsrChange, LeaderChange
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.closing import end_of
from holdfast.lab.steps.dead_disks import replace_disk
from holdfast.lab.steps.usual import (
    acknowledge,
    elect,
    preload,
    start_clients,
    start_exact,
)
from holdfast.lab.steps.wants import names, preferred, want, whole
from holdfast.lab.workload_processes import Worker
from holdfast.wire.administration import Election
from holdfast.wire.errors import ErrorCode

VICTIM_PARTITION = 1  # the broker that leads it is the one that goes
PRELOAD_EVENTS = 12_000  # so that copying takes its time
ELECTIONS, AGAIN_S = 15, 1.0  # how often one is asked for, and how soon again


class Return:
    """How a broker with an empty disk came back: fed with changes, in the observer's thread."""

    def __init__(self, run: Run, node: int) -> None:
        self._run = run
        self.node = node
        self.left: set[int] = set()  # partitions whose ISR went without it
        self.held: dict[int, int] = {}  # where its files ended when it was first in the ISR again
        self.led: set[int] = set()  # partitions that it led before that

    def changed(self, change: LeaderChange | IsrChange) -> None:
        partition = change.partition
        if isinstance(change, LeaderChange):
            if change.leader == self.node and partition not in self.held:
                self.led.add(partition)
        elif self.node not in change.isr:
            self.left.add(partition)
        elif partition in self.left and partition not in self.held:
            self.held[partition] = end_of(self._run, self.node, partition)


def steps(run: Run) -> None:
    run.make_topic()
    filled = preload(run, PRELOAD_EVENTS)
    producer, raw, _ = start_clients(run)
    run.steady(producer, 1.0)
    filled.tail.poll()  # a long history, which nobody reads while the victim's session runs

    victim = run.replicas[VICTIM_PARTITION][0]
    back = Return(run, victim)
    run.watchers.append(back.changed)
    run.fault("KILL", victim)
    replace_disk(run, victim)
    committed = {p: acknowledged(p, filled, producer, raw) for p in run.partitions}
    run.start_node(victim)
    copied = f"{victim} is back with an empty disk, and has copied"
    is_back = run.expect(copied, whole(run.replicas), 60.0)
    run.watchers.remove(back.changed)
    expect_honest_return(run, back, committed, given=is_back)

    elected = "after a preferred election"
    elect_known(run, victim)
    run.expect(elected, preferred(run.replicas))
    run.expect_flow(producer, elected, 20.0)
    run.steady(producer, 1.0)


def acknowledged(partition: int, *workers: Worker) -> int:
    """Events of a partition that were acknowledged until now: so far it is committed at least."""
    return sum(worker.tail.poll().count(Acknowledged, partition) for worker in workers)


def expect_honest_return(run: Run, back: Return, committed: dict[int, int], *, given: bool) -> None:
    """Check that it left every ISR, led nothing, and came in only with all that was committed.

    `given`: whether it was seen to be back. If not, it may be on its way.
    """
    node = back.node
    stayed = [p for p in run.partitions if p not in back.left]
    run.check(
        f"{node} with an empty disk",
        "out of every ISR",
        f"still in that of {names(stayed)}" if stayed else "out of every ISR",
        kept=not stayed,
        given=given,
    )
    run.check(
        f"{node} before it is in sync",
        "leads nothing",
        f"leads {names(sorted(back.led))}" if back.led else "leads nothing",
        kept=not back.led,
    )
    short = [p for p in run.partitions if back.held.get(p, -1) < committed[p]]
    run.check(
        f"{node}, when it is in the ISR again",
        "holds all that was committed when its disk was lost",
        f"lacks some of {names(short)}" if short else "holds it",
        kept=not short,
        given=given or any(p in back.held for p in short),
    )
    run.tables.append(
        Table(
            title=f"What broker {node} held when it was in the ISR again",
            header=["partition", "acknowledged when its disk was lost", "its files ended at"],
            rows=[
                [f"P{p}", f"{committed[p]:,}", f"{back.held.get(p, -1):,}"] for p in run.partitions
            ],
            note="The files are looked at a moment after the ISR was, so they may hold more.",
        )
    )


def elect_known(run: Run, node: int) -> None:
    """Hold preferred elections until a broker with new disks leads again what it leads first.

    Its replicas may be in sync before the controller has heard that they lie in another directory
    (AssignReplicasToDirs, KIP-858; 0.3 s were seen of Apache Kafka). Until then they may not lead,
    and PREFERRED_LEADER_NOT_AVAILABLE means: ask again.
    """
    due = [partition for partition, nodes in run.replicas.items() if nodes[0] == node]

    def leads() -> bool:
        seen = run.view.partitions
        return all(p in seen and seen[p].leader == node for p in due)

    for _ in range(ELECTIONS):
        refused = elect(run)
        not_yet = any(refused.get(p) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE for p in due)
        if run.soon(leads, AGAIN_S) or not not_yet:
            return


def only_copy(run: Run) -> None:
    """The only in-sync replica loses its disk: it must not lead; going on without it loses.

    Of Apache Kafka it leads all the same (docs/design/decisions.md), which loses still more.
    """
    first, second, third = run.parameters.assignment()[0]
    client, _ = start_exact(run, {0: (first, second, third)}, timeout_ms=2000)
    run.fault("TERM", third)
    run.fault("TERM", second)
    run.expect(f"only {first} is in sync", {0: want(first, {first})}, 15.0)
    alone = acknowledge(run, client, 0, run.parameters.count)
    run.note(f"{alone} events acknowledged by {first} alone")
    run.fault("KILL", first)
    replace_disk(run, first)
    run.start_node(first)
    if run.parameters.engine == EMBEDDED:
        run.expect(f"{first} is back with an empty disk: it must not lead", {0: want(-1)}, 15.0)
        run.start_node(second)
        run.steady_view(1.0)
        run.expect(f"{second} is back: it lacks events and must not lead", {0: want(-1)})
        elect(run, Election.UNCLEAN)
        leader, lost = second, alone
        run.expect(f"{second} was told to lead all the same", {0: want(second)}, 15.0)
        run.start_node(third)
    else:
        leads = f"{first} is back with an empty disk: Apache Kafka lets it lead"
        leader, lost = first, run.parameters.count + alone
        run.expect(leads, {0: want(first)}, 30.0)
        run.start_node(second, third)
    run.expect("all have what it has", {0: want(leader, {first, second, third})}, 45.0)
    acknowledge(run, client, 0, 1)
    run.lost_expected = lost


SCENARIO = Scenario(
    name="disk-lost",
    summary="A broker is killed, gets an empty disk, and is back before its session ends.",
    text=(
        "It must not be taken for what it was: its name is in every ISR, and its disk is empty. "
        "It is not let in before its session is over and it has left them all; then it leads "
        "nothing, copies everything, and is in sync only with all that was committed; nothing is "
        "lost. In the "
        "control the one that loses its disk is the only in-sync replica. With an empty disk it "
        "does not lead either: the partition waits. Whoever then chooses to go on without it, by "
        "an unclean election, loses exactly what it alone had. (Apache Kafka lets it lead, and all "
        "others cut away what it lacks.)"
    ),
    parts=(
        Part(name="main", title="One of three in-sync replicas", steps=steps),
        Control(
            title="Control: the only in-sync replica",
            steps=only_copy,
            change={"min_isr": 1, "partitions": 1, "retries": 0},
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
)
