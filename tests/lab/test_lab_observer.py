"""Goal: the history says when a broker's metadata go back, and not that another broker is behind.

Method: views as brokers would give them, one after the other; what the observer writes is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.cluster import LocalCluster
from holdfast.cluster.probe import PartitionState
from holdfast.judge.checker import judge
from holdfast.judge.history import LeaderChange, LeaderClaim, read_events
from holdfast.judge.verdict import Anomaly
from holdfast.lab import group_observer
from holdfast.lab.group_observer import GroupObserver
from holdfast.lab.isr_observer import Observer, View
from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run


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


class Full:
    """A disk that has no room."""

    def write(self, _data: object) -> int:
        raise OSError(ENOSPC, "No space left on device")

    def close(self) -> None: ...


def test_an_observer_that_has_ended_says_so_and_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a view that stands still fails no check. Method: the disk is full for one write.

    Seen to fail: the thread ended without a word, and each later check "not late", so broken.
    """
    state = PartitionState(leader=0, leader_epoch=1, replicas=(0,), isr=(0,), offline=(), error=0)
    answer = SimpleNamespace(brokers={1: ("h", 1)}, topics={"t": {0: state}})
    monkeypatch.setattr("holdfast.lab.isr_observer.ask", lambda *_, **__: answer)
    observer = Watched(tmp_path).observer
    observer._recorder._file.close()
    monkeypatch.setattr(observer._recorder, "_file", Full())
    observer.refuse_ended()
    observer.start()
    observer._thread.join(30)
    run = cast("Any", Run.__new__(Run))
    run._observer, run.relied_on, run._workers, run.checks = observer, [observer], [], []
    run.cluster = SimpleNamespace(refuse_broken_network=lambda: None)
    never: list[bool] = []
    for seen in (
        observer.refuse_ended,
        observer.stop,
        lambda: run.wait("a leader", lambda: never, 30.0),
        lambda: run.check("a leader", "0", "none", kept=False),
        lambda: run.expect("at the end", {}, 30.0),
    ):
        with pytest.raises(LabError, match=r"the observer of t ended early: .*No space left"):
            seen()
    assert not run.checks


def test_a_group_s_observer_that_has_ended_says_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: that nobody looks at what a group has committed is no fault of its coordinator."""

    def fail(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(group_observer, "committed", fail)
    monkeypatch.setattr(group_observer, "POLL_S", 0.0)
    observer = GroupObserver("127.0.0.1:1", "g", "t", range(1), tmp_path)
    observer.start()
    observer._thread.join(30)
    for seen in (observer.refuse_ended, observer.stop):
        with pytest.raises(LabError, match=r"the observer of g ended early: .*No space left"):
            seen()
