"""CreateTopics (key 19), versions 2 to 7.

From 5 on the answer holds what was created: partitions, replication factor, configs. A field that
has a value of -1 was not answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.wire.messages.parts import IndexedPartition, NamedTopic
from holdfast.wire.schema import (
    Request,
    ThrottledResponse,
    array,
    boolean,
    int16,
    int32,
    string,
    uuid,
)
from holdfast.wire.structs import ConfigValue, ShownConfig

DEFAULT: Final = -1  # as many partitions or replicas as the cluster's configs say


class CreatableReplicaAssignment(IndexedPartition):
    broker_ids: list[int] = array(int32)


class CreatableTopic(NamedTopic):
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[ConfigValue] = array(ConfigValue)


class CreateTopicsRequest(Request, key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicResult(NamedTopic):
    topic_id: bytes = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topic_config_error_code: int = int16(since=5, tag=0, ignorable=True)
    num_partitions: int = int32(since=5, ignorable=True, default=-1)
    replication_factor: int = int16(since=5, ignorable=True, default=-1)
    configs: list[ShownConfig] | None = array(ShownConfig, since=5, nullable=5, ignorable=True)


class CreateTopicsResponse(ThrottledResponse, key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


def new_topic(
    name: str,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> CreatableTopic:
    """Describe a topic to create; see `administration.create_topic`."""
    return CreatableTopic(
        name=name,
        num_partitions=DEFAULT if assignment else partitions,
        replication_factor=DEFAULT if assignment else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in sorted((assignment or {}).items())
        ],
        configs=[ConfigValue(name=k, value=v) for k, v in (configs or {}).items()],
    )
