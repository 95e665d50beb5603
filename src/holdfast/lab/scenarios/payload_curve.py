"""What a second carries, by the size of an event, up to the largest that the topic takes.

What is measured are figures of a machine and an hour; that every size up to the limit is
acknowledged and read, and none beyond it, is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.judge.history import Acknowledged, Refused, Send
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import PIPELINED, Parameters
from holdfast.lab.report import Curve, Series, Table
from holdfast.lab.report.figures import NONE
from holdfast.lab.run import Run
from holdfast.lab.scenario import NOBODY, Part, Scenario
from holdfast.lab.steps.measures import (
    WARM_S,
    WARM_S_OTHERS,
    Went,
    rate_of,
    send_gated,
    spell_of,
    spot,
    warm_up,
)
from holdfast.lab.steps.usual import expect_all_read

SIZES = (100, 1_000, 10_000, 100_000, 900_000, 5_000_000)  # bytes of a value
LIMIT = 6_000_000  # max.message.bytes of the topic
KAFKAS_LIMIT = 1_048_588  # Kafka's own; a cluster elsewhere may have another one
BEYOND = 7_000_000
BYTES_MAX = 20_000_000  # of one stretch: three replicas of all stay below a gigabyte
EVENTS_MAX = 10_000  # of one, too
WAYS = {"up": SIZES, "down": SIZES[::-1]}  # each size both early and late
WARM_UP = 1_000  # bytes of a value of the stretches that nodes have to get warm
SEND_S = 120.0
READ_S = 60.0  # behind the last acknowledgement; the consumer has followed so far
HEADER = [f"{way}: {what} a second" for way in WAYS for what in ("events", "MB")]
X_AXIS = "bytes of an event"
TAKEN = "every event is acknowledged"
TOO_LARGE = "MESSAGE_TOO_LARGE"


def steps(run: Run, limit: int) -> None:
    """Send events of each size as fast as they are taken; then one that is too large."""
    run.make_topic(configs={"max.message.bytes": str(limit)})
    reader = run.start_reader(config=f"fetch.message.max.bytes={LIMIT}")
    warmed, senders = send_all(run)
    all_of = [went.worker for each in senders.values() for went in each]
    expect_all_read(run, reader, all_of, "events of every size are read", READ_S)
    outcome = run.raw_client("beyond", acks="all", size=BEYOND).send(0)
    error = outcome.error if isinstance(outcome, Refused) else outcome.KIND
    run.check(
        f"an event of {BEYOND:,} bytes", f"refused, {TOO_LARGE}", error, kept=error == TOO_LARGE
    )
    found = {size: [fared(went) for went in each] for size, each in senders.items()}
    run.tables.append(table_of(run.parameters.acks, found, warmed))


def send_all(run: Run) -> tuple[str, Mapping[int, Sequence[Went]]]:
    """Send events of each size, up and then down, to warm nodes.

    Return how they were warmed, and who has sent, by size in the order of the ways. Nodes that have
    just begun are slow for a while, the first size not for its own sake.
    """
    bound_s = WARM_S.get(run.parameters.engine, WARM_S_OTHERS)
    warmed = warm_up(partial(send, run, WARM_UP), bound_s)
    senders: dict[int, list[Went]] = {size: [] for size in SIZES}
    for way, sizes in WAYS.items():
        for size in sizes:
            senders[size].append(send(run, size, way))
    return warmed, senders


def send(run: Run, size: int, way: str) -> Went:
    """Send events of a size, or so many bytes; check that all are acknowledged.

    For half of a stretch: each is sent twice.
    """
    went = send_gated(
        run,
        f"{way}-{size}",
        events=max(1, min(BYTES_MAX // size, EVENTS_MAX)),
        duration_s=run.parameters.duration_s / len(WAYS),
        bound_s=SEND_S,
        size=size,
        config=[f"message.max.bytes={LIMIT}", PIPELINED],  # nobody is hurt
    )
    tail = went.worker.tail.poll()
    sent, acknowledged = tail.count(Send), tail.count(Acknowledged)
    run.check(
        f"{size:,} bytes: {TAKEN}, {way}",
        f"all of {sent:,}",
        f"{acknowledged:,}",
        kept=sent == acknowledged > 0,
    )
    return went


class Fared(NamedTuple):
    """What came of one stretch; no rate where nothing was acknowledged."""

    events: int
    rate: float | None  # events a second


def fared(went: Went) -> Fared:
    _, _, count = spell_of(events_of([went.worker.history]), went.since_ms)
    return Fared(count, rate_of(went) if count else None)


def table_of(acks: str, found: Mapping[int, Sequence[Fared]], warmed: str) -> Table:
    """Return what each size came to, for people."""
    rows = []
    for size, stretches in found.items():
        shown: list[str] = []
        for each in stretches:
            if each.rate is None:
                shown += [NONE, NONE]
            else:
                shown += [f"{each.rate:,.0f}", f"{megabytes(size, each.rate):,.1f}"]
        rows.append([f"{size:,}", f"{sum(each.events for each in stretches):,}", *shown])
    return Table(
        title=f"What a second carries, by the size of an event, acks={acks}",
        header=[X_AXIS, "events", *HEADER],
        rows=rows,
        note="One producer at a time, once it has had an answer of every partition: from its next "
        "event to its last acknowledgement; all sizes "
        f"upwards, and then all downwards. {warmed} Where up and down differ widely it is not the "
        "size alone that was measured. Measured, not asserted: the figures are those of this "
        "machine, just then.",
        curves=curves_of(found),
    )


def curves_of(found: Mapping[int, Sequence[Fared]]) -> list[Curve]:
    """Return the same as curves over the size: what both ways had, as one value and its reach."""
    rates = {size: [each.rate for each in both] for size, both in found.items()}
    acknowledged = [spot(size, both) for size, both in rates.items()]
    carried = [
        spot(size, [None if each is None else megabytes(size, each) for each in both])
        for size, both in rates.items()
    ]
    if not any(acknowledged):
        return []
    note = (
        "the mean of both ways, and each of them as an end of the bar; no value where not both "
        "have one."
    )
    return [
        Curve(
            title="Megabytes a second, by the size of an event",
            x=X_AXIS,
            y="MB a second",
            series=[Series("carried", carried)],
            note=note,
        ),
        Curve(
            title="Events a second, by the size of an event",
            x=X_AXIS,
            y="events a second",
            series=[Series("acknowledged", acknowledged)],
            note=note,
        ),
    ]


def megabytes(size: int, rate: float) -> float:
    return size * rate / 1e6


SCENARIO = Scenario(
    name="payload-curve",
    summary="What a second carries, by the size of an event, and what is too large.",
    text=(
        "A producer sends events of 100 bytes, of 5 MB, and of sizes in between, as fast as they "
        "are taken: to nodes that are warm, from the smallest to the largest, and back. The report "
        "has events and megabytes a second for each size: measured, not asserted. What is checked "
        "is that each is acknowledged, and read by a consumer, and that one beyond the topic's "
        "max.message.bytes is refused for certain, and is not in the log. In the control the topic "
        "has Kafka's own limit, and 5 MB are too large."
    ),
    defaults=Parameters(),
    parts=(
        Part(name="main", title="Up to 6 MB", steps=partial(steps, limit=LIMIT), hurts=NOBODY),
        Part(
            name="control",
            title="Control: Kafka's own limit",
            steps=partial(steps, limit=KAFKAS_LIMIT),
            hurts=NOBODY,
            breaks_check=f"{SIZES[-1]:,} bytes: {TAKEN}",
        ),
    ),
    fixed=frozenset({"acks", "signal"}),
)
