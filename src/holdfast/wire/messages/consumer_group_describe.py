"""ConsumerGroupDescribe (key 69), versions 0 and 1: groups of KIP-848 as tools show them.

Member types, from version 1 on: -1 unknown, 0 classic, 1 consumer.
"""

from __future__ import annotations

from holdfast.wire.messages.describe_groups import OPERATIONS_NOT_ASKED
from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Request, key=69, versions=(0, 1), flexible=0):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ConsumerGroupDescribeTopicPartitions(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class ConsumerGroupDescribeAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = array(
        ConsumerGroupDescribeTopicPartitions
    )


class ConsumerGroupDescribeMember(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=0, default=None)
    assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    member_type: int = int8(since=1, default=-1, ignorable=True)


class ConsumerGroupDescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[ConsumerGroupDescribeMember] = array(ConsumerGroupDescribeMember)
    authorized_operations: int = int32(default=OPERATIONS_NOT_ASKED)


class ConsumerGroupDescribeResponse(ThrottledResponse, key=69, versions=(0, 1), flexible=0):
    groups: list[ConsumerGroupDescribedGroup] = array(ConsumerGroupDescribedGroup)
