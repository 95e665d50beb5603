"""OffsetCommit, OffsetFetch and OffsetDelete of one group. Whether they may is the group's to say.

Topics come with their names: a request that names them by ids was resolved before, and keeps the
ids in its answer.

Rules: committed-offsets.md#committing, committed-offsets.md#fetching,
committed-offsets.md#deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from holdfast.core.group.any_group import Caller, NumberedPartition
from holdfast.core.group.append_errors import append_error, commit_append_error
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.group.offsets.offset_store import OffsetStore, TopicOffsets, bytes_of_offset
from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from holdfast.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from holdfast.wire.records.offset_records import NO_EXPIRY, CommittedOffset, OffsetKey
from holdfast.wire.uuids import NULL_UUID

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1
_RETENTION_OF_BROKER: Final = -1
_TIME_MAX: Final = 2**63 - 1


# -- committing --------------------------------------------------------------------------------


def commit(
    store: OffsetStore,
    settings: GroupSettings,
    room: int,
    decision: Decision,
    caller: Caller,
    request: OffsetCommitRequest,
    now_ms: int,
) -> None:
    """Write the offsets of a request that may commit. Each partition has its own result.

    There is room for so many bytes of new ones.
    """
    retention_ms = request.retention_time_ms
    expires_ms = NO_EXPIRY
    if retention_ms != _RETENTION_OF_BROKER:
        expires_ms = min(max(now_ms + retention_ms, 0), _TIME_MAX)
    response = OffsetCommitResponse()
    for topic in request.topics:
        group_id, name, topic_id = request.group_id, topic.name, bytes(topic.topic_id)
        known = store.offsets_of(group_id, name)
        answered: list[OffsetCommitResponsePartition] = []
        for asked in topic.partitions:
            index, metadata = asked.partition_index, asked.committed_metadata or ""
            code = _check_metadata(metadata, settings) if metadata else ErrorCode.NONE
            if index not in known:
                room -= bytes_of_offset(metadata)
                if room < 0 and code is ErrorCode.NONE:
                    code = ErrorCode.POLICY_VIOLATION
            if code is ErrorCode.NONE:
                committed = CommittedOffset(
                    asked.committed_offset,
                    asked.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expires_ms,
                    topic_id,
                )
                decision.append(OffsetKey(group_id, name, index), committed)
            answered.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
        response.topics.append(
            OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=answered)
        )
    decision.answer(
        caller.call, response, lambda code: commit_refused(request, commit_append_error(code))
    )


def acceptable(
    request: OffsetCommitRequest, settings: GroupSettings
) -> Iterator[NumberedPartition]:
    """Yield the partitions that the group has to agree to: those that nothing speaks against."""
    for topic in request.topics:
        for asked in topic.partitions:
            if _check_metadata(asked.committed_metadata or "", settings) is ErrorCode.NONE:
                yield bytes(topic.topic_id), asked.partition_index


def _check_metadata(metadata: str, settings: GroupSettings) -> ErrorCode:
    """Hold metadata against its bound, which Apache Kafka counts in units of UTF-16."""
    most = settings.offset_metadata_max
    if 2 * len(metadata) <= most:
        return ErrorCode.NONE
    units = len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if units > most else ErrorCode.NONE


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Answer every partition with the same error: there is none for all of them."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def transaction_refused(
    request: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """The same for offsets that a transaction commits."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# -- fetching ----------------------------------------------------------------------------------


def _not_known(_topic: str) -> bytes:
    return NULL_UUID


def _partitions_of(topic_id: bytes, offsets: TopicOffsets) -> list[int]:
    """Return the partitions whose offset may be of this topic."""
    return [index for index, kept in offsets.items() if CommittedOffset._make(kept).is_of(topic_id)]


def fetch(
    store: OffsetStore,
    request: OffsetFetchRequestGroup,
    *,
    require_stable: bool,
    id_now: Callable[[str], bytes] = _not_known,
) -> OffsetFetchResponseGroup:
    """Read a group's offsets: those that are asked for, each once, or all.

    A topic has none of another one that had its name, also where it is asked for by that: which one
    is meant then `id_now` says, NULL_UUID for one that is not there.
    """
    group_id = request.group_id
    wanted: Iterable[tuple[str, bytes, Iterable[int]]]
    if request.topics is None:
        wanted = (
            (topic, NULL_UUID, indexes)
            for topic, each in store.topics_of(group_id)
            if (indexes := _partitions_of(id_now(topic), each))
        )
    else:
        # Four bytes that name a partition again would be answered with what it has for metadata.
        named: dict[tuple[str, bytes], dict[int, None]] = {}
        for topic in request.topics:
            key = topic.name, bytes(topic.topic_id)
            named.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
        wanted = ((name, topic_id, indexes) for (name, topic_id), indexes in named.items())
    topics = [
        OffsetFetchResponseTopic(
            name=topic,
            topic_id=topic_id,
            partitions=[
                _fetched(
                    index,
                    store.get(group_id, topic, index),
                    id_now(topic) if topic_id == NULL_UUID else topic_id,
                    is_unstable=require_stable and is_unstable(group_id, topic, index),
                )
                for index in partitions
            ],
        )
        for topic, topic_id, partitions in wanted
    ]
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def is_unstable(_group_id: str, _topic: str, _partition: int) -> bool:
    """Whether an open transaction has an offset of this partition: the door for transactions."""
    return False


def _fetched(
    index: int, committed: CommittedOffset | None, topic_id: bytes, *, is_unstable: bool
) -> OffsetFetchResponsePartition:
    if is_unstable or committed is None or not committed.is_of(topic_id):
        return OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=_NO_OFFSET,
            committed_leader_epoch=_NO_EPOCH,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE,
        )
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


# -- deleting ----------------------------------------------------------------------------------


def delete(
    store: OffsetStore,
    subscribes_to: Callable[[str], bool],
    decision: Decision,
    caller: Caller,
    request: OffsetDeleteRequest,
) -> None:
    """Delete offsets of topics that no member reads. What is not there is deleted already."""
    response = OffsetDeleteResponse()
    for topic in request.topics:
        is_read = subscribes_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
        response.topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
        )
        if is_read:
            continue
        for each in topic.partitions:
            if store.get(request.group_id, topic.name, each.partition_index) is not None:
                key = OffsetKey(request.group_id, topic.name, each.partition_index)
                decision.append(key, None)
    decision.answer(
        caller.call, response, lambda code: OffsetDeleteResponse(error_code=append_error(code))
    )
