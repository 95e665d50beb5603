"""OffsetCommit (key 8), versions 2 to 10.

Version 10 names topics by their ids only, those before it by their names.
"""

from __future__ import annotations

from typing import Final

from holdfast.wire.messages.parts import AnsweredPartition, IndexedPartition
from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    int32,
    int64,
    string,
    uuid,
)

ELEMENTS_MAX: Final = 40_000
"""Topics and partitions of a request. No batch of a megabyte, the default, holds so many offsets,
and twice as many objects, with those of the answer, would hold up everybody.
"""


class CommittedTopic(Struct):
    """A topic in both directions."""

    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)


class OffsetCommitRequestPartition(IndexedPartition):
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=0)


class OffsetCommitRequestTopic(CommittedTopic):
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, key=8, versions=(2, 10), flexible=8, elements_max=ELEMENTS_MAX):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=7, nullable=7, default=None)
    retention_time_ms: int = int64(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(AnsweredPartition):
    """What became of one commit."""


class OffsetCommitResponseTopic(CommittedTopic):
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, key=8, versions=(2, 10), flexible=8):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
