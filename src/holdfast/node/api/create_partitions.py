"""CreatePartitions (37), versions 0-3: brokers forward it, the controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.placement import SEED_BOUND
from holdfast.core.controller.topic_changes import create_partitions
from holdfast.node.door.request_context import Deferred, RequestContext, refused
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: CreatePartitionsRequest
) -> Deferred:
    return controller.decide(
        context,
        lambda state, _: create_partitions(
            state,
            request,
            seeds=[controller.runtime.random.below(SEED_BOUND) for _ in request.topics],
            refusals=refused(context, [topic.name for topic in request.topics]),
        ),
    )


def refuse(
    request: CreatePartitionsRequest, code: ErrorCode, message: str
) -> CreatePartitionsResponse:
    """Refuse the whole request."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )
