"""Goal: scenarios of groups say of Apache Kafka what they say of us.

Method: one broker of Apache Kafka with the lab's short sessions; the scenarios' own steps, of those
parts that hurt nobody but clients; checks, the judge of the log and that of groups.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.apache.apache_run import ApacheRun
from tests.apache.conftest import wait_until_served

from holdfast.cluster.ports import free_ports
from holdfast.lab.aftermath import group_checks
from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.parameters import GROUP_PROFILES
from holdfast.lab.scenario import load_scenario

pytestmark = [pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(300)]

PARTS = [
    ("commit-rules", "main"),
    ("commit-rules", "slow"),
    ("commit-rules", "automatic"),
    ("commit-rules", "control"),
    ("rolling-clients", "main"),
    ("rolling-clients", "killed"),
    ("rolling-clients", "static"),
    ("rolling-clients", "control"),
    ("consumer-replaced", "transaction"),
    ("consumer-replaced", "control"),
    ("standby-group", "main"),
    ("standby-group", "control"),
    ("rebalance-price", "main"),
    ("rebalance-price", "control"),
]


@pytest.fixture(scope="module")
def short_sessions(kafka_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker of Apache Kafka, whose sessions are the lab's."""
    (port,) = free_ports(1)
    directory = tmp_path_factory.mktemp("apache")
    settings = [f"{key}={value}" for key, value in GROUP_PROFILES["lab"].items()]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [kafka_tools, "single", directory, str(port), *settings],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_served(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("name", "part_name"), PARTS)
def test_apache_kafka_keeps_and_breaks_the_same(
    short_sessions: str, tmp_path: Path, name: str, part_name: str
) -> None:
    scenario = load_scenario(name)
    (part,) = [part for part in scenario.parts if part.name == part_name]
    settings = {"duration_s": 0.5, "replication_factor": 1, "min_isr": 1, "brokers": 1}
    base = replace(scenario.defaults, **settings)  # type: ignore[arg-type]
    parameters = part.parameters(base)
    said: list[str] = []
    topic = f"{name}-{part_name}"
    with ApacheRun(short_sessions, parameters, tmp_path / "run", topic, said.append) as run:
        part.steps(run)
        run.conclude()
    run.journal.close()
    evidence = evidence_of(history_files(run.history))
    told = "\n".join([*said, *(each.text for each in evidence.groups.findings)])
    assert not evidence.judgement.undecided + evidence.groups.undecided, told
    assert not evidence.judgement.broken(base.promise.forbids), told
    promise = base.group_promise
    assert promise is not None
    broken = evidence.groups.broken(promise.forbids)
    checks = [*run.checks, *group_checks(run.groups_expected or {}, evidence.groups)]
    failed = [check.name for check in checks if not check.kept]
    if part.breaks_check is not None:
        assert failed, told
        assert all(part.breaks_check in each for each in failed), told
    else:
        assert not failed, told
    assert broken == (() if part.breaks_group is None else (part.breaks_group,)), told
