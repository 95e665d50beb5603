"""Goal: scenarios of groups keep their promise on real brokers, and their controls break it.

Method: the proof itself, with the parts that are quickest; all of them are run by `make soak`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.proofs import proven

from holdfast.lab.scenarios import consumer_replaced, coordinator_lost, rebalance_price
from holdfast.lab.soak.group_campaigns import SETTINGS, kill_for
from holdfast.lab.steps.group_results import ONCE
from holdfast.lab.steps.groups import PROTOCOLS

pytestmark = [
    pytest.mark.turns,
    pytest.mark.serial("groups"),
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.timeout(400),
]


def test_a_crash_costs_what_the_commits_say(tmp_path: Path) -> None:
    main, control = proven(tmp_path, "commit-rules", ["main", "control"]).results
    assert main.evidence.groups.counts.repeated >= 2
    assert not main.evidence.groups.findings
    assert control.broken_groups


def test_members_with_an_instance_come_back_unnoticed(tmp_path: Path) -> None:
    static, control = proven(tmp_path, "rolling-clients", ["static", "control"]).results
    assert sum("static membership" in check.name for check in static.checks) == 6
    assert not static.evidence.groups.counts.repeated
    assert control.evidence.groups.counts.repeated


def test_results_are_exact_where_the_offset_goes_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_replaced, "SINK_ROUNDS", 1)
    parts = ["transaction", "control"]
    exact, control = proven(tmp_path, "consumer-replaced", parts).results
    assert sum(ONCE in check.name for check in exact.checks) == 2
    assert exact.evidence.groups.counts.repeated >= 20
    assert control.broken_groups


def test_a_zombie_of_the_group_before_puts_nothing_in(tmp_path: Path) -> None:
    main, control = proven(tmp_path, "standby-group", ["main", "control"]).results
    assert [row[0] for row in main.tables[0].rows] == ["A restarted cold", "B switched on"]
    assert [ONCE in check.name for check in control.checks if not check.kept] == [True]


def test_clients_that_are_cut_off_for_long_are_told(tmp_path: Path) -> None:
    longer, control = proven(tmp_path, "clients-cut-off", ["longer", "control"]).results
    assert longer.evidence.judgement.counts.unknown
    assert sum("goes on, and commits" in check.name for check in longer.checks) == 2
    assert control.evidence.judgement.observed.value == "at least once"


def test_the_price_of_a_rebalance_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: two of the four ways to rebalance, to be quick."""
    monkeypatch.setattr(rebalance_price, "STRATEGIES", rebalance_price.STRATEGIES[1:3])
    main, control = proven(tmp_path, "rebalance-price", ["main", "control"]).results
    prices = [table for table in main.tables if "price" in table.title]
    assert [table.title.rpartition(" ")[2] for table in prices] == ["cooperative", "static"]
    assert [len(table.rows) for table in prices] == [2, 2]
    assert sum(not check.kept for check in control.checks) == 3


def test_a_group_outlives_a_coordinator_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_lost, "WAYS", ("STOP",))
    parts = ["main", "consumer", "control"]
    proofs = proven(tmp_path, "coordinator-lost", parts, control=False).results
    assert [proof.tables[0].rows[0][0].rpartition("-")[2] for proof in proofs] == [*PROTOCOLS]
    for proof in proofs:
        assert [row[1][:7] for row in proof.tables[0].rows] == ["SIGSTOP"]
        assert not proof.evidence.groups.findings


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_keeps_its_promise_while_all_is_killed_at_random(
    tmp_path: Path, protocol: str
) -> None:
    """Method: what `make soak` does for minutes, for seconds."""
    settings = replace(SETTINGS, partitions=6, rate=100.0)
    row = kill_for(tmp_path / "run", protocol, 4.0, settings, members=3)
    assert row["kept"] is True, row
    assert sum(row["done"].values()) > 0
    assert row["processed"] >= row["acknowledged"]
