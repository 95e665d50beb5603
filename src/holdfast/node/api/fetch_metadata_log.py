"""Fetch (1) on a controller, versions 12-17: the metadata log, as far as it is committed.

Observers read it as they would read any partition. Version 12 names the topic, later ones its id.
Who is behind the log's start is told of the newest snapshot, which FetchSnapshot then gives.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from holdfast.core.names import METADATA_TOPIC
from holdfast.core.voters import ReplicaKey
from holdfast.log.errors import StorageError
from holdfast.node.access import is_broker
from holdfast.node.context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from holdfast.wire.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from holdfast.node.controller import Controller

TOPIC_IDS_SINCE: Final = 13
WAIT_MS_MAX: Final = 30_000


def handle_on_controller(
    controller: Controller, context: RequestContext, request: FetchRequest
) -> Deferred | FetchResponse:
    if not is_broker(context):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.cluster_id not in (None, controller.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic, wanted = request.topics[0], request.topics[0].partitions[0]
    refusal = _refuse(controller, context, topic, wanted)
    if refusal is not ErrorCode.NONE:
        return _answer(controller, topic, wanted, refusal)
    assert controller.log is not None
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    if replica_id >= 0:
        key = ReplicaKey(replica_id, bytes(wanted.replica_directory_id))
        controller.fetched(key, wanted.fetch_offset)
    if wanted.fetch_offset < controller.log.start:
        return _answer(controller, topic, wanted, ErrorCode.NONE)
    if wanted.fetch_offset < controller.log.committed or request.max_wait_ms <= 0:
        return _answer(controller, topic, wanted, ErrorCode.NONE)
    return _wait(controller, context, topic, wanted, min(request.max_wait_ms, WAIT_MS_MAX))


def _refuse(
    controller: Controller, context: RequestContext, topic: FetchTopic, wanted: FetchPartition
) -> ErrorCode:
    by_id = context.version >= TOPIC_IDS_SINCE
    if by_id and bytes(topic.topic_id) != METADATA_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if (not by_id and topic.topic != METADATA_TOPIC) or wanted.partition != 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = controller.log
    if log is None or not controller.active:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if 0 <= wanted.current_leader_epoch < log.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if wanted.current_leader_epoch > log.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not 0 <= wanted.fetch_offset <= log.end:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _wait(
    controller: Controller,
    context: RequestContext,
    topic: FetchTopic,
    wanted: FetchPartition,
    wait_ms: int,
) -> Deferred:
    """Answer when something more is committed, or with nothing when the wait is over."""
    deferred = context.defer()

    def finish(code: ErrorCode) -> None:
        """Answer once: when the read fails the controller ends, and every wait with it."""
        timer.cancel()
        forget()
        answer = _answer(controller, topic, wanted, code)
        if deferred.buffers is None:
            deferred.answer(answer)

    def try_complete() -> bool:
        log = controller.log
        if log is None or not controller.active:
            finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if wanted.fetch_offset >= log.committed:
            return False
        finish(ErrorCode.NONE)
        return True

    def expire() -> None:
        finish(ErrorCode.NONE)

    forget = controller.observe(try_complete)
    timer = asyncio.get_running_loop().call_later(wait_ms / 1000, expire)
    return deferred


def _answer(
    controller: Controller, topic: FetchTopic, wanted: FetchPartition, code: ErrorCode
) -> FetchResponse:
    data = PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
    log = controller.log
    if log is not None:
        data.current_leader = LeaderIdAndEpoch(
            leader_id=controller.settings.node_id, leader_epoch=log.epoch
        )
    if log is not None and code is ErrorCode.NONE:
        data.high_watermark = log.committed
        data.last_stable_offset = log.committed
        data.log_start_offset = log.start
        if wanted.fetch_offset < log.start:
            assert controller.snapshots is not None
            latest = controller.snapshots.latest
            assert latest is not None, "what the log does not hold is in a snapshot"
            data.snapshot_id = SnapshotId(end_offset=latest.end_offset, epoch=latest.epoch)
        elif wanted.fetch_offset < log.committed:
            try:
                found = log.read(wanted.fetch_offset, wanted.partition_max_bytes)
            except StorageError as error:
                controller.fail(error)
                data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                data.records = found.records
                data.error_code = found.error
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic, topic_id=bytes(topic.topic_id), partitions=[data]
            )
        ]
    )
