"""Goal: a change reaches the controller, wherever that has moved to.

Method: a driver that remembers the controller until it is asked for metadata, as the real one does.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.clients import administration
from holdfast.clients.administration import perform_patiently
from holdfast.clients.blocking_driver import Driver
from holdfast.wire.administration import AdminError, AdminRequest
from holdfast.wire.errors import ErrorCode


class Moved:
    """A cluster whose controller is 2 by now. The driver has heard of 1."""

    def __init__(self) -> None:
        self.known = 1
        self.asked: list[int] = []

    def perform(self, _asked: object, *, node: str) -> str:
        assert node == "controller"
        self.asked.append(self.known)
        if self.known != 2:
            raise AdminError("topic t", ErrorCode.NOT_CONTROLLER)
        return "done"

    def metadata(self, _topics: object) -> None:
        self.known = 2


def test_who_is_not_the_controller_any_more_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "_PAUSE_S", 0.0)
    cluster = Moved()
    driver = cast("Driver", cluster)
    assert perform_patiently(driver, cast("AdminRequest[Any]", None)) == "done"
    assert cluster.asked == [1, 2]
