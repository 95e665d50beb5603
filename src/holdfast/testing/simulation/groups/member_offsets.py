"""Requests about committed offsets, and where in their answers what stands. Pure.

Topics go by their names, or, in the newest version, by their ids.

Rules: committed-offsets.md#committing, committed-offsets.md#fetching.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.clients.group_member.light_member import LightMember
from holdfast.testing.simulation.groups.attempts import Attempt
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from holdfast.wire.uuids import NULL_UUID

BY_NAME: Final = 9
BY_ID: Final = 10

Place: TypeAlias = tuple[str, int]
"""A topic's name, and a partition."""


class Told(NamedTuple):
    """What an answer says of one partition. `offset`: -1: nothing is committed."""

    place: Place
    offset: int
    code: ErrorCode


def commit_request(
    attempts: Sequence[Attempt], ids: Mapping[str, bytes], instance: str | None
) -> OffsetCommitRequest:
    """Return a request for attempts that are all of one member. It has names and ids."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for each in attempts:
        asked = OffsetCommitRequestPartition(
            partition_index=each.partition,
            committed_offset=each.offset,
            committed_metadata=each.name,
        )
        topics.setdefault(each.topic, []).append(asked)
    first = attempts[0]
    return OffsetCommitRequest(
        group_id=first.group,
        generation_id_or_member_epoch=first.epoch,
        member_id=first.member_id,
        group_instance_id=instance,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=ids.get(name, NULL_UUID), partitions=each)
            for name, each in topics.items()
        ],
    )


def fetch_request(
    light: LightMember, places: Iterable[Place], ids: Mapping[str, bytes], *, stable: bool
) -> OffsetFetchRequest:
    """Return what asks, as a member does, for what is committed of these."""
    topics: dict[str, list[int]] = {}
    for name, index in places:
        topics.setdefault(name, []).append(index)
    group = OffsetFetchRequestGroup(
        group_id=light.plan.group_id,
        member_id=light.member_id if light.has_member_epoch else None,
        member_epoch=light.epoch if light.has_member_epoch else -1,
        topics=[
            OffsetFetchRequestTopic(
                name=name, topic_id=ids.get(name, NULL_UUID), partition_indexes=each
            )
            for name, each in topics.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def committed_codes(answer: Any, ids: Mapping[str, bytes]) -> dict[Place, ErrorCode]:
    """Return what became of each partition of a commit."""
    return {
        (name, each.partition_index): error_code(each.error_code)
        for name, topic in _named(answer.topics, ids)
        for each in topic.partitions
    }


def fetched(group: Any, ids: Mapping[str, bytes]) -> Iterator[Told]:
    """Go through what is committed, partition by partition."""
    for name, topic in _named(group.topics, ids):
        for each in topic.partitions:
            code = error_code(each.error_code)
            yield Told((name, each.partition_index), each.committed_offset, code)


def _named(topics: Iterable[Any], ids: Mapping[str, bytes]) -> Iterator[tuple[str, Any]]:
    names = {topic_id: name for name, topic_id in ids.items()}
    for topic in topics:
        yield topic.name or names.get(bytes(topic.topic_id), ""), topic
