"""Who leads a partition, and what its ISR is, after something has changed.

Owns the one way in which a PartitionChange record comes about. It answers "what should this
partition be now"; whether to ask is for others: sessions, shutdowns, AlterPartition, ElectLeaders.

Rules: elections.md#order, elections.md#eligible-leader-replicas,
elections.md#last-member-of-the-isr.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from holdfast.core.image import (
    LEADER_UNCHANGED,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
    Partition,
    RecoveryState,
)
from holdfast.core.replica_sets import ReplicaSet
from holdfast.core.state import ControllerState
from holdfast.wire.records.metadata import ClearElrRecord, PartitionChangeRecord


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


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who may win a partition's election.

    `isr` is the ISR that is to be; `elr` counts only when that is empty. `last_known` led last and
    is the last hope: None unless eligible leader replicas are kept and none is left of them.
    """

    isr: Sequence[int]
    elr: Sequence[int] = ()
    last_known: int | None = None

    def __contains__(self, node: int) -> bool:
        """Whether a replica holds everything that was committed."""
        return node in self.isr or (not self.isr and node in self.elr)


def elect(
    partition: Partition,
    candidates: Candidates,
    acceptable: Callable[[int], bool],
    *,
    election: Election = Election.ONLINE,
    unclean_allowed: bool = False,
    last_resort: Callable[[int], bool] = lambda _: False,
) -> Verdict:
    """Choose the leader among the replicas.

    `last_resort` says who may lead when an operator asks for it and nobody else is there.
    """

    def valid(node: int) -> bool:
        return node in candidates and acceptable(node)

    if election is Election.PREFERRED and valid(partition.preferred_leader):
        return Verdict(partition.preferred_leader)
    if partition.leader != NO_LEADER and valid(partition.leader):
        return Verdict(partition.leader)
    for node in partition.replicas:
        if valid(node):
            return Verdict(node)
    if candidates.last_known is not None and acceptable(candidates.last_known):
        return Verdict(candidates.last_known, unclean=True)
    if unclean_allowed or election is Election.UNCLEAN:
        for node in partition.replicas:
            if acceptable(node):
                return Verdict(node, unclean=True)
    if election is Election.UNCLEAN:
        for node in partition.replicas:
            if last_resort(node):
                return Verdict(node, unclean=True)
    return Verdict(NO_LEADER)


def decide_on(
    state: ControllerState,
    partition: Partition,
    *,
    without: int | None = None,
    joining: int | None = None,
    isr: Sequence[int] | None = None,
    recovery_state: RecoveryState | None = None,
    election: Election = Election.ONLINE,
    lost: Collection[int] = (),
    replica_set: ReplicaSet | None = None,
    directory_of: Callable[[int], bytes] = lambda _: UNASSIGNED_DIRECTORY,
) -> PartitionChangeRecord | None:
    """What the partition should be now, as this cluster is configured: see `change`.

    `without` is a broker that the same decision makes unfit to lead, `joining` one that it makes
    active.
    """
    image = state.image

    def acceptable(node: int) -> bool:
        if node == without:
            return False
        if node == joining:
            return image.brokers[node].has_directory(partition.directory_of(node))
        return state.may_lead(partition, node)

    return change(
        partition,
        acceptable,
        isr=isr,
        recovery_state=recovery_state,
        election=election,
        unclean_allowed=state.unclean_allowed(partition.topic),
        min_insync=state.min_insync(partition.topic) if state.elr_enabled else None,
        lost=lost,
        replica_set=replica_set,
        directory_of=directory_of,
        last_resort=image.is_active,
    )


def change(
    partition: Partition,
    acceptable: Callable[[int], bool],
    *,
    isr: Sequence[int] | None = None,
    recovery_state: RecoveryState | None = None,
    election: Election = Election.ONLINE,
    unclean_allowed: bool = False,
    min_insync: int | None = None,
    lost: Collection[int] = (),
    replica_set: ReplicaSet | None = None,
    directory_of: Callable[[int], bytes] = lambda _: UNASSIGNED_DIRECTORY,
    last_resort: Callable[[int], bool] = lambda _: False,
) -> PartitionChangeRecord | None:
    """The record that makes the partition what it should be; None when it is that already.

    `isr` is the ISR that is wanted, by default the present one. `min_insync` is None in a cluster
    without eligible leader replicas: there the ISR keeps its last member, who alone may lead
    without loss. With them the ISR may become empty, and who leaves it while it is short of
    `min_insync` stays eligible, for nothing is committed without it. `lost` may lack what they
    had, and are neither.

    `replica_set` is who should hold the partition, by default as it is; with all of a
    reassignment's target in the ISR the reassignment is completed on the way. `directory_of` says
    where a broker that holds it newly will put it. `last_resort` is for `elect`: who wins so has
    the replica anew, wherever it was.
    """
    before = partition
    members = ReplicaSet.of(partition) if replica_set is None else replica_set
    asked = [node for node in (partition.isr if isr is None else isr) if node not in lost]
    members = members.completed_by(asked) or members
    record = PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic_id)
    if _assign(partition, members, record, directory_of):
        asked = members.kept(asked)
        partition = replace(partition, replicas=members.replicas)
    elr = _eligible(before, members, asked, min_insync, lost)
    # The vote is on the ISR as asked for: its last member, on its way out, must not win it.
    verdict = elect(
        partition,
        Candidates(asked, elr, _last_known(partition, asked or elr, min_insync)),
        acceptable,
        election=election,
        unclean_allowed=unclean_allowed,
        last_resort=last_resort,
    )
    wanted = _isr_after(partition, asked, verdict, min_insync)
    if verdict.unclean:
        elr = ()
        if partition.recovery_state is RecoveryState.RECOVERED:
            recovery_state = RecoveryState.RECOVERING
        if not acceptable(verdict.leader):
            record.directories = partition.directories_with(verdict.leader, UNASSIGNED_DIRECTORY)
    else:
        elr = _eligible(before, members, wanted, min_insync, lost)
    assert set(wanted) <= set(partition.replicas), "an ISR with a stranger in it"
    assert verdict.leader == NO_LEADER or verdict.leader in wanted, "a leader outside its ISR"
    shrunk = not set(before.replicas) <= set(members.replicas)
    # Whoever goes must not be counted by the leader any more, so its epoch ends (rules:
    # topics.md#completed-reassignment).
    if verdict.leader != partition.leader or (record.replicas is not None and shrunk):
        record.leader = verdict.leader
    if wanted != partition.isr:
        record.isr = list(wanted)
    if recovery_state is not None and recovery_state is not partition.recovery_state:
        record.leader_recovery_state = int(recovery_state)
    if elr != before.elr:
        record.eligible_leader_replicas = list(elr)
    last_known = _led_last(before, members, verdict.leader, wanted, min_insync)
    if last_known != before.last_known_elr:
        record.last_known_elr = list(last_known)
    return record if _says_anything(record) else None


def _isr_after(
    partition: Partition, asked: Sequence[int], verdict: Verdict, min_insync: int | None
) -> tuple[int, ...]:
    """The ISR as asked for, or the leader alone if it was elected from outside of that."""
    if verdict.unclean or (verdict.leader != NO_LEADER and not asked):
        return (verdict.leader,)
    return tuple(asked) or (partition.isr if min_insync is None else ())


def _eligible(
    before: Partition,
    members: ReplicaSet,
    isr: Sequence[int],
    min_insync: int | None,
    lost: Collection[int],
) -> tuple[int, ...]:
    """Who holds everything committed without being in the ISR: those that left it while short."""
    if min_insync is None or len(isr) >= min(min_insync, len(members.replicas)):
        return ()
    return tuple(
        node
        for node in dict.fromkeys((*before.elr, *before.isr))
        if node in members.replicas and node not in isr and node not in lost
    )


def _last_known(
    partition: Partition, candidates: Sequence[int], min_insync: int | None
) -> int | None:
    """The leader before there was none, when nobody is left who is sure to hold everything."""
    if min_insync is None or candidates or len(partition.last_known_elr) != 1:
        return None
    node = partition.last_known_elr[0]
    return node if node in partition.replicas else None


def _led_last(
    before: Partition,
    members: ReplicaSet,
    leader: int,
    isr: Sequence[int],
    min_insync: int | None,
) -> tuple[int, ...]:
    """Who led before the ISR became empty; nobody as soon as somebody leads again."""
    if min_insync is None or leader != NO_LEADER:
        return ()
    last = before.last_known_elr
    if not isr and before.isr:
        last = (before.leader,) if before.leader != NO_LEADER else before.isr[:1]
    return tuple(members.kept(last))


def _says_anything(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != LEADER_UNCHANGED
        or record.leader_recovery_state != -1
        or any(
            field is not None
            for field in (
                record.isr,
                record.replicas,
                record.removing_replicas,
                record.adding_replicas,
                record.directories,
                record.eligible_leader_replicas,
                record.last_known_elr,
            )
        )
    )


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
    return True


def leave_all(
    state: ControllerState,
    broker_id: int,
    partitions: Iterable[Partition] | None = None,
    *,
    lost: bool = False,
) -> list[PartitionChangeRecord]:
    """Take a broker out of every ISR and out of every leadership.

    `lost`: it may lack what it had, so it is eligible nowhere either. Who led last may win then,
    so an election is due right away.
    """
    gone = (broker_id,) if lost else ()
    records = []
    for partition in state.image.partitions() if partitions is None else partitions:
        concerned = broker_id == partition.leader or broker_id in partition.isr
        if not concerned and not (lost and broker_id in partition.elr):
            continue
        record = decide_on(
            state,
            partition,
            without=broker_id,
            isr=[node for node in partition.isr if node != broker_id],
            lost=gone,
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
    records = []
    for partition in state.image.partitions():
        if partition.leader != NO_LEADER or topic not in (None, partition.topic):
            continue
        record = decide_on(state, partition, joining=joining)
        if record is not None:
            records.append(record)
    return records


def clear_eligible(
    state: ControllerState, topics: Sequence[str | None] | None
) -> list[MetadataRecord]:
    """Nobody outside the ISR is eligible any more, in these topics or, with None, anywhere.

    That is due when min.insync.replicas changes: what is committed from then on they need not
    hold. Where nobody leads nothing can be committed, so there they stay: they are all there is.
    Rules: elections.md#one-min-isr.
    """
    if not state.elr_enabled:
        return []
    names = list(state.image.topics) if topics is None else topics
    concerned = [
        partition
        for name in names
        if name is not None
        for partition in state.image.topics[name].partitions
        if partition.elr or partition.last_known_elr
    ]
    if all(partition.isr for partition in concerned):
        topics_concerned = dict.fromkeys(partition.topic for partition in concerned)
        return [ClearElrRecord(topic_name=name) for name in topics_concerned]
    return [
        PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=partition.topic_id,
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
        for partition in concerned
        if partition.isr
    ]


def balance(state: ControllerState, *, changes_max: int = 1000) -> list[PartitionChangeRecord]:
    """Give leadership back to the preferred leaders that may have it, at most so many at a time.

    Like Kafka's own controller, this does not wait for an imbalance of so many percent.
    Rules: elections.md#preferred-leader.
    """
    records: list[PartitionChangeRecord] = []
    for partition in state.image.partitions():
        if partition.leader == partition.preferred_leader:
            continue
        record = decide_on(state, partition, election=Election.PREFERRED)
        if record is not None:
            records.append(record)
            if len(records) == changes_max:
                break
    return records
