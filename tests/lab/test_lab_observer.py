"""Goal: the history says when a broker's metadata go back, and not that another broker is behind.

Method: views as brokers would give them, one after the other; what the observer writes is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.cluster import LocalCluster
from holdfast.cluster.probe import PartitionState
from holdfast.judge.checker import judge
from holdfast.judge.history import LeaderChange, LeaderClaim, read_events
from holdfast.judge.verdict import Anomaly
from holdfast.lab.isr_observer import Observer, View


class Watched:
    """An observer of t-0 that is shown views by hand."""

    diverged = 0

    def __init__(self, folder: Path) -> None:
        nodes = [SimpleNamespace(id=node, watch_address=("h", 1)) for node in (1, 2)]
        cluster = SimpleNamespace(record=SimpleNamespace(brokers=nodes))
        self._path = folder / "observer.jsonl"
        self.observer = Observer(cast("LocalCluster", cluster), "t", self._path, lambda _: None)

    def show(self, node: int, epoch: int) -> None:
        state = PartitionState(
            leader=0, leader_epoch=epoch, replicas=(0,), isr=(0,), offline=(), error=0
        )
        self.observer._compare(View({0: state}, frozenset({1, 2}), node))

    def written(self) -> list[int]:
        self.observer._recorder.flush()
        with self._path.open("rb") as file:
            events = list(read_events(file))
        self.diverged = judge(events).judgement.count(Anomaly.DIVERGED)
        return [event.epoch for event in events if isinstance(event, LeaderChange)]

    def claims(self) -> list[int]:
        with self._path.open("rb") as file:
            return [event.epoch for event in read_events(file) if isinstance(event, LeaderClaim)]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    yield found
    found.observer._recorder.close()


def fall(watched: Watched) -> None:
    watched.show(1, 3)


def fall_behind_another(watched: Watched) -> None:
    watched.show(2, 4)
    watched.show(2, 3)


@pytest.mark.parametrize("fault", [fall, fall_behind_another])
def test_a_broker_that_goes_back_is_written_down(
    watched: Watched, fault: Callable[[Watched], None]
) -> None:
    watched.show(1, 2)
    watched.show(1, 5)
    fault(watched)
    fault(watched)
    watched.show(1, 6)
    assert watched.written()[:2] == [2, 5]
    assert 3 in watched.written()
    assert watched.diverged


def test_another_broker_that_is_behind_is_passed_over(watched: Watched) -> None:
    watched.show(1, 5)
    watched.show(2, 3)
    watched.show(2, 4)
    watched.show(1, 5)
    watched.show(2, 6)
    assert watched.written() == [5, 6]
    assert not watched.diverged


def test_a_broker_that_was_down_may_begin_with_an_older_view(watched: Watched) -> None:
    watched.show(1, 5)
    watched.observer.avoid(1)
    watched.show(2, 5)
    watched.observer.allow(1)
    watched.show(1, 3)
    watched.show(1, 5)
    assert watched.written() == [5]
    assert not watched.diverged


def test_one_that_is_cut_off_is_asked_alone_until_it_says_what_the_others_say(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: each change of what it believes is told once; then nobody waits for it any more."""
    said: list[int] = []
    observer = watched.observer

    def answer(_address: object, _topics: object, *, timeout_s: float) -> SimpleNamespace:
        assert timeout_s > 0
        state = SimpleNamespace(leader=0, leader_epoch=said[-1])
        return SimpleNamespace(topics={"t": {0: state}})

    monkeypatch.setattr("holdfast.lab.isr_observer.ask", answer)
    watched.show(2, 5)
    observer.avoid(1)
    observer.ask_alone(1)
    for epoch in (5, 5):  # it agrees, and is still cut off
        said.append(epoch)
        observer._listen(1)
    observer.allow(1)
    watched.show(2, 6)
    said.append(5)
    observer._listen(1)
    assert list(observer._claims) == [1]
    said.append(6)
    observer._listen(1)
    assert not observer._claims
    assert watched.claims() == [5, 6]
