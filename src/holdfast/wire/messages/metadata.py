"""Metadata (key 3), versions 0 to 13.

From 10 on topics have ids; from 12 on one may be asked for by id alone; 13 has an error of its own.
Topics: null asks for all, empty for none (in version 0, which has no null, empty asks for all).
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
    string,
    uuid,
)


class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid(since=10, ignorable=True)
    name: str | None = string(nullable=10)


class MetadataRequest(Request, key=3, versions=(0, 13), flexible=9):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable=1, ignorable=True, default=None)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, ignorable=True, default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: bytes = uuid(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-2_147_483_648)


class MetadataResponse(Response, key=3, versions=(0, 13), flexible=9):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable=2, ignorable=True, default=None)
    controller_id: int = int32(since=1, ignorable=True, default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-2_147_483_648)
    error_code: int = int16(since=13, ignorable=True)
