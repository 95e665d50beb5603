"""What a second carries, by the size of an event, up to the largest that the topic takes.

What is measured are figures of a machine and an hour; that every size up to the limit is
acknowledged and read, and none beyond it, is checked.
"""

from __future__ import annotations

from functools import partial

from holdfast.judge.history import Acknowledged, Refused, Send
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import PIPELINED, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.measures import spell_of
from holdfast.lab.steps.usual import expect_all_read
from holdfast.lab.workload_processes import Worker

SIZES = (100, 1_000, 10_000, 100_000, 900_000, 5_000_000)  # bytes of a value
LIMIT = 6_000_000  # max.message.bytes of the topic; Kafka's own is a little more than a million
BEYOND = 7_000_000
BYTES_MAX = 40_000_000  # of one size: three replicas of all sizes stay below a gigabyte
EVENTS_MAX = 20_000
SEND_S = 120.0
READ_S = 60.0  # behind the last acknowledgement; the consumer has followed so far
TAKEN = "every event is acknowledged"
TOO_LARGE = "MESSAGE_TOO_LARGE"


def steps(run: Run, limit: int | None) -> None:
    """Send events of each size as fast as they are taken; then one that is too large."""
    run.make_topic(configs={} if limit is None else {"max.message.bytes": str(limit)})
    reader = run.start_reader(config=f"fetch.message.max.bytes={LIMIT}")
    senders = {size: send(run, size) for size in SIZES}
    rows = [row_of(size, sender) for size, sender in senders.items()]
    expect_all_read(run, reader, senders.values(), "events of every size are read", READ_S)
    outcome = run.raw_client("beyond", acks="all", size=BEYOND).send(0)
    error = outcome.error if isinstance(outcome, Refused) else outcome.KIND
    run.check(
        f"an event of {BEYOND:,} bytes", f"refused, {TOO_LARGE}", error, kept=error == TOO_LARGE
    )
    run.tables.append(
        Table(
            title=f"What a second carries, by the size of an event, acks={run.parameters.acks}",
            header=["bytes of an event", "events", "s", "events a second", "MB a second"],
            rows=rows,
            note="One producer, from its first event to its last acknowledgement. Measured, not "
            "asserted: the figures are those of this machine, just then.",
        )
    )


def send(run: Run, size: int) -> Worker:
    """Send events of a size for a stretch, or so many bytes; check that all are acknowledged."""
    worker = run.start_producer(
        f"size-{size}",
        rate=0,
        size=size,
        duration=run.parameters.duration_s,
        max_messages=max(1, min(BYTES_MAX // size, EVENTS_MAX)),
        config=[f"message.max.bytes={LIMIT}", PIPELINED],  # nobody is hurt
    )
    worker.wait(run.parameters.duration_s + SEND_S)
    tail = worker.tail.poll()
    sent, acknowledged = tail.count(Send), tail.count(Acknowledged)
    run.check(
        f"{size:,} bytes: {TAKEN}",
        f"all of {sent:,}",
        f"{acknowledged:,}",
        kept=sent == acknowledged > 0,
    )
    return worker


def row_of(size: int, worker: Worker) -> list[str]:
    """Return what one size came to, for people."""
    begin_ms, end_ms, count = spell_of(events_of([worker.history]))
    if count == 0:
        return [f"{size:,}", "0", "-", "-", "-"]
    took_s = max(end_ms - begin_ms, 1.0) / 1000
    rate = count / took_s
    return [f"{size:,}", f"{count:,}", f"{took_s:.1f}", f"{rate:,.0f}", f"{rate * size / 1e6:,.1f}"]


SCENARIO = Scenario(
    name="payload-curve",
    summary="What a second carries, by the size of an event, and what is too large.",
    text=(
        "A producer sends events of 100 bytes, of 5 MB, and of sizes in between, as fast as they "
        "are taken. The report has events and megabytes a second for each size: measured, not "
        "asserted. What is checked is that each is acknowledged, and read by a consumer, and that "
        "one beyond the topic's max.message.bytes is refused for certain, and is not in the log. "
        "In the control the topic has Kafka's own limit, and 5 MB are too large."
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
