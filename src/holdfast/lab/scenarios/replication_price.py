"""What more copies of an event cost, in disk, in bytes between brokers and in time; and buy."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.judge.history import Acknowledged, Event, Send
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.report.figures import FEW
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.measures import bytes_between, figures, grown, replica_sizes
from holdfast.lab.steps.moving import Mover
from holdfast.lab.steps.usual import bring_back
from holdfast.lab.steps.wants import preferred, without

COPIES = (1, 3, 5)
SIZE = 1000  # bytes of a value
VICTIM = 2  # leads one partition of five
GOES_ON = "every partition goes on while a broker is dead"
DEAD_S = 15.0  # without an acknowledgement; a session is over by then
# An event waits for the dead broker to be back rather than to be given up.
PATIENT: dict[str, Any] = {"delivery_timeout_ms": 120_000, "size": SIZE}


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a stretch with so many copies has come to. Bytes; of the log: of one copy of each."""

    copies: int
    log: int
    disks: int
    between: int | None  # brokers; None: not counted
    took_ms: list[float]  # from handing an event to the producer to its acknowledgement

    def row(self) -> list[str]:
        log = max(1, self.log)  # that there is none is a failed check
        sent = "not counted" if self.between is None else f"{self.between / log:.2f}"
        count, median, most, *_ = figures(self.took_ms)
        return [str(self.copies), count, f"{self.disks / log:.2f}", sent, median, most]


def steps(run: Run, copies: Sequence[int]) -> None:
    """Give a topic one copy, then more; measure each stretch. Then a broker dies."""
    rings = run.parameters.assignment()
    run.make_topic({p: nodes[: copies[0]] for p, nodes in rings.items()})
    run.start_readers()
    stretches = [measured(run, copies[0])]
    for count in copies[1:]:
        target = {p: nodes[:count] for p, nodes in rings.items()}
        mover = Mover(run)
        mover.begin(target)
        mover.wait()
        run.expect(f"{count} copies of each partition", preferred(target), SETTLE_S)
        stretches.append(measured(run, count))
    run.tables.append(
        Table(
            title=f"What copies cost, acks={run.parameters.acks}",
            header=[
                "copies",
                "events",
                "bytes on disks, by byte of the log",
                "bytes between brokers, by byte of the log",
                "acknowledged, p50 ms",
                "p99 ms",
            ],
            rows=[each.row() for each in stretches],
            note=f"Events of {SIZE:,} bytes, {run.parameters.rate:g} a second. Bytes between "
            "brokers are what the kernel has counted on connections to another broker's port, "
            "requests' answers and all. Times are measured, not asserted: they are those of this "
            "machine, just then. " + FEW,
        )
    )
    sender = run.start_producer("under-fault", **PATIENT)
    run.must_flow(sender)
    run.fault("KILL", VICTIM)
    left = without(run.replicas, {VICTIM})
    run.expect(f"{VICTIM} is dead", left, run.parameters.noticed_s)
    run.expect_flow(sender, GOES_ON, DEAD_S)
    bring_back(run, VICTIM)
    run.expect_flow(sender, f"{VICTIM} is back", SETTLE_S)


def measured(run: Run, copies: int) -> Stretch:
    """Send for a stretch at the run's rate; return what it has come to, once all copies have it."""
    before, between = wait_copied(run, copies), bytes_between(run)
    worker = run.start_producer(f"copies-{copies}", **PATIENT)
    run.must_flow(worker)  # a client that has just begun looks for its leaders first
    since_ms = time.monotonic() * 1000
    run.steady(worker)
    worker.stop()
    after = wait_copied(run, copies)
    sent = grown(between, bytes_between(run))
    log, disks = ends_of(run, after), sum(after.values())
    log -= ends_of(run, before)
    disks -= sum(before.values())
    run.check(
        f"{copies} copies: bytes on disks",
        f"{copies} times those of the log",
        f"{disks:,} of {log:,}",
        kept=disks == copies * log > 0,
        late=True,
    )
    return Stretch(copies, log, disks, sent, latencies(events_of([worker.history]), since_ms))


def ends_of(run: Run, sizes: dict[tuple[int, int], int]) -> int:
    """Return how many bytes the leaders' logs have together."""
    return sum(
        sizes.get((state.leader, partition), 0) for partition, state in run.view.partitions.items()
    )


def wait_copied(run: Run, copies: int) -> dict[tuple[int, int], int]:
    """Wait until so many replicas of each partition have as many bytes; by broker and partition."""
    sizes: dict[tuple[int, int], int] = {}

    def copied() -> bool:
        nonlocal sizes
        sizes = replica_sizes(run)
        each = [
            [s for (_, p), s in sizes.items() if p == partition] for partition in run.partitions
        ]
        return all(len(those) == copies and len(set(those)) == 1 for those in each)

    run.soon(copied, SETTLE_S)  # if not, the check says so
    return sizes


def latencies(events: Iterable[Event], since_ms: float) -> list[float]:
    """Return how long each event that was sent since took to be acknowledged, in ms."""
    sent: dict[str, float] = {}
    took: list[float] = []
    for event in events:
        if isinstance(event, Send) and event.at_ms >= since_ms:
            sent[event.id] = event.at_ms
        elif isinstance(event, Acknowledged) and event.id in sent:
            took.append(event.at_ms - sent[event.id])
    return took


SCENARIO = Scenario(
    name="replication-price",
    summary="What one, three and five copies of an event cost, and what they are good for.",
    text=(
        "A topic on five brokers has one copy of each partition, then three, then five. For each "
        "the report has the bytes on all disks and between brokers, by byte of the log, and how "
        "long an event takes to be acknowledged: measured, not asserted; that every copy has all "
        "of the log's bytes is checked. Then a broker dies, and every partition goes on. In the "
        "control there is one copy, and a partition waits for the dead broker."
    ),
    defaults=Parameters(brokers=5, partitions=5, replication_factor=5),
    parts=(
        Part(name="main", title="One, three and five copies", steps=partial(steps, copies=COPIES)),
        Part(
            name="control",
            title="Control: one copy",
            steps=partial(steps, copies=COPIES[:1]),
            change={"replication_factor": 1, "min_isr": 1},
            breaks_check=GOES_ON,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
