"""KRaft's metadata records: what the metadata log is made of.

In change records a default says that nothing changed: null for lists, -2 for a leader, -1 for a
leader's recovery state, 0 for the two flags of a broker's registration (1: it became true,
-1: it became false). A leader of -1 is none.

Rules: metadata-log.md#record-meanings.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Record,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from holdfast.wire.structs import RegisteredEndpoint, RegisteredFeature


class RegisterBrokerRecord(Record, key=0, versions=(0, 3), flexible=0):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(since=2)
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[RegisteredEndpoint] = array(RegisteredEndpoint)
    features: list[RegisteredFeature] = array(RegisteredFeature)
    rack: str | None = string(nullable=0)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(since=1)
    log_dirs: list[bytes] = array(uuid, since=3, tag=0)


class UnregisterBrokerRecord(Record, key=1, versions=(0, 0), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Record, key=2, versions=(0, 0), flexible=0):
    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Record, key=3, versions=(0, 2), flexible=0):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, since=1)
    eligible_leader_replicas: list[int] | None = array(
        int32, since=2, nullable=2, tag=1, default=None
    )
    last_known_elr: list[int] | None = array(int32, since=2, nullable=2, tag=2, default=None)


class ConfigRecord(Record, key=4, versions=(0, 0), flexible=0):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable=0)


class PartitionChangeRecord(Record, key=5, versions=(0, 2), flexible=0):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, nullable=0, tag=0, default=None)
    leader: int = int32(tag=1, default=-2)
    replicas: list[int] | None = array(int32, nullable=0, tag=2, default=None)
    removing_replicas: list[int] | None = array(int32, nullable=0, tag=3, default=None)
    adding_replicas: list[int] | None = array(int32, nullable=0, tag=4, default=None)
    leader_recovery_state: int = int8(tag=5, default=-1)
    directories: list[bytes] | None = array(uuid, since=1, nullable=1, tag=8, default=None)
    eligible_leader_replicas: list[int] | None = array(
        int32, since=2, nullable=2, tag=6, default=None
    )
    last_known_elr: list[int] | None = array(int32, since=2, nullable=2, tag=7, default=None)


class FenceBrokerRecord(Record, key=7, versions=(0, 0), flexible=0):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Record, key=8, versions=(0, 0), flexible=0):
    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Record, key=9, versions=(0, 0), flexible=0):
    topic_id: bytes = uuid()


class FeatureLevelRecord(Record, key=12, versions=(0, 0), flexible=0):
    name: str = string()
    feature_level: int = int16()


class ProducerIdsRecord(Record, key=15, versions=(0, 0), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Record, key=17, versions=(0, 2), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8(since=1, tag=1)
    log_dirs: list[bytes] = array(uuid, since=2, tag=2)


class NoOpRecord(Record, key=20, versions=(0, 0), flexible=0):
    """No fields."""


class BeginTransactionRecord(Record, key=23, versions=(0, 0), flexible=0):
    name: str | None = string(nullable=0, tag=0, default=None)


class EndTransactionRecord(Record, key=24, versions=(0, 0), flexible=0):
    """No fields."""


class AbortTransactionRecord(Record, key=25, versions=(0, 0), flexible=0):
    reason: str | None = string(nullable=0, tag=0, default=None)


class RegisterControllerRecord(Record, key=27, versions=(0, 0), flexible=0):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[RegisteredEndpoint] = array(RegisteredEndpoint)
    features: list[RegisteredFeature] = array(RegisteredFeature)


class ClearElrRecord(Record, key=28, versions=(0, 0), flexible=0):
    topic_name: str = string()
