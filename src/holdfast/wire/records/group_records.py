"""Records of `__consumer_offsets` to bytes and back. Owns their frame, and the version written.

A key begins with the record's type, a value with its version: 16 bits each. The fields follow.
A record without a value says that what its key names is gone.

Rules: group-records.md#frame, group-records.md#written-versions, group-records.md#unknown-types.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final, TypeAlias

from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import WireError
from holdfast.wire.records.group_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.records.offset_records import (
    CommittedOffset,
    OffsetKey,
    encode_offset,
    encode_offset_key,
)

Buffer: TypeAlias = bytes | bytearray | memoryview

KEY_CLASSES: Final[dict[int, type[GroupKey]]] = {
    cls.KEY: cls
    for cls in (
        LegacyOffsetCommitKey,
        OffsetCommitKey,
        GroupMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
    )
}
"""The key of every record known here, by its type."""

VALUE_CLASSES: Final[dict[int, type[GroupValue]]] = {
    cls.KEY: cls
    for cls in (
        LegacyOffsetCommitValue,
        OffsetCommitValue,
        GroupMetadataValue,
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupRegularExpressionValue,
    )
}
"""The value of every record known here, by its type."""

_KEY_VERSION: Final = 0  # a key has one layout: its type is what a version would be
_GROUP_METADATA_VERSION: Final = 3
_EXPIRING_OFFSET_VERSION: Final = 1
_NO_EXPIRY: Final = -1
_PREFIX: Final = Layout(">h")


class UnknownRecordTypeError(WireError):
    """A record of a type that is not known here: a reader may pass over it, as Kafka's do."""


def encode_key(key: GroupKey | OffsetKey) -> bytes:
    """Return a record's key, its type in front."""
    if isinstance(key, OffsetKey):
        return encode_offset_key(key)
    return _PREFIX.pack(key.KEY) + encode(key, _KEY_VERSION)


def encode_value(value: GroupValue | CommittedOffset, version: int | None = None) -> bytes:
    """Return a record's value, its version in front; by default in the one that Kafka writes.

    EncodeError: the version can't carry it.
    """
    if isinstance(value, CommittedOffset):
        assert version is None, "it has the version that is written"
        return encode_offset(value)
    if version is None:
        version = written_version(value)
    return _PREFIX.pack(version) + encode(value, version)


def written_version(value: GroupValue) -> int:
    """Return the version in which Apache Kafka 4.1 and later write such a value."""
    if isinstance(value, GroupMetadataValue):
        return _GROUP_METADATA_VERSION
    if type(value) is OffsetCommitValue and value.expire_timestamp != _NO_EXPIRY:
        # No other version has the field: the leader epoch and the topic's id are not kept.
        return _EXPIRING_OFFSET_VERSION
    return value.MAX_VERSION


def decode_key(data: Buffer) -> GroupKey:
    """Return what a record's key names.

    UnknownRecordTypeError: its type is not known here. Another WireError: it is damaged.
    """
    record_type = _prefix(data, "a group record's key")
    cls = KEY_CLASSES.get(record_type)
    if cls is None:
        raise UnknownRecordTypeError(f"group record type {record_type} is not known here")
    return decode(cls, _KEY_VERSION, data, _PREFIX.size)


def decode_value(key: GroupKey, data: Buffer) -> GroupValue:
    """Return what a record says of its key. A record without a value has to be told before.

    WireError: it is damaged, or its version is not known here.
    """
    cls = VALUE_CLASSES[key.KEY]
    version = _prefix(data, cls.__name__)
    return decode(cls, version, data, _PREFIX.size)


def _prefix(data: Buffer, what: str) -> int:
    if len(data) < _PREFIX.size:
        raise WireError(f"{what} has {len(data)} bytes: too few for what it begins with")
    prefix: int = _PREFIX.unpack_from(data)[0]
    return prefix
