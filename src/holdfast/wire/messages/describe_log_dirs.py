"""DescribeLogDirs (key 35), versions 1 to 5: which replica lies in which log directory.

Null topics ask for all. Version 3 brought an error of the whole answer, 4 the volume's sizes, 5
whether new replicas go elsewhere.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import IndexedPartition, NamedTopic
from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Request, key=35, versions=(1, 5), flexible=2):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=0)


class DescribeLogDirsPartition(IndexedPartition):
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(NamedTopic):
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


class DescribeLogDirsResponse(ThrottledResponse, key=35, versions=(1, 5), flexible=2):
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
