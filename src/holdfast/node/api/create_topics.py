"""CreateTopics (19), versions 2-7: brokers forward it, the controller decides.

Versions: 5 answers with the topic's partitions, replication factor and configs; 7 with its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.placement import SEED_BOUND
from holdfast.core.controller.topic_changes import create_topics
from holdfast.node.door.api_table import CREATE_CLUSTER
from holdfast.node.door.request_context import (
    CLUSTER_NAME,
    Deferred,
    RequestContext,
    refusal,
    refused,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: CreateTopicsRequest
) -> Deferred:
    names = [topic.name for topic in request.topics]
    refusals = {}
    if refusal(context, CLUSTER_NAME, CREATE_CLUSTER) is not None:
        refusals = refused(context, names)
    random = controller.runtime.random
    return controller.decide(
        context,
        lambda state, _: create_topics(
            state,
            request,
            topic_ids=[random.uuid() for _ in names],
            seeds=[random.below(SEED_BOUND) for _ in names],
            refusals=refusals,
        ),
    )


def refuse(request: CreateTopicsRequest, code: ErrorCode, message: str) -> CreateTopicsResponse:
    """Refuse the whole request."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=code, error_message=message, configs=[]
            )
            for topic in request.topics
        ]
    )
