"""Goal: figures are of what their tables say. Method: histories made up."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.lab.checked import Scene

from holdfast.judge.history import Acknowledged, Delivered, Send
from holdfast.lab.scenarios.arrival_times import arrivals, expect_peace_read
from holdfast.lab.scenarios.payload_curve import spell_of


def test_what_arrives_belongs_to_the_window_in_which_it_was_sent() -> None:
    """Method: two windows by hand; one event is read twice, one first by one that waits, one by
    nobody.

    How many were sent is said beside how many were read: figures are of the latter alone.
    """
    place: dict[str, Any] = {"wall_ms": 0, "topic": "foo", "partition": 0, "digest": ""}

    def sent(number: int, at_ms: float) -> Send:
        return Send(at_ms=at_ms, process="p", id=f"p:{number}", size=1, **place)

    def read(number: int, at_ms: float, process: str = "raw-reader") -> Delivered:
        return Delivered(at_ms=at_ms, process=process, id=f"p:{number}", offset=number, **place)

    events = [
        *(sent(0, 10.0), sent(1, 20.0), sent(2, 30.0), read(0, 12.0), read(1, 23.0)),
        *(sent(3, 110.0), read(2, 111.0, "consumer"), read(2, 130.0), read(0, 190.0)),
    ]
    rows = arrivals(events, {"calm": (0.0, 100.0), "busy": (100.0, 200.0)})
    assert rows == [
        ["calm", "30", "3", "3", "3.0", "98.1", "99.8", "100.0"],
        ["busy", "10", "1", "0", "-", "-", "-", "-"],
    ]


@pytest.mark.parametrize(("read", "kept"), [("3", True), ("2", False)], ids=["all", "one is lost"])
def test_what_is_lost_in_peace_is_excused_by_nothing(read: str, kept: bool) -> None:
    """Goal: with acks=1 losses are counted, because a leader dies; before that none does."""
    scene = Scene()
    rows = [["in peace, 50 a second", "50", "3", read, "1.0"], ["it is dead", "50", "3", "1", "-"]]
    expect_peace_read(cast("Any", scene), rows)
    assert scene.kept == [kept]


def test_a_size_s_spell_is_from_its_first_event_to_its_last_acknowledgement() -> None:
    place: dict[str, Any] = {"wall_ms": 0, "process": "p", "topic": "foo", "partition": 0}
    events = [
        Send(at_ms=100.0, id="p:0", digest="", size=1, **place),
        Send(at_ms=150.0, id="p:1", digest="", size=1, **place),
        Acknowledged(at_ms=600.0, id="p:1", offset=0, **place),
        Acknowledged(at_ms=2100.0, id="p:0", offset=1, **place),
        Send(at_ms=3000.0, id="p:2", digest="", size=1, **place),
    ]
    assert spell_of(events) == (100.0, 2100.0, 2)
