"""What a dozen producers and a group of two dozen consumers get through.

What is measured are figures of a machine and an hour, and of clients that write everything down;
that all of it is acknowledged, and processed by the group, is checked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from holdfast.judge.groups.verdict import Commits
from holdfast.judge.history import Acknowledged, Send
from holdfast.lab.evidence import events_of
from holdfast.lab.group import Group
from holdfast.lab.parameters import GROUP_SESSION, PIPELINED, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.groups import CONSUMER
from holdfast.lab.steps.measures import spell_of
from holdfast.lab.workload_processes import Worker

PRODUCERS, MEMBERS = 12, 24
SIZE = 128  # bytes of a value
EVENTS_MAX = 15_000  # of a producer: what it sends is written down, and judged
SEND_S, PROCESS_S = 120.0, 180.0
# All events are handed over at once, and on a slow machine the last wait for all others: who is too
# slow must run out of `SEND_S`, which is no broken promise, before the client gives any up.
PATIENT_MS = int(PRODUCERS * SEND_S * 1000)
STUCK_MS = 60_000.0  # each of so many processes may get little of a processor
BATCH = 500
HEARTBEAT = "group.consumer.heartbeat.interval.ms"
OWN = "each consumer has a partition of its own"


def steps(run: Run) -> None:
    """Let producers send as fast as they are answered, and a group process all of it."""
    run.make_topic()
    group = Group(run, "consumers", CONSUMER, batch=BATCH)
    group.start_several(MEMBERS)
    idle = sum(not member.told.begun for member in group.members)
    run.check(OWN, f"all {MEMBERS}", f"{MEMBERS - idle} of {MEMBERS}", kept=idle == 0)
    given_up = revocations(group)  # while they shared them out
    group.begin_calm(STUCK_MS)
    senders = [start(run, number) for number in range(1, PRODUCERS + 1)]
    for sender in senders:
        sender.wait(SEND_S)
    taken = expect_taken(run, senders)
    for sender in senders:
        group.wait_processed(sender, PROCESS_S)
    processed_ms = time.monotonic() * 1000
    group.end_calm()
    expect_once(run, group, taken, given_up)
    run.tables.append(table_of(run, senders, processed_ms))
    group.leave(*group.members)
    group.wait_looked()


def expect_taken(run: Run, senders: Sequence[Worker]) -> int:
    """Check that all was sent that had to be, and is acknowledged; how many were."""
    wanted = len(senders) * EVENTS_MAX
    sent = sum(sender.tail.poll().count(Send) for sender in senders)
    taken = sum(sender.tail.count(Acknowledged) for sender in senders)
    run.check(
        "every event is acknowledged",
        f"{wanted:,}",
        f"{taken:,} of {sent:,}",
        kept=wanted == sent == taken,
        late=True,
    )
    return taken


def revocations(group: Group) -> int:
    return sum(member.told.revocations for member in group.all)


def expect_once(run: Run, group: Group, taken: int, given_up: int) -> None:
    """Check that the group has processed each event once.

    `given_up`: how often a member had lost a partition before the first event.

    Nobody is hurt, so nothing need be done again; but a member that a slow machine keeps from
    asking for longer than it may is thrown out, and then what it had not committed is.
    """
    processed = sum(member.told.processed.total() for member in group.all)
    taken_away = revocations(group) - given_up
    run.check(
        "every event is processed once",
        f"{taken:,}",
        f"{processed:,}; members lost a partition {taken_away} times",
        kept=processed == taken or (processed > taken and taken_away > 0),
        late=True,
    )


def start(run: Run, number: int) -> Worker:
    return run.start_producer(
        f"producer-{number}",
        rate=0,
        size=SIZE,
        max_messages=EVENTS_MAX,
        keys=len(run.partitions),
        delivery_timeout_ms=PATIENT_MS,
        config=["linger.ms=5", PIPELINED],  # nobody is hurt
    )


def table_of(run: Run, senders: Sequence[Worker], processed_ms: float) -> Table:
    """Return both sides' figures, from the first event to the last."""
    begin_ms, end_ms, count = spell_of(events_of([sender.history for sender in senders]))
    sides = {f"{PRODUCERS} producers": end_ms, f"{MEMBERS} consumers": processed_ms}
    rows = []
    for name, until_ms in sides.items():
        took_s = max(until_ms - begin_ms, 1.0) / 1000
        rate = count / took_s
        rows.append(
            [name, f"{count:,}", f"{took_s:.1f}", f"{rate:,.0f}", f"{rate * SIZE / 1e6:,.2f}"]
        )
    copies = run.parameters.replication_factor
    return Table(
        title=f"{len(run.partitions)} partitions, events of {SIZE} bytes, "
        f"acks={run.parameters.acks}, {copies} {'copy' if copies == 1 else 'copies'}",
        header=["side", "events", "s", "events a second", "MB a second"],
        rows=rows,
        note="From the first event that was sent to the last acknowledgement, and to the last "
        "event's having been processed. Measured, not asserted. All of these clients are processes "
        "of this machine which write each event down to be judged: so the figures are what they "
        "get through, and brokers alone get through far more.",
    )


SCENARIO = Scenario(
    name="throughput",
    summary="What a dozen producers and a group of two dozen consumers get through.",
    text=(
        "Twelve producers send events of 128 bytes to 24 partitions as fast as they are answered, "
        "and a group of 24 consumers processes them: once with acks=all and three copies, once "
        "with acks=1 and one copy. The report has events and megabytes a second of both sides: "
        "measured, not asserted. What is checked is that everything is acknowledged, and processed "
        "once. In the control there are twelve partitions, and half of the consumers have none."
    ),
    defaults=Parameters(
        commits=Commits.AFTER,
        partitions=MEMBERS,
        # So many processes are busier than a lab's short session allows for; nobody dies here.
        # And librdkafka gives a connection up when a heartbeat has waited behind a commit for two
        # intervals. It sends that commit once more over another one, where later ones follow; who
        # reads the first connection then takes the old commit last, and the offset goes back.
        config={GROUP_SESSION: "45000", HEARTBEAT: "5000"},
    ),
    parts=(
        Part(name="main", title="acks=all, three copies", steps=steps),
        Part(
            name="one-copy",
            title="acks=1, one copy",
            steps=steps,
            change={"acks": "1", "replication_factor": 1, "min_isr": 1},
        ),
        Part(
            name="control",
            title="Control: fewer partitions than consumers",
            steps=steps,
            change={"partitions": MEMBERS // 2},
            breaks_check=OWN,
        ),
    ),
    fixed=frozenset({"acks", "min_isr", "partitions", "replication_factor", "signal"}),
)
