"""Goal: it is told how much of a gap the lab held a fault. Method: faults by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.lab.made_up import MadeUp

from holdfast.judge.history import Acknowledged, Fault, LinkChange, Send
from holdfast.judge.timeline import CUT, HEAL, WHOLE
from holdfast.lab.aftermath import Recoveries
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome, PartResult
from holdfast.lab.parameters import Parameters
from holdfast.lab.report.held import Longest, held_ms
from holdfast.lab.scenario import load_scenario


def held(*moments: tuple[float, str, int]) -> float:
    """Return how much of [1000, 2000] these faults were held."""
    story = MadeUp()
    for at_ms, action, node in moments:
        story.add(Fault, at_ms, "lab", action=action, node=node)
    return held_ms(story.evidence().timeline, 1000.0, 2000.0)


@pytest.mark.parametrize(
    ("moments", "ms"),
    [
        ([], 0),
        ([(1100, CUT, 1), (1700, HEAL, 1)], 600),
        ([(900, "KILL", 1), (1700, "start", 1)], 700),  # only what lies in it
        ([(1100, "STOP", 1)], 0),  # nobody undid it
        ([(1100, "STOP", 1), (2100, "CONT", 1)], 0),  # the cluster went on without the node
        ([(800, "STOP", 1), (900, "CONT", 1)], 0),
        ([(1100, "TERM", 1), (1200, "exit", 1), (1500, "start", 1)], 400),
        ([(1100, "STOP", 1), (1200, "KILL", 1), (1500, "start", 1)], 400),
        ([(1100, "KILL", 1), (1200, "KILL", 2), (1500, "start", 1), (1600, "start", 2)], 500),
        ([(1100, "KILL", 1), (1200, "start", 1), (1500, "KILL", 1), (1600, "start", 1)], 200),
        ([(1100, "KILL", 1), (1300, CUT, 1), (1400, "start", 1), (1600, HEAL, 1)], 500),
        ([(1100, "DISK", 1), (1600, "start", 1)], 0),
    ],
)
def test_a_fault_is_held_until_it_is_undone(
    moments: list[tuple[float, str, int]], ms: float
) -> None:
    assert held(*moments) == ms


def test_a_cut_link_of_clients_is_held_as_well() -> None:
    story = MadeUp()
    pairs = (("client-a", "1"), ("1", "client-a"))
    story.add(LinkChange, 1200.0, "lab", pairs=pairs, state=CUT)
    story.add(LinkChange, 1300.0, "lab", pairs=pairs[:1], state=WHOLE)
    story.add(LinkChange, 1500.0, "lab", pairs=pairs, state=WHOLE)
    assert held_ms(story.evidence().timeline, 1000.0, 2000.0) == 300


def told(story: MadeUp) -> dict[str, Any]:
    """Return what a verdict's file says of a part in which this has happened."""
    scenario = load_scenario("one-broker-down")
    result = PartResult(
        part=scenario.parts[0],
        parameters=Parameters(),
        evidence=story.evidence(),
        checks=(),
        tables=(),
        broken=(),
        history=Path(),
    )
    outcome = Outcome(
        scenario=scenario,
        parameters=Parameters(),
        exit=Exit.KEPT,
        verdict="",
        results=(result,),
        directory=Path(),
        report=None,
    )
    found: dict[str, Any] = outcome.as_json()["parts"][0]
    names = ("share_acknowledged", "gap_ms_longest", "gap_held_ms", "latency_ms_p99")
    return {name: found[name] for name in names}


def test_a_verdict_has_of_its_longest_gap_how_long_the_fault_was_held() -> None:
    """Method: P0 waits for 1,200 ms, of which its only node was dead for 1,000; P1 for 5 ms."""
    story = MadeUp()
    for name, partition, sent_ms, answered_ms in (("p:0", 0, 1000, 2200), ("p:1", 1, 1600, 1605)):
        there: dict[str, Any] = {"process": "p", "id": name}
        story.of(Send, sent_ms, partition, digest="d", size=1, **there)
        story.of(Acknowledged, answered_ms, partition, offset=0, **there)
    story.add(Fault, 900.0, "lab", action="KILL", node=0)
    story.add(Fault, 2000.0, "lab", action="start", node=0)
    assert told(story) == {
        "share_acknowledged": 1.0,
        "gap_ms_longest": 1200.0,
        "gap_held_ms": 1000.0,
        "latency_ms_p99": None,  # of two
    }


def test_a_verdict_has_no_figures_of_what_was_never_sent_or_answered() -> None:
    story = MadeUp()
    story.add(Fault, 900.0, "lab", action="KILL", node=0)
    none = dict.fromkeys(("gap_ms_longest", "gap_held_ms", "latency_ms_p99"))
    assert told(story) == {"share_acknowledged": None, **none}
    story.of(Send, 1000, 0, process="p", id="p:0", digest="d", size=1)
    assert told(story) == {"share_acknowledged": 0.0, **none}


@pytest.mark.parametrize(
    ("answers", "span"),
    [
        ({"p:0": 1300, "p:1": 2300}, (1500, 2300)),  # the second one waited since the fault
        ({"p:0": 2300, "p:1": 1600}, (1500, 1600)),  # what was sent before it shows nothing
        ({}, None),  # nobody was answered, and so the wait has no end
    ],
)
def test_the_longest_wait_has_a_begin_and_an_end(
    answers: dict[str, float], span: tuple[float, float] | None
) -> None:
    """Method: one is sent before a fault, and one at the fault; what both waited for after it."""
    story = MadeUp()
    story.of(Send, 1200.0, 0, process="p", id="p:0", digest="d", size=1)
    story.add(Fault, 1500.0, "lab", action="KILL", node=0)
    story.of(Send, 1500.0, 0, process="p", id="p:1", digest="d", size=1)
    for name, at_ms in answers.items():
        story.of(Acknowledged, at_ms, 0, process="p", id=name, offset=0)
    recoveries = Recoveries()
    longest = Longest(recoveries)
    for event in sorted(story.events, key=lambda event: event.at_ms):
        longest.feed(event)
    recoveries.finish()
    assert longest.span == span
