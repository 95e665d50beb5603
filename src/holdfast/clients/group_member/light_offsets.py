"""A member's commits and the offsets that its group has. Pure: requests made, answers read.

They may be on the way beside the member's other requests, any number of them. What refuses one says
nothing to the member: its next heartbeat is told the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.clients.group_member.light_member import LightMember, Partition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

COMMIT_VERSION_MAX: Final = 9  # the last that names topics; older ones can't carry KIP-848's epochs
FETCH_VERSION_MAX: Final = 9  # the last that names topics
_NO_OFFSET: Final = -1


def commit_of(member: LightMember, offsets: Mapping[Partition, int]) -> OffsetCommitRequest:
    """Return the request that commits these as this member."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        one = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, []).append(one)
    return OffsetCommitRequest(
        group_id=member.plan.group_id,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        group_instance_id=member.plan.instance_id,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def refusals_of(answer: OffsetCommitResponse) -> dict[Partition, int]:
    """Return the error code of each partition whose commit was refused."""
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code
    }


def fetch_of(member: LightMember, partitions: Iterable[Partition]) -> OffsetFetchRequest:
    """Return the request for what the member's group has committed of these."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    group = OffsetFetchRequestGroup(
        group_id=member.plan.group_id,
        # A classic member's generation is no member epoch: it asks as anybody does.
        member_id=member.member_id if member.has_member_epoch else None,
        member_epoch=member.epoch if member.has_member_epoch else -1,
        topics=[
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=True)


def offsets_of(answer: OffsetFetchResponse) -> tuple[dict[Partition, int], int]:
    """Return what is committed, and the first error code that there is, or none.

    A partition of which nothing is committed is not there.
    """
    (group,) = answer.groups
    found: dict[Partition, int] = {}
    code = group.error_code
    for topic in group.topics:
        for one in topic.partitions:
            code = code or one.error_code
            if one.error_code == ErrorCode.NONE and one.committed_offset != _NO_OFFSET:
                found[topic.name, one.partition_index] = one.committed_offset
    return found, code
