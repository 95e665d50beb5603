"""What parts of several messages begin with; their own fields follow. No API of its own."""

from __future__ import annotations

from holdfast.wire.schema import Struct, int16, int32, string, uuid


class NamedTopic(Struct):
    name: str = string()


class IdentifiedTopic(Struct):
    topic_id: bytes = uuid()


class QuorumTopic(Struct):
    topic_name: str = string()


class IndexedPartition(Struct):
    partition_index: int = int32()


class AnsweredPartition(IndexedPartition):
    error_code: int = int16()
