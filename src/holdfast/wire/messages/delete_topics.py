"""DeleteTopics (key 20), versions 1 to 6.

Version 6 deletes by id too: `topics` instead of `topic_names`.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    Request,
    Struct,
    ThrottledResponse,
    array,
    int16,
    int32,
    string,
    uuid,
)


class DeleteTopicState(Struct):
    name: str | None = string(since=6, nullable=6, default=None)
    topic_id: bytes = uuid(since=6)


class DeleteTopicsRequest(Request, key=20, versions=(1, 6), flexible=4):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5, ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable=6)
    topic_id: bytes = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable=5, ignorable=True, default=None)


class DeleteTopicsResponse(ThrottledResponse, key=20, versions=(1, 6), flexible=4):
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
