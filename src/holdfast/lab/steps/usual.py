"""What most scenarios do at one time or another: clients of every kind, and leaders as they were.

Owns steps that say nothing of a scenario's own question. What is hurt, and what must be seen then,
is the scenario's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.clients.blocking_driver import DriverError
from holdfast.clients.outcomes import DELETES_NOTHING
from holdfast.clients.workload.raw_producer import Outcome, RawProducer
from holdfast.judge.history import Acknowledged, Delivered, Refused
from holdfast.lab.parameters import LabError, refuse_if
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.steps.wants import lists_text, names, preferred, whole
from holdfast.lab.workload_processes import Worker
from holdfast.wire import administration as admin
from holdfast.wire.errors import ErrorCode

READ_S = 30.0  # for a consumer to go on; librdkafka may wait 10 s between its attempts
PRELOAD_BYTES = 1000  # of an event
REFUSAL = "NOT_ENOUGH_REPLICAS"


class Clients(NamedTuple):
    """What loads a run: a reliable producer, one without patience, and a consumer."""

    producer: Worker
    raw: Worker
    reader: Worker

    @property
    def senders(self) -> list[Worker]:
        return [self.producer, self.raw]


def begin(
    run: Run, assignment: Mapping[int, Sequence[int]] | None = None, **reliable: Any
) -> Clients:
    """Make the topic as `Run.make_topic` does, and start clients of every kind.

    `reliable`: flags of the reliable producer.
    """
    run.make_topic(assignment)
    return start_clients(run, **reliable)


def start_clients(run: Run, **reliable: Any) -> Clients:
    """Start clients of every kind, and wait until both producers flow in every partition.

    A reader that notes every high watermark is among them. LabError: a producer does not flow.
    """
    clients = Clients(run.start_producer(**reliable), run.start_raw(), run.start_readers())
    for sender in clients.senders:
        run.must_flow(sender)
    return clients


def preload(run: Run, events: int) -> Worker:
    """Fill the topic, so that copying it takes its time."""
    worker = run.start_producer("preload", rate=0, max_messages=events, size=PRELOAD_BYTES)
    worker.wait()
    return worker


def start_exact(
    run: Run,
    assignment: Mapping[int, Sequence[int]] | None = None,
    *,
    acks: str = "all",
    timeout_ms: int = 10_000,
    events: int | None = None,
) -> tuple[RawProducer, Worker]:
    """Make the topic for a schedule that counts every event; return who sends and who reads.

    So many events (None: the run's count) are in each partition then, and the reader has seen some.
    LabError: it does not get so far.
    """
    run.make_topic(assignment)
    reader = run.start_readers()
    client = run.raw_client("producer", acks=acks, timeout_ms=timeout_ms)
    for partition in run.replicas:
        must_acknowledge(run, client, partition, run.parameters.count if events is None else events)
    run.wait("the reader to follow", lambda: reader.tail.poll().delivered_ms, WORK_S)
    return client, reader


def acknowledge(run: Run, client: RawProducer, partition: int, count: int) -> int:
    """Send until so many are acknowledged, or `WORK_S` is over. Return how many were.

    Some may be refused first: the client learns of a new leader by a refusal of the old one,
    and a broker is told of what it leads a moment after the others are.
    """
    acknowledged = 0

    def enough() -> bool:
        nonlocal acknowledged
        while acknowledged < count and isinstance(client.send(partition), Acknowledged):
            acknowledged += 1
        return acknowledged == count

    run.soon(enough, WORK_S)
    return acknowledged


def must_acknowledge(run: Run, client: RawProducer, partition: int, count: int) -> None:
    """Send until so many are acknowledged. LabError: they never are."""
    done = acknowledge(run, client, partition, count)
    refuse_if(
        done != count, f"{client.topic}-{partition} does not acknowledge: {done} of {count} events"
    )


def tally(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """Return how many events were acknowledged, and how many refused for want of replicas."""
    found = list(outcomes)
    refused = sum(isinstance(each, Refused) and each.error == REFUSAL for each in found)
    return sum(isinstance(each, Acknowledged) for each in found), refused


def bring_back(run: Run, node: int, when: str | None = None) -> bool:
    """Start a node again, and check that every partition's replicas come to be in sync."""
    run.start_node(node)
    return run.expect(when or f"{node} is back", whole(run.replicas), 45.0)


def elect_preferred(run: Run, producer: Worker, when: str = "after a preferred election") -> None:
    """Give leadership back to each partition's first replica, and check that events flow there."""
    elect(run)
    run.expect(when, preferred(run.replicas))
    run.expect_flow(producer, when, 20.0)


def expect_consumed(run: Run, reader: Worker, when: str, since_ms: float | None = None) -> bool:
    """Check that a consumer receives events of every partition after this moment; None: now."""
    since_ms = time.monotonic() * 1000 if since_ms is None else since_ms

    def silent() -> list[int]:
        delivered = reader.tail.poll().delivered_ms
        return [p for p in run.partitions if delivered.get(p, 0.0) <= since_ms]

    run.soon(lambda: not silent(), READ_S)
    left = silent()
    seen = f"nothing from {names(left)} in {READ_S:.0f} s" if left else "from every partition"
    name = f"the consumer receives, {when}"
    return run.check(name, "from every partition", seen, kept=not left, late=True)


def expect_all_read(
    run: Run, reader: Worker, senders: Iterable[Worker], when: str, bound_s: float = READ_S
) -> None:
    """Check that a consumer is given all that these have been acknowledged by now.

    It may be given more: what nobody knows of may be there as well.
    """
    wanted = sum(sender.tail.poll().count(Acknowledged) for sender in senders)
    run.soon(lambda: reader.tail.poll().count(Delivered) >= wanted, bound_s)
    given = reader.tail.count(Delivered)
    kept = given >= wanted > 0
    run.check(when, f"{wanted:,} events or more", f"{given:,}", kept=kept, late=True)


def expect_only_flows(
    run: Run,
    raw: Worker,
    when: str,
    partitions: Sequence[int],
    silent: Mapping[int, str] | None = None,
) -> None:
    """Check that these partitions acknowledge, and that others acknowledge nothing meanwhile.

    `silent`: which others, and what each check is called; None: all.
    """
    if silent is None:
        silent = {p: f"P{p}, {when}" for p in run.partitions if p not in partitions}
    before = {p: raw.tail.poll().count(Acknowledged, p) for p in silent}
    run.expect_flow(raw, when, 20.0, partitions)
    run.steady(raw, 1.0)
    for partition, name in silent.items():
        count = raw.tail.poll().count(Acknowledged, partition) - before[partition]
        run.check(name, "acknowledges nothing", str(count), kept=count == 0)


def settle(run: Run, partition: int) -> None:
    """Let all that a partition's leader has by now be on every replica in sync. LabError.

    One event with acks=all is enough, because a log is copied in its order. Whoever sent with
    acks=1 knows only of the leader.
    """
    must_acknowledge(run, run.raw_client(f"settled-{partition}", acks="all"), partition, 1)


def delete_records(run: Run, offsets: Mapping[int, int]) -> None:
    """Delete everything before these offsets of partitions, and say so first."""
    named = ", ".join(f"P{p} before {offset}" for p, offset in offsets.items())
    run.note(f"records are deleted by name: {named}")
    for partition, offset in offsets.items():
        run.allowed.delete(run.topic, partition, offset)
        try:
            run.driver.perform(
                admin.delete_records(run.topic, partition, offset),
                node=run.driver.leader(run.topic, partition),
            )
        except (admin.AdminError, DriverError) as error:
            if isinstance(error, admin.AdminError) and error.code in DELETES_NOTHING:
                run.allowed.refused(run.topic, partition, offset)
            raise LabError(f"the records can't be deleted: {error}") from error


def elect(run: Run, election: admin.Election = admin.Election.PREFERRED) -> dict[int, int]:
    """Hold an election in all partitions; return the codes that some are refused with."""
    kind = election.name.lower()
    run.note(f"{kind} election")
    outcomes = run.ask(
        admin.elect_leaders(election, {run.topic: run.partitions}),
        "the election can't be asked for",
    )
    refused = {
        partition: code
        for (_, partition), (code, _) in outcomes.items()
        if code not in {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
    }
    if refused:
        run.note(f"{kind} election refused: {refused}")
    return refused


def expect_handover(run: Run, node: int, partitions: Sequence[int]) -> None:
    """Check that a node which left cleanly had handed over before its process ended.

    In the first look after its exit others must lead. If it had just died, its session would
    still run, and it would still be named as the leader.
    """
    view = run.after_exit.get(node)
    leaders = {p: view.partitions[p].leader for p in partitions} if view is not None else {}
    run.check(
        f"SIGTERM of {node}: {names(partitions)}, in the first look after its exit",
        "led by another",
        ", ".join(f"P{p}: leader {leader}" for p, leader in leaders.items()) or "no answer",
        kept=bool(leaders) and not {-1, node} & set(leaders.values()),
    )


def expect_same_replicas(run: Run, when: str) -> None:
    """Check that the replica lists are as they were made: nothing is copied elsewhere."""
    seen = {p: tuple(state.replicas) for p, state in run.view.partitions.items()}
    run.check(
        f"replica lists {when}",
        lists_text(run.replicas),
        lists_text(seen),
        kept=seen == run.replicas,
    )
