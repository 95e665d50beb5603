"""What most scenarios do at one time or another: clients of every kind, and leaders as they were.

Owns steps that say nothing of a scenario's own question. What is hurt, and what must be seen then,
is the scenario's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run
from holdfast.lab.wants import names, preferred
from holdfast.lab.workload import Worker

READ_S = 30.0  # for a consumer to go on; librdkafka may wait 10 s between its attempts


@dataclass(frozen=True, slots=True)
class Clients:
    """What loads a run: a reliable producer, one without patience, and a consumer."""

    producer: Worker
    raw: Worker
    reader: Worker

    @property
    def senders(self) -> list[Worker]:
        return [self.producer, self.raw]


def start_clients(run: Run) -> Clients:
    """Start clients of every kind, and wait until both producers flow in every partition.

    A reader that notes every high watermark is among them. LabError: a producer does not flow.
    """
    clients = Clients(run.start_producer(), run.start_raw(), run.start_reader())
    run.start_raw_reader()
    for sender in clients.senders:
        run.must_flow(sender)
    return clients


def elect_preferred(
    run: Run,
    assignment: Mapping[int, Sequence[int]],
    producer: Worker,
    when: str = "after a preferred election",
) -> None:
    """Give leadership back to each partition's first replica, and check that events flow there."""
    run.elect()
    run.expect(when, preferred(assignment))
    run.expect_flow(producer, when, 20.0)


def expect_consumed(run: Run, reader: Worker, when: str, since_ms: float | None = None) -> None:
    """Check that a consumer receives events of every partition after this moment; None: now."""
    since_ms = time.monotonic() * 1000 if since_ms is None else since_ms

    def silent() -> list[int]:
        delivered = reader.tail.poll().delivered_ms
        return [p for p in run.partitions if delivered.get(p, 0.0) <= since_ms]

    run.soon(lambda: not silent(), READ_S)
    left = silent()
    seen = f"nothing from {names(left)} in {READ_S:.0f} s" if left else "from every partition"
    run.check(f"the consumer receives, {when}", "from every partition", seen, kept=not left)


def settle(run: Run, partition: int) -> None:
    """Let all that a partition's leader has by now be on every replica in sync. LabError.

    One event with acks=all is enough, because a log is copied in its order. Whoever sent with
    acks=1 knows only of the leader.
    """
    client = run.raw_client(f"settled-{partition}", acks="all")
    acknowledged = run.acknowledge(client, partition, 1)
    client.close()
    if not acknowledged:
        raise LabError(f"P{partition} does not acknowledge an event with acks=all")
