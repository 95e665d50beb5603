"""Goal: a storm says what was done, how long and to what effect, and is none where that is little.

Method: the run that nobody sees of `test_lab_storm.py`, whose clock is a number; the scenario's
steps on a played cluster where its end is looked at.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.played_network import PlayedSides
from tests.lab.played_stage import play
from tests.lab.test_lab_storm import BROKERS, CONTROLLERS, Unseen, planned

from holdfast.lab.parameters import NotInTimeError
from holdfast.lab.run import Run
from holdfast.lab.scenario import load_scenario
from holdfast.lab.scenarios.networks import storm, timetable
from holdfast.lab.scenarios.networks.storm import Storm
from holdfast.lab.steps import storm_plan
from holdfast.lab.steps.storm_plan import Deed, Planned, plan_storm
from holdfast.lab.steps.wants import Want

LINKS = {("0", "1"), ("2", "0")}
EVERY_KIND_S = 141.0


class Dropping(Unseen):
    """Links that drop what they are told to drop, by the fault that holds them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **dropping: int) -> None:
        super().__init__(monkeypatch)
        self._dropping = dropping
        self._dropped = dict.fromkeys(LINKS, 0)

    def begin(self, kind: str, pair: tuple[str, str]) -> None:
        self.latest: Any = pair
        self._dropped[pair] += self._dropping.get(kind, 0)

    def isolate(self, node: int, *, clients: bool) -> None:
        assert not clients
        self.begin("isolate", (str(node), "0"))

    def cut(self, a: str, b: str, *_: object, one_way: bool) -> None:
        self.begin("one_way" if one_way else "cut", (a, b))

    def lose(self, a: str, b: str, _share: str) -> None:
        self.begin("lose", (a, b))

    def end(self, isolated: object) -> None: ...

    def dropped_by_link(self) -> dict[tuple[str, str], int]:
        return dict(self._dropped)

    def links_of(self, fault: Any) -> frozenset[tuple[str, str]]:
        return frozenset({fault})


def begun(run: Any, *deeds: Planned) -> Storm:
    found = Storm(run, run, run)
    found.blow(list(deeds))
    return found


def two(at_s: float, deed: Deed, node: int = 0, other: int = 1) -> Planned:
    return Planned(at_s=at_s, length_s=2.0, deed=deed, node=node, other=other, amount=5)


@pytest.mark.parametrize(
    ("dropping", "by_cuts", "packets"),
    [
        ({"lose": 12}, 0, ["0", "0", "0", "12"]),
        ({"lose": 12, "one_way": 3}, 3, ["0", "0", "3", "12"]),
        ({"cut": 5, "isolate": 1}, 6, ["5", "1", "0", "0"]),
    ],
    ids=["a lossy link alone", "one of them", "two of them"],
)
def test_what_a_cut_has_dropped_is_counted_on_its_own_links(
    monkeypatch: pytest.MonkeyPatch, dropping: dict[str, int], by_cuts: int, packets: list[str]
) -> None:
    """Three cuts that dropped nothing, and a lossy link, are no cuts that cut something off."""
    run = Dropping(monkeypatch, **dropping)
    run.begin("cut", ("0", "1"))  # what was dropped before is nothing of theirs
    made = begun(
        run,
        two(1, Deed.CUT),
        two(4, Deed.ISOLATE, 2),
        two(8, Deed.ONE_WAY),
        two(12, Deed.LOSE),
        two(16, Deed.KILL),
    )
    assert made.cuts == 3
    assert made.dropped_by_cuts == by_cuts
    idle = packets[:3].count("0")
    assert f"; {idle} of 3 cuts have dropped no packet" in made.words
    assert [row[3] for row in made.rows] == [*packets, "-"]


def test_cuts_that_cut_nothing_off_are_no_storm_whatever_lossy_links_drop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = [two(1, Deed.CUT), two(4, Deed.ISOLATE), two(8, Deed.LOSE), two(12, Deed.LOSE)]
    monkeypatch.setattr(storm, "plan_storm", lambda *_: plan)
    monkeypatch.setattr(PlayedSides, "dropped", lambda _sides: 12)
    monkeypatch.setattr(PlayedSides, "dropped_by_link", lambda _sides: {("0", "1"): 12})
    assert play(monkeypatch, tmp_path, "storm", "main").broke_off == (
        "2 cuts have dropped no packet"
    )


@pytest.mark.parametrize(
    ("passed_over", "broke_off"),
    [
        (3, None),
        (4, "3 of 7 faults could be done, and less than half of it is another storm (--duration"),
    ],
)
def test_a_storm_of_which_less_than_half_was_done_is_another_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, passed_over: int, broke_off: str | None
) -> None:
    """Seen to pass as kept: a storm of which most was passed over, and the verdict said nothing."""
    killed = [planned(1 + at, 30, Deed.KILL, node) for at, node in enumerate((0, 100, 1))]
    over = [planned(5 + at, 7 + at, Deed.FULL, 0) for at in range(passed_over)]
    monkeypatch.setattr(storm, "plan_storm", lambda *_: [*killed, *over])
    played = play(monkeypatch, tmp_path, "storm", "main")
    assert (played.broke_off or "").startswith(broke_off or "")
    assert (played.broke_off is None) == (broke_off is None)
    assert played.failed == []
    (told,) = played.told
    assert told.startswith(f"3 of {3 + passed_over} faults done, {passed_over} passed over (killed")
    assert f"its disk is full 0 of {passed_over}" in told
    assert "not planned in so short a storm: asked to end / stands still" in told
    assert "0 of 0" not in told
    assert told.endswith("; planned, and never done: its disk is full")


def test_how_much_was_done_is_told_also_of_a_storm_that_broke_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise NotInTimeError("no more")

    monkeypatch.setattr(storm, "plan_storm", lambda *_: [two(1, Deed.KILL), two(9, Deed.CUT)])
    monkeypatch.setattr(PlayedSides, "cut", breaks)
    played = play(monkeypatch, tmp_path, "storm", "main")
    assert played.broke_off == "no more"
    assert [told.partition(",")[0] for told in played.told] == ["1 of 2 faults done"]


def test_from_which_length_on_every_kind_is_planned() -> None:
    """Goal: what a short storm is told to take is enough, whatever the seed."""
    assert storm_plan.EVERY_KIND_S == EVERY_KIND_S
    for seed in range(300):
        plan = plan_storm(seed, EVERY_KIND_S, BROKERS, CONTROLLERS)
        assert {each.deed for each in plan} == set(Deed)


def wipes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a run whose replicas all have everything, whenever somebody looks."""
    run: Any = Unseen(monkeypatch)
    run.replicas = {0: BROKERS}
    run.soon = lambda condition, _bound_s: condition()
    looks = (SimpleNamespace(partitions={0: Want(0, frozenset(BROKERS))}) for _ in range(99))
    monkeypatch.setattr(Unseen, "view", property(lambda _run: next(looks)), raising=False)
    monkeypatch.setattr(storm, "end_of", lambda *_, **__: 9)
    monkeypatch.setattr(storm, "replace_disk", lambda run, node: run._do(f"new disk of {node}"))
    return run


def test_a_disk_that_can_t_be_lost_yet_is_lost_once_that_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen to fail: it was passed over, two of three times in an hour's storm."""
    run = wipes(monkeypatch)
    made = begun(
        run,
        planned(1, 5.5, Deed.PAUSE, 2),
        planned(3, 5, Deed.WIPE, 1),
        planned(20, 21, Deed.KILL, 0),
    )
    assert run.did[:4] == [(1, "STOP 2"), (6, "CONT 2"), (6, "KILL 1"), (6, "new disk of 1")]
    assert run.did[4] == (8, "start 1")
    assert made.passed_over == {}
    assert made.done[Deed.WIPE.value] == 1


def test_a_disk_that_can_t_be_lost_in_time_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a storm ends in calm: what is put off is not begun behind what was planned last."""
    run = wipes(monkeypatch)
    made = begun(
        run,
        planned(1, 9, Deed.PAUSE, 2),
        planned(3, 5, Deed.WIPE, 1),
        planned(8, 9, Deed.KILL, 0),
    )
    assert made.passed_over == {Deed.WIPE.value: 1}
    assert "new disk of 1" not in [text for _, text in run.did]


def test_what_is_dead_is_not_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a node that has ended by itself is not made to look as if the storm had done that."""
    run: Any = Unseen(monkeypatch)
    run.states[1] = "dead"
    made = begun(run, planned(1, 3, Deed.ISOLATE, 1), planned(1, 3, Deed.LEAVE, 1))
    assert run.did == []
    assert made.passed_over == {Deed.ISOLATE.value: 1, Deed.LEAVE.value: 1}


@pytest.mark.parametrize("deed", [Deed.KILL, Deed.PAUSE, Deed.ISOLATE, Deed.FULL, Deed.LEAVE])
def test_who_is_told_to_leave_is_hurt_until_it_has_left(
    monkeypatch: pytest.MonkeyPatch, deed: Deed
) -> None:
    """Goal: nothing else is done to a node on its way out, where it would end of something else.

    Method: it runs on for 9 s, and once it was started again it may be hurt as any other.
    """
    run: Any = Unseen(monkeypatch)
    run.cluster.kill = lambda *_, **__: None
    run.cluster.state = lambda _node: (
        "running" if run.now_s < 10 or 11.5 < run.now_s < 15 else "dead"
    )
    made = begun(
        run, planned(1, 3, Deed.LEAVE, 1), planned(4, 5, deed, 1), planned(13, 14, deed, 1)
    )
    assert run.did[0] == (1, "TERM 1")
    assert [text for at_s, text in run.did if at_s < 12][1:] == ["exit 1", "start 1"]
    assert made.passed_over == {deed.value: 1}
    assert made.done[deed.value] == 1 + (deed is Deed.LEAVE)


def test_a_deed_is_shown_as_long_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as long as was planned: it may take longer, or come late.

    Method: a node leaves for 10 s, and another one ends on its full disk 6 s after its time.
    """
    run: Any = Unseen(monkeypatch)
    run.staying = {1: 11.5}
    run.cluster.kill = lambda *_, **__: None
    run.cluster.state = lambda node: "dead" if node == 0 and run.now_s > 10 else run.states[node]
    made = begun(run, planned(1, 3, Deed.LEAVE, 0), planned(2, 5.5, Deed.FULL, 1))
    assert [row[:2] for row in made.rows] == [["1.0", "10.0"], ["2.0", "9.5"]]


def test_a_full_disk_is_looked_at_until_its_node_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run: Any = Unseen(monkeypatch)
    run.cluster.state = lambda node: "dead" if run.now_s > 4.5 and node == 1 else "running"
    run.look = lambda node: (
        run.looks.append((round(run.now_s), node)) or run.cluster.state(node) == "dead"
    )
    begun(run, planned(2, 9, Deed.FULL, 1), planned(3, 4.5, Deed.FULL, 0))
    assert sorted(run.looks) == [(2, 1), (3, 0), (3, 1), (4, 0), (4, 1), (5, 1)]


def test_a_disk_that_is_new_can_t_be_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: it is passed over, and something else may be done to its node."""
    run: Any = Unseen(monkeypatch)
    run.new = {1}
    made = begun(run, planned(2, 9, Deed.FULL, 1), planned(3, 4, Deed.KILL, 1))
    assert [text for _, text in run.did] == ["KILL 1", "start 1"]
    assert made.passed_over == {Deed.FULL.value: 1}


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_was_seen_amid_the_faults_is_no_view_of_what_is_behind_them(is_seen: bool) -> None:
    before, after = object(), object()
    views = iter([before, before, after])
    waited: list[bool] = []

    class Seen:
        view = property(lambda _run: next(views) if is_seen else before)

        def wait(self, what: str, condition: Any, _bound_s: float) -> bool:
            waited.extend(condition() for _ in range(2))
            if not waited[-1]:
                raise NotInTimeError(what)
            return True

        def check(self, name: str, *_: object, kept: bool, late: bool) -> None:
            assert (name, kept, late) == ("a view of the cluster", False, True)

    if is_seen:
        timetable.see_again(cast("Run", Seen()))
    else:
        with pytest.raises(NotInTimeError):
            timetable.see_again(cast("Run", Seen()))
    assert waited == [False, is_seen]


def test_a_storm_s_brokers_do_not_give_up_registering() -> None:
    """Goal: one that faults hold away from all controllers for long has not ended by itself."""
    config = load_scenario("storm").defaults.node_config
    assert config["initial.broker.registration.timeout.ms"] == "86400000"


def test_nodes_are_started_anew_before_there_is_a_topic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: a cluster whose nodes are moved to other disks has nothing yet that could be lost."""
    did = play(monkeypatch, tmp_path, "storm", "main").did
    anew = next(place for place, each in enumerate(did) if "started anew" in each)
    assert anew < next(place for place, each in enumerate(did) if each.startswith("topic "))
