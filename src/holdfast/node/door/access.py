"""What handlers ask the authorizer, in the words of one API: refusals and operation sets.

Owns Kafka's table of which operations exist for which kind of resource. Who may do what is the
authorizer's.

Rules: errors.md#a-right-that-is-missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.core.refusal import Refusal
from holdfast.node.door.request_context import (
    CLUSTER_NAME,
    Need,
    Operation,
    RequestContext,
    ResourceType,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import ResourceType as ConfigResourceType

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

_CODES: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def authorized_operations(context: RequestContext, kind: ResourceType, name: str) -> int:
    """The bit field of operations that the requester may perform."""
    return sum(
        1 << operation for operation in OPERATIONS[kind] if context.allows(operation, kind, name)
    )


def refusal(context: RequestContext, name: str, need: Need | None = None) -> Refusal | None:
    """Return why the requester has no right to what is named so; None: it has.

    What the API takes, its row in the table says; `need` is for one that takes something else too.
    """
    need = need or context.need
    assert need is not None, "an API that takes nothing refuses nobody"
    operation, kind = need
    if context.allows(operation, kind, name):
        return None
    what = f"{kind.name.lower().replace('_', ' ')} '{name}'"
    return Refusal(_CODES[kind], f"{context.principal} may not {operation.name} {what}.")


def refused(
    context: RequestContext, names: Iterable[str], need: Need | None = None
) -> dict[str, Refusal]:
    """Return the refusals of those names to which the requester has no right."""
    found = ((name, refusal(context, name, need)) for name in names)
    return {name: why for name, why in found if why is not None}


def config_refusal(context: RequestContext, kind: int, name: str) -> Refusal | None:
    """Return why the requester has no right to a resource's configuration; None: it has.

    A topic's takes a right over the topic, every other one a right over the cluster.
    """
    if kind == ConfigResourceType.TOPIC:
        return refusal(context, name)
    assert context.need is not None
    return refusal(context, CLUSTER_NAME, context.need._replace(kind=ResourceType.CLUSTER))
