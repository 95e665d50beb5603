"""One lab at a time breaks a cluster that is not its own.

Goal: who comes second is refused, and what one of them leaves is told. Method: a controller made
up, which makes and removes one topic, or does not answer.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.clients.blocking_driver import DriverError
from holdfast.cluster.elsewhere.elsewhere_cluster import Found
from holdfast.lab.elsewhere import elsewhere_run
from holdfast.lab.elsewhere.elsewhere_run import HELD, held
from holdfast.lab.parameters import LabError
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import CreateTopicsRequest

FOUND = Found(servers="kafka:9092", cluster_id="x", brokers={1: ("kafka", 9092)})
REMOVE = f"holdfast topics --delete --topic {HELD} --bootstrap-server kafka:9092"


class Controller:
    """Has the topic, or not; `problem` is its next answer, behind what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_topic = False
        self.problem: Exception | None = None
        monkeypatch.setattr(elsewhere_run, "perform_patiently", self._perform)

    def _perform(self, _driver: object, asked: Any) -> None:
        makes = isinstance(asked.message, CreateTopicsRequest)
        if makes and self.has_topic:
            raise AdminError("it is there", ErrorCode.TOPIC_ALREADY_EXISTS)
        self.has_topic = makes
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(monkeypatch)


def test_the_second_is_refused_and_leaves_it_to_the_first(controller: Controller) -> None:
    said: list[str] = []
    with held(FOUND, 1, said.append):
        with pytest.raises(LabError, match=r"Another run may break it just now.*every broker serv"):
            held(FOUND, 1, said.append).__enter__()
        assert controller.has_topic
    assert not controller.has_topic
    assert said == []


@pytest.mark.parametrize("reason", [KeyboardInterrupt(), LabError("a slip")])
def test_it_is_given_free_whatever_ends_it(controller: Controller, reason: BaseException) -> None:
    with pytest.raises(type(reason)), held(FOUND, 1, lambda _line: None):
        raise reason
    assert not controller.has_topic


def test_what_stays_there_is_told(controller: Controller) -> None:
    """Method: an answer that is lost, to making it and to removing it; and a refusal."""
    said: list[str] = []
    controller.problem = DriverError("no answer")
    with pytest.raises(LabError, match=f"no answer.*{REMOVE}"):
        held(FOUND, 1, said.append).__enter__()
    controller.has_topic = False
    with held(FOUND, 1, said.append):
        controller.problem = DriverError("no answer")
    (line,) = said
    assert line.startswith("NOT UNDONE")
    assert REMOVE in line
    controller.problem = AdminError("not allowed", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(LabError, match=r"for this lab alone: not allowed.*FAILED\.$"):
        held(FOUND, 1, said.append).__enter__()
