"""AlterPartition (key 56), versions 2 to 3.

From 3 on members of the ISR come with their broker epochs. Leader recovery states: 0 recovered,
1 recovering from an unclean election.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, IdentifiedTopic, IndexedPartition
from holdfast.wire.schema import (
    BrokerRequest,
    RefusableResponse,
    Struct,
    array,
    int8,
    int32,
    int64,
)


class BrokerState(Struct):
    broker_id: int = int32(since=3)
    broker_epoch: int = int64(since=3, default=-1)


class RequestPartitionData(IndexedPartition):
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, until=2)
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, since=3)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class RequestTopicData(IdentifiedTopic):
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class AlterPartitionRequest(BrokerRequest, key=56, versions=(2, 3), flexible=0):
    topics: list[RequestTopicData] = array(RequestTopicData)


class ResponsePartitionData(AnsweredPartition):
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class ResponseTopicData(IdentifiedTopic):
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class AlterPartitionResponse(RefusableResponse, key=56, versions=(2, 3), flexible=0):
    topics: list[ResponseTopicData] = array(ResponseTopicData)
