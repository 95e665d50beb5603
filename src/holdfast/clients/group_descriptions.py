"""Groups as any Kafka describes them: which there are, who is in them, what they have committed.

Owns the asking, of both kinds of groups (classic, and KIP-848's "consumer"), and what older brokers
tell. Codes that brokers refuse with come back as values, group by group.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.clients.blocking_driver import Driver, Peer, UnsupportedError
from holdfast.clients.group_coordinators import (
    PATIENCE_S,
    Answers,
    Coordinator,
    Coordinators,
    passes,
    refusal,
)
from holdfast.wire.administration import AdminError, TopicPartition
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.groups.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.list_groups import ListGroupsRequest
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
DEAD: Final = "Dead"
EMPTY: Final = "Empty"
STABLE: Final = "Stable"
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    STABLE,
    DEAD,
    EMPTY,
    "Assigning",
    "Reconciling",
)
TYPES: Final = (CONSUMER, CLASSIC)
# What consumers say that they are; "": offsets that were committed without any member.
OF_CONSUMERS: Final = frozenset({PROTOCOL_TYPE, ""})

FIRST_VERSION_WITH_STATES: Final = 4
FIRST_VERSION_WITH_TYPES: Final = 5
FIRST_VERSION_OF_MANY_GROUPS: Final = 8
LAST_VERSION_BY_NAME: Final = 9
_MEMBER_IS_CONSUMER: Final = 1
_PAUSE_S: Final = 0.1

Assignment = Mapping[str, Sequence[int]]
"""Partitions by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One group of a list. State or type "": an older broker, which does not tell."""

    group: str
    protocol_type: str
    state: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group. Epochs and target None: classic groups have none."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Assignment
    epoch: int | None = None
    target: Assignment | None = None
    upgraded: bool | None = None  # whether it speaks the protocol of its group; None: not told

    @property
    def size(self) -> int:
        """How many partitions it has."""
        return sum(map(len, self.assignment.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One group. Epochs None: classic groups have none."""

    group: str
    type: str
    state: str
    coordinator: Coordinator
    assignor: str
    epoch: int | None = None
    target_epoch: int | None = None
    members: list[Member] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed of a partition. Epoch -1: not told."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


# Which groups there are.


def listed(
    driver: Driver,
    *,
    states: Collection[str] = (),
    types: Collection[str] = (),
    patience_s: float = PATIENCE_S,
) -> list[Listing]:
    """Return the groups of consumers of all brokers, by name; of these states and types, if any.

    AdminError: a broker refuses, or is too old to choose so.
    """
    found: dict[str, Listing] = {}
    for node in sorted(driver.nodes()):
        for one in _of_broker(driver, node, states, types, patience_s):
            known = found.get(one.group_id)
            # A group that moves meanwhile is told twice; who has it empty has it no longer.
            if known is None or known.state == DEAD:
                found[one.group_id] = Listing(
                    group=one.group_id,
                    protocol_type=one.protocol_type,
                    state=one.group_state,
                    type=one.group_type.capitalize(),
                )
    return [found[name] for name in sorted(found) if found[name].protocol_type in OF_CONSUMERS]


def group_names(driver: Driver, *, patience_s: float = PATIENCE_S) -> set[str]:
    """Return the groups of all brokers, of whatever kind. AdminError: a broker refuses."""
    return {
        one.group_id
        for node in sorted(driver.nodes())
        for one in _of_broker(driver, node, (), (), patience_s)
    }


def _of_broker(
    driver: Driver, node: int, states: Collection[str], types: Collection[str], patience_s: float
) -> Sequence[Any]:
    peer = driver.peer(node)
    version = peer.version_of(ListGroupsRequest)
    if (states and version < FIRST_VERSION_WITH_STATES) or (
        types and version < FIRST_VERSION_WITH_TYPES
    ):
        raise AdminError(
            f"listing the groups of broker {node}",
            ErrorCode.UNSUPPORTED_VERSION,
            "it is too old to choose groups by their state or type",
        )
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    deadline = time.monotonic() + patience_s
    while True:
        response = peer.send(request)
        if not response.error_code:
            return response.groups  # type: ignore[no-any-return]
        error = AdminError(f"listing the groups of broker {node}", response.error_code)
        if not passes(error) or time.monotonic() >= deadline:
            raise error
        time.sleep(_PAUSE_S)


# Who is in them.


def described(coordinators: Coordinators, groups: Sequence[str]) -> Answers[Description]:
    """Describe groups. One that isn't there is refused with GROUP_ID_NOT_FOUND, or is Dead."""
    found: Answers[Description] = {}
    with suppress(UnsupportedError):  # brokers before KIP-848: all groups are classic there
        found = coordinators.ask(groups, lambda peer, some: _consumer(coordinators, peer, some))
    classic = [group for group in groups if _may_be_classic(found.get(group))]
    if classic:
        found |= coordinators.ask(classic, lambda peer, some: _classic(coordinators, peer, some))
    return found


def _may_be_classic(answer: Description | AdminError | None) -> bool:
    return answer is None or (
        isinstance(answer, AdminError)
        and answer.code in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
    )


def _consumer(
    coordinators: Coordinators, peer: Peer, groups: Sequence[str]
) -> Answers[Description]:
    response = peer.send(ConsumerGroupDescribeRequest(group_ids=list(groups)))
    found: Answers[Description] = {}
    for one in response.groups:
        if one.error_code:
            found[one.group_id] = refusal(
                "describing", one.group_id, one.error_code, one.error_message
            )
            continue
        found[one.group_id] = Description(
            group=one.group_id,
            type=CONSUMER,
            state=one.group_state,
            coordinator=coordinators.of(one.group_id),
            assignor=one.assignor_name,
            epoch=one.group_epoch,
            target_epoch=one.assignment_epoch,
            members=[_consumer_member(member) for member in one.members],
        )
    return found


def _consumer_member(member: Any) -> Member:
    return Member(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_by_topic(member.assignment),
        epoch=member.member_epoch,
        target=_by_topic(member.target_assignment),
        upgraded=None if member.member_type < 0 else member.member_type == _MEMBER_IS_CONSUMER,
    )


def _by_topic(assignment: Any) -> Assignment:
    return {each.topic_name: list(each.partitions) for each in assignment.topic_partitions}


def _classic(coordinators: Coordinators, peer: Peer, groups: Sequence[str]) -> Answers[Description]:
    response = peer.send(DescribeGroupsRequest(groups=list(groups)))
    found: Answers[Description] = {}
    for one in response.groups:
        name = one.group_id
        if one.error_code:
            found[name] = refusal("describing", name, one.error_code, one.error_message)
        elif one.protocol_type not in OF_CONSUMERS:
            why = f"it is no group of consumers but of {one.protocol_type!r}"
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            found[name] = refusal("describing", name, code, why)
        else:
            found[name] = Description(
                group=name,
                type=CLASSIC,
                state=one.group_state,
                coordinator=coordinators.of(name),
                assignor=one.protocol_data,
                members=[_classic_member(member) for member in one.members],
            )
    return found


def _classic_member(member: Any) -> Member:
    return Member(
        id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_embedded(member.member_assignment),
    )


def _embedded(data: bytes | memoryview) -> Assignment:
    """Return what a group's leader has written for a member; nothing before it has."""
    if not data:
        return {}
    try:
        parts = decode_assignment(data).assigned_partitions
    except WireError:  # a client's own format, which nobody else can read
        return {}
    found: dict[str, list[int]] = {}
    for part in parts:
        found.setdefault(part.topic, []).extend(part.partitions)
    return found


# What they have committed.


def committed(
    coordinators: Coordinators, groups: Sequence[str]
) -> Answers[dict[TopicPartition, Committed]]:
    """Return all that groups have committed. A group that isn't there has committed nothing."""
    return coordinators.ask(groups, _committed)


def _committed(peer: Peer, groups: Sequence[str]) -> Answers[dict[TopicPartition, Committed]]:
    version = min(peer.version_of(OffsetFetchRequest), LAST_VERSION_BY_NAME)
    if version >= FIRST_VERSION_OF_MANY_GROUPS:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        )
        answered = peer.send(request, version=version).groups
        return {one.group_id: _offsets(one.group_id, one) for one in answered}
    return {
        group: _offsets(
            group, peer.send(OffsetFetchRequest(group_id=group, topics=None), version=version)
        )
        for group in groups
    }


def _offsets(group: str, answered: Any) -> dict[TopicPartition, Committed] | AdminError:
    if answered.error_code:
        return refusal("fetching offsets of", group, answered.error_code)
    found: dict[TopicPartition, Committed] = {}
    for topic in answered.topics:
        for one in topic.partitions:
            if one.error_code:
                what = f"{topic.name}-{one.partition_index}"
                return refusal("fetching offsets of", group, one.error_code, what)
            if one.committed_offset >= 0:
                found[topic.name, one.partition_index] = Committed(
                    one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                )
    return found
