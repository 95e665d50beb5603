"""DeleteTopics (20), versions 1-6: brokers forward it, the controller decides.

Versions: 5 answers with messages; 6 names topics by name or by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.topic_changes import delete_topics
from holdfast.node.door.request_context import Deferred, RequestContext, refused
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: DeleteTopicsRequest
) -> Deferred:
    names = list(request.topic_names)
    for asked in request.topics:
        topic = controller.image.topics_by_id.get(bytes(asked.topic_id))
        name = asked.name if topic is None else topic.name
        if name is not None:
            names.append(name)
    return controller.decide(
        context,
        lambda state, _: delete_topics(state, request, refusals=refused(context, names)),
    )


def refuse(request: DeleteTopicsRequest, code: ErrorCode, message: str) -> DeleteTopicsResponse:
    """Refuse the whole request."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name,
                topic_id=bytes(topic.topic_id),
                error_code=code,
                error_message=message,
            )
            for topic in request.topics
            or [DeleteTopicState(name=name) for name in request.topic_names]
        ]
    )
