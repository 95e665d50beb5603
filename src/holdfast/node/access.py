"""What handlers ask the authorizer, in the words of one API: refusals and operation sets.

Owns Kafka's table of which operations exist for which kind of resource. Who may do what is the
authorizer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.core.state import Refusal
from holdfast.node.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from holdfast.wire.errors import ErrorCode

NOT_REQUESTED: Final = -2_147_483_648  # authorized operations, when nobody asked for them

OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def is_broker(context: RequestContext) -> bool:
    """Whether the requester may do what only brokers do."""
    return context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def authorized_operations(context: RequestContext, kind: ResourceType, name: str) -> int:
    """The bit field of operations that the requester may perform."""
    return sum(
        1 << operation for operation in OPERATIONS[kind] if context.allows(operation, kind, name)
    )


def refuse_topics(
    context: RequestContext, operation: Operation, names: Iterable[str]
) -> dict[str, Refusal]:
    """The topics on which the requester may not perform the operation."""
    return {
        name: Refusal(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{context.principal} may not {operation.name} topic '{name}'.",
        )
        for name in names
        if not context.allows(operation, ResourceType.TOPIC, name)
    }
