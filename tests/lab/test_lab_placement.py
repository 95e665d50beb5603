"""Goal: at the end of a run it is known who must hold what, by the lab's word alone.

Method: as much of a run as making and moving a topic touches; a cluster whose answers are made up.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.steps.moving import Mover
from holdfast.wire.administration import AdminRequest, Move
from holdfast.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


class Placed:
    """A run of two partitions with three copies each."""

    def __init__(self, replicas: dict[int, tuple[int, ...]]) -> None:
        self.topic = "t"
        self.moving: dict[tuple[str, int], Move] = {}
        self.parameters = Parameters(partitions=2, replication_factor=3)
        self.placement: dict[str, dict[int, tuple[int, ...]]] = {"t": dict(replicas)}
        self.failed: list[str] = []
        self.watched: Any = None
        self.history: Any = None
        self._changed: Any = None
        self._reached: Any = None
        self.relied_on: list[Any] = []
        states = {p: SimpleNamespace(replicas=nodes) for p, nodes in replicas.items()}
        self.cluster = SimpleNamespace(partitions=lambda _topic: states)

    def ask(self, asked: AdminRequest[Any], _otherwise: str) -> Any:
        lists = isinstance(asked.message, ListPartitionReassignmentsRequest)
        return self.moving if lists else None

    def create_topic(self, *_: object, **__: object) -> dict[str, str]:
        return {}

    def wait(self, _what: str, condition: Any, _bound_s: float) -> Any:
        return condition()

    def note(self, _text: str) -> None:
        pass

    def check(self, name: str, _expected: str, _seen: str, *, kept: bool) -> bool:
        self.failed += [] if kept else [name]
        return kept

    def _watch(self, assignment: Any, _wanted: object) -> None:
        self.watched = assignment


@pytest.mark.parametrize(
    ("replicas", "failed"),
    [
        ({0: (0, 1, 2), 1: (1, 2, 3)}, []),
        ({0: (0, 1, 2), 1: (1, 2)}, ["replicas of each partition"]),
        ({0: (0, 1, 2), 1: (1, 2, 2)}, ["replicas of each partition"]),
        ({0: (0, 1, 2, 3), 1: (1, 2, 3)}, ["replicas of each partition"]),
    ],
    ids=["three each", "one of two", "one twice", "one of four"],
)
def test_a_topic_that_the_cluster_places_has_as_many_copies_as_were_asked_for(
    replicas: dict[int, tuple[int, ...]], failed: list[str]
) -> None:
    run = Placed(replicas)
    assert Run.place_topic(cast("Run", run)) == replicas
    assert run.watched == replicas
    assert run.failed == failed


def test_whoever_makes_a_topic_says_where_its_replicas_must_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Placed({})
    run.history, run._changed = Path(), None
    run._reached = lambda *_: True
    monkeypatch.setattr("holdfast.lab.run.Observer", lambda *_: SimpleNamespace(start=list))
    Run._watch(cast("Run", run), {0: [0, 1, 2], 1: [1, 2, 3]}, {})
    assert run.placement == {"t": {0: (0, 1, 2), 1: (1, 2, 3)}}


def test_whoever_moves_replicas_says_where_they_must_be() -> None:
    """And a move that was called back leaves them where they were."""
    run = Placed({0: (0, 1, 2), 1: (1, 2, 3)})
    run.moving = {("t", 1): Move(replicas=[1, 2, 3, 4], adding=[4], removing=[1])}
    mover = Mover(cast("Run", run))
    mover.begin({0: [3, 1, 2], 1: [4, 2, 3]})
    assert run.placement["t"] == {0: (3, 1, 2), 1: (4, 2, 3)}
    assert mover.cancel() == [1]
    assert run.placement["t"] == {0: (3, 1, 2), 1: (1, 2, 3)}
