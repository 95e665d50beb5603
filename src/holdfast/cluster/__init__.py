"""Clusters of processes on this machine, and the faults that can be done to them.

Talks to nodes as any client and as the operating system do: the Kafka protocol, files, signals.
"""

from holdfast.cluster.layout import ClusterError, NodeRecord, UsageError
from holdfast.cluster.local import LOCAL_PROFILE, LocalCluster, NodeStatus
from holdfast.cluster.probe import PartitionState

__all__ = [
    "LOCAL_PROFILE",
    "ClusterError",
    "LocalCluster",
    "NodeRecord",
    "NodeStatus",
    "PartitionState",
    "UsageError",
]
