"""Goal: whoever ends one of several faults of links opens what no other one holds, and no more.

Method: the links' own agent, with what it puts in force written down step by step; faults by hand,
by a storm and by a replay. That one step is one for packets, too, is `test_network_cuts.py`'s.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster.network.conftest import small_plan

from holdfast.cluster import plan as plans
from holdfast.cluster.layout import UsageError
from holdfast.cluster.network import link_table as links
from holdfast.cluster.network.addresses import OBSERVER
from holdfast.cluster.network.link_table import Pair
from holdfast.cluster.network.links import link_requests
from holdfast.cluster.network.links.link_agent import Agent, Enforcer
from holdfast.cluster.network.links.link_calls import Links
from holdfast.judge.history import LinkChange
from holdfast.judge.timeline import CUT, HEAL, WHOLE
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenarios.networks.replay import Replay
from holdfast.lab.scenarios.networks.storm import Storm
from holdfast.lab.steps import sides as sides_module
from holdfast.lab.steps.replay_plan import Fault, Kind
from holdfast.lab.steps.sides import LINKS_SHOWN, FirstBytes, Sides, first_bytes
from holdfast.lab.steps.storm_plan import Deed, Planned

PLAN = small_plan()
PLACES = [place.name for place in PLAN.places if place.name != OBSERVER]


def pairs_of(name: str) -> set[Pair]:
    """Return the links of a place that is isolated."""
    return {(a, b) for a in PLACES for b in PLACES if a != b and name in (a, b)}


class Noted(Links):
    """Links whose agent is here; what was cut after each step is kept."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.steps: list[set[Pair]] = []
        self.watched: list[bool] = []
        self.told: list[dict[str, Any]] = []
        self.asked = threading.Event()
        enforcer = SimpleNamespace(change=self._change_to, first_bytes=self._first_bytes)
        self._agent = Agent(PLAN, cast("Enforcer", enforcer), {})

    def _first_bytes(self) -> list[dict[str, Any]]:
        self.asked.set()
        return self.told

    def _change_to(self, _before: links.Table, after: links.Table, *, watch: bool) -> None:
        self.watched.append(watch)
        self.steps.append({pair for pair, link in after.items() if link.cut is not None})

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._agent.answer(json.dumps(request).encode())
        assert "error" not in answer, answer
        return answer


class Played:
    """As much of a run as whoever hurts links touches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sides_module, "plan_of", lambda _record: PLAN)
        self.links = Noted()
        self.faults: list[tuple[str, int]] = []
        self.cut: set[Pair] = set()  # as the history has it
        self.afterwards = ExitStack()
        self.tables: list[Table] = []
        self.observer = SimpleNamespace(
            avoid=lambda _: None, allow=lambda _: None, ask_alone=lambda _: None
        )
        self.cluster = SimpleNamespace(
            links=lambda: self.links,
            record=SimpleNamespace(network=plans.NAMESPACES),
            nodes=[SimpleNamespace(id=node) for node in (0, 1, 100)],
            broker_ids=(0, 1),
            controller_ids=(100,),
            state=lambda _node: "running",
        )
        self.sides = Sides(cast("Run", self))

    def note(self, _text: str) -> None: ...

    def sync_view(self) -> None: ...

    def record_fault(self, action: str, node: int, _detail: str = "") -> None:
        self.faults.append((action, node))

    def record(self, kind: type[LinkChange], pairs: tuple[Pair, ...], state: str) -> None:
        assert kind is LinkChange
        if state == CUT:
            assert not self.cut & {*pairs}, "cut once more"
            self.cut |= {*pairs}
        else:
            assert state == WHOLE
            assert self.cut >= {*pairs}, "what was not cut is healed"
            self.cut -= {*pairs}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    found = Played(monkeypatch)
    with found.afterwards:
        yield found


def test_a_replay_opens_nothing_that_another_fault_holds(played: Played) -> None:
    """Seen to fail: the end of a cut healed a node that was isolated, and cut it once more by a
    further request; packets reached it for 38 ms.
    """
    replay = Replay(cast("Run", played), played.sides)
    cut = Fault(at_s=0, seconds=1, kind=Kind.CUT, target="broker:0", other="broker:1")
    one_way = Fault(**{**fields(cut), "one_way": True})
    undo = [
        replay._do(Fault(at_s=0, seconds=1, kind=Kind.ISOLATE, target="broker:1"), [1]),
        replay._do(cut, [0, 1]),
        replay._do(one_way, [0, 1]),
        replay._do(cut, [0, 100]),
        replay._do(Fault(at_s=0, seconds=1, kind=Kind.ISOLATE, target="broker:1"), [1]),
    ]
    begun = len(played.links.steps)
    apart = {("0", "100"), ("100", "0")}
    expected = [
        (1, pairs_of("1") | apart),  # the cut ends, both isolations hold
        (0, pairs_of("1") | apart),  # one isolation ends, the other one holds
        (4, {("0", "1")} | apart),  # and what is cut one way
        (3, {("0", "1")}),
        (2, set()),
    ]
    for which, left in expected:
        cast("Callable[[], None]", undo[which])()
        assert all(step >= left for step in played.links.steps[begun:]), "opened, and cut again"
        assert played.cut == played.links.steps[-1] == left
    assert [each for each in played.faults if each[0] == HEAL] == [(HEAL, 1), (HEAL, 0)]


def test_a_cut_s_packets_are_those_of_its_own_links(played: Played) -> None:
    """Goal: a cut that has dropped nothing is told, whatever others have dropped meanwhile.

    Method: an agent's word by hand, with a link that both cuts hold and one that one of them does.
    """
    counts = {("0", "1"): 0, ("0", "100"): 5}
    status = {
        "links": [
            {"from": source, "to": target, "dropped": {"cut": count, "lost": 1}}
            for (source, target), count in counts.items()
        ]
    }
    played.sides.cut("0", "1", [0], "from 1")
    both = played.sides.latest
    played.sides.cut("0", "100", [0], "from 100, one way", one_way=True)
    assert played.sides.links_of(both) == {("0", "1"), ("1", "0")}
    assert played.sides.links_of(played.sides.latest) == {("0", "100")}
    played.links.status = lambda: status  # type: ignore[method-assign]
    assert played.sides.dropped_by_link() == {("0", "1"): 1, ("0", "100"): 6}
    assert played.sides.dropped() == 7


def fields(fault: Fault) -> dict[str, Any]:
    names = ("at_s", "seconds", "kind", "target", "other")
    return {name: getattr(fault, name) for name in names}


def test_a_storm_s_isolations_overlap(played: Played) -> None:
    """Seen to fail: where two were isolated, the end of one left the two whole for the rest of the
    other's time.
    """
    machines: Any = SimpleNamespace(can=lambda _deed: True)
    storm = Storm(cast("Run", played), played.sides, machines)
    deed: dict[str, Any] = {"at_s": 0.0, "length_s": 1.0, "deed": Deed.ISOLATE}
    undo = [
        storm._begin(Planned(**{**deed, "node": node, "other": other, "amount": 0}))
        for node, other in ((1, 0), (100, 0))
    ]
    cast("Callable[[], None]", undo[0])()
    assert played.cut == played.links.steps[-1] == pairs_of("100")
    cast("Callable[[], None]", undo[1])()
    assert played.cut == played.links.steps[-1] == set()
    assert played.faults == [(CUT, 1), (CUT, 100), (HEAL, 1), (HEAL, 100)]


FAULTS: list[dict[str, Any]] = [
    {"do": "cut", "a": "0", "b": "1"},
    {"do": "cut", "a": "1", "b": "0", "one_way": True},
    {"do": "isolate", "a": "1"},
    {"do": "isolate", "a": "a"},
    {"do": "lose", "a": "0", "b": "brokers", "share": "5%"},
    {"do": "slow", "a": "1", "b": "all", "latency": "1ms"},
]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(FAULTS), max_size=6))
def test_what_is_held_is_what_its_faults_make_and_no_answer_comes_back(
    faults: list[dict[str, Any]],
) -> None:
    """Method: on a link whose answers are swallowed, and one that nobody holds."""
    agent = Agent(PLAN, cast("Enforcer", SimpleNamespace(change=lambda *_, **__: None)), {})
    agent.answer(b'{"do": "drop-responses", "a": "0", "b": "1", "api": "Produce"}')
    swallowed = agent._table["1", "0"]
    agent.answer(b'{"do": "cut", "a": "host", "b": "100"}')
    assert "error" not in agent.answer(json.dumps({"do": "hold", "faults": faults}).encode())
    made = link_requests.held(PLAN, faults)
    found = dict(agent._table)
    assert found["1", "0"].answers == swallowed.answers
    found["1", "0"] = replace(found["1", "0"], answers=None)
    assert {pair: link for pair, link in found.items() if not link.is_whole} == made


@pytest.mark.parametrize("faults", [None, {}, ["cut"], [{"do": "heal"}], [{"do": "hold"}], [{}]])
def test_only_faults_can_be_held(faults: Any) -> None:
    with pytest.raises(UsageError, match="each of cut, isolate, lose, slow"):
        link_requests.decide(PLAN, {}, {"do": "hold", "faults": faults})


def heal(source: str, target: str, after_s: float | None, *, cut_again: bool = False) -> Any:
    return {"from": source, "to": target, "after_s": after_s, "cut_again": cut_again}


def test_first_bytes_are_told_by_link_the_longest_silence_first() -> None:
    told = [
        heal("0", "1", 0.25),
        heal("1", "0", None),
        heal("0", "1", 3.5),
        heal("host", "0", None, cut_again=True),
        heal("host", "0", 12.0),
        heal("0", "1", None),
    ]
    assert first_bytes(told).rows == [
        ["host -> 0", "2", "12.00", "12.00", "1", "0"],
        ["0 -> 1", "3", "0.25", "3.50", "0", "1"],
        ["1 -> 0", "1", "-", "-", "0", "1"],
    ]
    many = first_bytes([heal("0", str(number), 1.0) for number in range(100)])
    assert len(many.rows) == LINKS_SHOWN
    assert many.note.endswith(f"The first {LINKS_SHOWN} of 100 links.")


def test_first_bytes_are_measured_from_the_first_heal_to_the_end(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides_module, "LOOK_S", 0.001)
    played.links.told = [heal("0", "1", 0.25)]
    sides, other = played.sides, Sides(cast("Run", played))
    sides.cut("0", "1", [0], "")
    sides.cut("0", "100", [0], "")
    assert not any(played.links.watched)
    sides.end(sides.latest)
    sides.heal()
    other.heal()  # which has seen the same
    assert played.links.watched[2:] == [True, True, True]
    for _ in range(2):  # what the first answer says is there when it is asked again
        played.links.asked.clear()
        assert played.links.asked.wait(30.0)
    assert played.tables == []
    played.afterwards.close()
    assert [table.title for table in played.tables] == [FirstBytes.TITLE]


def test_where_proxies_stand_in_no_first_byte_is_seen(played: Played) -> None:
    played.cluster.record.network = plans.PROXIES
    sides = Sides(cast("Run", played))
    sides.cut("0", "1", [0], "")
    sides.heal()
    assert played.links.watched == [False, False]
    played.afterwards.close()
    assert played.tables == []
