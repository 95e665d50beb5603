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
from typing import Final

from holdfast.core.controller.decisions import ControllerState
from holdfast.core.controller.replica_sets import ReplicaSet
from holdfast.core.metadata.image import (
    LEADER_UNCHANGED,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
    Partition,
    RecoveryState,
)
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

    `isr` is the ISR as asked for; `elr` counts only while `isr` is empty. `last_known` is the node
    that led last, the last resort. It is None unless eligible leader replicas are kept and both
    `isr` and `elr` are empty.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Changes that are wanted for one partition. A field that is not set is kept or derived.

    `isr` is the wanted ISR, `replica_set` the wanted replicas. If `isr` contains the whole target
    of a reassignment, the same record completes the reassignment. `directory_of` names the
    directory in which a broker will put a new replica. `without` is a broker that this decision
    makes unfit to lead, `joining` one that it makes active. Brokers in `lost` may lack what they
    had: they are neither in sync nor eligible.
    """

    isr: Sequence[int] | None = None
    recovery_state: RecoveryState | None = None
    election: Election = Election.ONLINE
    without: int | None = None
    joining: int | None = None
    lost: Collection[int] = ()
    replica_set: ReplicaSet | None = None
    directory_of: Callable[[int], bytes] = lambda _: UNASSIGNED_DIRECTORY


AS_IT_IS: Final = Wish()


def decide_on(
    state: ControllerState, before: Partition, wish: Wish = AS_IT_IS
) -> PartitionChangeRecord | None:
    """Return the record that makes a partition what it should be; None when it is that already."""
    members = ReplicaSet.of(before) if wish.replica_set is None else wish.replica_set
    isr = before.isr if wish.isr is None else wish.isr
    asked = [node for node in isr if node not in wish.lost]
    members = members.completed_by(asked) or members
    record = PartitionChangeRecord(partition_id=before.index, topic_id=before.topic_id)
    partition = before
    if _assign(before, members, record, wish.directory_of):
        asked = members.kept(asked)
        partition = replace(before, replicas=members.replicas)
    min_insync = state.min_insync(before.topic) if state.elr_enabled else None
    outside = _Outside(before, members, min_insync, wish.lost)
    elr = outside.eligible(asked)
    # Elect from the ISR as asked for. The last member may stay in the ISR when it goes, but it
    # must not win.
    candidates = Candidates(asked, elr, outside.last_known(asked or elr))
    acceptable = _acceptable(state, before, wish)
    verdict = elect(
        partition,
        candidates,
        acceptable,
        election=wish.election,
        unclean_allowed=state.unclean_allowed(before.topic),
        last_resort=state.image.is_active,
    )
    wanted = outside.isr_after(asked, verdict)
    recovery_state = wish.recovery_state
    if verdict.unclean:
        if before.recovery_state is RecoveryState.RECOVERED:
            recovery_state = RecoveryState.RECOVERING
        if not acceptable(verdict.leader):
            # A last-resort winner gets a new replica, so its recorded directory is cleared.
            record.directories = partition.directories_with(verdict.leader, UNASSIGNED_DIRECTORY)
    assert set(wanted) <= set(partition.replicas), "an ISR with a stranger in it"
    assert verdict.leader == NO_LEADER or verdict.leader in wanted, "a leader outside its ISR"
    shrunk = not set(before.replicas) <= set(members.replicas)
    # End the leader epoch when replicas are removed: the leader must not count them any more
    # (rules: topics.md#completed-reassignment).
    if verdict.leader != before.leader or (record.replicas is not None and shrunk):
        record.leader = verdict.leader
    if wanted != before.isr:
        record.isr = list(wanted)
    if recovery_state is not None and recovery_state is not before.recovery_state:
        record.leader_recovery_state = int(recovery_state)
    outside.note(record, verdict, wanted)
    return record if _says_anything(record) else None


def _acceptable(state: ControllerState, partition: Partition, wish: Wish) -> Callable[[int], bool]:
    """Return what tells whether a replica could lead if it held what was committed."""

    def acceptable(node: int) -> bool:
        if node == wish.without:
            return False
        if node == wish.joining:
            return state.image.brokers[node].has_directory(partition.directory_of(node))
        return state.may_lead(partition, node)

    return acceptable


@dataclass(frozen=True, slots=True)
class _Outside:
    """Replicas outside the ISR that may still lead: eligible leader replicas and the last leader.

    `min_insync` is None in a cluster without eligible leader replicas. The ISR keeps its last
    member there, because only that one can lead without loss. With them the ISR may become empty.
    A replica stays eligible if the ISR is below `min_insync` without it: nothing is committed then.
    """

    before: Partition
    members: ReplicaSet
    min_insync: int | None
    lost: Collection[int]

    def eligible(self, isr: Sequence[int]) -> tuple[int, ...]:
        """Return the replicas outside the ISR that hold all that is committed.

        They left an ISR that was below min ISR or fell below it. () if the ISR is large enough.
        """
        before, members, min_insync = self.before, self.members, self.min_insync
        if min_insync is None or len(isr) >= min(min_insync, len(members.replicas)):
            return ()
        return tuple(
            node
            for node in dict.fromkeys((*before.elr, *before.isr))
            if node in members.replicas and node not in isr and node not in self.lost
        )

    def last_known(self, candidates: Sequence[int]) -> int | None:
        """Return the last known leader, if no candidate is sure to hold everything."""
        last = self.before.last_known_elr
        if self.min_insync is None or candidates or len(last) != 1:
            return None
        return last[0] if last[0] in self.members.replicas else None

    def isr_after(self, asked: Sequence[int], verdict: Verdict) -> tuple[int, ...]:
        """Return the ISR as asked for, or the leader alone if it comes from outside of that."""
        if verdict.unclean or (verdict.leader != NO_LEADER and not asked):
            return (verdict.leader,)
        return tuple(asked) or (self.before.isr if self.min_insync is None else ())

    def led_last(self, leader: int, isr: Sequence[int]) -> tuple[int, ...]:
        """Return who led before the ISR became empty; nobody as soon as somebody leads again."""
        before = self.before
        if self.min_insync is None or leader != NO_LEADER:
            return ()
        last = before.last_known_elr
        if not isr and before.isr:
            last = (before.leader,) if before.leader != NO_LEADER else before.isr[:1]
        return tuple(self.members.kept(last))

    def note(self, record: PartitionChangeRecord, verdict: Verdict, isr: Sequence[int]) -> None:
        """Put into the record what changes; after an unclean election nobody is eligible."""
        elr = () if verdict.unclean else self.eligible(isr)
        if elr != self.before.elr:
            record.eligible_leader_replicas = list(elr)
        last_known = self.led_last(verdict.leader, isr)
        if last_known != self.before.last_known_elr:
            record.last_known_elr = list(last_known)


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
    changes_max: int | None = None,
) -> list[PartitionChangeRecord]:
    """Take a broker out of every ISR and out of every leadership, or of so many at most.

    `lost`: the broker may lack what it had, so it leaves every ELR too. The last known leader may
    win then, so the election is held at once.
    """
    gone = (broker_id,) if lost else ()
    records: list[PartitionChangeRecord] = []
    for partition in state.image.partitions() if partitions is None else partitions:
        concerned = broker_id == partition.leader or broker_id in partition.isr
        if not concerned and not (lost and broker_id in partition.elr):
            continue
        record = decide_on(
            state,
            partition,
            Wish(
                without=broker_id,
                isr=[node for node in partition.isr if node != broker_id],
                lost=gone,
            ),
        )
        if record is not None:
            records.append(record)
            if len(records) == changes_max:
                break
    return records


def elect_leaderless(
    state: ControllerState,
    *,
    joining: int | None = None,
    topics: Iterable[str] | None = None,
    changes_max: int | None = None,
) -> list[PartitionChangeRecord]:
    """Give every partition without a leader one, where there is one to be had; or so many at most.

    `joining` is a broker that the same decision makes active; `topics` restricts the search.
    """
    records: list[PartitionChangeRecord] = []
    wish = Wish(joining=joining)
    image = state.image
    # A request may name thousands of topics: the partitions of others are not looked at for each.
    for partition in (
        image.partitions()
        if topics is None
        else (each for name in topics for each in image.topics[name].partitions)
    ):
        if partition.leader != NO_LEADER:
            continue
        record = decide_on(state, partition, wish)
        if record is not None:
            records.append(record)
            if len(records) == changes_max:
                break
    return records


def clear_eligible(
    state: ControllerState, topics: Sequence[str | None] | None
) -> list[MetadataRecord]:
    """Clear the eligible leader replicas of these topics; None: of all topics.

    That is due when min.insync.replicas changes: those replicas need not hold what is committed
    from then on. A partition with an empty ISR keeps them: nothing can be committed there, and
    only they can lead it without loss.
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
    wish = Wish(election=Election.PREFERRED)
    for partition in state.image.partitions():
        if partition.leader == partition.preferred_leader:
            continue
        record = decide_on(state, partition, wish)
        if record is not None:
            records.append(record)
            if len(records) == changes_max:
                break
    return records
