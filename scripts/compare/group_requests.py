"""Requests about groups, as steps need them: each with what a usual client would say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.wire.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS: Final = 300_000
RANGE: Final = "range"
SEVERAL_GROUPS_SINCE: Final = 8  # OffsetFetch
SEVERAL_LEAVERS_SINCE: Final = 3
# A topic by its name, or by its id where the version wants that.
Topic = str | bytes


def subscription(*topics: str, user_data: bytes | None = None) -> bytes:
    """Return what a classic consumer says that it wants."""
    return encode_subscription(
        ConsumerProtocolSubscription(topics=list(topics), user_data=user_data), 1
    )


ANYTHING: Final = subscription("anything")


def assignment(parts: Mapping[str, Iterable[int]], user_data: bytes | None = None) -> bytes:
    """Return what the leader of classic consumers gives to one of them."""
    return encode_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerTopicPartitions(topic=topic, partitions=list(partitions))
                for topic, partitions in parts.items()
            ],
            user_data=user_data,
        ),
        1,
    )


def join(
    group: str, member: str = "", protocols: Mapping[str, bytes] | None = None, **more: Any
) -> JoinGroupRequest:
    """Return a JoinGroup."""
    named = {RANGE: ANYTHING} if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        protocol_type=more.pop("protocol_type", PROTOCOL_TYPE),
        protocols=[JoinGroupRequestProtocol(name=name, metadata=it) for name, it in named.items()],
        session_timeout_ms=more.pop("session_timeout_ms", SESSION_MS),
        rebalance_timeout_ms=more.pop("rebalance_timeout_ms", SESSION_MS),
        **more,
    )


def sync(
    group: str,
    generation: int,
    member: str,
    assignments: Mapping[str, bytes] | None = None,
    **more: Any,
) -> SyncGroupRequest:
    """Return a SyncGroup; it brings assignments if its member leads."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type=more.pop("protocol_type", PROTOCOL_TYPE),
        protocol_name=more.pop("protocol_name", RANGE),
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=it)
            for name, it in (assignments or {}).items()
        ],
        **more,
    )


def beat(group: str, generation: int, member: str, instance: str | None = None) -> HeartbeatRequest:
    """Return a Heartbeat."""
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )


def leave(
    group: str, *members: tuple[str, str | None], version: int = SEVERAL_LEAVERS_SINCE
) -> LeaveGroupRequest:
    """Return a LeaveGroup of (member id, instance id) pairs; the first alone in old versions."""
    if version < SEVERAL_LEAVERS_SINCE:
        return LeaveGroupRequest(group_id=group, member_id=members[0][0])
    return LeaveGroupRequest(
        group_id=group,
        members=[MemberIdentity(member_id=one, group_instance_id=it) for one, it in members],
    )


def commit(
    group: str,
    offsets: Mapping[Topic, Mapping[int, int]],
    *,
    metadata: str | None = "",
    member: str = "",
    epoch: int = -1,
    **more: Any,
) -> OffsetCommitRequest:
    """Return an OffsetCommit of an offset for each partition."""
    leader_epoch = more.pop("committed_leader_epoch", -1)
    return OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                **_named(topic),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset in partitions.items()
                ],
            )
            for topic, partitions in offsets.items()
        ],
        **more,
    )


def fetch(
    group: str,
    topics: Mapping[Topic, list[int]] | None = None,
    *,
    version: int = SEVERAL_GROUPS_SINCE,
    **more: Any,
) -> OffsetFetchRequest:
    """Return an OffsetFetch of one group: of some partitions, or of all."""
    named = None
    if topics is not None:
        named = [
            OffsetFetchRequestTopic(**_named(topic), partition_indexes=partitions)
            for topic, partitions in topics.items()
        ]
    stable = more.pop("require_stable", False)
    if version < SEVERAL_GROUPS_SINCE:
        return OffsetFetchRequest(group_id=group, topics=named, require_stable=stable)
    one = OffsetFetchRequestGroup(group_id=group, topics=named, **more)
    return OffsetFetchRequest(groups=[one], require_stable=stable)


def delete_offsets(group: str, topics: Mapping[str, list[int]]) -> OffsetDeleteRequest:
    """Return an OffsetDelete."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=one) for one in indexes],
            )
            for topic, indexes in topics.items()
        ],
    )


def consume(
    group: str,
    member: str,
    epoch: int,
    topics: list[str] | None = None,
    owned: Mapping[bytes, list[int]] | None = None,
    **more: Any,
) -> ConsumerGroupHeartbeatRequest:
    """Return a ConsumerGroupHeartbeat, with all that a member says when it joins."""
    if epoch == 0:
        more.setdefault("rebalance_timeout_ms", SESSION_MS)
        owned = {} if owned is None else owned
    partitions = None
    if owned is not None:
        partitions = [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in owned.items()
        ]
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=topics,
        topic_partitions=partitions,
        **more,
    )


def _named(topic: Topic) -> dict[str, Any]:
    return {"name": topic} if isinstance(topic, str) else {"name": "", "topic_id": topic}
