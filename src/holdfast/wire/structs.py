"""Parts and numbers that several messages and records have in common.

A field here has no version of its own: the array or struct that holds it says since when it is
there.
"""

from __future__ import annotations

from enum import IntEnum

from holdfast.wire.schema import (
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    uint16,
)


class QuorumEndpoint(Struct):
    """A listener of a controller, as the quorum's messages name it."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class RegisteredEndpoint(QuorumEndpoint):
    """A listener, as a node registers it with the active controller."""

    security_protocol: int = int16()


class RegisteredFeature(Struct):
    """A feature, and the levels of it that a node supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class KRaftVersionFeature(Struct):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class QuorumNode(Struct):
    """Where the leader of the quorum listens that an answer names."""

    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class LeaderNode(Struct):
    """Where the leader of a partition listens that an answer names (KIP-951)."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)


class LeaderIdAndEpoch(Struct):
    """Who leads a partition now (KIP-951)."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class QuorumEpochPartition(Struct):
    """Whom a voter of the quorum follows, when it is told of a leader's begin or end."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class QuorumEpochTopic(Struct):
    """The metadata topic in such an answer."""

    topic_name: str = string()
    partitions: list[QuorumEpochPartition] = array(QuorumEpochPartition)


class QuorumEpochResponse(Response):
    """What a voter answers when it is told of a leader's begin or end."""

    error_code: int = int16()
    topics: list[QuorumEpochTopic] = array(QuorumEpochTopic)
    node_endpoints: list[QuorumNode] = array(QuorumNode, since=1, tag=0, ignorable=True)


class ResourceType(IntEnum):
    """What a config belongs to."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does with one key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigValue(Struct):
    """A config of a topic or broker; null takes it back to its default."""

    name: str = string()
    value: str | None = string(nullable=0)


class ShownConfig(ConfigValue):
    """A config as an answer shows it."""

    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class AlteredResource(Struct):
    """What came of altering the configs of one topic or broker."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
