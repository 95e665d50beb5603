"""Events that flow into a run's topic while queries read it."""

from __future__ import annotations

from holdfast.lab.run import Run
from holdfast.lab.workload_processes import Worker


def begin(run: Run) -> Worker:
    """Make the topic, and have events flow."""
    run.make_topic()
    producer = run.start_producer()
    run.must_flow(producer)
    return producer
