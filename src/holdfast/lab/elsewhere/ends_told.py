"""Where a topic's logs end, asked of its leaders: of nodes whose files the lab does not see."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clients.blocking_driver import DriverError
from holdfast.clients.log_offsets import log_ends
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.steps.wants import lists_text
from holdfast.wire.administration import AdminError

COMMITTED_S = 10.0  # for what was acknowledged to be readable; with acks=1 it may never be


def settled_ends_told(run: Run, topic: str, acknowledged: Mapping[int, int]) -> dict[int, int]:
    """Wait until all replicas are in sync, and all that was acknowledged can be read; the ends.

    `acknowledged`: up to where it was, by partition, as far as is known. A failed check: they are
    not in sync. That they hold the same nobody can say here. LabError: nobody says where logs end.
    """

    def out_of_sync() -> dict[int, list[int]]:
        states = run.cluster.partitions(topic)
        if not states:
            return {partition: [] for partition in run.placement[topic]}
        return {p: list(s.isr) for p, s in sorted(states.items()) if set(s.isr) != set(s.replicas)}

    if not run.soon(lambda: not out_of_sync(), SETTLE_S):
        seen = lists_text(out_of_sync())
        run.check(f"replicas of {topic}", "all in sync", f"in sync: {seen or 'none'}", kept=False)
    run.soon(lambda: _reach(ends_told(run, topic), acknowledged), COMMITTED_S)
    return run.wait(f"the ends of {topic}", lambda: ends_told(run, topic), SETTLE_S)


def _reach(ends: Mapping[int, int], wanted: Mapping[int, int]) -> bool:
    return all(ends.get(partition, -1) >= end for partition, end in wanted.items())


def ends_told(run: Run, topic: str) -> dict[int, int]:
    """Return up to where each partition can be read; nothing while that of any is not told."""
    keys = [(topic, partition) for partition in run.placement[topic]]
    try:
        found = log_ends(run.driver, keys, patience_s=0.0)
    except DriverError:
        return {}
    told = {p: each.offset for (_, p), each in found.items() if not isinstance(each, AdminError)}
    return told if len(told) == len(keys) else {}
