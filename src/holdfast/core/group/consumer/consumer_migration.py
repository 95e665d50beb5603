"""How a classic group becomes one of the consumer protocol, and back, while it has members.

Up: when a member of the consumer protocol joins. The members there are stay, and keep what they
have. Back: when the last member of the consumer protocol goes; the members that are left rebalance
among themselves again. Records do all of it: those of the one kind are removed, and those of the
other are written.

Rules: consumer-groups.md#upgrade, consumer-groups.md#downgrade.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.core.group.assignors import NOTHING, Partitions
from holdfast.core.group.consumer.consumer_core import ConsumerCore, ConsumerSurroundings
from holdfast.core.group.consumer.consumer_epochs import all_since
from holdfast.core.group.consumer.consumer_member import (
    ConsumerMember,
    current_record,
    distinct,
    metadata_record,
)
from holdfast.core.group.consumer.consumer_protocol_bytes import (
    assignment_bytes,
    named_partitions,
)
from holdfast.core.group.consumer.consumer_records import (
    epoch_record,
    group_tombstones,
    target_epoch_record,
    target_record,
)
from holdfast.core.log_machine import Decision, KeyedRecord
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
)
from holdfast.wire.records.group_tables import (
    ClassicMemberMetadata,
    ClassicProtocol,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberFacts:
    """A member of a classic group: what it told, and what it was assigned (nothing yet: no bytes).

    `protocols` are by name, those it likes best first.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Mapping[str, bytes]
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupFacts:
    """A classic group with its members. `protocol` is None before its first generation."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    members: Sequence[ClassicMemberFacts]


TOLD_BYTES_MAX: Final = 1 << 20
"""What members may tell of themselves where a classic group changes over: all of it is read, and
written again in one batch."""


# -- up ----------------------------------------------------------------------------------------


def upgrade_records(
    classic: ClassicGroupFacts, around: ConsumerSurroundings, now_ms: int
) -> list[KeyedRecord] | Refusal:
    """Return the records that make a classic group one of the consumer protocol."""
    refusal = _refuse_upgrade(classic, around)
    if refusal is not None:
        return refusal
    members: list[ConsumerMember] = []
    for facts in classic.members:
        member = _upgraded(classic, facts, around)
        if isinstance(member, Refusal):
            return member
        members.append(member)
    group_id, epoch = classic.group_id, classic.generation
    names = dict.fromkeys(name for member in members for name in member.topics)
    metadata_hash = around.index.hash_of(names, around.topics)
    return [
        (GroupMetadataKey(group=group_id), None),
        *(metadata_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, metadata_hash),
        *(target_record(group_id, member.member_id, member.assigned) for member in members),
        target_epoch_record(group_id, epoch, now_ms),
        *(current_record(group_id, member) for member in members),
    ]


def _refuse_upgrade(classic: ClassicGroupFacts, around: ConsumerSurroundings) -> Refusal | None:
    settings = around.settings
    if not settings.migration_policy.may_upgrade:
        return _not_upgraded(classic, "online upgrade is disabled")
    if classic.protocol_type != PROTOCOL_TYPE:
        return _not_upgraded(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.max_size:
        return _not_upgraded(classic, "the group size exceeds the consumer group maximum size")
    told = sum(len(data) for member in classic.members for data in member.protocols.values())
    if told > TOLD_BYTES_MAX:
        return _not_upgraded(classic, f"its members tell {told} bytes of themselves")
    return None


def _not_upgraded(classic: ClassicGroupFacts, why: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}.",
    )


def _upgraded(
    classic: ClassicGroupFacts, facts: ClassicMemberFacts, around: ConsumerSurroundings
) -> ConsumerMember | Refusal:
    """Return a member as the new group has it: at its generation, with what it was assigned."""
    metadata = facts.protocols.get(classic.protocol or "")
    if metadata is None:  # no generation yet: all its protocols carry the same subscription
        metadata = next(iter(facts.protocols.values()))
    assigned: Partitions = NOTHING
    try:
        subscription = decode_subscription(metadata)
        if facts.assignment:
            assignment = decode_assignment(facts.assignment)
            if assignment.user_data:
                return _not_upgraded(
                    classic,
                    "an unsupported custom assignor is in use. Please refer to the documentation "
                    "or switch to a default assignor before re-attempting the upgrade",
                )
            assigned = named_partitions(assignment.assigned_partitions, around.topics)
    except WireError:
        return _not_upgraded(classic, "the embedded consumer protocol is malformed")
    return ConsumerMember(
        member_id=facts.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=facts.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=facts.rebalance_timeout_ms,
        client_id=facts.client_id,
        client_host=facts.client_host,
        topics=distinct(subscription.topics),
        assigned=assigned,
        since=all_since(assigned, classic.generation),
        classic=ClassicMemberMetadata(
            session_timeout_ms=facts.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in facts.protocols.items()
            ],
        ),
    )


# -- back --------------------------------------------------------------------------------------


def may_remove_and_downgrade(core: ConsumerCore, gone: Collection[ConsumerMember]) -> bool:
    """Whether the group becomes a classic one when these go: only classic members are left."""
    state = core.state
    left = len(state.members) - len(gone)
    classic_left = state.classic_count - sum(member.classic is not None for member in gone)
    # A group whose members are all classic has been told so; it is not asked about again.
    is_the_end = any(member.classic is None for member in gone) and classic_left == left
    return is_the_end and left > 0 and _may_downgrade(core, left) and bool(_common(core, gone))


def may_replace_and_downgrade(core: ConsumerCore, replaced: ConsumerMember) -> bool:
    """Whether the group becomes a classic one when a classic member takes this one's place."""
    state = core.state
    is_the_last = replaced.classic is None and state.classic_count == len(state.members) - 1
    if not is_the_last or not _may_downgrade(core, len(state.members)):
        return False
    return state.classic_count == 0 or bool(_common(core, [replaced]))


def _may_downgrade(core: ConsumerCore, members: int) -> bool:
    settings = core.settings
    return settings.migration_policy.may_downgrade and members <= settings.classic_max_size


def downgrade(
    core: ConsumerCore,
    decision: Decision,
    now_ms: int,
    *,
    gone: Collection[ConsumerMember],
    come: ConsumerMember | None = None,
    rebalances: bool = True,
) -> None:
    """Make the group a classic one, without `gone`, and with `come` in the place of such a one.

    Afterwards the classic group is to give all members a session and, if it `rebalances`, to begin
    a rebalance: the surroundings say so.
    """
    state, group_id = core.state, core.group_id
    out = {member.member_id for member in gone}
    ids = [member_id for member_id in state.members if come is None or member_id not in out]
    if come is not None:
        ids.append(come.member_id)
    for record in group_tombstones(group_id, ids, state.patterns):
        decision.append(*record)
    members = [member for member in state.members.values() if member.member_id not in out]
    targets = {member.member_id: state.target_of(member) for member in members}
    if come is not None:
        members.append(come)
        targets[come.member_id] = state.target_of(come)
    protocol = _common_protocol(members)
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=state.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        current_state_timestamp=now_ms,
        members=[_downgraded(core, each, protocol, targets[each.member_id]) for each in members],
    )
    decision.append(GroupMetadataKey(group=group_id), value)
    decision.once_applied(lambda: core.around.note_downgrade(group_id, rebalances=rebalances))


def _common(core: ConsumerCore, gone: Collection[ConsumerMember]) -> list[str]:
    """Return the protocols that all classic members have, without `gone`.

    None of them would be let in without one; but a log may say anything.
    """
    out = {member.member_id for member in gone}
    return _common_names(
        [member for member in core.state.members.values() if member.member_id not in out]
    )


def _common_names(members: Iterable[ConsumerMember]) -> list[str]:
    names = _names_of(members)
    having = Counter(name for each in names for name in dict.fromkeys(each))
    return [name for name in dict.fromkeys(names[0]) if having[name] == len(names)] if names else []


def _names_of(members: Iterable[ConsumerMember]) -> list[list[str]]:
    return [
        [protocol.name for protocol in member.classic.supported_protocols]
        for member in members
        if member.classic is not None
    ]


def _common_protocol(members: Sequence[ConsumerMember]) -> str:
    """Return the protocol that most members like best, among those that all of them have."""
    common = _common_names(members)
    votes = Counter(next(name for name in each if name in common) for each in _names_of(members))
    return max(common, key=lambda name: votes[name])


def _downgraded(
    core: ConsumerCore, member: ConsumerMember, protocol: str, target: Partitions
) -> GroupMetadataMember:
    assert member.classic is not None, "it speaks the classic protocol"
    protocols = member.classic.supported_protocols
    return GroupMetadataMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.classic.session_timeout_ms,
        subscription=next(bytes(each.metadata) for each in protocols if each.name == protocol),
        assignment=assignment_bytes(target, member, core.around.topics, protocol),
    )
