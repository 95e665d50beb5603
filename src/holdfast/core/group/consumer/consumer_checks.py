"""What a ConsumerGroupHeartbeat must be like before a group looks at it, and who may be in a group.

Rules: consumer-groups.md#requests, consumer-groups.md#fencing, consumer-groups.md#static-members.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_core import ConsumerCore
from holdfast.core.group.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    told_bytes,
)
from holdfast.core.group.consumer.consumer_settings import ConsumerGroupSettings
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

OWN_MEMBER_ID_SINCE: Final = 1  # from this version on clients make their member id


def refuse_request(
    request: ConsumerGroupHeartbeatRequest, version: int, settings: ConsumerGroupSettings
) -> Refusal | None:
    """Return what is wrong with a request, whichever group it is for."""
    epoch = request.member_epoch
    needs_id = version >= OWN_MEMBER_ID_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    if needs_id and _is_blank(request.member_id):
        return _invalid("MemberId can't be empty.")
    if _is_blank(request.group_id):
        return _invalid("GroupId can't be empty.")
    if request.instance_id is not None and _is_blank(request.instance_id):
        return _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and _is_blank(request.rack_id):
        return _invalid("RackId can't be empty.")
    refusal = _refuse_epoch(request)
    if refusal is not None:
        return refusal
    assignor = request.server_assignor
    if assignor is not None and assignor not in settings.assignors:
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(settings.assignors)}.",
        )
    return None


def _refuse_epoch(request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
    """Return what a request lacks that joins or leaves."""
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            return _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            return _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        return _invalid("MemberEpoch is invalid.")
    return None


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def refuse_full(core: ConsumerCore, member_id: str) -> Refusal | None:
    """Return a refusal for who would be one too many."""
    size_max = core.settings.max_size
    members = core.state.members
    if len(members) < size_max or member_id in members:
        return None
    return Refusal(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {size_max} members.",
    )


def refuse_bytes(
    core: ConsumerCore, before: ConsumerMember, after: ConsumerMember
) -> Refusal | None:
    """Return a refusal for who tells more of itself than there is room for in the group."""
    more = told_bytes(after)
    if after.member_id in core.state.members or after.instance_id in core.state.static_ids:
        more -= told_bytes(before)
    bytes_max = core.settings.bytes_max
    if more > 0 and core.state.told_bytes + more > bytes_max:
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"What the members of the group tell of themselves exceeds {bytes_max} bytes.",
        )
    if not core.around.memory.has_room(more):
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            "All groups of this broker take as much memory as they may.",
        )
    return None


def refuse_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> Refusal | None:
    """Return a refusal for a member that does not join, and whose epoch isn't what it was given.

    With the epoch before it is let in if it has nothing but what is its own: the answer that gave
    it the new one may have been lost.
    """
    if epoch == member.epoch:
        return None
    if epoch > member.epoch:
        return _fenced("greater", epoch, member)
    if epoch == member.previous_epoch and owned is not None and _is_part(owned, member.assigned):
        return None
    return _fenced("smaller", epoch, member)


def _is_part(owned: Partitions, assigned: Partitions) -> bool:
    return all(
        set(numbers).issubset(assigned.get(topic_id, ())) for topic_id, numbers in owned.items()
    )


def _fenced(compared: str, epoch: int, member: ConsumerMember) -> Refusal:
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def find_member(
    core: ConsumerCore, member_id: str, instance_id: str | None
) -> ConsumerMember | Refusal:
    """Return a member that is in the group already: a static one if it is still that instance."""
    if instance_id is None:
        member = core.state.members.get(member_id)
        if member is None:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {core.group_id}.",
            )
        return member
    member = core.state.static_member(instance_id)
    if member is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def refuse_instance(existing: ConsumerMember, member_id: str) -> Refusal | None:
    """Return a refusal while the member with this instance id has not left for the time being."""
    if existing.epoch == STATIC_LEAVE_EPOCH:
        return None
    return Refusal(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {existing.instance_id} cannot join the group "
        f"because the instance id is owned by {existing.member_id} member.",
    )
