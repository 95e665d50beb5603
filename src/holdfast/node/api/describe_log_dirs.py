"""DescribeLogDirs (35), versions 1-5: the replicas of this broker, by log directory.

Version 3 brought an error of the whole answer, 4 the sizes of the file system; -1: unknown. 5 asks
whether new replicas go elsewhere (KIP-1066): never, here.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.log.directories import LogDirectory
from holdfast.node.broker.broker import Broker
from holdfast.node.door.request_context import RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    broker: Broker, _context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    )
    return DescribeLogDirsResponse(
        results=[_result(broker, each, wanted) for each in broker.directories.directories]
    )


def _result(
    broker: Broker, directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if not directory.online:
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path
        )
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in broker.partitions:
        log = partition.log
        if log is None or log.home is not directory:
            continue
        if wanted is not None and (partition.topic, partition.index) not in wanted:
            continue
        topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=log.size,
                offset_lag=max(0, log.high_watermark - log.end),
            )
        )
    result = DescribeLogDirsResult(log_dir=directory.path, topics=list(topics.values()))
    with suppress(OSError):  # whether that disk works, whoever has to use it will see
        space = broker.runtime.disk.space(directory.path)
        result.total_bytes, result.usable_bytes = space.total_bytes, space.free_bytes
    return result
