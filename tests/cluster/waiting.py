"""What tests wait for in a cluster of processes: leaders, replicas in sync, brokers alive."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.cluster import LocalCluster, PartitionState, probe
from holdfast.cluster.local import WAIT_TIMEOUT_S
from holdfast.cluster.processes import State, wait_until


def wait_for_leader(
    cluster: LocalCluster,
    topic: str,
    partition: int,
    *,
    leader: int | None = None,
    other_than: int | None = None,
) -> PartitionState:
    """Wait until a partition has a leader: any, this one, or another one than this."""

    def led() -> PartitionState | None:
        state = (cluster.partitions(topic) or {}).get(partition)
        if state is None or state.leader < 0 or state.leader == other_than:
            return None
        return state if leader in (None, state.leader) else None

    what = f"leader {leader} of {topic}-{partition}, other than {other_than}"
    return wait_until(led, timeout_s=WAIT_TIMEOUT_S, what=what)


def wait_for_isr(cluster: LocalCluster, topic: str, partition: int, isr: Collection[int]) -> None:
    """Wait until the in-sync replicas of a partition are exactly these."""

    def synced() -> bool:
        state = (cluster.partitions(topic) or {}).get(partition)
        return state is not None and set(state.isr) == set(isr)

    wait_until(synced, timeout_s=WAIT_TIMEOUT_S, what=f"ISR {isr} of {topic}-{partition}")


def live_brokers(cluster: LocalCluster) -> set[int]:
    """Return the unfenced brokers as a running broker shows them."""
    for node in cluster.record.brokers:
        if cluster.state(node.id) is State.RUNNING:
            answer = probe.ask((node.host, node.port))
            if answer is not None:
                return set(answer.brokers)
    return set()


def wait_for_live_brokers(cluster: LocalCluster, expected: Iterable[int]) -> None:
    """Wait until exactly these brokers are unfenced."""
    wanted = set(expected)
    wait_until(
        lambda: live_brokers(cluster) == wanted,
        timeout_s=WAIT_TIMEOUT_S,
        what=f"brokers {sorted(wanted)} and no others to be live",
    )
