"""`make replay`: which rows it writes, what they say, and which of them count.

Method: the lab and the simulator by hand, as they are told to answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

import replays
from holdfast.cluster import own_code
from holdfast.judge.verdict import Anomaly
from holdfast.lab import background
from holdfast.lab.aftermath import LOST_WHERE_IT_BROKE_OFF
from holdfast.lab.background import SOURCE, Row
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Check, Table
from holdfast.lab.scenario import load_scenario
from holdfast.lab.scenarios.networks.replay import BY_KIND
from mutation import Mutation
from replays import (
    BUG,
    CLEAN,
    NOT_MADE,
    conclude,
    kept_of,
    losses_of,
    may_go_on,
    plan_hash,
    replay_all,
    replay_bug,
    replay_clean,
    that_hold,
)

CHANGED = Path("/changed")
BUG_PLAN = {"seed": 5, "events": [{"kind": "kill"}]}
FOUND: Row = {"key": "abc", "seed": 5, "odds": 4, "orders": 5, "plan": BUG_PLAN}
MUTATION = cast("Mutation", SimpleNamespace(name="a bug", key="abc"))
Came = tuple[Exit, tuple[Anomaly, ...]]
KEPT: Came = (Exit.KEPT, ())
LOST: Came = (Exit.BROKEN, (Anomaly.LOST,))
UNMADE: Came = (Exit.NOT_MADE, ())
FAILED: Came = (Exit.BROKEN, ())  # a check


class Lab:
    """What runs come to, one after the other, and what the simulator says of each plan."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder = folder
        self.said: list[str] = []
        self.came: list[Came] = []
        self.nodes: list[object] = []  # what begins each run
        self.plans: list[Any] = []
        self.network = "namespaces"
        self.simulated: list[Any] = [""]
        monkeypatch.setattr(replays, "nodes_run", lambda code: code)
        monkeypatch.setattr(replays, "say", self.said.append)
        monkeypatch.setattr(replays, "replay", self._replay)
        monkeypatch.setattr(replays, "search", self._search)
        monkeypatch.setattr(replays, "changed", self._changed)
        monkeypatch.setattr(replays, "by_scenario", lambda _name: ())
        monkeypatch.setattr(background, "fingerprint", lambda _paths: "of the simulator")
        monkeypatch.setattr(replays, "drawn", lambda seed: {"seed": seed, "drawn": True})
        monkeypatch.setattr(replays, "fits", lambda _plan: True)
        monkeypatch.setattr(
            replays,
            "replayable",
            lambda plan: SimpleNamespace(plan={"seed": plan["seed"], "events": [1, 2, 3]}),
        )

    @contextmanager
    def _changed(self, mutation: Mutation) -> Iterator[Path]:
        assert mutation is MUTATION
        yield CHANGED

    def _search(self, code: Path, *words: str, given: str) -> list[Any]:
        assert (code, words) == (SOURCE, ("--clean",))
        assert given
        return self.simulated

    def _replay(
        self, plan: Mapping[str, Any], drawn: object = None, begin: object = None
    ) -> tuple[Outcome, Path, str | None]:
        assert drawn is None or plan is not BUG_PLAN
        self.plans.append(plan)
        self.nodes.append(begin)
        code, broken = self.came.pop(0)
        table = Table(title="by kind", header=BY_KIND, rows=[["is killed", "2", "1"]])
        outcome = Outcome(
            scenario=load_scenario("replay"),
            parameters=Parameters(),
            exit=code,
            verdict=f"{code.name} it is",
            results=(cast("Any", SimpleNamespace(broken=broken, checks=(), tables=(table,))),),
            directory=Path("/run"),
            report=None,
        )
        folder = self._folder / str(len(self.plans)) / "run"
        folder.mkdir(parents=True)
        return outcome, folder, self.network


def test_what_is_in_no_replica_is_lost_where_a_run_broke_off(lab: Lab) -> None:
    """Goal: a bug is named whose client gives up, so that nobody reads all back."""
    lab.came = [(Exit.BROKEN, ())]
    outcome, _, _ = lab._replay(BUG_PLAN)
    (result,) = outcome.results
    assert losses_of(outcome) == []
    for name, losses in [("an idempotent producer", []), (LOST_WHERE_IT_BROKE_OFF, ["lost"])]:
        failed = Check(name=name, expected="x", seen="y", kept=False)
        cast("Any", result).checks = (failed, Check(name="z", expected="x", seen="x", kept=True))
        assert losses_of(outcome) == losses


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Lab]:
    kept_of.cache_clear()
    yield Lab(monkeypatch, tmp_path)
    kept_of.cache_clear()


def test_a_clean_row_says_what_was_done_and_what_the_simulator_said(lab: Lab) -> None:
    lab.came = [KEPT]
    row = replay_clean(7)
    assert row is not None
    assert (row["kind"], row["kept"], row["seed"]) == (CLEAN, True, 7)
    assert (row["faults"], row["done"], row["passed_over"]) == (3, 2, 1)
    assert row["simulated"] == "clean"
    assert row["network"] == "namespaces"
    assert row["simulator"] == "of the simulator"
    assert row["plan_hash"] == plan_hash(lab.plans[0])


@pytest.mark.parametrize("said", [["judge: lost"], [], ["", "more"]])
def test_a_seed_that_is_not_clean_in_the_simulator_is_not_taken(lab: Lab, said: list[Any]) -> None:
    """Also where it gives no answer: then nobody knows."""
    lab.simulated = said
    row = replay_clean(7)
    assert row is not None
    assert row["kind"] == NOT_MADE
    assert not lab.plans


def test_a_clean_seed_that_could_not_be_made_is_replayed_once_more(lab: Lab) -> None:
    lab.came = [UNMADE, KEPT]
    row = replay_clean(7)
    assert row is not None
    assert (row["kind"], row["kept"]) == (CLEAN, True)
    lab.came = [UNMADE, UNMADE, KEPT]
    row = replay_clean(7)
    assert row is not None
    assert row["kind"] == NOT_MADE


@pytest.mark.parametrize(
    ("came", "kind", "kept", "unmodified"),
    [
        ([LOST, KEPT], BUG, True, True),
        ([KEPT, LOST, KEPT], BUG, True, True),
        ([LOST, LOST], BUG, False, False),  # a lab with a false alarm
        ([LOST, FAILED], BUG, False, False),
        ([LOST, UNMADE, KEPT], BUG, True, True),
        ([LOST, UNMADE, LOST], BUG, False, False),
        ([LOST, UNMADE, UNMADE], NOT_MADE, False, False),
        ([KEPT, KEPT], BUG, False, None),
        ([UNMADE, UNMADE], NOT_MADE, False, None),
        ([KEPT, UNMADE, UNMADE], NOT_MADE, False, None),
        ([FAILED, FAILED], BUG, False, None),
    ],
)
def test_a_bug_is_named_where_unmodified_nodes_keep_the_same_schedule(
    lab: Lab, came: list[Came], kind: str, kept: bool, unmodified: bool | None
) -> None:
    lab.came = [*came]
    row = replay_bug(MUTATION, FOUND, 2)
    assert not lab.came, "all of it was replayed"
    assert (row["kind"], row["kept"]) == (kind, kept)
    assert row["plan_hash"] == plan_hash(BUG_PLAN)
    assert all(plan is BUG_PLAN for plan in lab.plans)
    assert (row["done"], row["passed_over"]) == (2, 1)
    told = row["unmodified"]
    assert (told if told is None else told["kept"]) is unmodified
    last = came.index(LOST) + 1 if LOST in came else len(came)
    assert set(lab.nodes[:last]) == {CHANGED}
    assert set(lab.nodes[last:]) <= {None}


@pytest.mark.parametrize(
    ("kind", "came", "left"),
    [
        (CLEAN, [KEPT], []),
        (CLEAN, [LOST], ["1"]),
        (CLEAN, [UNMADE, KEPT], ["1"]),
        (BUG, [LOST, KEPT], []),
        (BUG, [KEPT, LOST, KEPT], ["1"]),
        (BUG, [LOST, LOST], ["2"]),
        (BUG, [UNMADE, UNMADE], ["1", "2"]),
    ],
)
def test_make_replay_leaves_what_was_not_as_it_must_be(
    lab: Lab, tmp_path: Path, kind: str, came: list[Came], left: list[str]
) -> None:
    """Seen to fail: every run stayed, hundreds of MB each time. What stays is named."""
    lab.came = [*came]
    row = replay_clean(7) if kind == CLEAN else replay_bug(MUTATION, FOUND, 2)
    assert row
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    named = [line.rpartition("(")[2] for line in lab.said if line.endswith("/run)")]
    assert named == [f"{tmp_path / each / 'run'})" for each in left]


def test_rows_of_another_plan_do_not_count(lab: Lab) -> None:
    """Goal: what the simulator draws from a seed may change; its old rows are of another plan."""
    assert not lab.plans
    clean: Row = {
        "kind": CLEAN,
        "seed": 7,
        "plan_hash": plan_hash({"seed": 7, "events": [1, 2, 3]}),
    }
    bug: Row = {"kind": BUG, "key": "abc", "seed": 5, "plan_hash": plan_hash(BUG_PLAN)}
    others: list[Row] = [
        {"kind": CLEAN, "seed": 7},
        clean | {"seed": 8},
        clean | {"plan_hash": plan_hash(BUG_PLAN)},
        {"kind": BUG, "key": "abc", "seed": 5},
        bug | {"key": "xyz"},
        {"kind": BUG, "key": "xyz", "plan_hash": None},
        bug | {"plan_hash": clean["plan_hash"]},
        clean | {"network": "proxies"},
        clean | {"network": "unknown"},
        bug | {"network": "proxies"},
        bug | {"network": "proxies", "kept": False, "unmodified": None},
    ]
    assert that_hold([clean, *others, bug], {"abc": FOUND}) == [clean, bug]
    named = [each | {"network": "namespaces"} for each in (clean, bug)]
    assert that_hold(named, {"abc": FOUND}) == named
    assert that_hold([bug], {}) == []
    lesser: Row = {"network": "proxies", "kept": False}
    broken = [clean | lesser, bug | lesser | {"unmodified": {"kept": False}}]
    assert that_hold(broken, {"abc": FOUND}) == broken, "what they break is broken"


def test_what_was_cut_off_ends_no_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seen to fail: killed amid a write, `make replay` ended at each start with a traceback."""
    monkeypatch.setattr(background, "fingerprint", lambda _paths: "this")
    path = tmp_path / "rows.jsonl"
    assert replays.rows_of(path, ()) == []
    path.write_text('{"key": "a", "code": "this"}\n{"key": "b", "code": "other"}\n{"key": "c", "c')
    assert replays.rows_of(path, ()) == [{"key": "a", "code": "this"}]


class Rows:
    """What stands in for a file of results."""

    def __init__(self, *rows: Row) -> None:
        self.rows = [*rows]
        self.add = self.rows.append

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_make_replay_goes_on_beside_rows_that_hold(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a row of each kind that holds not, and one seed that is not to be had."""
    clean = {"kind": CLEAN, "seed": 8, "kept": True}
    held = clean | {"plan_hash": plan_hash({"seed": 8, "events": [1, 2, 3]})}
    old = {"kind": BUG, "key": "abc", "kept": True, "attempts": 1, "misses": 0}
    rows = Rows({**clean, "seed": 7}, held, old)
    monkeypatch.setattr(replays, "Results", lambda *_: rows)
    monkeypatch.setattr(replays, "rows_of", lambda *_: [FOUND])
    lab.came = [LOST, KEPT, UNMADE, UNMADE, KEPT]
    options = argparse.Namespace(attempts=3, first=7, clean=2)
    assert replay_all(options, [MUTATION]) == 0
    assert [(row["kind"], row["seed"]) for row in rows.rows[3:]] == [(BUG, 5), (CLEAN, 9)]
    assert replay_all(options, [MUTATION]) == 0, "nothing is left to do"
    assert len(rows.rows) == 5


def test_what_proxies_have_shown_is_kept_and_does_not_count(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows()
    monkeypatch.setattr(replays, "Results", lambda *_: rows)
    monkeypatch.setattr(replays, "rows_of", lambda *_: [FOUND])
    lab.network, lab.came = "proxies", [KEPT, KEPT, KEPT]
    assert replay_all(argparse.Namespace(attempts=3, first=7, clean=1), []) == 1
    assert [row["network"] for row in rows.rows] == ["proxies"]
    assert "seed 7: by proxies, so it doesn't count; nor would the next" in lab.said
    assert "0 seeds could not be made, or are not clean in the simulator" in lab.said


def test_what_proxies_have_broken_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: a seed and unmodified nodes are broken by proxies; then all is by namespaces."""
    rows = Rows()
    monkeypatch.setattr(replays, "Results", lambda *_: rows)
    monkeypatch.setattr(replays, "rows_of", lambda *_: [FOUND])
    lab.network, lab.came = "proxies", [LOST, LOST, LOST]
    options = argparse.Namespace(attempts=3, first=7, clean=1)
    assert replay_all(options, [MUTATION]) == 1
    assert [(row["kind"], row["kept"]) for row in rows.rows] == [(BUG, False), (CLEAN, False)]
    lab.network = "namespaces"
    assert replay_all(options, [MUTATION]) == 1, "neither is replayed until it is kept"
    assert len(rows.rows) == 2


def test_a_bug_that_could_not_be_made_is_no_result(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows()
    monkeypatch.setattr(replays, "Results", lambda *_: rows)
    monkeypatch.setattr(replays, "rows_of", lambda *_: [FOUND])
    lab.came = [LOST, UNMADE, UNMADE]
    assert replay_all(argparse.Namespace(attempts=3, first=7, clean=0), [MUTATION]) == 1
    assert rows.rows == []


def test_make_replay_fails_where_too_little_was_replayed() -> None:
    """Method: rows by hand. Bugs without a schedule for this code once passed, all of them."""
    bug = {"kind": BUG, "kept": True, "attempts": 1, "misses": 0}
    clean = {"kind": CLEAN, "kept": True}
    assert conclude([bug, clean], 1, 1) == 0
    assert conclude([clean], 1, 1) == 1
    assert conclude([bug], 1, 1) == 1
    assert conclude([bug, bug | {"kept": False}, clean], 2, 1) == 1
    assert conclude([bug, clean | {"kept": False}], 1, 1) == 1
    assert may_go_on([bug, clean], 2, 2)
    assert not may_go_on([bug, clean], 2, 3)
    assert not may_go_on([clean], 1, 0)


def test_a_bug_is_in_the_nodes_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: nodes run the code that is named; what else a run starts is told nothing of it."""
    guard = {"MARK": "its mark"}
    made = SimpleNamespace(
        cluster=SimpleNamespace(environment=guard), guard=SimpleNamespace(environment=guard)
    )
    monkeypatch.setattr(replays, "Run", lambda *_: made)
    run = replays.nodes_run(CHANGED)(Parameters(), tmp_path, lambda _line: None)
    found = own_code.environment(run.cluster.environment)
    assert found["PYTHONPATH"].split(":")[:2] == [str(CHANGED), str(SOURCE)]
    assert found["MARK"] == "its mark"
    assert run.guard.environment == {"MARK": "its mark"}
