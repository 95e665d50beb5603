"""AssignReplicasToDirs (73), version 0: a broker says where its replicas lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.disks import assign_replicas
from holdfast.node.access import is_broker
from holdfast.node.context import Deferred, RequestContext
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from holdfast.node.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Deferred | AssignReplicasToDirsResponse:
    if not is_broker(context):
        return AssignReplicasToDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return controller.decide(context, lambda state, _: assign_replicas(state, request))
