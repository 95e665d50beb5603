"""AssignReplicasToDirs (key 73), version 0.

A broker says in which of its log directories its replicas lie (KIP-858).
"""

from __future__ import annotations

from holdfast.wire.messages.parts import AnsweredPartition, IdentifiedTopic, IndexedPartition
from holdfast.wire.schema import (
    BrokerRequest,
    RefusableResponse,
    Struct,
    array,
    uuid,
)


class AssignedPartition(IndexedPartition):
    """One that lies there."""


class AssignedTopic(IdentifiedTopic):
    partitions: list[AssignedPartition] = array(AssignedPartition)


class AssignedDirectory(Struct):
    id: bytes = uuid()
    topics: list[AssignedTopic] = array(AssignedTopic)


class AssignReplicasToDirsRequest(BrokerRequest, key=73, versions=(0, 0), flexible=0):
    directories: list[AssignedDirectory] = array(AssignedDirectory)


class PartitionOutcome(AnsweredPartition):
    """Whether that is written down."""


class TopicOutcome(IdentifiedTopic):
    partitions: list[PartitionOutcome] = array(PartitionOutcome)


class DirectoryOutcome(Struct):
    id: bytes = uuid()
    topics: list[TopicOutcome] = array(TopicOutcome)


class AssignReplicasToDirsResponse(RefusableResponse, key=73, versions=(0, 0), flexible=0):
    directories: list[DirectoryOutcome] = array(DirectoryOutcome)
