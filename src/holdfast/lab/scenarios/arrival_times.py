"""How long an event takes from its producer to a consumer, at fixed rates, and while a broker dies.

What is measured are figures of a machine and an hour; that events arrive at all is checked.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.judge.history import Delivered, Event, Refused, Send
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Curve, Series, Table
from holdfast.lab.report.figures import AT_LEAST, FEW, NONE
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.measures import figures, known_percentile, spot
from holdfast.lab.steps.usual import bring_back, expect_consumed
from holdfast.lab.steps.wants import without

RATES = (50, 200, 800)  # events a second
VICTIM = 2  # leads one partition of three, and follows in the others
# Whose times they are. librdkafka's reader is asked for many at once, and waits for them: a median
# of its times is that wait.
READER = "raw-reader"
IN_PEACE = "in peace"
UNDER_FAULT = "under-fault"  # the producer beside which a broker dies
ARRIVES = "while a broker is dead"
# A record waits for the dead broker to be back rather than to be given up.
PATIENT: Mapping[str, Any] = {"delivery_timeout_ms": 120_000, "config": "linger.ms=0"}
HEADER = ("sent", "a second", "events", "read", "p50 ms", "p99 ms", "p99.9 ms", "longest ms")
INTERRUPTED = "A line is interrupted where nobody can tell its percentile."
PERCENTILES = {"p50": 500, "p99": 990, "p99.9": 999}

Window = tuple[float, float]


def steps(run: Run) -> None:
    """Measure each rate in peace, and one of them while a broker dies, is dead, and comes back."""
    run.make_topic()
    reader = run.start_readers()
    windows: dict[str, Window] = {}
    for rate in RATES:
        sender = run.start_producer(f"rate-{rate}", **{**PATIENT, "rate": rate})
        run.must_flow(sender)
        begin_ms = now_ms()
        run.steady(sender)
        windows[f"{IN_PEACE}, {rate} a second"] = begin_ms, now_ms()
        sender.stop()
    expect_consumed(run, reader, IN_PEACE, begin_ms)

    sender = run.start_producer(UNDER_FAULT, **PATIENT)
    run.must_flow(sender)
    run.steady(sender)
    killed_ms = run.fault("KILL", VICTIM)
    left = without(run.replicas, {VICTIM})
    run.expect(f"{VICTIM} is dead", left, run.parameters.noticed_s)
    dead_ms = now_ms()
    if expect_consumed(run, reader, ARRIVES):
        run.expect_flow(sender, f"{sender.name} is acknowledged, {ARRIVES}", WORK_S)
    run.steady(sender)
    back_ms = now_ms()
    bring_back(run, VICTIM)
    whole_ms = now_ms()
    run.steady(sender)
    expect_consumed(run, reader, f"{VICTIM} is back", whole_ms)
    at_rate = f"{run.parameters.rate:g} a second"
    windows |= {
        f"a broker dies, {at_rate}": (killed_ms, dead_ms),
        f"it is dead, {at_rate}": (dead_ms, back_ms),
        f"it comes back, {at_rate}": (back_ms, whole_ms),
        f"it is back, {at_rate}": (whole_ms, now_ms()),
    }
    run.stop_workers()
    found = arrivals(events_of(sorted(run.history.glob("*.jsonl"))), windows)
    rows = [each.row(name) for name, each in found.items()]
    expect_peace_read(run, rows)
    run.tables.append(
        Table(
            title=f"From the producer to a consumer, acks={run.parameters.acks}",
            header=list(HEADER),
            rows=rows,
            note="From handing an event to the producer to a consumer's having it, by one clock: "
            "one that notes each answer as it comes, and asks again. Measured, not asserted: the "
            "figures are those of this machine, just then, at the rate that it reached. What "
            "was never read has waited until the reader read its last, at least: "
            f"{AT_LEAST}, where that decides. {FEW}",
            curves=curves_of(found),
        )
    )


@dataclass(frozen=True, slots=True)
class Arrived:
    """What was sent in one window, and how long what was read of it took."""

    window: Window
    sent: int
    took_ms: Sequence[float]
    waited_ms: Sequence[float] = ()  # of what was not, how long at least

    @property
    def rate(self) -> float | None:
        """The rate that was reached: what was asked for is no figure."""
        begin_ms, end_ms = self.window
        return self.sent / (end_ms - begin_ms) * 1000 if end_ms > begin_ms else None

    def row(self, name: str) -> list[str]:
        rate = NONE if self.rate is None else f"{self.rate:,.0f}"
        _, *times = figures(self.took_ms, self.waited_ms)
        return [name, rate, f"{self.sent:,}", f"{len(self.took_ms):,}", *times]


def arrivals(events: Iterable[Event], windows: Mapping[str, Window]) -> dict[str, Arrived]:
    """Return for each window how long what was sent in it took to be read first.

    What was never read has waited until the reader read its last, at least; who was refused has had
    an answer. `events` in the order of the clock.
    """
    sent: dict[str, float] = {}
    counts: Counter[str] = Counter()
    took: dict[str, list[float]] = defaultdict(list)
    waited: dict[str, list[float]] = defaultdict(list)
    last_ms = 0.0
    for event in events:
        if isinstance(event, Send):
            sent[event.id] = event.at_ms
            counts.update(windows_of(event.at_ms, windows))
        elif isinstance(event, Refused):
            sent.pop(event.id, None)
        elif isinstance(event, Delivered) and event.process == READER:
            last_ms = event.at_ms
            if event.id in sent:
                at_ms = sent.pop(event.id)
                for name in windows_of(at_ms, windows):
                    took[name].append(event.at_ms - at_ms)
    for at_ms in sent.values():
        for name in windows_of(at_ms, windows):
            waited[name].append(max(0.0, last_ms - at_ms))
    return {
        name: Arrived(window, counts[name], took[name], waited[name])
        for name, window in windows.items()
    }


def curves_of(found: Mapping[str, Arrived]) -> list[Curve]:
    """Return what was measured in peace over the rate, and the stretches of a death over time."""
    return [
        Curve(
            title="From the producer to a consumer, in peace",
            x="events a second",
            y="ms",
            series=lines(
                (each.rate and round(each.rate), each)
                for name, each in found.items()
                if name.startswith(IN_PEACE)
            ),
            note=f"by the rate that was reached. {INTERRUPTED}",
        ),
        Curve(
            title="From the producer to a consumer, while a broker dies and comes back",
            x="seconds since its death",
            y="ms",
            series=lines(middles(each for n, each in found.items() if not n.startswith(IN_PEACE))),
            note="by the middle of each stretch: it dies, is dead, comes back, and is back. "
            f"{INTERRUPTED}",
        ),
    ]


Place = tuple[float | None, Arrived]


def lines(places: Iterable[Place]) -> list[Series]:
    """Return a line for each percentile that there is somewhere."""
    known = [(x, each) for x, each in places if x is not None]
    found = []
    for name, per_mille in PERCENTILES.items():
        values = [
            (x, known_percentile(each.took_ms, each.waited_ms, per_mille)) for x, each in known
        ]
        found.append(Series(name, [spot(x, [value]) for x, value in values]))
    return [each for each in found if each.known]


def middles(stretches: Iterable[Arrived]) -> Iterator[Place]:
    """Yield the middle of each stretch, in seconds since the first one's beginning."""
    since_ms: float | None = None
    for each in stretches:
        begin_ms, end_ms = each.window
        since_ms = begin_ms if since_ms is None else since_ms
        yield ((begin_ms + end_ms) / 2 - since_ms) / 1000, each


def expect_peace_read(run: Run, rows: Iterable[list[str]]) -> None:
    """Check that all that was sent in peace was read: no death excuses what is lost of that."""
    peace = [row for row in rows if row[0].startswith(IN_PEACE)]
    unread = [f"{name}: {read} of {count}" for name, _, count, read, *_ in peace if read != count]
    run.check(
        "what was sent in peace is read",
        "all of it",
        "; ".join(unread) or "all of it",
        kept=not unread,
        late=True,
    )


def windows_of(at_ms: float, windows: Mapping[str, Window]) -> list[str]:
    return [name for name, (begin_ms, end_ms) in windows.items() if begin_ms <= at_ms < end_ms]


def now_ms() -> float:
    return time.monotonic() * 1000


SCENARIO = Scenario(
    name="arrival-times",
    summary="How long events take to a consumer, at fixed rates, and while a broker dies.",
    text=(
        "A producer sends at fixed rates in peace, and then while a broker is killed, is dead, and "
        "comes back. For each stretch the report has the rate that was reached, and percentiles of "
        "the time from handing an event to the producer to a consumer's having it, with acks=all "
        "and with acks=1. They are measured, not asserted; what is checked is that events go on "
        "arriving, and what was promised of them. In the control min.insync.replicas is 3: nothing "
        "arrives while a broker is dead."
    ),
    parts=(
        Part(name="main", title="acks=all", steps=steps),
        Part(
            name="acks-1",
            title="acks=1",
            steps=steps,
            change={"acks": "1", "retries": 0},
            counted=frozenset({Anomaly.LOST, Anomaly.DUPLICATED}),
            counted_of=frozenset({UNDER_FAULT}),
            because=(
                "with acks=1 what its leader alone has dies with it, and a client that is not "
                "idempotent may send the next one what the former one had taken: this part is "
                "about the time that it takes."
            ),
        ),
        Part(
            name="control",
            title="Control: min ISR 3, so no broker can be spared",
            steps=steps,
            change={"min_isr": 3},
            breaks_check=ARRIVES,
        ),
    ),
    defaults=Parameters(),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
