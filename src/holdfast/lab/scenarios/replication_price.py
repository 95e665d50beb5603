"""What more copies of an event cost, in disk, in bytes between brokers and in time; and buy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.judge.history import Event
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import PIPELINED, Parameters
from holdfast.lab.report import Curve, Series, Table
from holdfast.lab.report.figures import FEW
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.measures import (
    WARM_S,
    WARM_S_OTHERS,
    Went,
    bytes_between,
    grown,
    known_percentile,
    reach,
    replica_sizes,
    send_gated,
    spot,
    waits,
    warm_up,
)
from holdfast.lab.steps.moving import Mover
from holdfast.lab.steps.usual import bring_back
from holdfast.lab.steps.wants import preferred, without

COPIES = (5, 3, 1)
SIZE = 1000  # bytes of a value
WARM_EVENTS = 3_000  # of one stretch, at most: all copies of them are moved later
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
    waited_ms: Sequence[float] = ()  # of those that had none, how long at least

    @property
    def on_disks(self) -> float:
        return self.disks / max(1, self.log)  # that there is none is a failed check

    @property
    def carried(self) -> float | None:
        return None if self.between is None else self.between / max(1, self.log)

    def latency(self, per_mille: int) -> float | None:
        return known_percentile(self.took_ms, self.waited_ms, per_mille)


def steps(run: Run, copies: Sequence[int]) -> None:
    """Take copies of a topic away and add them again; measure each stretch. Then a broker dies."""
    rings = run.parameters.assignment()
    run.make_topic({p: nodes[: copies[0]] for p, nodes in rings.items()})
    run.start_readers()
    bound_s = WARM_S.get(run.parameters.engine, WARM_S_OTHERS)
    warmed = warm_up(partial(heat, run), bound_s)
    stretches = []
    for way, counts in {"down": copies, "up": copies[::-1]}.items():
        for count in counts:
            move_to(run, {p: nodes[:count] for p, nodes in rings.items()}, count)
            stretches.append(measured(run, count, way))
    run.tables.append(table_of(run.parameters, stretches, warmed))
    sender = run.start_producer("under-fault", **PATIENT)
    run.must_flow(sender)
    run.fault("KILL", VICTIM)
    left = without(run.replicas, {VICTIM})
    run.expect(f"{VICTIM} is dead", left, run.parameters.noticed_s)
    run.expect_flow(sender, GOES_ON, DEAD_S)
    bring_back(run, VICTIM)
    run.expect_flow(sender, f"{VICTIM} is back", SETTLE_S)


def heat(run: Run, name: str) -> Went:
    """Send as fast as is taken for a moment: events that nothing is measured of."""
    return send_gated(
        run,
        name,
        events=WARM_EVENTS,
        duration_s=run.parameters.duration_s / 2,
        bound_s=run.parameters.duration_s + SETTLE_S,
        **PATIENT,
        config=PIPELINED,
    )


def move_to(run: Run, target: Mapping[int, tuple[int, ...]], count: int) -> None:
    """Move the topic to these replicas, so many of each partition, if they are not those yet."""
    if target == run.replicas:
        return
    mover = Mover(run)
    mover.begin(target)
    mover.wait()
    run.expect(f"{count} copies of each partition", preferred(target), SETTLE_S)


def measured(run: Run, copies: int, way: str) -> Stretch:
    """Send for a stretch at the run's rate; return what it has come to, once all copies have it."""
    before, between = wait_copied(run, copies), bytes_between(run)
    worker = run.start_producer(f"copies-{copies}-{way}", **PATIENT)
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
        f"{copies} copies, {way}: bytes on disks",
        f"{copies} times those of the log",
        f"{disks:,} of {log:,}",
        kept=disks == copies * log > 0,
        late=True,
    )
    return Stretch(copies, log, disks, sent, *latencies(events_of([worker.history]), since_ms))


def table_of(parameters: Parameters, stretches: Iterable[Stretch], warmed: str) -> Table:
    """Return what copies have cost, for people: a row for each number of them."""
    by_copies: dict[int, list[Stretch]] = {}
    for each in sorted(stretches, key=lambda stretch: stretch.copies):
        by_copies.setdefault(each.copies, []).append(each)
    rows = [
        [
            str(copies),
            f"{sum(len(each.took_ms) for each in those):,}",
            reach([each.on_disks for each in those], 2),
            reach([each.carried for each in those], 2),
            reach([each.latency(500) for each in those], 1),
            reach([each.latency(990) for each in those], 1),
        ]
        for copies, those in by_copies.items()
    ]
    return Table(
        title=f"What copies cost, acks={parameters.acks}",
        header=[
            "copies",
            "events",
            "bytes on disks, by byte of the log",
            "bytes between brokers, by byte of the log",
            "acknowledged, p50 ms",
            "p99 ms",
        ],
        rows=rows,
        note=f"Events of {SIZE:,} bytes, {parameters.rate:g} a second, to warm nodes: {warmed} "
        "Copies were taken away, and then added again; where the two stretches differ, each is an "
        "end of what is told, and a dash where one of them has none. Who was not answered "
        "waits on: a percentile that depends on that is a dash, too. Bytes between brokers are "
        "what the kernel has counted on connections to another broker's port, both ways; a dash: "
        "not counted, as it has no ss, or a connection has ended meanwhile. Times are measured, "
        "not asserted: they are those of this machine, just then. " + FEW,
        curves=curves_of(by_copies),
    )


def curves_of(by_copies: Mapping[int, Sequence[Stretch]]) -> list[Curve]:
    """Return the same as curves over the number of copies."""

    def line(name: str, value: Callable[[Stretch], float | None]) -> Series:
        found = {n: [value(each) for each in those] for n, those in by_copies.items()}
        return Series(name, [spot(n, those) for n, those in found.items()])

    note = (
        "the mean of both stretches, and each of them as an end of the bar; no value where not "
        "both have one."
    )
    return [
        Curve(
            title="What copies cost in bytes",
            x="copies",
            y="bytes, by byte of the log",
            series=[
                line("on disks", lambda each: each.on_disks),
                line("between brokers", lambda each: each.carried),
            ],
            note=note,
        ),
        Curve(
            title="What copies cost in time",
            x="copies",
            y="ms to be acknowledged",
            series=[
                line("p50", lambda each: each.latency(500)),
                line("p99", lambda each: each.latency(990)),
            ],
            note=note,
        ),
    ]


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


def latencies(events: Iterable[Event], since_ms: float) -> tuple[list[float], list[float]]:
    """Return how long each event that was sent since took to be acknowledged, in ms.

    And how long those have waited that were not: until their client gave up, or said its last.
    """
    told = list(events)
    took: list[float] = []
    waited: list[float] = []
    for each in waits(told):
        if each.begin_ms >= since_ms and each.took_ms is not None:
            took.append(each.took_ms)
        elif each.begin_ms >= since_ms:
            until_ms = told[-1].at_ms if each.gave_up_ms is None else each.gave_up_ms
            waited.append(until_ms - each.begin_ms)
    return took, waited


SCENARIO = Scenario(
    name="replication-price",
    summary="What one, three and five copies of an event cost, and what they are good for.",
    text=(
        "A topic on five brokers has five copies of each partition, then three, then one, and then "
        "more again up to five, on nodes that are warm. For each number the report has the bytes "
        "on all disks and between brokers, by byte of the log, and how long an event takes to be "
        "acknowledged: measured, not asserted; that every copy has all of the log's bytes is "
        "checked. Then a broker dies, and every partition goes on. In the control there is one "
        "copy, and a partition waits for the dead broker."
    ),
    defaults=Parameters(brokers=5, partitions=5, replication_factor=5),
    parts=(
        Part(name="main", title="One, three and five copies", steps=partial(steps, copies=COPIES)),
        Part(
            name="control",
            title="Control: one copy",
            steps=partial(steps, copies=COPIES[-1:]),
            change={"replication_factor": 1, "min_isr": 1},
            breaks_check=GOES_ON,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
