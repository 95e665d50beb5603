"""How a command names nodes of the local cluster: by id, by role, by what they do just now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.shared_options import did_you_mean
from holdfast.cluster import LocalCluster
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.processes import State

WHO_HELP = (
    "Id as in `status`; controller:active, controller:standby, leader:TOPIC-PARTITION; "
    "or brokers, controllers, all: those of them that it suits."
)
GROUPS: dict[str, Callable[[NodeRecord], bool]] = {
    "brokers": lambda node: node.is_broker,
    "controllers": lambda node: node.is_controller,
    "all": lambda _node: True,
}


def addressed(cluster: LocalCluster, who: Sequence[str], suited: Collection[State]) -> list[int]:
    """Return the ids that these words mean, each once. CommandError: a word means nobody.

    Of a group those count whose process is in one of the `suited` states; who is named singly
    counts in any case, and the command itself says what is wrong with it.
    """
    found: list[int] = []
    for word in who:
        if word in GROUPS:
            members = [node.id for node in cluster.nodes if GROUPS[word](node)]
            chosen = [node_id for node_id in members if cluster.state(node_id) in suited]
            if not chosen:
                states = " or ".join(suited)
                raise CommandError(f"{word}: none of nodes {_list(members)} is {states}.")
            found += chosen
        else:
            found.append(_single(cluster, word))
    return list(dict.fromkeys(found))


def place_named(cluster: LocalCluster, word: str) -> str:
    """Return the name of a place, zone or group of the network; who leads just now is its id.

    Several are joined by commas.
    """
    return ",".join(str(_single(cluster, one)) if ":" in one else one for one in word.split(","))


def _single(cluster: LocalCluster, word: str) -> int:
    if word.isascii() and word.isdigit():
        return cluster.node(int(word)).id
    kind, colon, name = word.partition(":")
    if word in {"controller:active", "controller:standby"}:
        return _controller(cluster, active=name == "active")
    if kind == "leader" and colon:
        return _leader(cluster, name)
    advice = did_you_mean(word, [*GROUPS, "controller:active", "controller:standby"])
    raise CommandError(
        f"{word!r} names no node.{advice} NODE is one of: {WHO_HELP}", code=EXIT_USAGE
    )


def _controller(cluster: LocalCluster, *, active: bool) -> int:
    quorum = cluster.quorum()
    if quorum is None:
        _refuse_unseen(cluster)
        raise CommandError("No controller is active just now; `holdfast status` shows them.")
    if active:
        return quorum.leader
    for node_id in cluster.controller_ids:
        if node_id != quorum.leader and cluster.state(node_id) is State.RUNNING:
            return node_id
    raise CommandError(f"No controller runs beside the active one, node {quorum.leader}.")


def _leader(cluster: LocalCluster, name: str) -> int:
    topic, dash, partition = name.rpartition("-")
    refuse_if(
        not (dash and topic and partition.isascii() and partition.isdigit()),
        f"leader:{name}: leader:TOPIC-PARTITION is wanted, such as leader:payments-0.",
    )
    partitions = cluster.partitions(topic)
    if partitions is None:
        _refuse_unseen(cluster)
        raise CommandError(f"leader:{name}: no broker answers, so nobody says who leads.")
    state = partitions.get(int(partition))
    if state is None and partitions:
        last = max(partitions)
        raise CommandError(f"leader:{name}: {topic} has partitions 0 to {last}.")
    if state is None:
        advice = did_you_mean(topic, cluster.topic_names() or ())
        raise CommandError(f"leader:{name}: there is no topic {topic}.{advice}")
    if state.leader < 0:
        raise CommandError(f"leader:{name}: it has no leader just now.")
    return state.leader


def _refuse_unseen(cluster: LocalCluster) -> None:
    """ClusterError: that nobody answers is no fault of the nodes', who can't be asked from here."""
    if cluster.record.network is not None:
        cluster.network().refuse_unseen()


def _list(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
