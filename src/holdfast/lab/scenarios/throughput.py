"""What a dozen producers and a group of two dozen consumers get through.

What is measured are figures of a machine and an hour, and of clients that write everything down;
that all of it is acknowledged, and processed by the group, is checked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.judge.groups.history import Processed
from holdfast.judge.groups.verdict import Commits
from holdfast.judge.history import Acknowledged, Event, Send
from holdfast.lab.evidence import events_of
from holdfast.lab.group import Group
from holdfast.lab.parameters import GROUP_SESSION, PIPELINED, Parameters
from holdfast.lab.report import Curve, Series, Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import NOBODY, Part, Scenario
from holdfast.lab.steps.groups import CONSUMER
from holdfast.lab.steps.measures import spot
from holdfast.lab.workload_processes import Worker

PRODUCERS, MEMBERS = 12, 24
SIZE = 128  # bytes of a value
EVENTS_MAX = 15_000  # of a producer: what it sends is written down, and judged
READY_S, SEND_S, PROCESS_S = 120.0, 120.0, 180.0
# All events are handed over at once, and on a slow machine the last wait for all others: who is too
# slow must run out of `SEND_S`, which is no broken promise, before the client gives any up.
PATIENT_MS = int(PRODUCERS * SEND_S * 1000)
STUCK_MS = 60_000.0  # each of so many processes may get little of a processor
BATCH = 500
SLICES = 10  # of the time of each side, in which a rate is drawn
HEARTBEAT = "group.consumer.heartbeat.interval.ms"
OWN = "each consumer has a partition of its own"


class Spell(NamedTuple):
    """When the first event was sent, and when each was done with, in order."""

    begin_ms: float
    done_ms: Sequence[float]

    @property
    def events(self) -> int:
        return len(self.done_ms)

    @property
    def took_s(self) -> float:
        end_ms = self.done_ms[-1] if self.done_ms else self.begin_ms
        return max(end_ms - self.begin_ms, 1.0) / 1000


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
    begin_ms = begin_together(run, senders)
    for sender in senders:
        sender.wait(SEND_S)
    taken = expect_taken(run, senders)
    for sender in senders:
        group.wait_processed(sender, PROCESS_S)
    group.end_calm()
    expect_once(run, group, taken, given_up)
    group.leave(*group.members)
    group.wait_looked()
    histories = [worker.history for worker in (*senders, *group.all)]
    run.tables.append(table_of(run, spells(events_of(histories), begin_ms)))


def begin_together(run: Run, senders: Sequence[Worker]) -> float:
    """Let producers go once each of them serves; return when, in monotonic ms.

    By then each has had an event of every partition acknowledged: it has begun, and is connected to
    all leaders. Else the first ones would be measured while processes of others are being started.
    """
    first = len(run.partitions)
    for sender in senders:
        sender.tell(str(first))
    run.wait(
        f"{len(senders)} producers to be ready",
        lambda: all(sender.tail.poll().count(Acknowledged) >= first for sender in senders),
        READY_S,
    )
    begin_ms = time.monotonic() * 1000
    for sender in senders:
        sender.tell(str(EVENTS_MAX))
    return begin_ms


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
        gated=True,
        keys=len(run.partitions),
        delivery_timeout_ms=PATIENT_MS,
        config=["linger.ms=5", PIPELINED],  # nobody is hurt
    )


def spells(events: Iterable[Event], begin_ms: float) -> tuple[Spell, Spell]:
    """Return how what was sent since fared: until acknowledged, and until first processed.

    `events` in the order of the clock. By the events' own times: the lab looks later.
    """
    unanswered: set[str] = set()
    undone: set[str | None] = set()
    first_ms: float | None = None
    answered_ms: list[float] = []
    done_ms: list[float] = []
    for event in events:
        if isinstance(event, Send):
            if event.at_ms >= begin_ms:
                first_ms = event.at_ms if first_ms is None else first_ms
                unanswered.add(event.id)
                undone.add(event.id)
        elif isinstance(event, Acknowledged) and event.id in unanswered:
            unanswered.remove(event.id)
            answered_ms.append(event.at_ms)
        elif isinstance(event, Processed) and event.id in undone:
            undone.remove(event.id)
            done_ms.append(event.at_ms)
    since_ms = begin_ms if first_ms is None else first_ms
    return Spell(since_ms, answered_ms), Spell(since_ms, done_ms)


def table_of(run: Run, both: Iterable[Spell]) -> Table:
    """Return both sides' figures, from the first event to the last."""
    sides = dict(zip((f"{PRODUCERS} producers", f"{MEMBERS} consumers"), both, strict=True))
    rows = []
    for name, spell in sides.items():
        rate = spell.events / spell.took_s
        rows.append(
            [
                name,
                f"{spell.events:,}",
                f"{spell.took_s:.1f}",
                f"{rate:,.0f}",
                f"{rate * SIZE / 1e6:,.2f}",
            ]
        )
    copies = run.parameters.replication_factor
    return Table(
        title=f"{len(run.partitions)} partitions, events of {SIZE} bytes, "
        f"acks={run.parameters.acks}, {copies} {'copy' if copies == 1 else 'copies'}",
        header=["side", "events", "s", "events a second", "MB a second"],
        rows=rows,
        note="Of what was sent once all producers were connected and let go together: from the "
        "first event to the last acknowledgement, and to the last event's having been processed, "
        "by the events' own times. Measured, not asserted. All of these clients are processes "
        "of this machine which write each event down to be judged: so the figures are what they "
        "get through, and brokers alone get through far more.",
        curves=curves_of(sides),
    )


def curves_of(sides: Mapping[str, Spell]) -> list[Curve]:
    """Return the events a second over the time that each side took, a tenth of it at a time."""
    series = []
    for name, spell in sides.items():
        width_s = spell.took_s / SLICES
        counts = Counter(
            min(int((at_ms - spell.begin_ms) / 1000 / width_s), SLICES - 1)
            for at_ms in spell.done_ms
        )
        rates = [(index + 0.5, counts[index] / width_s) for index in range(SLICES)]
        series.append(Series(name, [spot(middle * width_s, [rate]) for middle, rate in rates]))
    return [
        Curve(
            title="Events a second, from the first event to the last",
            x="seconds since the first event",
            y="events a second",
            series=[each for each in series if sides[each.name].events],
            note="means of tenths of each side's time.",
        )
    ]


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
        Part(name="main", title="acks=all, three copies", steps=steps, hurts=NOBODY),
        Part(
            name="one-copy",
            title="acks=1, one copy",
            steps=steps,
            change={"acks": "1", "replication_factor": 1, "min_isr": 1},
            hurts=NOBODY,
        ),
        Part(
            name="control",
            title="Control: fewer partitions than consumers",
            steps=steps,
            change={"partitions": MEMBERS // 2},
            breaks_check=OWN,
            hurts=NOBODY,
        ),
    ),
    fixed=frozenset({"acks", "min_isr", "partitions", "replication_factor", "signal"}),
)
