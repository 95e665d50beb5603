"""What the controller's handlers have in common that need the request and its state alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.core.controller.decisions import ControllerState, Decision
from holdfast.node.door.request_context import Deferred, RequestContext

if TYPE_CHECKING:
    from holdfast.node.controller.controller import Controller

T = TypeVar("T")


def decided_by(
    decision: Callable[[ControllerState, T], Decision],
) -> Callable[[Controller, RequestContext, T], Deferred]:
    """Return a handler that carries the decision out, and answers once it is committed."""

    def handle_on_controller(
        controller: Controller, context: RequestContext, request: T
    ) -> Deferred:
        return controller.decide(context, lambda state, _: decision(state, request))

    return handle_on_controller
