"""The records of `__consumer_offsets`: what a key names, and what a value says of it.

Owns their tables of fields, one class each. A key has one layout; a value may have several
versions. `group_records` makes bytes of them.

Kafka spells the group's id `group` in the three oldest records, and `group_id` in the others. Its
records of share groups and streams groups are not known here. Times and time-outs are in
milliseconds.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Message,
    Struct,
    array,
    blob,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class GroupKey(Message):
    """What a record is about; its KEY is the record's type, which the value's class has too."""


class GroupValue(Message):
    """What is so from this record on."""


class KeyOfGroup(GroupKey):
    """A key that names a group alone."""

    group_id: str = string()


class KeyOfMember(GroupKey):
    """A key that names a member of a group."""

    group_id: str = string()
    member_id: str = string()


# --- committed offsets, of groups of all kinds ----------------------------------------------


class OffsetCommitKey(GroupKey, key=1):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(GroupValue, key=1, versions=(0, 4), flexible=4):
    """An expiry of -1: the broker's retention decides. No topic id: it was not known then."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: bytes = uuid(since=4, tag=0, ignorable=True)


class LegacyOffsetCommitKey(OffsetCommitKey, key=0):
    """The same partition as the newer key names, from a log that is very old."""


class LegacyOffsetCommitValue(OffsetCommitValue, key=0, versions=(0, 0)):
    """The same as a newer value of version 0."""


# --- classic groups -------------------------------------------------------------------------


class GroupMetadataKey(GroupKey, key=2):
    group: str = string()


class GroupMetadataMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


class GroupMetadataValue(GroupValue, key=2, versions=(0, 4), flexible=4):
    """A classic group between two rebalances, with what its leader assigned."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0)
    leader: str | None = string(nullable=0)
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


# --- groups of KIP-848 ----------------------------------------------------------------------


class ConsumerGroupMetadataKey(KeyOfGroup, key=3):
    """A group of the consumer protocol, and that it is one."""


class ConsumerGroupMetadataValue(GroupValue, key=3, flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(KeyOfGroup, key=4):
    """What a group knew of its topics; Kafka 4.1 and later remove it and keep a hash instead."""


class PartitionRacks(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class ConsumerGroupTopicMetadata(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionRacks] = array(PartitionRacks)


class ConsumerGroupPartitionMetadataValue(GroupValue, key=4, flexible=0):
    topics: list[ConsumerGroupTopicMetadata] = array(ConsumerGroupTopicMetadata)


class ConsumerGroupMemberMetadataKey(KeyOfMember, key=5):
    """A member, and what it told of itself."""


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = blob()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(GroupValue, key=5, flexible=0):
    """`classic_member_metadata` is there for a member that speaks the classic protocol.

    For any other it is null, which has to be written: who finds nothing takes it for an empty one.
    """

    instance_id: str | None = string(nullable=0)
    rack_id: str | None = string(nullable=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=0)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable=0, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(KeyOfGroup, key=6):
    """The group epoch that the target assignment was made for."""


class ConsumerGroupTargetAssignmentMetadataValue(GroupValue, key=6, flexible=0):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(KeyOfMember, key=7):
    """What a member shall have in the end."""


class TargetTopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(GroupValue, key=7, flexible=0):
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(KeyOfMember, key=8):
    """What a member has now, on its way to what it shall have."""


class CurrentTopicPartitions(Struct):
    """`assignment_epochs`: since when the member has each partition (KIP-1251)."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable=0, tag=0, default=None)


class ConsumerGroupCurrentMemberAssignmentValue(GroupValue, key=8, flexible=0):
    """States: 0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class ConsumerGroupRegularExpressionKey(GroupKey, key=16):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(GroupValue, key=16, flexible=0):
    """The topics that a pattern matched; the version is that of the metadata it was held to."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
