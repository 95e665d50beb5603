"""CreatePartitions (key 37), versions 0 to 3.

`count` is the new total; assignments, if given, are those of the new partitions only.
"""

from __future__ import annotations

from holdfast.wire.messages.parts import NamedTopic
from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    boolean,
    int16,
    int32,
    string,
)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(NamedTopic):
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable=0
    )


class CreatePartitionsRequest(Request, key=37, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(NamedTopic):
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class CreatePartitionsResponse(ThrottledResponse, key=37, versions=(0, 3), flexible=2):
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
