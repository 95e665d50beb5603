"""Goal: `holdfast prove` as it is typed: exit status, JSON, report; on real brokers, really killed.

Method: the command in a process of its own. Two short runs with real faults; everything else
ends before a cluster is started.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.scenario import DRAWN, SCENARIOS


def prove(*arguments: str, timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "prove", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.mark.process
@pytest.mark.slow
def test_scenarios_are_listed() -> None:
    found = prove("--list")
    assert found.returncode == 0
    assert [line.split()[0] for line in found.stdout.splitlines()] == [*SCENARIOS, *DRAWN]
    assert found.stdout.startswith("one-broker-down ")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--list"),
        (("no-such",), "one-broker-down"),
        (("one-broker-down", "--acks", "7"), "--acks 7"),
        (("one-broker-down", "--replication-factor", "4"), "3 brokers"),
        (("one-broker-down", "--config", "nonsense"), "KEY=VALUE"),
        (
            ("one-broker-down", "--config", "replica.lag.time.max=5"),
            "nothing would be proven. Did you mean replica.lag.time.max.ms",
        ),
        (("one-broker-down", "--config", "quota.window.num=5"), "no effect on a node"),
        (("two-brokers-down", "--partitions", "9"), "--partitions 9"),
        (("one-broker-down", "--output", "."), "empty directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_can_not_be_run_is_refused_with_the_reason(
    arguments: tuple[str, ...], words: str
) -> None:
    found = prove(*arguments)
    assert found.returncode == 2
    assert words in found.stderr


@pytest.mark.serial
@pytest.mark.slow
def test_acks_one_loses_exactly_what_only_the_dead_leader_had(tmp_path: Path) -> None:
    output = tmp_path / "run"
    arguments = ("write-anomaly", "--count", "7", "--json", "--output", str(output))
    found = prove(*arguments, timeout_s=110)
    assert found.returncode == 0, found.stdout + found.stderr
    verdict = json.loads(found.stdout)
    main, control = verdict["parts"]
    assert main["anomalies"]["lost"] == 0
    assert main["counts"]["unknown"] == 7
    assert control["anomalies"]["lost"] == 7
    assert control["observed"] == "at most once"
    assert (output / "report.html").read_text().count("<svg") >= 4
    assert verdict["report"] == str(output / "report.html")
    again = evidence_of(history_files(output / "control" / "history"))
    assert len(again.judgement.findings) == 7
    assert "Promise: Nothing acknowledged is lost" in found.stderr
    command = [sys.executable, "-m", "holdfast.cli", "check", str(output), "--json"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout) == verdict


@pytest.mark.serial
@pytest.mark.slow
def test_one_broker_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    arguments = ("one-broker-down", "--signal", "KILL", "--duration", "0.5", "--no-control")
    found = prove(*arguments, "--output", str(tmp_path / "run"), timeout_s=110)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "SIGKILL node 2" in found.stdout
    assert "Kept." in found.stdout
    assert str(tmp_path / "run" / "report.html") in found.stdout


@pytest.mark.serial
@pytest.mark.slow
def test_controllers_come_and_go_and_data_notice_nothing(tmp_path: Path) -> None:
    """SIGKILL and SIGSTOP of the active controller of three; then a majority of them is killed."""
    arguments = ("controller-election", "--kills", "1", "--duration", "0.5", "--no-control")
    found = prove(*arguments, "--json", "--output", str(tmp_path / "run"), timeout_s=150)
    assert found.returncode == 0, found.stdout + found.stderr
    elections, majority = json.loads(found.stdout)["parts"]
    for part in (elections, majority):
        assert part["counts"]["refused"] == part["counts"]["unknown"] == 0
        assert part["counts"]["acknowledged"] > 100
    rows = {table["title"]: table["rows"] for table in elections["figures"]}
    (measured,) = [rows[title] for title in rows if "first metadata change" in title]
    assert [row[0].split()[0] for row in measured] == ["SIGKILL", "SIGSTOP"]
    seen = {check["name"]: check["seen"] for check in majority["checks"]}
    assert seen["metadata changes made meanwhile"] == "0"


@pytest.mark.serial
@pytest.mark.slow
def test_a_leader_that_stood_still_acknowledges_nothing_that_it_can_not_keep(
    tmp_path: Path,
) -> None:
    arguments = ("broker-paused", "--duration", "0.5", "--count", "9", "--json")
    found = prove(*arguments, "--output", str(tmp_path / "run"), timeout_s=150)
    assert found.returncode == 0, found.stdout + found.stderr
    main, control = json.loads(found.stdout)["parts"]
    assert main["anomalies"]["lost"] == 0
    assert control["anomalies"]["lost"] == 9


@pytest.mark.serial
@pytest.mark.slow
def test_an_eligible_replica_saves_what_the_last_in_sync_one_loses(tmp_path: Path) -> None:
    arguments = ("last-replica-standing", "--no-control")
    found = prove(*arguments, "--output", str(tmp_path / "run"), timeout_s=110)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "it ended at 40, now at 20" in found.stdout
    assert "60 of 80 events acknowledged, none lost" in found.stdout
