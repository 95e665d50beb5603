"""What committed metadata records say, read by a reader of our own, and what must hold of them.

Owns the invariants of elections and in-sync replicas: the ISR contains the leader, only replicas
are in it, nobody joins it fenced, ELR and ISR share nobody, leader and partition epochs only rise,
nobody is elected against the rules, no broker's image contradicts a record. The product's own image
is what is checked, so that it is not used here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from holdfast.core.controller.decisions import UNCLEAN_ELECTION
from holdfast.core.metadata.feature_levels import MIN_INSYNC
from holdfast.core.metadata.image import MetadataImage
from holdfast.testing.simulation.allowances import Election
from holdfast.testing.simulation.deletions import RETENTION_MS, Policy
from holdfast.testing.simulation.invariants import Invariant
from holdfast.wire.records import metadata as wire
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

_TOPIC, _BROKER = 2, 4  # configuration resources
_UNCHANGED: Final = -2
RETENTION: Final = {"retention.ms": RETENTION_MS, "retention.bytes": -1}

Key = tuple[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One partition as committed."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovery: int = 0


@dataclass(slots=True)
class _Member:
    """One broker as committed."""

    epoch: int
    fenced: bool
    leaving: bool = False

    @property
    def active(self) -> bool:
        return not self.fenced and not self.leaving


@dataclass(slots=True)
class Metadata:
    """All partitions, brokers and settings, as the committed metadata log has them."""

    fail: Callable[[Invariant, str], None]
    counts: Counter[str]
    static: Mapping[str, str]
    elected: Callable[[Key, int, Election], None]  # told of each leader epoch
    topics: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[Key, State] = field(default_factory=dict)
    brokers: dict[int, _Member] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    operator_unclean: set[tuple[str, int]] = field(default_factory=set)  # asked for members only
    copies: dict[Key, int] = field(default_factory=dict)  # the lowest min ISR ever in force
    deletions: dict[tuple[str, int], int] = field(default_factory=dict)  # asked for, up to here
    # All that is committed was asked for, and it is not known yet how much that is.
    deletions_open: Counter[tuple[str, int]] = field(default_factory=Counter)
    policies: dict[bytes, Policy] = field(default_factory=dict)  # the least that was ever kept
    removed: dict[bytes, int] = field(default_factory=dict)  # topics, and `end` when they went
    cleared: dict[Key, None] = field(default_factory=dict)  # whose ELR a change has emptied
    was_fenced: Callable[[int], None] = lambda _node: None  # its session has ended
    end: int = 0
    _changed_keys: dict[Key, None] = field(default_factory=dict)
    _joined: list[tuple[Key, int]] = field(default_factory=list)

    def apply(self, records: Iterable[Any], end: int) -> None:
        """Take in one committed batch, whole."""
        for record in records:
            change = _APPLY.get(type(record))
            if change is not None:
                change(self, record)
        self.end = end
        changed, self._changed_keys = self._changed_keys, {}
        for key in changed:
            if key in self.partitions:
                self._lower(key)
        joined, self._joined = self._joined, []
        for key, node in joined:
            self._check_joined(key, node)

    def min_isr(self, key: Key) -> int:
        """The effective min ISR of a partition, now."""
        configured = int(self._config(self.topics[key[0]], MIN_INSYNC, "1"))
        return min(configured, len(self.partitions[key].replicas))

    def allows_unclean(self, key: Key) -> bool:
        """Whether a replica that may lack something may be elected, now."""
        return self._config(self.topics.get(key[0], ""), UNCLEAN_ELECTION, "false") == "true"

    def deletions_asked(self, key: Key) -> float:
        """Up to where somebody has asked for a partition's records to be deleted."""
        named = self.topics.get(key[0], ""), key[1]
        return inf if self.deletions_open[named] else self.deletions.get(named, 0)

    def _lower(self, key: Key) -> None:
        """How many copies there are at least, and what a topic keeps at least.

        That goes by its own configuration: no other is ever changed here.
        """
        copies = self.min_isr(key)
        self.copies[key] = min(copies, self.copies.get(key, copies))
        own = self.configs.get((_TOPIC, self.topics[key[0]]), {})
        limits = [float(own.get(name, default)) for name, default in RETENTION.items()]
        if "delete" not in own.get("cleanup.policy", "delete"):
            limits = [-1.0] * len(limits)
        policy = Policy(*(inf if limit < 0 else limit for limit in limits))
        self.policies[key[0]] = policy.or_less(self.policies.get(key[0], policy))

    def compare(self, node: int, image: MetadataImage) -> None:
        """Hold a broker's image against the records, when it is as new as they are."""
        if image.offset + 1 != self.end:
            return
        seen = {one.key: one for one in image.partitions()}
        for key, state in self.partitions.items():
            one = seen.pop(key, None)
            told = None if one is None else (
                one.replicas, one.isr, one.leader, one.leader_epoch, one.partition_epoch, one.elr
            )  # fmt: skip
            truth = (
                state.replicas, state.isr, state.leader, state.leader_epoch,
                state.partition_epoch, state.elr,
            )  # fmt: skip
            if told != truth:
                self.fail(
                    Invariant.IMAGES_AGREE,
                    f"{self.name(key)} at metadata offset {image.offset}: broker {node} has {told},"
                    f" committed is {truth}",
                )
        if seen:
            self.fail(
                Invariant.IMAGES_AGREE,
                f"broker {node} has partitions that no record makes: {sorted(seen)}",
            )

    def find(self, topic: str, partition: int) -> Key | None:
        """The key of a partition by the name of a topic that there is."""
        found = (
            key
            for key in self.partitions
            if key[1] == partition and self.topics.get(key[0]) == topic
        )
        return next(found, None)

    def name(self, key: Key) -> str:
        return f"{self.topics.get(key[0], key[0].hex())}-{key[1]}"

    # -- records -------------------------------------------------------------------------------

    def _created(self, record: Any) -> None:
        key = (bytes(record.topic_id), record.partition_id)
        state = State(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known=tuple(record.last_known_elr or ()),
            adding=tuple(record.adding_replicas),
            removing=tuple(record.removing_replicas),
            recovery=record.leader_recovery_state,
        )
        is_new = key not in self.partitions
        self._enter(key, state, before=state if is_new else None, joined=state.isr)

    def _changed(self, record: Any) -> None:
        key = (bytes(record.topic_id), record.partition_id)
        before = self.partitions.get(key)
        if before is None:
            self.fail(Invariant.RECORDS_FOLLOW, f"a change of no partition: {record}")
            return
        leads = record.leader != _UNCHANGED
        state = replace(
            before,
            replicas=_or(record.replicas, before.replicas),
            isr=_or(record.isr, before.isr),
            leader=record.leader if leads else before.leader,
            leader_epoch=before.leader_epoch + (1 if leads else 0),
            partition_epoch=before.partition_epoch + 1,
            elr=_or(record.eligible_leader_replicas, before.elr),
            last_known=_or(record.last_known_elr, before.last_known),
            adding=_or(record.adding_replicas, before.adding),
            removing=_or(record.removing_replicas, before.removing),
            recovery=(
                before.recovery
                if record.leader_recovery_state == -1
                else record.leader_recovery_state
            ),
        )
        self._count(before, state, leads)
        joined = [node for node in state.isr if node not in before.isr]
        self._enter(key, state, before=before if leads else None, joined=joined)

    def _enter(
        self, key: Key, state: State, *, before: State | None, joined: Iterable[int]
    ) -> None:
        """A partition is like this now. `before`: what it was, if its leader epoch is a new one."""
        self.partitions[key] = state
        self._changed_keys[key] = None
        self._check(key, state)
        if before is not None and state.leader >= 0:
            self.elected(key, state.leader_epoch, self._election(key, before, state))
        self._joined += [(key, node) for node in joined]

    def _election(self, key: Key, before: State, state: State) -> Election:
        name = self.topics.get(key[0], "")
        moving, moved = before.adding or before.removing, not (state.adding or state.removing)
        # A reassignment ends with the ISR that the leader has just asked for, and vouches for.
        joined = state.isr if moving and moved and before.leader >= 0 else ()
        election = Election(
            leader=state.leader,
            isr_before=tuple(dict.fromkeys([*before.isr, *joined])),
            elr_before=before.elr,
            elr_after=state.elr,
            last_known=(*before.last_known, *state.last_known, before.leader),
            elr_on=self.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0,
            unclean_allowed=self.allows_unclean(key) or (name, key[1]) in self.operator_unclean,
            recovering=before.recovery != 0,
        )
        if not election.is_clean:
            self.counts["unclean elections"] += 1
        if not election.is_legal:
            self.fail(
                Invariant.CLEAN_ELECTION,
                f"{self.name(key)}: {election}",
            )
        return election

    def own_config(self, topic_id: bytes, key: str, default: str) -> str:
        """Return what a topic that there is was made with."""
        return self.configs.get((_TOPIC, self.topics.get(topic_id, "")), {}).get(key, default)

    def _config(self, topic: str, key: str, default: str) -> str:
        own = self.configs.get((_TOPIC, topic), {})
        cluster = self.configs.get((_BROKER, ""), {})
        return own.get(key) or cluster.get(key) or self.static.get(key, default)

    def _count(self, before: State, state: State, leads: bool) -> None:
        moved, moves = before.adding or before.removing, state.adding or state.removing
        events = {
            "elections": leads and state.leader >= 0,
            "partitions left without a leader": leads and state.leader < 0,
            "ISR shrinks": len(state.isr) < len(before.isr),
            "ISR expansions": len(state.isr) > len(before.isr),
            "eligible leader replicas used": state.elr and not before.elr,
            "leaders in recovery": state.recovery and not before.recovery,
            "reassignments begun": moves and not moved,
            "reassignments ended": moved and not moves,
        }
        self.counts.update(name for name, happened in events.items() if happened)

    def _check(self, key: Key, state: State) -> None:
        broken = {
            Invariant.ISR_HAS_LEADER: state.leader >= 0 and state.leader not in state.isr,
            Invariant.ISR_OF_REPLICAS: not set(state.isr) <= set(state.replicas),
            Invariant.ISR_OR_ELR: bool(set(state.isr) & set(state.elr)),
            Invariant.NOBODY_TWICE: len(set(state.isr)) != len(state.isr)
            or len(set(state.replicas)) != len(state.replicas),
        }
        for invariant, is_broken in broken.items():
            if is_broken:
                self.fail(invariant, f"{self.name(key)}: {state}")

    def _check_joined(self, key: Key, node: int) -> None:
        state, broker = self.partitions.get(key), self.brokers.get(node)
        joined = state is not None and node in state.isr
        if joined and (broker is None or not broker.active):
            self.fail(
                Invariant.ISR_OF_ACTIVE,
                f"{self.name(key)}: {node} is {broker}; {state}",
            )

    def _named(self, record: Any) -> None:
        self.topics[bytes(record.topic_id)] = record.name
        self.counts["topics created"] += 1

    def _removed(self, record: Any) -> None:
        topic_id = bytes(record.topic_id)
        self.removed[topic_id] = self.end
        for key in [key for key in self.partitions if key[0] == topic_id]:
            del self.partitions[key]
            # Copies go as each broker hears of it; one that hears late may still commit what they
            # had told it of.
            self.copies.pop(key, None)
        self.configs.pop((_TOPIC, self.topics.get(topic_id, "")), None)
        self.counts["topics deleted"] += 1

    def _configured(self, record: Any) -> None:
        configs = self.configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if record.name in {MIN_INSYNC, *RETENTION}:
            self._changed_keys |= dict.fromkeys(self.partitions)
        self.counts["configurations changed"] += 1

    def _cleared(self, record: Any) -> None:
        """A min ISR has changed: who was eligible is so no more (KIP-966)."""
        for key, state in list(self.partitions.items()):
            named = not record.topic_name or self.topics[key[0]] == record.topic_name
            if named and (state.elr or state.last_known):
                self.partitions[key] = replace(
                    state, elr=(), last_known=(), partition_epoch=state.partition_epoch + 1
                )
                self.cleared[key] = None
                self.counts["eligible leader replicas cleared"] += 1

    def _feature(self, record: Any) -> None:
        self.features[record.name] = record.feature_level

    def _registered(self, record: Any) -> None:
        before = self.brokers.get(record.broker_id)
        if before is not None and record.broker_epoch < before.epoch:
            self.fail(Invariant.BROKER_EPOCHS_RISE, f"{before} then {record}")
        self.brokers[record.broker_id] = _Member(
            record.broker_epoch, record.fenced, record.in_controlled_shutdown
        )
        self.counts["registrations"] += 1

    def _unregistered(self, record: Any) -> None:
        self.brokers.pop(record.broker_id, None)
        self.counts["brokers unregistered"] += 1

    def _fenced(self, record: Any) -> None:
        self.brokers[record.id].fenced = True
        self._count_fenced(record.id)

    def _count_fenced(self, node: int) -> None:
        self.was_fenced(node)
        self.counts["brokers fenced"] += 1

    def _unfenced(self, record: Any) -> None:
        self.brokers[record.id].fenced = False

    def _registration_changed(self, record: Any) -> None:
        broker = self.brokers[record.broker_id]
        if record.fenced > 0 and not broker.fenced:
            self._count_fenced(record.broker_id)
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.leaving = record.in_controlled_shutdown > 0
            self.counts["controlled shutdowns"] += broker.leaving


def _or(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


_APPLY: dict[type, Callable[[Metadata, Any], None]] = {
    wire.TopicRecord: Metadata._named,  # noqa: SLF001 - a table of its own methods
    wire.RemoveTopicRecord: Metadata._removed,  # noqa: SLF001
    wire.PartitionRecord: Metadata._created,  # noqa: SLF001
    wire.PartitionChangeRecord: Metadata._changed,  # noqa: SLF001
    wire.ClearElrRecord: Metadata._cleared,  # noqa: SLF001
    wire.ConfigRecord: Metadata._configured,  # noqa: SLF001
    wire.FeatureLevelRecord: Metadata._feature,  # noqa: SLF001
    wire.RegisterBrokerRecord: Metadata._registered,  # noqa: SLF001
    wire.UnregisterBrokerRecord: Metadata._unregistered,  # noqa: SLF001
    wire.FenceBrokerRecord: Metadata._fenced,  # noqa: SLF001
    wire.UnfenceBrokerRecord: Metadata._unfenced,  # noqa: SLF001
    wire.BrokerRegistrationChangeRecord: Metadata._registration_changed,  # noqa: SLF001
}
