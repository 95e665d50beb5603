"""Fetch (1) on a controller, versions 12-17: the metadata log, from the quorum's leader.

Observers read what is committed, as they would read any partition. Voters read up to the log's end,
and what their fetch leaves behind counts as durable with them. A log that parts from
ours is told where; one that is behind our start is told of a snapshot. Who doesn't lead says who
does. Version 12 names the topic, later ones its id; 15 who fetches, 17 its directory.

Rules: quorum.md#synced-before-counted, metadata-log.md#where-two-metadata-logs-part.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.log.errors import StorageError
from holdfast.node.api.quorum_requests import leader_endpoints
from holdfast.node.controller.controller import Controller
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.node.metadata.metadata_log import MetadataLog
from holdfast.node.quorum.quorum_member import QuorumMember
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    SnapshotId,
)
from holdfast.wire.structs import LeaderIdAndEpoch, LeaderNode
from holdfast.wire.uuids import METADATA_TOPIC_ID, NULL_UUID
from holdfast.wire.well_known import METADATA_TOPIC

TOPIC_IDS_SINCE: Final = 13
WAIT_MS_MAX: Final = 30_000


class _Reader:
    """One fetch: who asks for what, and how its answer looks now."""

    __slots__ = ("controller", "key", "topic", "wanted")

    def __init__(self, controller: Controller, request: FetchRequest, topic: FetchTopic) -> None:
        self.controller = controller
        self.topic = topic
        self.wanted: FetchPartition = topic.partitions[0]
        replica_id = max(request.replica_id, request.replica_state.replica_id)
        self.key = ReplicaKey(replica_id, bytes(self.wanted.replica_directory_id))

    @property
    def is_voter(self) -> bool:
        """Whether what its fetch leaves behind counts; it may become one while it waits.

        A voter names its directory. A broker in a voter's process has its node id and doesn't: it
        acknowledges nothing.
        """
        quorum = self.controller.quorum
        return (
            self.key.directory_id != NULL_UUID
            and self.key.node_id != quorum.key.node_id
            and quorum.voters.contains(self.key)
        )

    def refusal(self, version: int) -> ErrorCode:
        """Why it can't be served; NONE: it can."""
        by_id = version >= TOPIC_IDS_SINCE
        if by_id and bytes(self.topic.topic_id) != METADATA_TOPIC_ID:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if (not by_id and self.topic.topic != METADATA_TOPIC) or self.wanted.partition != 0:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        quorum = self.controller.quorum
        if not quorum.leading:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= self.wanted.current_leader_epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self.wanted.current_leader_epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.wanted.fetch_offset < 0:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if self.wanted.fetch_offset > quorum.log.end and self.wanted.last_fetched_epoch < 0:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def bound(self, log: MetadataLog) -> int:
        return log.end if self.is_voter else log.committed

    def answer(self, code: ErrorCode) -> FetchResponse:
        """The answer as it is now, with all the records that there are for it."""
        quorum = self.controller.quorum
        leader = quorum.leader_id
        data = PartitionData(
            partition_index=self.wanted.partition,
            error_code=code,
            high_watermark=-1,
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=quorum.epoch),
            aborted_transactions=None,
            records=b"",
        )
        if code is ErrorCode.NONE:
            self._fill(data, quorum)
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=self.topic.topic, topic_id=bytes(self.topic.topic_id), partitions=[data]
                )
            ],
            node_endpoints=leader_endpoints(self.controller, leader, LeaderNode),
        )

    def _fill(self, data: PartitionData, quorum: QuorumMember) -> None:
        log, offset = quorum.log, self.wanted.fetch_offset
        data.high_watermark = data.last_stable_offset = log.committed
        data.log_start_offset = log.start
        if log.lacks(offset, self.wanted.last_fetched_epoch):
            latest = self.controller.snapshots.latest
            assert latest is not None, "what the log does not hold is in a snapshot"
            data.snapshot_id = SnapshotId(end_offset=latest.end_offset, epoch=latest.epoch)
            return
        diverging = log.diverges(offset, self.wanted.last_fetched_epoch)
        if diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end)
        elif offset < self.bound(log):
            try:
                found = log.read(offset, self.wanted.partition_max_bytes, self.bound(log))
            except StorageError as error:
                self.controller.fail(error)
                data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                data.records = found.records
                data.error_code = found.error


def handle_on_controller(
    controller: Controller, context: RequestContext, request: FetchRequest
) -> Deferred | FetchResponse:
    if request.cluster_id not in (None, controller.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    reader = _Reader(controller, request, request.topics[0])
    refusal = reader.refusal(context.version)
    if refusal is not ErrorCode.NONE:
        return reader.answer(refusal)
    quorum, wanted = controller.quorum, reader.wanted
    log = quorum.log
    ends = wanted.fetch_offset, wanted.last_fetched_epoch
    if log.lacks(*ends) or log.diverges(*ends) is not None:
        if reader.is_voter:
            quorum.replica_heard(reader.key)
        return reader.answer(ErrorCode.NONE)
    if reader.is_voter:
        quorum.replica_fetched(reader.key, wanted.fetch_offset)
    elif reader.key.node_id >= 0:
        controller.readers.fetched(
            reader.key, wanted.fetch_offset, log.end, controller.runtime.clock.wall_ms()
        )
    if wanted.fetch_offset < reader.bound(log) or request.max_wait_ms <= 0:
        return reader.answer(ErrorCode.NONE)
    return _wait(controller, context, reader, min(request.max_wait_ms, WAIT_MS_MAX))


def _wait(
    controller: Controller, context: RequestContext, reader: _Reader, wait_ms: int
) -> Deferred:
    """Answer when there is something more, or with nothing when the wait is over."""
    deferred = context.defer()
    epoch = controller.epoch
    forget = _nothing

    def finish(code: ErrorCode) -> None:
        if deferred.is_answered:
            return  # the disk failed while another fetch was answered, and that woke this one first
        # Before anything is read: a disk that fails then wakes all that wait, this fetch included.
        leave()
        deferred.answer(reader.answer(code))

    def try_complete() -> bool:
        quorum = controller.quorum
        if not quorum.leading or quorum.epoch != epoch:
            finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if reader.wanted.fetch_offset >= reader.bound(quorum.log):
            return False
        finish(ErrorCode.NONE)
        return True

    def leave() -> None:
        nonlocal forget
        timer.cancel()
        forget()
        forget = _nothing  # it refers to this, and only a collector would end that

    forget = controller.observe(try_complete)
    timer = asyncio.get_running_loop().call_later(wait_ms / 1000, finish, ErrorCode.NONE)
    deferred.lost = leave
    return deferred


def _nothing() -> None:
    """Nothing is observed."""
