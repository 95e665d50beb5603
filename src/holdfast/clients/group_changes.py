"""Changes of groups that have nobody in them: their offsets set and deleted, they themselves gone.

Each is one request to the coordinator; refusals that pass are waited out as `group_coordinators`
does. An answer that is lost is an error: whether it was done, the next look says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.clients.blocking_driver import Peer
from holdfast.clients.group_coordinators import (
    Answers,
    Coordinators,
    Put,
    passes,
    refusal,
)
from holdfast.wire.administration import AdminError, TopicPartition
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
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

# From the next one on, a commit names topics by their ids.
LAST_VERSION_BY_NAME: Final = 9

Outcomes = dict[TopicPartition, AdminError | None]
"""Of each partition, why it was refused; None: it was not."""


def commit_offsets(
    coordinators: Coordinators, group: str, offsets: Mapping[TopicPartition, int]
) -> Outcomes:
    """Set committed offsets from outside, which a group takes while it has no member.

    AdminError: the whole request is refused, because of the coordinator.
    """
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, topics=list(topics.values())
    )

    def put(peer: Peer, _groups: Sequence[str]) -> Answers[Outcomes]:
        version = min(peer.version_of(request), LAST_VERSION_BY_NAME)
        answered = peer.send(request, version=version).topics
        return {group: _outcomes(group, "committing for", answered)}

    return _of_one(coordinators, group, put)


def delete_offsets(
    coordinators: Coordinators, group: str, partitions: Iterable[TopicPartition]
) -> Outcomes:
    """Forget what a group has committed of partitions whose topics it doesn't read now.

    AdminError: the whole request is refused.
    """
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
        topic.partitions.append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))

    def put(peer: Peer, _groups: Sequence[str]) -> Answers[Outcomes]:
        response = peer.send(request)
        if response.error_code:
            return {group: refusal("deleting offsets of", group, response.error_code)}
        return {group: _outcomes(group, "deleting offsets of", response.topics)}

    return _of_one(coordinators, group, put)


def delete_groups(coordinators: Coordinators, groups: Sequence[str]) -> Answers[None]:
    """Delete groups with all that they have committed; those with members refuse."""

    def put(peer: Peer, some: Sequence[str]) -> Answers[None]:
        return {
            one.group_id: refusal("deleting", one.group_id, one.error_code)
            if one.error_code
            else None
            for one in peer.send(DeleteGroupsRequest(groups_names=list(some))).results
        }

    return coordinators.ask(groups, put)


def _of_one(coordinators: Coordinators, group: str, put: Put[Outcomes]) -> Outcomes:
    answer = coordinators.ask([group], put)[group]
    if isinstance(answer, AdminError):
        raise answer
    return answer


def _outcomes(group: str, doing: str, topics: Iterable[Any]) -> Outcomes | AdminError:
    """Return what became of each partition, or the refusal that goes by, whichever has it."""
    found: Outcomes = {}
    for topic in topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            found[key] = None
            if one.error_code:
                subject = f"{topic.name}-{one.partition_index}"
                error = AdminError(f"{doing} group {group}", one.error_code, subject=subject)
                if passes(error):  # of the coordinator, so it is the same for all of them
                    return error
                found[key] = error
    return found
