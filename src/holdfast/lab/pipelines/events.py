"""Events that flow into a run's topic while queries read it."""

from __future__ import annotations

from holdfast.lab.run import Run
from holdfast.lab.workload_processes import Worker

TIMEOUT_MS = 120_000  # of a delivery: longer than what any fault here lasts


def begin(run: Run) -> Worker:
    """Make the topic, and have events flow."""
    run.make_topic()
    producer = run.start_producer(delivery_timeout_ms=TIMEOUT_MS)
    run.must_flow(producer)
    return producer
