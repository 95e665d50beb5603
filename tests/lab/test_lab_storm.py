"""Goal: a storm is its seed's, and hurts nobody in a way that its promise does not cover.

Method: plans of many seeds, by their properties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.cluster.layout import APACHE, EMBEDDED
from holdfast.lab.parameters import LabError, NotInTimeError, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import load_scenario
from holdfast.lab.scenarios.networks import storm, three_zones, timetable
from holdfast.lab.scenarios.networks.replay import Replay
from holdfast.lab.scenarios.networks.storm import STAYED, Storm
from holdfast.lab.scenarios.networks.storm_machines import Machines, Met
from holdfast.lab.scenarios.networks.three_zones import ZONES, Zones
from holdfast.lab.scenarios.networks.timetable import Timetable, leave
from holdfast.lab.steps.replay_plan import Fault, Kind
from holdfast.lab.steps.sides import Sides
from holdfast.lab.steps.storm_plan import CALM_S, WEIGHTS, Deed, Planned, plan_storm
from holdfast.lab.steps.wants import Want, preferred
from holdfast.lab.workload_processes import Worker

BROKERS, CONTROLLERS = (0, 1, 2), (100, 101, 102)


def test_the_same_seed_is_the_same_storm() -> None:
    first, again, other = (plan_storm(seed, 300, BROKERS, CONTROLLERS) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", range(20))
def test_a_storm_has_every_kind_and_ends_in_calm(seed: int) -> None:
    planned = plan_storm(seed, 600, BROKERS, CONTROLLERS)
    assert [each.at_s for each in planned] == sorted(each.at_s for each in planned)
    assert planned[-1].at_s <= 600 - CALM_S
    kinds = Counter(each.deed for each in planned)
    rounds = len(planned) // sum(WEIGHTS.values())
    assert rounds >= 4
    for deed, weight in WEIGHTS.items():
        assert rounds * weight <= kinds[deed] <= (rounds + 1) * weight
    for each in planned:
        assert each.node != each.other
        # A controller's log is copied back by nobody.
        assert each.deed is not Deed.WIPE or each.node in BROKERS


def test_deeds_in_words() -> None:
    planned = plan_storm(3, 3000, BROKERS, CONTROLLERS)
    words = {each.deed: each.words for each in planned}
    assert set(words) == set(Deed)
    assert words[Deed.KILL].endswith(" is killed")
    assert words[Deed.PAUSE].endswith(" stands still")
    assert " ms apart" in words[Deed.SLOW]
    assert " % of packets between " in words[Deed.LOSE]
    assert " is not heard by " in words[Deed.ONE_WAY]
    assert words[Deed.FULL].endswith(" is full")
    said = {each.words.partition("is ")[2] for each in planned if each.deed is Deed.CLOCK}
    assert said == {
        f"{minutes} minutes {where}" for minutes in (5, 30) for where in ("ahead", "behind")
    }


def test_a_storm_that_is_too_short_does_nothing() -> None:
    assert plan_storm(1, CALM_S, BROKERS, CONTROLLERS) == []


def test_the_shortest_storm_that_is_taken_does_something() -> None:
    """Goal: neither is one refused that would be one, nor one begun that can't be."""
    least = load_scenario("storm").least["duration_s"]
    for seed in range(200):
        assert plan_storm(seed, least, BROKERS, CONTROLLERS)
    assert not all(plan_storm(seed, least - 1, BROKERS, CONTROLLERS) for seed in range(200))


def test_what_is_due_is_done_in_its_order_and_what_it_begins_is_ended_in_time() -> None:
    """Time stands still here: each thing is waited for until it is due, and none is left."""
    waited: list[float] = []
    times = Timetable(cast("Run", SimpleNamespace(steady_view=waited.append)))
    done: list[str] = []

    def begins(name: str, until_s: float) -> None:
        done.append(name)
        times.at(until_s, partial(done.append, f"end of {name}"))

    times.at(500.0, partial(begins, "second", 600.0))
    times.at(300.0, partial(begins, "first", 500.0))
    times.at(0.0, partial(done.append, "at once"))
    times.keep()
    assert done == ["at once", "first", "second", "end of first", "end of second"]
    assert [round(each, -2) for each in waited] == [300, 500, 500, 600]


@pytest.mark.parametrize(
    ("goes_at_s", "engine", "led", "failed"),
    [
        (0.0, EMBEDDED, True, []),
        (12.0, EMBEDDED, True, []),
        (1e9, EMBEDDED, True, ["1 is told to leave (late)"]),
        (1e9, EMBEDDED, False, ["1 is told to leave (late)"]),
        (1e9, APACHE, True, []),
    ],
    ids=["goes at once", "goes", "stays", "stays, without a controller", "stays, of Apache Kafka"],
)
def test_who_is_told_to_leave_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, goes_at_s: float, engine: str, led: bool, failed: list[str]
) -> None:
    """Seen to fail: without a controller a broker of Apache Kafka takes five minutes to leave, and
    nothing else was done meanwhile, not even what would have brought a controller back.

    One that stays all the same is killed, and that is no end of its own: it is counted, and of a
    node of ours a failed check. Seen to fail: not where no controller was there, though ours give
    up asking after 30 s.
    """
    killed = goes_at_s > 1e6
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(timetable, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    done: list[str] = []
    checks: list[str] = []

    def wait(seconds: float) -> None:
        clock.now_s += seconds

    run = SimpleNamespace(
        steady_view=wait,
        observer=SimpleNamespace(avoid=lambda _node: None),
        record_fault=lambda action, *_: done.append(f"{action} {clock.now_s:.0f}"),
        parameters=Parameters(engine=engine),
        check=lambda name, *_, kept, late: checks.extend([] if kept else [name + " (late)" * late]),
        cluster=SimpleNamespace(
            kill=lambda *_, **__: None,
            state=lambda _node: "dead" if clock.now_s >= goes_at_s else "running",
            quorum=lambda: object() if led else None,
        ),
    )
    times = Timetable(cast("Run", run))

    def begins() -> None:
        left = leave(cast("Run", run), times, 1, lambda node: done.append(f"start {node}"))
        times.end(5.0, left, lambda: None)

    times.at(0.0, begins)
    times.at(6.0, lambda: done.append(f"others {clock.now_s:.0f}"))
    times.keep()
    last = {0.0: 5, 12.0: 12, 1e9: 45}[goes_at_s]
    ended = f"{'KILL' if killed else 'exit'} {last}"
    others = "others 6"
    assert done == (
        ["TERM 0", ended, "start 1", others] if last < 6 else ["TERM 0", others, ended, "start 1"]
    )
    assert checks == failed
    assert times.stayed == ([1] if killed else [])


def test_who_had_to_be_killed_has_not_left() -> None:
    """Goal: the table of a storm does not count it as asked to end, and done."""
    found = Storm.__new__(Storm)
    found.done, found.passed_over = Counter({Deed.LEAVE.value: 3}), Counter()
    found.rows, found.dropped, found.met = [], 0, Counter({Met.ENDED: 1})
    found._machines = cast("Machines", SimpleNamespace(cannot={}))
    found._times = Timetable(cast("Run", None))
    found._times.stayed.append(1)
    rows = storm.tables(found, 7)[0].rows
    assert [Deed.LEAVE.value, "2", "0"] in rows
    assert [STAYED, "1", "0"] in rows
    assert ["its disk is full, and it ended by itself", "1", "0"] in rows


class Unseen:
    """A run, and links, of which nobody sees anything any more: what waits for a view never ends.

    Its clock is a number.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(timetable, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.did: list[tuple[int, str]] = []
        self.states = dict.fromkeys((*BROKERS, *CONTROLLERS), "running")
        self.parameters = Parameters()
        self.avoided: set[int] = set()
        self.observer = SimpleNamespace(
            avoid=self.avoided.add, allow=self.avoided.discard, ask_alone=lambda _node: None
        )
        self.cluster = SimpleNamespace(
            broker_ids=BROKERS,
            controller_ids=CONTROLLERS,
            state=self.states.__getitem__,
            kill=self._kill,
            wait_signalled=lambda *_, **__: None,
        )
        self.has_places = True
        self.cannot: dict[Deed, str] = {}
        self.new: set[int] = set()  # whose disk has nothing yet
        self.meeting: set[int] = set()  # who ends by itself on a full disk
        self.staying: dict[int, float] = {}  # and when, where that takes its time
        self.looks: list[tuple[int, int]] = []
        self.wrong: set[int] = set()  # whose clock is

    def _kill(self, node: int, action: str, **_: object) -> None:
        self.states[node] = {"KILL": "dead", "STOP": "stopped", "CONT": "running"}[action]

    def record_fault(self, action: str, node: int, _detail: str = "") -> None:
        self._do(f"{action} {node}")

    def _do(self, text: str) -> None:
        self.did.append((round(self.now_s), text))

    def fault(self, action: str, *nodes: int) -> float:
        return Run.fault(cast("Run", self), action, *nodes)

    def sync_view(self) -> None:
        raise NotInTimeError("Waited in vain for another broker's view.")

    def steady_view(self, seconds: float) -> None:
        self.now_s += seconds

    def start_node(self, node: int, *, wait: bool) -> None:
        assert not wait, "others may be out of its reach"
        self.states[node] = "running"
        self.observer.allow(node)
        self._do(f"start {node}")

    # -- machines --------------------------------------------------------------------------------

    def fill(self, node: int) -> bool:
        if node in self.new:
            return False
        self.avoided.add(node)
        self._do(f"fill {node}")
        return True

    def look(self, node: int) -> bool:
        self.looks.append((round(self.now_s), node))
        return self.states[node] == "dead"

    def make_room(self, node: int) -> Met | None:
        if node in self.staying and self.now_s < self.staying[node]:
            return None
        self.states[node] = "dead"
        self._do(f"make room for {node}")
        return Met.ENDED if node in self.meeting else Met.NOT

    def is_wrong(self, node: int) -> bool:
        return node in self.wrong

    def set_clock(self, node: int, minutes: int) -> None:
        (self.wrong.add if minutes else self.wrong.discard)(node)
        self._do(f"clock {node} {minutes}")

    def note(self, _text: str) -> None: ...

    # -- links -----------------------------------------------------------------------------------

    @property
    def _run(self) -> Unseen:
        return self

    def look_past(self, *brokers: int) -> None:
        Sides.look_past(cast("Sides", self), *brokers)

    def look_again(self, *brokers: int) -> None:
        Sides.look_again(cast("Sides", self), *brokers)

    def isolate(self, node: int, *, clients: bool) -> None:
        self._do(f"isolate {node}{' with clients' if clients else ''}")
        self.latest = node

    def end(self, isolated: int) -> None:
        self._do(f"heal {isolated}")

    def dropped_by_link(self) -> dict[tuple[str, str], int]:
        return {}

    def links_of(self, _fault: object) -> frozenset[tuple[str, str]]:
        return frozenset()

    def dropped(self) -> int:
        return 1


def planned(at_s: float, until_s: float, deed: Deed, node: int, amount: int = 0) -> Planned:
    length_s = until_s - at_s
    return Planned(at_s=at_s, length_s=length_s, deed=deed, node=node, other=2, amount=amount)


SEEN_BY_NOBODY = [
    (1, "KILL 2"),
    (4, "KILL 100"),
    (5, "KILL 101"),
    (6, "isolate 0"),
    (7, "start 2"),
    (8, "STOP 1"),
    (10, "CONT 1"),
    (11, "heal 0"),
    (13, "start 100"),
    (14, "start 101"),
]


def test_a_storm_goes_on_whatever_the_observer_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: only a broker that had just begun was left to be asked, and no quorum was there
    for it to register with. Its view was waited for with the timetable standing still, in which the
    controllers were to be started; a broker of Apache Kafka ended by itself meanwhile.
    """
    run: Any = Unseen(monkeypatch)

    Storm(run, run, run).blow(
        [
            planned(1, 7, Deed.KILL, 2),
            planned(4, 13, Deed.KILL, 100),
            planned(5, 14, Deed.KILL, 101),
            planned(6, 11, Deed.ISOLATE, 0),
            planned(8, 10, Deed.PAUSE, 1),
        ]
    )
    assert run.did == SEEN_BY_NOBODY
    assert run.avoided == set()


def test_so_does_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = Unseen(monkeypatch)

    def fault(at_s: float, until_s: float, kind: Kind, target: str) -> Fault:
        return Fault(at_s=at_s, seconds=until_s - at_s, kind=kind, target=target)

    Replay(run, run).play(
        [
            fault(1, 7, Kind.KILL, "broker:2"),
            fault(4, 13, Kind.KILL, "controller:0"),
            fault(5, 14, Kind.KILL, "controller:1"),
            fault(6, 11, Kind.ISOLATE, "broker:0"),
            fault(8, 10, Kind.PAUSE, "broker:1"),
        ]
    )
    assert run.did == SEEN_BY_NOBODY
    assert run.avoided == set()


def test_a_storm_reads_each_log_once_and_anew_once_its_disk_is_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: a disk that is replaced late in a long storm keeps nobody waiting for what is read.

    Method: each log's end is told by the tail that is asked, and tails are told apart.
    """
    run: Any = Unseen(monkeypatch)
    run.replicas = {0: BROKERS}
    run.soon = lambda condition, _bound_s: condition()
    looks = (SimpleNamespace(partitions={0: Want(0, frozenset(BROKERS))}) for _ in range(99))
    monkeypatch.setattr(Unseen, "view", property(lambda _run: next(looks)), raising=False)
    monkeypatch.setattr(storm, "replace_disk", lambda *_: None)
    asked: list[tuple[int, object]] = []

    def end_of(_run: object, node: int, *_: object, tail: Any) -> int:
        asked.append((node, tail(tmp_path / str(node))))
        return 9

    monkeypatch.setattr(storm, "end_of", end_of)
    begun = Storm(run, run, run)
    wipe = partial(Planned, deed=Deed.WIPE, length_s=2.0, other=2, amount=0)
    begun.blow([wipe(at_s=1.0, node=1), wipe(at_s=10.0, node=2), wipe(at_s=20.0, node=0)])
    assert begun.done[Deed.WIPE.value] == 3
    assert Counter(node for node, _ in set(asked)) == {0: 1, 1: 2, 2: 2}


def test_a_storm_has_read_on_where_a_disk_could_not_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: not all of an hour is read at once, when a disk can be replaced at last."""
    run: Any = Unseen(monkeypatch)
    run.replicas = {0: BROKERS}
    read: list[int] = []

    def end_of(_run: object, node: int, *_: object, **_tail: object) -> int:
        read.append(node)
        return 9

    monkeypatch.setattr(storm, "end_of", end_of)
    wipe = Planned(at_s=2.0, length_s=1.0, deed=Deed.WIPE, node=1, other=2, amount=0)
    kill = Planned(at_s=1.0, length_s=9.0, deed=Deed.KILL, node=2, other=0, amount=0)
    begun = Storm(run, run, run)
    begun.blow([kill, wipe])
    assert begun.passed_over == {Deed.WIPE.value: 1}
    assert read == [*BROKERS]


def test_a_node_whose_disk_was_full_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: also one that has not met it; and meanwhile nothing else is done to it, nor to a disk
    that may be the last to have an event.
    """
    run: Any = Unseen(monkeypatch)
    run.replicas = {}
    run.meeting = {1}
    begun = Storm(run, run, run)
    begun.blow(
        [
            planned(1, 9, Deed.FULL, 1),
            planned(2, 3, Deed.KILL, 1),
            planned(3, 5, Deed.WIPE, 0),
            planned(4, 8, Deed.FULL, 100),
        ]
    )
    assert run.did == [
        (1, "fill 1"),
        (4, "fill 100"),
        (8, "make room for 100"),
        (8, "start 100"),
        (9, "make room for 1"),
        (9, "start 1"),
    ]
    assert begun.done == {Deed.FULL.value: 2}
    assert begun.passed_over == {Deed.KILL.value: 1, Deed.WIPE.value: 1}
    assert begun.met == {Met.ENDED: 1, Met.NOT: 1}
    assert run.avoided == set()


def test_a_clock_is_wrong_whatever_else_befalls_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a node dies, and is back, by a wrong clock; what ends one fault ends no other one."""
    run: Any = Unseen(monkeypatch)
    begun = Storm(run, run, run)
    begun.blow(
        [
            planned(1, 9, Deed.CLOCK, 1, -30),
            planned(2, 4, Deed.CLOCK, 1, 5),
            planned(3, 5, Deed.KILL, 1),
            planned(6, 8, Deed.KILL, 2),
            planned(7, 10, Deed.CLOCK, 2, 5),
        ]
    )
    assert run.did == [
        (1, "clock 1 -30"),
        (3, "KILL 1"),
        (5, "start 1"),
        (6, "KILL 2"),
        (8, "start 2"),
        (9, "clock 1 0"),
    ]
    assert begun.passed_over == {Deed.CLOCK.value: 2}


@pytest.mark.parametrize("deed", [Deed.FULL, Deed.CLOCK])
def test_what_can_t_be_done_here_is_said_and_no_part_of_what_is_to_be_done(
    monkeypatch: pytest.MonkeyPatch, deed: Deed
) -> None:
    run: Any = Unseen(monkeypatch)
    run.cannot = {deed: "no such thing"}
    begun = Storm(run, run, run)
    begun.blow([planned(1, 2, deed, 1), planned(1, 2, Deed.KILL, 1)])
    assert run.did == [(1, "KILL 1"), (2, "start 1")]
    assert begun.passed_over == {}
    assert begun.planned == {Deed.KILL.value: 1}
    assert [deed.value, "-", "-"] in begun.counts
    assert begun.words.endswith("; no such thing")


class Zoned:
    """As much of a run, and of its links, as a cut of one zone touches; it notes what is done."""

    def __init__(self, leaders: Sequence[int]) -> None:
        self.did: list[str] = []
        self.replicas = {0: (1, 0, 2), 1: (2, 1, 0), 2: (0, 2, 1)}
        self.view = SimpleNamespace(
            partitions={p: SimpleNamespace(leader=each) for p, each in enumerate(leaders)}
        )
        self.partitions = range(3)
        self.parameters = Parameters(acks="1", retries=0)
        self.tables: list[Table] = []

    def zones(self) -> Zones:
        found = Zones.__new__(Zones)
        found._run = cast("Run", self)
        found._sides = cast("Sides", self)
        found._broker = dict(zip(ZONES, range(3), strict=True))
        found.producer = cast("Worker", SimpleNamespace(name="producer"))
        found._clients = {
            zone: cast("Worker", SimpleNamespace(name=f"raw-{zone}", history=Path(zone)))
            for zone in ZONES
        }
        found._rows = []
        return found

    def steady(self, worker: Worker, seconds: float | None = None) -> None:
        self.did.append(f"{worker.name} runs for {seconds} s")

    def must_flow(self, worker: Worker, partitions: Sequence[int] | None = None) -> None:
        self.did.append(f"{worker.name} flows in {partitions or 'all'}")

    def expect_flow(self, *_: object) -> None: ...

    def expect(self, when: str, wanted: Mapping[int, Want], _bound_s: float = 0.0) -> None:
        if when == "before a zone is cut off":
            self.did.append(f"in sync: {wanted == preferred(self.replicas)}")

    def look_past(self, _broker: int) -> None: ...

    def look_again(self, _broker: int) -> None: ...

    def isolate_zone(self, zone: str) -> float:
        self.did.append(f"{zone} is cut off")
        return 0.0

    def heal(self) -> float:
        self.did.append("healed")
        return 1.0


@pytest.mark.parametrize(("leaders", "elected"), [((1, 2, 0), False), ((1, 2, 2), True)])
def test_a_storms_control_begins_in_peace_with_a_zone_that_leads(
    leaders: Sequence[int], elected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the zone that is cut off has something to lose, and all has flowed for a while."""
    run = Zoned(leaders)
    monkeypatch.setattr(three_zones, "elect_preferred", lambda *_: run.did.append("elected"))
    run.zones().expect_peace("a", 2.0)
    peace = [
        "producer runs for 2.0 s",
        "producer flows in all",
        "raw-a flows in all",
        "in sync: True",
    ]
    assert run.did == (["elected", *peace] if elected else peace)


def test_a_storms_control_is_healed_only_when_something_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: what the lonely zone acknowledges once others lead is lost, so it has to be seen."""
    monkeypatch.setattr(three_zones, "all_acknowledged_ms", lambda *_: None)
    run = Zoned((1, 2, 0))
    run.zones().cut("a", winners=True, alone=True)
    assert run.did[-2:] == ["raw-a flows in [2]", "healed"]
    others = Zoned((1, 2, 0))
    others.zones().cut("a", winners=True)
    assert "raw-a flows in [2]" not in others.did


def test_a_zone_that_leads_nothing_is_no_control() -> None:
    run = Zoned((1, 2, 2))
    with pytest.raises(LabError, match="leads nothing"):
        run.zones().cut("a", winners=True, alone=True)
    assert run.did == []


def test_a_storms_control_makes_sure_of_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Zoned((1, 2, 0))
    monkeypatch.setattr(timetable, "Zones", lambda _run: run.zones())
    monkeypatch.setattr(three_zones, "all_acknowledged_ms", lambda *_: None)
    timetable.one_zone_cut(cast("Run", run))
    assert run.did == [
        "producer runs for 2.0 s",
        "producer flows in all",
        "raw-a flows in all",
        "in sync: True",
        "a is cut off",
        "raw-b runs for None s",
        "raw-a flows in [2]",
        "healed",
    ]
