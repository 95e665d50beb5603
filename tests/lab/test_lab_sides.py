"""Goal: what is said of each side of a cut network follows from what was asked there.

Method: histories of clients by hand; as much of a run as each check touches.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.clients.blocking_driver import NoLeaderError, UnreachableError
from holdfast.cluster.processes import wait_until
from holdfast.judge.history import (
    Acknowledged,
    Event,
    LeaderChange,
    LeaderClaim,
    Refused,
    Send,
    Unknown,
    encode_event,
)
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import load_scenario
from holdfast.lab.scenarios.five_brokers import more, refusals
from holdfast.lab.scenarios.networks.slow_follower import expect_waited_for
from holdfast.lab.scenarios.networks.storm import Storm
from holdfast.lab.scenarios.networks.storm_machines import Machines
from holdfast.lab.steps import controllers
from holdfast.lab.steps.controllers import expect_quorum_whole
from holdfast.lab.steps.sides import (
    Sides,
    all_acknowledged_ms,
    asked_of,
    expect_one_leader_an_epoch,
    expect_silent,
    sent_ms_of,
)
from holdfast.lab.steps.storm_plan import Deed
from holdfast.lab.steps.wants import want
from holdfast.lab.workload_processes import HistoryTail, Worker

ACKED, DOUBT = "acknowledged", "doubt"


class Checks:
    """As much of a run as notes its checks."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = Parameters(**parameters)
        self.kept: list[bool] = []

    def check(self, _name: str, _expected: str, _seen: str, *, kept: bool, **_late: bool) -> bool:
        self.kept.append(kept)
        return kept

    def soon(self, condition: Any, _bound_s: float) -> bool:
        return bool(condition())


def client(
    folder: Path,
    outcomes: dict[int, str | None],
    took_ms: float = 1.0,
    process: str = "raw",
    partition: int = 0,
) -> Any:
    """Return a client that sent an event at each of these ms; None: nothing came of it yet."""
    events: list[Event] = []
    for at_ms, outcome in outcomes.items():
        head: dict[str, Any] = {"wall_ms": 0, "process": process, "topic": "foo"}
        head["partition"] = partition
        name, told_ms = f"{process}:{at_ms}", at_ms + took_ms
        events.append(Send(**head, at_ms=at_ms, id=name, digest="d", size=1))
        if outcome == ACKED:
            events.append(Acknowledged(**head, at_ms=told_ms, id=name, offset=at_ms))
        elif outcome == DOUBT:
            events.append(Unknown(**head, at_ms=told_ms, id=name, error="x", message=""))
        elif outcome is not None:
            events.append(Refused(**head, at_ms=told_ms, id=name, error=outcome, message=""))
    path = folder / f"{process}.jsonl"
    path.write_text("".join(map(encode_event, sorted(events, key=at_ms_of))))
    return SimpleNamespace(name=process, history=path, tail=HistoryTail(path))


def at_ms_of(event: Event) -> float:
    return event.at_ms


UNREACHED = {UnreachableError.__name__, NoLeaderError.__name__}


@pytest.mark.parametrize("nothing", [*sorted(UNREACHED), None])
def test_silence_of_who_reached_nobody_proves_nothing(tmp_path: Path, nothing: str | None) -> None:
    run = Checks()
    raw = client(tmp_path, {1: ACKED, 12: nothing, 14: nothing, 30: ACKED})
    assert asked_of(raw.history, 10, 20) == 0
    with pytest.raises(LabError, match="reached no broker"):
        expect_silent(cast("Run", run), raw, "cut off", 10, 20)
    assert run.kept == []


@pytest.mark.parametrize(
    ("outcome", "kept"), [(DOUBT, True), ("NOT_ENOUGH_REPLICAS", True), (ACKED, False)]
)
def test_silence_is_of_what_was_asked(tmp_path: Path, outcome: str, kept: bool) -> None:
    run = Checks()
    raw = client(tmp_path, {1: ACKED, 12: outcome, 20: ACKED})
    assert asked_of(raw.history, 10, 20) == 1
    expect_silent(cast("Run", run), raw, "cut off", 10, 20)
    assert run.kept == [kept]
    assert sent_ms_of(raw.history, {"raw:12", "raw:20"}) == [12, 20]


@pytest.mark.parametrize(
    ("of_a", "of_b", "at_ms"),
    [
        ({8: ACKED, 14: ACKED}, {11: DOUBT, 16: ACKED}, 17),  # what was sent before counts nothing
        ({12: ACKED, 13: ACKED}, {11: ACKED}, 13),
        ({12: ACKED}, {9: ACKED, 18: None, 21: ACKED}, None),
        ({12: ACKED}, {19: ACKED}, None),  # told at the end, when links are whole again
    ],
)
def test_others_go_on_when_each_partition_has_acknowledged_what_was_sent_since(
    tmp_path: Path, of_a: dict[int, str | None], of_b: dict[int, str | None], at_ms: float | None
) -> None:
    """Goal: a client that still waits for the lost leader does not stand for the cluster."""
    paths = [
        client(tmp_path, outcomes, process=f"raw-{partition}", partition=partition).history
        for partition, outcomes in enumerate((of_a, of_b))
    ]
    assert all_acknowledged_ms(paths, 10, 20, range(2)) == at_ms


@pytest.mark.parametrize(
    ("claims", "kept"),
    [
        ([], True),
        ([(1, 1, 0), (1, 0, 1)], True),  # first itself, later who leads now
        ([(1, -1, 1)], True),
        ([(1, 1, 1)], False),
    ],
)
def test_two_leaders_in_one_epoch_are_broken(
    tmp_path: Path, claims: list[tuple[int, int, int]], kept: bool
) -> None:
    """Method: 1 leads in epoch 0, 0 in epoch 1; what a broker that is asked alone claims."""
    run: Any = Checks()
    run.history = tmp_path
    head: dict[str, Any] = {"wall_ms": 0, "process": "observer", "topic": "foo", "partition": 0}
    events: list[Event] = [
        LeaderChange(**head, at_ms=epoch, leader=leader, epoch=epoch)
        for epoch, leader in enumerate([1, 0])
    ]
    for node, leader, epoch in claims:
        events.append(LeaderClaim(**head, at_ms=9, node=node, leader=leader, epoch=epoch))
    (tmp_path / "observer.jsonl").write_text("".join(map(encode_event, events)))
    expect_one_leader_an_epoch(run)
    assert run.kept == [kept]


@pytest.mark.parametrize(
    ("dropped_ms", "took_ms", "outcome", "kept"),
    [
        (4000, 900, ACKED, [True, True]),
        (1000, 900, ACKED, [False, True]),
        (4000, 10, ACKED, [True, False]),
        (4000, 10, "NOT_ENOUGH_REPLICAS", [True, False]),
        (4000, 10, None, [True, True]),  # it waits on
    ],
)
def test_a_slow_follower_gets_its_time_and_is_waited_for(
    tmp_path: Path, dropped_ms: int, took_ms: int, outcome: str | None, kept: list[bool]
) -> None:
    run = Checks(config={"replica.lag.time.max.ms": "4000"})
    # The first and the last one are outside of the time in which it was slow.
    raw = client(tmp_path, {1: ACKED, 200: outcome, 800: ACKED, 9000: ACKED}, took_ms)
    expect_waited_for(cast("Run", run), raw, 2, 100.0, 100.0 + dropped_ms)
    assert run.kept == kept


def test_who_refuses_is_what_was_seen(tmp_path: Path) -> None:
    raw = client(tmp_path, {1: "NOT_ENOUGH_REPLICAS", 2: "NOT_LEADER_OR_FOLLOWER"})
    assert refusals(cast("Worker", raw)) == {0: 1}
    assert more({0: 1, 1: 5}, {0: 2, 1: 5, 2: 1}) == [0, 2]
    assert more({}, {}) == []


@pytest.mark.parametrize(
    ("ends", "kept"), [([5, 5, 5], True), ([5, 4, 5], False), (None, False), (LabError, False)]
)
def test_a_quorum_that_does_not_come_back_is_broken(
    ends: Any, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: five records were committed; what each of three voters has, or nobody is active."""
    run: Any = Checks()
    voters = [SimpleNamespace(log_end=end) for end in ends] if isinstance(ends, list) else []
    state = SimpleNamespace(voters=voters) if voters else None
    run.cluster = SimpleNamespace(quorum=lambda: state)

    def active(_run: object) -> Any:
        if ends is LabError:
            raise LabError("nobody is active")
        return SimpleNamespace(high_watermark=5)

    monkeypatch.setattr(controllers, "active_controller", active)
    found: Any = expect_quorum_whole(run, "healed", 1.0)
    assert found is (state if kept else None)
    assert run.kept == [kept]


def test_a_leader_that_does_not_know_what_is_committed_makes_no_quorum_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen to fail: of Apache Kafka's fresh leaders it is -1, which each voter has."""

    def state(committed: int, end: int) -> Any:
        return SimpleNamespace(high_watermark=committed, voters=[SimpleNamespace(log_end=end)])

    told = [state(-1, -1), state(5, 3), state(5, 4), state(6, 5)]
    run: Any = Checks()
    run.cluster = SimpleNamespace(quorum=lambda: told.pop(0))
    run.wait = lambda what, over, bound_s: wait_until(over, timeout_s=bound_s, what=what)
    run.soon = lambda over, bound_s: run.wait("the end", over, bound_s)
    monkeypatch.setattr(controllers, "active_controller", lambda _run: state(-1, -1))
    found: Any = controllers.wait_quorum_whole(run)
    assert (found.high_watermark, told) == (6, [])


def test_voters_that_lack_something_in_the_end_are_broken_and_not_only_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen to fail: such a run was not made, and what is not made is repeated and forgotten."""
    run: Any = Checks()
    state: Any = SimpleNamespace(high_watermark=5, voters=[SimpleNamespace(log_end=4)])
    run.cluster = SimpleNamespace(quorum=lambda: state)
    monkeypatch.setattr(controllers, "active_controller", lambda _run: state)
    with pytest.raises(LabError, match="up to 5"):
        controllers.wait_quorum_whole(run)
    assert run.kept == [False]


class Viewed(Checks):
    """A run with one partition, and a view of it that gets renewed or does not."""

    def __init__(self, isr: tuple[int, ...], *, is_old: bool) -> None:
        super().__init__()
        self.replicas = {0: (0, 1, 2)}
        self._partitions = {0: want(0, isr)}
        self._old = SimpleNamespace(partitions=self._partitions) if is_old else None

    @property
    def view(self) -> Any:
        return self._old or SimpleNamespace(partitions=self._partitions)


@pytest.mark.parametrize(
    ("isr", "ends", "replaced"),
    [
        ((0, 1, 2), {0: 9, 1: 9, 2: 9}, True),
        ((0, 1), {0: 9, 1: 9, 2: 9}, False),
        # Its disk was replaced, and the controller has not heard of it.
        ((0, 1, 2), {0: 9, 1: 9, 2: -1}, False),
        ((0, 1, 2), {0: 9, 1: 9, 2: 3}, False),
    ],
)
def test_a_disk_is_replaced_only_when_all_others_have_everything(
    isr: tuple[int, ...], ends: dict[int, int], replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Any = Viewed(isr, is_old=False)
    monkeypatch.setattr(
        "holdfast.lab.scenarios.networks.storm.end_of", lambda _run, node, *_, **__: ends[node]
    )
    assert Storm(run, cast("Sides", None), cast("Machines", None))._is_whole() is replaced


def test_what_was_seen_before_says_nothing_of_who_is_in_sync_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a disk is not replaced by a view from before the faults, where none has come since."""
    run: Any = Viewed((0, 1, 2), is_old=True)
    monkeypatch.setattr("holdfast.lab.scenarios.networks.storm.end_of", lambda *_, **__: 9)
    assert not Storm(run, cast("Sides", None), cast("Machines", None))._is_whole()


def test_cuts_of_a_storm_are_those_that_must_drop_packets() -> None:
    storm = Storm(cast("Run", None), cast("Sides", None), cast("Machines", None))
    storm.done.update({Deed.CUT.value: 2, Deed.ISOLATE.value: 1, Deed.SLOW.value: 4, Deed.KILL: 3})
    assert storm.cuts == 3


@pytest.mark.parametrize(
    "name", ["split-brain", "followers-cut", "three-zones", "slow-follower", "storm"]
)
def test_each_profile_has_its_own_lag(name: str) -> None:
    """Goal: the profile of Kafka's defaults is that, and what a user sets holds in both."""
    scenario = load_scenario(name)
    assert scenario.defaults.lag_s == 4
    assert scenario.with_flags({"profile": "kafka"}).lag_s == 30
    own = {"profile": "kafka", "config": {"replica.lag.time.max.ms": "7000"}}
    assert scenario.with_flags(own).lag_s == 7
    told = scenario.defaults.as_json()
    assert Parameters.from_json(told) == scenario.defaults
