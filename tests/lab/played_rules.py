"""What Kafka's cluster could not look like, where steps expect that of the one that is played.

Each rule is Kafka's, for one partition whose replicas' files are whole: who leads is alive and in
sync, the first of those in the list of replicas; who is silent joins nothing; who lives leaves the
ISR only by a fault that keeps it from following; and nothing changes without a controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cluster.probe import PartitionState
from holdfast.lab.steps.wants import Want

if TYPE_CHECKING:
    from tests.lab.played_cluster import PlayedCluster


def why_not(cluster: PlayedCluster, partition: int, wanted: Want) -> str | None:
    """Return why this partition can't come to look so; None: it can."""
    state = cluster.state_of(partition)
    if not cluster.is_led:
        return _changes(state, wanted)
    return (
        _isr(cluster, state, wanted)
        or _leader(cluster, state, wanted)
        or _nobody(cluster, partition, wanted)
        or _successor(cluster, partition, wanted)
    )


def _changes(state: PartitionState, wanted: Want) -> str | None:
    stays = wanted.leader in {None, state.leader} and wanted.isr in {None, frozenset(state.isr)}
    return None if stays else "there is no controller that could change it"


def _isr(cluster: PlayedCluster, state: PartitionState, wanted: Want) -> str | None:
    if wanted.isr is None:
        return None
    before, silent = frozenset(state.isr), cluster.silent
    if not wanted.isr <= set(state.replicas):
        return "who has no replica is in sync"
    if wanted.leader not in {None, -1} and wanted.leader not in wanted.isr:
        return "who leads is not in sync"
    if (wanted.isr - before) & silent:
        return "who is silent comes to be in sync"
    if wanted.isr & silent and not (len(wanted.isr) == 1 and wanted.leader in {None, -1}):
        return "who is silent stays in sync"
    if before - wanted.isr - silent - cluster.doubted and not (
        cluster.hindrances or cluster.is_unclean
    ):
        return "who lives and follows falls out of sync"
    return None


def _leader(cluster: PlayedCluster, state: PartitionState, wanted: Want) -> str | None:
    if wanted.leader in cluster.silent:
        return "who is silent leads"
    if wanted.leader in {None, -1, state.leader}:
        return None
    stands = state.leader not in {-1, *cluster.silent}
    if stands and state.leader in (wanted.isr or {state.leader}):
        return "who leads lives, is heard and in sync"
    return None


def _nobody(cluster: PlayedCluster, partition: int, wanted: Want) -> str | None:
    if wanted.leader != -1:
        return None
    if cluster.candidates(partition):
        return "nobody leads, and somebody in sync could"
    if cluster.is_unclean and set(cluster.state_of(partition).replicas) - cluster.silent:
        return "nobody leads, and anybody may"
    return None


def _successor(cluster: PlayedCluster, partition: int, wanted: Want) -> str | None:
    state = cluster.state_of(partition)
    if wanted.leader in {None, -1, state.leader} or cluster.is_unclean:
        return None
    if state.leader in {-1, *cluster.silent} and not cluster.parameters.elr:
        first = cluster.candidates(partition)[:1]
        return None if [wanted.leader] == first else f"the first in sync leads: {first}"
    return None
