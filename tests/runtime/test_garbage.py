"""Goal: the collector of a node looks at what is new, and nothing that is dead stays for good.

Method: objects that live, and circles that don't, before and behind a look; a small process's
bounds instead of a node's.
Seen to fail: with an old collection that the interpreter begins by itself, without setting aside,
and without ever looking at everything again.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from holdfast.runtime import garbage
from holdfast.runtime.garbage import Garbage

ENOUGH = 45_000  # objects: more than five collections of what is young
OLD = 2


class Circle:
    """It refers to itself, so that only the collector can end it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def collector(loop: asyncio.AbstractEventLoop) -> Iterator[Garbage]:
    """One whose loop stands still, but where the test turns it."""
    thresholds = gc.get_threshold()

    async def begin() -> Garbage:
        made = Garbage()
        made.start()
        return made

    made = loop.run_until_complete(begin())
    yield made
    gc.callbacks.remove(made._collected)
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_has_outlived_a_look_is_not_looked_at_again(collector: Garbage) -> None:
    before = gc.get_freeze_count()
    living = [[number] for number in range(ENOUGH)]
    collector.look()
    assert gc.get_freeze_count() >= before + ENOUGH
    assert len(gc.get_objects(generation=OLD)) < len(living) / 100


def test_the_loop_looks_by_itself_and_once(
    collector: Garbage, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gc.get_freeze_count()
    looks: list[int] = []
    look = collector.look

    def counted() -> None:
        looks.append(1)
        look()

    monkeypatch.setattr(collector, "look", counted)
    living = [[number] for number in range(ENOUGH)]
    loop.run_until_complete(asyncio.sleep(0))
    assert looks == [1]
    assert gc.get_freeze_count() >= before + len(living)


def test_what_is_little_is_left_for_later(collector: Garbage) -> None:
    before = gc.get_freeze_count()
    living = [[number] for number in range(1_000)]
    collector.look()
    assert gc.get_freeze_count() < before + len(living)


def test_what_dies_before_a_look_is_collected_by_it(collector: Garbage) -> None:
    circle = Circle()
    seen = weakref.ref(circle)
    gc.collect()  # old by now, so that no collection of what is young finds it
    del circle
    living = [[number] for number in range(ENOUGH)]
    assert seen() is not None
    collector.look()
    assert seen() is None
    assert living


def test_what_dies_behind_it_is_collected_once_enough_has_come(
    collector: Garbage, monkeypatch: pytest.MonkeyPatch
) -> None:
    circle = Circle()
    seen = weakref.ref(circle)
    collector.set_everything_aside()
    del circle
    living = [[number] for number in range(ENOUGH)]
    collector.look()
    assert seen() is not None, "everything was looked at for little"
    monkeypatch.setattr(garbage, "GROWTH_MIN", -gc.get_freeze_count())
    living += [[number] for number in range(ENOUGH)]
    collector.look()
    assert seen() is None
    assert living


def test_what_came_and_died_by_itself_is_no_reason_to_look_at_everything(
    collector: Garbage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: a crowd that waited and left, again and again, cost half a second each time."""
    whole: list[int] = []
    monkeypatch.setattr(collector, "set_everything_aside", lambda: whole.append(1))
    monkeypatch.setattr(garbage, "GROWTH_MIN", 2 * ENOUGH - gc.get_freeze_count())
    for _ in range(5):
        crowd = [[number] for number in range(ENOUGH)]
        collector.look()
        del crowd
    assert whole == []
    crowds = []
    for _ in range(3):
        crowds.append([[number] for number in range(ENOUGH)])
        collector.look()
    assert whole == [1]
