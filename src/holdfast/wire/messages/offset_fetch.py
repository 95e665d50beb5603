"""OffsetFetch (key 9), versions 1 to 9.

From 2 on there is an error for the whole group, from 8 on several groups at once. Topics null: all.
"""

from __future__ import annotations

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
)


class OffsetFetchRequestTopic(Struct):
    name: str = string(until=7)
    partition_indexes: list[int] = array(int32, until=7)


class OffsetFetchRequestTopics(Struct):
    name: str = string(since=8)
    partition_indexes: list[int] = array(int32, since=8)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string(since=8)
    member_id: str | None = string(since=9, nullable=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, since=8, nullable=8
    )


class OffsetFetchRequest(Request, key=9, versions=(1, 9), flexible=6):
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable=2
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7, default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = string(until=7, nullable=0)
    error_code: int = int16(until=7)


class OffsetFetchResponseTopic(Struct):
    name: str = string(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(since=8, default=-1, ignorable=True)
    metadata: str | None = string(since=8, nullable=8)
    error_code: int = int16(since=8)


class OffsetFetchResponseTopics(Struct):
    name: str = string(since=8)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


class OffsetFetchResponse(Response, key=9, versions=(1, 9), flexible=6):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
