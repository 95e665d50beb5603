"""AssignReplicasToDirs (73), version 0: a broker says where its replicas lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.controller.replica_directories import assign_replicas
from holdfast.node.door.request_context import Deferred, RequestContext
from holdfast.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
)

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller


def handle_on_controller(
    controller: Controller, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Deferred:
    return controller.decide(context, lambda state, _: assign_replicas(state, request))
