"""ListGroups (key 16), versions 0 to 5: the groups of the shards that are led here.

Who may not describe the cluster is told of those groups that it may describe.

Rules: classic-groups.md#listing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.core.group.append_errors import append_error
from holdfast.core.group.consumer_shard import ConsumerShard
from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.led_shard import Decide
from holdfast.node.coordinator.pieces import Piece, Pieces
from holdfast.node.door.api_table import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from holdfast.node.door.request_context import (
    CLUSTER_NAME,
    Deferred,
    RequestContext,
    refusal,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUPS_A_PART: Final = 500  # of one shard, which are listed in one go


def handle(broker: Broker, context: RequestContext, request: ListGroupsRequest) -> Deferred:
    sees_all = refusal(context, CLUSTER_NAME, DESCRIBE_CLUSTER) is None
    pieces = Pieces(lambda groups: ListGroupsResponse(groups=groups), context.version)

    def decisions(shard: ConsumerShard) -> Iterator[Decide]:
        ids = list(shard.group_ids)
        for start in range(0, len(ids), GROUPS_A_PART):
            yield _decision(request, ids[start : start + GROUPS_A_PART])

    def complete(groups: list[ListedGroup]) -> Piece:
        if not sees_all:
            groups = [
                each for each in groups if refusal(context, each.group_id, DESCRIBE_GROUP) is None
            ]
        return pieces.piece(groups)

    def refused(code: ErrorCode) -> Piece | ErrorCode:
        """A shard that is led elsewhere by now has its groups there."""
        is_elsewhere = code is ErrorCode.NOT_COORDINATOR
        return pieces.piece([]) if is_elsewhere else append_error(code)

    def answer(parts: list[Piece | ErrorCode]) -> ListGroupsResponse | bytes:
        found = [each for each in parts if not isinstance(each, ErrorCode)]
        if len(found) == len(parts):
            return pieces.join(found)
        return ListGroupsResponse(
            error_code=next(each for each in parts if isinstance(each, ErrorCode))
        )

    return broker.groups.coordinator.ask_shards(
        context, decisions, refused, complete, answer, is_flexible=pieces.is_flexible
    )


def _decision(request: ListGroupsRequest, ids: list[str]) -> Decide:
    return lambda shard, caller, now_ms: shard.list_groups(
        caller, request.states_filter, request.types_filter, now_ms, group_ids=ids
    )
