"""KRaft's records: what the metadata log holds, and its control records. Owns their frame.

A metadata record's value is: frame version, key, version (unsigned varints), then the message
(rules: metadata-log.md#record-frame). A control record's value is the message alone;
its type is in the record's key.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import WireError
from holdfast.wire.primitives import read_uvarint, uvarint
from holdfast.wire.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from holdfast.wire.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.wire.schema import Record

__all__ = [
    "RECORD_CLASSES",
    "AbortTransactionRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ConfigRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LeaderChangeVoter",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "Record",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveTopicRecord",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "VotersRecord",
    "VotersRecordVoter",
    "decode_record",
    "encode_record",
]

FRAME_VERSION: Final = 1

RECORD_CLASSES: Final[dict[int, type[Record]]] = {
    cls.KEY: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        NoOpRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
"""Every metadata record known here, by key."""

Buffer: TypeAlias = bytes | bytearray | memoryview


def encode_record(record: Record, version: int | None = None) -> bytes:
    """Return the value of a metadata record, frame included; by default in its last version."""
    if version is None:
        version = record.MAX_VERSION
    head = uvarint(FRAME_VERSION) + uvarint(record.KEY) + uvarint(version)
    return head + encode(record, version)


def decode_record(data: Buffer) -> Record:
    """Return the record that a metadata log's record value holds.

    WireError: a frame, key or version not known here, or what `decode` refuses.
    """
    frame_version, offset = read_uvarint(data, 0)
    if frame_version != FRAME_VERSION:
        raise WireError(f"metadata record frame version {frame_version} is not known here")
    key, offset = read_uvarint(data, offset)
    version, offset = read_uvarint(data, offset)
    cls = RECORD_CLASSES.get(key)
    if cls is None:
        raise WireError(f"metadata record key {key} is not known here")
    return decode(cls, version, data, offset)
