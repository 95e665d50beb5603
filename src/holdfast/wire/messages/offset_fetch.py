"""OffsetFetch (key 9), versions 1 to 10.

From 2 on there is an error for the whole group, from 8 on several groups at once. Topics null: all.
Version 10 names topics by their ids only, those before it by their names.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import IndexedPartition
from holdfast.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class FetchedTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)


class OffsetFetchRequestTopic(FetchedTopic):
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = string(since=9, nullable=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable=8)


class OffsetFetchRequest(Request, key=9, versions=(1, 10), flexible=6):
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable=2
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7, default=False)


class OffsetFetchResponsePartition(IndexedPartition):
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1, ignorable=True)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


class OffsetFetchResponseTopic(FetchedTopic):
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16()


class OffsetFetchResponse(Response, key=9, versions=(1, 10), flexible=6):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
