"""One look at the local cluster: what `status` and `up` show of it, and what `watch` may ask.

Owns what is not told: who watches nodes of a network does so by a door, and where that one does not
serve, silence says nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from holdfast.cluster import LocalCluster, nodes, processes
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.nodes import ClusterStatus, NodeStatus
from holdfast.cluster.processes import State
from holdfast.config.figures import TROUBLES

if TYPE_CHECKING:
    from holdfast.cluster.networked import Trouble

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known of a cluster, and which processes of its network do not serve."""

    status: ClusterStatus
    troubles: Sequence[Trouble] = ()

    @property
    def is_blind(self) -> bool:
        """Whether nothing is known of nodes but of their processes."""
        return any(each.blinds for each in self.troubles)


def look(cluster: LocalCluster) -> Look:
    """Look now."""
    seen, troubles = asked_by_door(cluster, cluster.status)
    return Look(status=_unseen(cluster) if seen is None else seen, troubles=troubles)


def asked_by_door(
    cluster: LocalCluster, ask: Callable[[], T]
) -> tuple[T | None, Sequence[Trouble]]:
    """Return what nodes answer, and which processes of the network do not serve.

    None: it can't be had, for these troubles. Who can't be seen is not asked, since an answer would
    take as long as it may; and where the door stopped meanwhile silence was no answer.
    """
    troubles = _troubles_of(cluster)
    if _is_blind(troubles):
        return None, troubles
    answered = ask()
    troubles = _troubles_of(cluster)
    return None if _is_blind(troubles) else answered, troubles


def _troubles_of(cluster: LocalCluster) -> Sequence[Trouble]:
    """Return which processes of the cluster's network do not serve; none without one."""
    return () if cluster.record.network is None else cluster.network().troubles()


def _is_blind(troubles: Sequence[Trouble]) -> bool:
    return any(each.blinds for each in troubles)


def _unseen(cluster: LocalCluster) -> ClusterStatus:
    """Return what is known of a cluster of which only processes and links can be seen."""
    network, record = cluster.network(), cluster.record
    return ClusterStatus(
        cluster_id=record.cluster_id,
        bootstrap_servers=record.bootstrap_servers,
        nodes=tuple(map(_process_of, record.nodes)),
        network_stands=network.stands(),
        broken_links=network.broken_links(),
    )


def _process_of(node: NodeRecord) -> NodeStatus:
    state = nodes.state_of(node)
    if node.pid is None or state is State.DEAD:
        return nodes.node_status(node, None, (), None)  # which asks nobody
    return NodeStatus(node=node, state=state, resident_bytes=processes.resident_bytes(node.pid))


def is_healthy(seen: ClusterStatus, troubles: Sequence[Trouble] = ()) -> bool:
    """Say whether everything runs, serves and is replicated, and a controller is active.

    With ZooKeeper one of the brokers is; that ZooKeeper serves has to do. A network must serve as a
    whole, and say which links are broken.
    """
    return (
        not troubles
        and all(node.state is State.RUNNING and node.serving for node in seen.nodes)
        and not any(node.figures.get(name) for node in seen.nodes for name in TROUBLES)
        and not seen.under_replicated
        and not seen.leaderless
        and (seen.active_controller is not None or bool(seen.keeper_serves))
        and seen.network_stands is not False
        and not (seen.network_stands and seen.broken_links is None)
    )
