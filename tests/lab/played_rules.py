"""What Kafka's cluster could not look like, where steps expect that of the one that is played.

Each rule is Kafka's, for one partition whose replicas' files are whole: who leads is alive and in
sync, the first of those in the list of replicas; who is silent joins nothing; who lives leaves the
ISR only by a fault that keeps it from following; nobody is missed before a session, or the lag, is
over; and nothing changes without a controller.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.cluster.probe import PartitionState
from holdfast.lab.steps.wants import Want

if TYPE_CHECKING:
    from tests.lab.played_cluster import PlayedCluster


def why_not(
    cluster: PlayedCluster, partition: int, wanted: Want, bound_s: float = math.inf
) -> str | None:
    """Return why this partition can't come to look so in this time; None: it can."""
    state = cluster.state_of(partition)
    if not cluster.is_led:
        return _changes(state, wanted)
    return (
        _isr(cluster, state, wanted)
        or _leader(cluster, state, wanted)
        or _nobody(cluster, partition, wanted)
        or _successor(cluster, partition, wanted)
        or _too_soon(cluster, state, wanted, bound_s)
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
    follows = before - silent - cluster.doubted - _hindered(cluster)
    if follows - wanted.isr and not _anybody_leads(cluster, state):
        return "who lives and follows falls out of sync"
    return None


def _anybody_leads(cluster: PlayedCluster, state: PartitionState) -> bool:
    """Whether who has led is lost, and another one may lead for whom others' copies are cut."""
    return cluster.is_unclean and not set(state.isr) - cluster.silent - cluster.doubted


def _leader(cluster: PlayedCluster, state: PartitionState, wanted: Want) -> str | None:
    if wanted.leader in cluster.silent:
        return "who is silent leads"
    if wanted.leader in {None, -1, state.leader}:
        return None
    if wanted.leader not in state.replicas:
        return "who has no replica leads"
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
    if wanted.leader in {None, -1, state.leader} or state.leader not in {-1, *cluster.silent}:
        return None
    first, kind = cluster.candidates(partition)[:1], "in sync"
    alive = [node for node in state.replicas if node not in cluster.silent]
    if not first and cluster.is_unclean:
        whole = [node for node in alive if node not in cluster.doubted]
        first, kind = whole[:1], "alive"
    elif not first and cluster.parameters.elr:  # one of those whom a lost ISR has left eligible
        return None if wanted.leader in alive else "who is not eligible leads"
    return None if [wanted.leader] == first else f"the first {kind} leads: {first}"


def _too_soon(
    cluster: PlayedCluster, state: PartitionState, wanted: Want, bound_s: float
) -> str | None:
    """Look at who leaves, or leads no more: a scenario must leave it at least so much time."""
    leaving = set(state.isr) - (set(state.isr) if wanted.isr is None else wanted.isr)
    if wanted.leader not in {None, state.leader}:
        leaving.add(state.leader)
    if leaving & cluster.silent and bound_s <= cluster.parameters.session_s:
        return "its session is not over by then"
    # Who is cut off may be so from controllers, too; and a full disk is told at once.
    slow = _hindered(cluster, but=("cut", "a full disk")) - cluster.silent
    if leaving & slow and bound_s <= cluster.parameters.lag_s:
        return "its lag is not over by then"
    return None


def _hindered(cluster: PlayedCluster, but: tuple[str, ...] = ()) -> frozenset[int]:
    """Return the brokers that live, and may fall behind, `but` by faults of these kinds."""
    found = (nodes for text, nodes in cluster.hindrances.items() if not text.startswith(but))
    return frozenset[int]().union(*found)
