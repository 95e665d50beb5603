"""CreatePartitions (37), versions 0-3: brokers forward it, the controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.topics import create_partitions
from holdfast.node.access import refuse_topics
from holdfast.node.context import Deferred, Operation, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller

SEED_BOUND = 1 << 63


def handle_on_controller(
    controller: Controller, context: RequestContext, request: CreatePartitionsRequest
) -> Deferred:
    refusals = refuse_topics(context, Operation.ALTER, [topic.name for topic in request.topics])
    seeds = [controller.runtime.random.below(SEED_BOUND) for _ in request.topics]
    return controller.decide(
        context,
        lambda state, _: create_partitions(state, request, seeds=seeds, refusals=refusals),
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
