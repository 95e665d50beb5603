"""Where a log begins and ends, as its leader says it when a client asks (ListOffsets).

Owns what such an answer may be: LATEST is not before what the leader's own watermark had passed,
nor before what earlier leaders had committed, as of when it was asked; nor behind what anybody has
committed by now. EARLIEST is where the leader's log began, then or now.

Rules: fetch.md#special-timestamps, fetch.md#latest-after-an-election.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.testing.simulation.truth import PartitionTruth
from holdfast.wire.well_known import LATEST


class Ends(NamedTuple):
    """What a node has when it is asked where its log begins and ends."""

    replica: Replica
    epoch: int  # in which it leads
    start: int
    committed: int  # LATEST, at least


def ends_at(truth: PartitionTruth, node: int) -> Ends | None:
    """What a node has now that leads, as far as a client knows; None: it has nothing."""
    replica = truth.replicas.get(node)
    if replica is None or replica.log is None:
        return None
    committed = truth.committed_before(replica.epoch, replica.high_watermark)
    return Ends(replica, replica.epoch, replica.start, committed)


def is_same(truth: PartitionTruth, node: int, before: Ends) -> bool:
    """Whether it still has the log of that epoch: else nobody can tell what it answered with."""
    replica = before.replica
    return truth.replicas.get(node) is replica and replica.epoch == before.epoch


def what_is_wrong(
    truth: PartitionTruth, before: Ends, which: int, offset: int
) -> tuple[Invariant, str] | None:
    """Hold an answer against what the node had when it was asked, and has now."""
    replica = before.replica
    if which == LATEST:
        low, high = before.committed, max(truth.committed.end, replica.high_watermark)
        invariant = Invariant.END_AS_COMMITTED
    else:
        low, high = before.start, replica.start
        invariant = Invariant.BEGIN_AS_STARTED
    if low <= offset <= high:
        return None
    return invariant, (
        f"{truth.name}: node {replica.node} says {offset} in epoch {before.epoch}, true is"
        f" {low} to {high}\n{truth}"
    )
