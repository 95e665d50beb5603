"""CreateTopics (19), versions 2-7: brokers forward it, the controller decides.

Versions: 5 answers with the topic's partitions, replication factor and configs; 7 with its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.topics import create_topics
from holdfast.node.access import refuse_topics
from holdfast.node.context import (
    CLUSTER_NAME,
    Deferred,
    Operation,
    RequestContext,
    ResourceType,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller

SEED_BOUND = 1 << 63


def handle_on_controller(
    controller: Controller, context: RequestContext, request: CreateTopicsRequest
) -> Deferred:
    names = [topic.name for topic in request.topics]
    refusals = {}
    if not context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        refusals = refuse_topics(context, Operation.CREATE, names)
    random = controller.runtime.random
    topic_ids = [random.uuid() for _ in names]
    seeds = [random.below(SEED_BOUND) for _ in names]
    return controller.decide(
        context,
        lambda state, _: create_topics(
            state, request, topic_ids=topic_ids, seeds=seeds, refusals=refusals
        ),
    )


def refuse(request: CreateTopicsRequest, code: ErrorCode, message: str) -> CreateTopicsResponse:
    """Refuse the whole request."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=code, error_message=message, configs=None
            )
            for topic in request.topics
        ]
    )
