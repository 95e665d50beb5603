"""DeleteGroups (key 42), versions 0 to 2: groups without members are removed, offsets and all.

Rules: committed-offsets.md#deletion.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from holdfast.core.group.append_errors import append_error
from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.coordinator import Asked, GroupPart, Told
from holdfast.node.coordinator.led_shard import Decide
from holdfast.node.coordinator.pieces import Piece, Pieces
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(broker: Broker, context: RequestContext, request: DeleteGroupsRequest) -> Deferred:
    pieces = Pieces(lambda results: DeleteGroupsResponse(results=results), context.version)
    return broker.groups.coordinator.ask_groups(
        context, _parts(context, request, pieces), pieces.join, is_flexible=pieces.is_flexible
    )


def _parts(
    context: RequestContext, request: DeleteGroupsRequest, pieces: Pieces
) -> Iterator[GroupPart]:
    def told(result: DeletableGroupResult) -> Piece:
        return pieces.piece([result])

    for group_id in dict.fromkeys(request.groups_names):
        refused = partial(_refused, pieces, group_id)
        why = refusal(context, group_id)
        if why is not None:
            yield Told(refused(why.code))
        else:
            yield Asked(group_id, _decision(group_id), refused, told)


def _decision(group_id: str) -> Decide:
    return lambda shard, caller, now_ms: shard.delete_group(caller, group_id, now_ms)


def _refused(pieces: Pieces, group_id: str, code: ErrorCode) -> Piece:
    result = DeletableGroupResult(group_id=group_id, error_code=append_error(code))
    return pieces.piece([result])
