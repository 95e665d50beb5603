"""TxnOffsetCommit (key 28), versions 0 to 5: offsets that count when a transaction commits.

From 3 on the member and its generation are told and held against the group's. From 5 on the group's
coordinator adds its partition to the transaction itself (KIP-890).
"""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, IndexedPartition, NamedTopic
from holdfast.wire.schema import (
    Request,
    ThrottledResponse,
    array,
    int16,
    int32,
    int64,
    string,
)


class TxnOffsetCommitRequestPartition(IndexedPartition):
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=0)


class TxnOffsetCommitRequestTopic(NamedTopic):
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Request, key=28, versions=(0, 5), flexible=3):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(AnsweredPartition):
    """What became of one commit."""


class TxnOffsetCommitResponseTopic(NamedTopic):
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(ThrottledResponse, key=28, versions=(0, 5), flexible=3):
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
