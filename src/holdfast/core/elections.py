"""Who leads a partition, and what its ISR is, after something has changed (KAFKA.md 5.3).

Owns the one way in which a PartitionChange record comes about. It answers "what should this
partition be now"; whether to ask is for others: sessions, shutdowns, AlterPartition, ElectLeaders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from holdfast.core.image import NO_LEADER, UNASSIGNED_DIRECTORY, Partition, RecoveryState
from holdfast.core.replica_sets import ReplicaSet
from holdfast.core.state import ControllerState
from holdfast.wire.records.metadata import PartitionChangeRecord


class Election(IntEnum):
    """ElectLeaders' types, and the ordinary election, which keeps a leader that is valid."""

    PREFERRED = 0
    UNCLEAN = 1
    ONLINE = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The leader that an election gives; unclean when it may lack what was committed."""

    leader: int
    unclean: bool = False


def elect(
    partition: Partition,
    isr: Sequence[int],
    acceptable: Callable[[int], bool],
    *,
    election: Election = Election.ONLINE,
    unclean_allowed: bool = False,
) -> Verdict:
    """Choose the leader among the replicas, given the ISR that is to be."""

    def valid(node: int) -> bool:
        return node in isr and acceptable(node)

    if election is Election.PREFERRED and valid(partition.preferred_leader):
        return Verdict(partition.preferred_leader)
    if partition.leader != NO_LEADER and valid(partition.leader):
        return Verdict(partition.leader)
    for node in partition.replicas:
        if valid(node):
            return Verdict(node)
    if unclean_allowed or election is Election.UNCLEAN:
        for node in partition.replicas:
            if acceptable(node):
                return Verdict(node, unclean=True)
    return Verdict(NO_LEADER)


def change(
    partition: Partition,
    acceptable: Callable[[int], bool],
    *,
    isr: Sequence[int] | None = None,
    recovery_state: RecoveryState | None = None,
    election: Election = Election.ONLINE,
    unclean_allowed: bool = False,
    replica_set: ReplicaSet | None = None,
    directory_of: Callable[[int], bytes] = lambda _: UNASSIGNED_DIRECTORY,
) -> PartitionChangeRecord | None:
    """The record that makes the partition what it should be; None when it is that already.

    `isr` is the ISR that is wanted, by default the present one. An empty one is not taken: without
    eligible leader replicas the ISR keeps its last member, who alone may lead without loss.
    `replica_set` is who should hold it, by default as it is; with all of a reassignment's target in
    the ISR the reassignment is completed on the way. `directory_of` says where a broker that holds
    it newly will put it.
    """
    before = partition
    members = ReplicaSet.of(partition) if replica_set is None else replica_set
    asked = partition.isr if isr is None else isr
    members = members.completed_by(asked) or members
    record = PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic_id)
    changed = _assign(partition, members, record, directory_of)
    if changed:
        asked = members.kept(asked)
        partition = replace(partition, replicas=members.replicas)
    wanted = tuple(asked) or partition.isr
    # The vote is on the ISR as asked for: its last member, on its way out, must not win it.
    verdict = elect(
        partition, asked, acceptable, election=election, unclean_allowed=unclean_allowed
    )
    if verdict.unclean:
        wanted = (verdict.leader,)
        if partition.recovery_state is RecoveryState.RECOVERED:
            recovery_state = RecoveryState.RECOVERING
    assert set(wanted) <= set(partition.replicas), "an ISR with a stranger in it"
    if verdict.leader != partition.leader:
        record.leader = verdict.leader
        changed = True
    elif record.replicas is not None and not set(before.replicas) <= set(members.replicas):
        # Whoever goes must not be counted by the leader any more, so its epoch ends (KAFKA.md 5.5).
        record.leader = verdict.leader
    if wanted != partition.isr:
        record.isr = list(wanted)
        changed = True
    if recovery_state is not None and recovery_state is not partition.recovery_state:
        record.leader_recovery_state = int(recovery_state)
        changed = True
    assert verdict.leader == NO_LEADER or verdict.leader in wanted, "a leader outside its ISR"
    return record if changed else None


def _assign(
    partition: Partition,
    members: ReplicaSet,
    record: PartitionChangeRecord,
    directory_of: Callable[[int], bytes],
) -> bool:
    """Put into the record what changes in who holds the partition. True if anything does."""
    if members == ReplicaSet.of(partition):
        return False
    if members.replicas != partition.replicas:
        record.replicas = list(members.replicas)
        known = dict(zip(partition.replicas, partition.directories, strict=False))
        record.directories = [
            known[node] if node in known else directory_of(node) for node in members.replicas
        ]
    if members.adding != partition.adding:
        record.adding_replicas = list(members.adding)
    if members.removing != partition.removing:
        record.removing_replicas = list(members.removing)
    for field in ("elr", "last_known_elr"):
        ours = getattr(partition, field)
        kept = members.kept(ours)
        if len(kept) != len(ours):
            name = "eligible_leader_replicas" if field == "elr" else field
            setattr(record, name, kept)
    return True


def leave_all(
    state: ControllerState, broker_id: int, partitions: Iterable[Partition] | None = None
) -> list[PartitionChangeRecord]:
    """Take a broker out of every ISR and out of every leadership."""

    def acceptable(node: int) -> bool:
        return node != broker_id and state.image.is_active(node)

    records = []
    for partition in state.image.partitions() if partitions is None else partitions:
        if broker_id != partition.leader and broker_id not in partition.isr:
            continue
        record = change(
            partition,
            acceptable,
            isr=[node for node in partition.isr if node != broker_id],
            unclean_allowed=state.unclean_allowed(partition.topic),
        )
        if record is not None:
            records.append(record)
    return records


def elect_leaderless(
    state: ControllerState, *, joining: int | None = None, topic: str | None = None
) -> list[PartitionChangeRecord]:
    """Give every partition without a leader one, where there is one to be had.

    `joining` is a broker that the same decision makes active; `topic` restricts the search.
    """

    def acceptable(node: int) -> bool:
        return node == joining or state.image.is_active(node)

    records = []
    for partition in state.image.partitions():
        if partition.leader != NO_LEADER or topic not in (None, partition.topic):
            continue
        record = change(
            partition, acceptable, unclean_allowed=state.unclean_allowed(partition.topic)
        )
        if record is not None:
            records.append(record)
    return records


def balance(state: ControllerState, *, changes_max: int = 1000) -> list[PartitionChangeRecord]:
    """Give leadership back to the preferred leaders that may have it, at most so many at a time.

    Like Kafka's own controller, this does not wait for an imbalance of so many percent.
    """
    records: list[PartitionChangeRecord] = []
    for partition in state.image.partitions():
        if partition.leader == partition.preferred_leader:
            continue
        record = change(partition, state.image.is_active, election=Election.PREFERRED)
        if record is not None:
            records.append(record)
            if len(records) == changes_max:
                break
    return records
