"""What a second carries, by the size of an event, up to the largest that the topic takes.

What is measured are figures of a machine and an hour; that every size up to the limit is
acknowledged and read, and none beyond it, is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from holdfast.judge.history import Acknowledged, Refused, Send
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import PIPELINED, Parameters
from holdfast.lab.report import Table
from holdfast.lab.report.figures import NONE
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.measures import spell_of
from holdfast.lab.steps.usual import expect_all_read
from holdfast.lab.workload_processes import Worker

SIZES = (100, 1_000, 10_000, 100_000, 900_000, 5_000_000)  # bytes of a value
LIMIT = 6_000_000  # max.message.bytes of the topic; Kafka's own is a little more than a million
BEYOND = 7_000_000
BYTES_MAX = 20_000_000  # of one stretch: three replicas of all stay below a gigabyte
EVENTS_MAX = 10_000  # of one, too
WAYS = {"up": SIZES, "down": SIZES[::-1]}  # each size both early and late
WARM_UP = 1_000  # bytes of a value of the stretch that nodes have to get warm
SEND_S = 120.0
READ_S = 60.0  # behind the last acknowledgement; the consumer has followed so far
HEADER = [f"{way}: {what} a second" for way in WAYS for what in ("events", "MB")]
TAKEN = "every event is acknowledged"
TOO_LARGE = "MESSAGE_TOO_LARGE"


def steps(run: Run, limit: int | None) -> None:
    """Send events of each size as fast as they are taken; then one that is too large."""
    run.make_topic(configs={} if limit is None else {"max.message.bytes": str(limit)})
    reader = run.start_reader(config=f"fetch.message.max.bytes={LIMIT}")
    senders = send_all(run)
    all_of = [sender for each in senders.values() for sender in each]
    expect_all_read(run, reader, all_of, "events of every size are read", READ_S)
    outcome = run.raw_client("beyond", acks="all", size=BEYOND).send(0)
    error = outcome.error if isinstance(outcome, Refused) else outcome.KIND
    run.check(
        f"an event of {BEYOND:,} bytes", f"refused, {TOO_LARGE}", error, kept=error == TOO_LARGE
    )
    run.tables.append(
        Table(
            title=f"What a second carries, by the size of an event, acks={run.parameters.acks}",
            header=["bytes of an event", "events", *HEADER],
            rows=rows_of(senders),
            note="One producer at a time, from its first event to its last acknowledgement. Nodes "
            f"are warm: a stretch of {WARM_UP:,} bytes that is not counted went before, and then "
            "all sizes upwards and all downwards. Where the two differ widely it is not the size "
            "alone that was measured. Measured, not asserted: the figures are those of this "
            "machine, just then.",
        )
    )


def send_all(run: Run) -> Mapping[int, Sequence[Worker]]:
    """Send events of each size, up and then down; who has, by size in the order of the ways.

    Nodes that have just begun are slow for a while, the first size not for its own sake.
    """
    send(run, WARM_UP, "warm-up")
    senders: dict[int, list[Worker]] = {size: [] for size in SIZES}
    for way, sizes in WAYS.items():
        for size in sizes:
            senders[size].append(send(run, size, way))
    return senders


def send(run: Run, size: int, way: str) -> Worker:
    """Send events of a size, or so many bytes; check that all are acknowledged.

    For half of a stretch: each is sent twice.
    """
    worker = run.start_producer(
        f"{way}-{size}",
        rate=0,
        size=size,
        duration=run.parameters.duration_s / len(WAYS),
        max_messages=max(1, min(BYTES_MAX // size, EVENTS_MAX)),
        config=[f"message.max.bytes={LIMIT}", PIPELINED],  # nobody is hurt
    )
    worker.wait(run.parameters.duration_s + SEND_S)
    tail = worker.tail.poll()
    sent, acknowledged = tail.count(Send), tail.count(Acknowledged)
    run.check(
        f"{size:,} bytes: {TAKEN}, {way}",
        f"all of {sent:,}",
        f"{acknowledged:,}",
        kept=sent == acknowledged > 0,
    )
    return worker


def rows_of(senders: Mapping[int, Sequence[Worker]]) -> list[list[str]]:
    """Return what each size came to, for people."""
    rows = []
    for size, workers in senders.items():
        counts, shown = 0, []
        for worker in workers:
            begin_ms, end_ms, count = spell_of(events_of([worker.history]))
            counts += count
            rate = count / max(end_ms - begin_ms, 1.0) * 1000
            shown += [f"{rate:,.0f}", f"{rate * size / 1e6:,.1f}"] if count else [NONE, NONE]
        rows.append([f"{size:,}", f"{counts:,}", *shown])
    return rows


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
        Part(name="main", title="Up to 6 MB", steps=partial(steps, limit=LIMIT)),
        Part(
            name="control",
            title="Control: the limit that a topic has by itself",
            steps=partial(steps, limit=None),
            breaks_check=f"{SIZES[-1]:,} bytes: {TAKEN}",
        ),
    ),
    fixed=frozenset({"acks", "signal"}),
)
