"""Goal: scenarios in a network of its own keep their promise, and their controls break it.

Method: the proof itself, with the parts that are quickest; all of them are run by `make soak`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.proofs import proven

from holdfast.cluster.network import possible
from holdfast.judge.history import Unknown
from holdfast.lab.evidence import events_of
from holdfast.lab.journal import Exit
from holdfast.lab.prove import prove
from holdfast.lab.run import Run
from holdfast.lab.scenario import load_scenario
from holdfast.lab.scenarios.networks import lost_acknowledgement, three_zones
from holdfast.lab.steps.sides import Side, Sides

pytestmark = [
    pytest.mark.serial("groups"),
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.timeout(400),
]
LOST = "acknowledged events lost, offset by offset"
NOBODY = 65534


@pytest.fixture
def _has_namespaces() -> None:
    found = possible.look({})
    if found.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {found.reason}")


@pytest.mark.usefixtures("_has_namespaces")
def test_a_split_loses_nothing_that_two_have(tmp_path: Path) -> None:
    (main,) = proven(tmp_path, "split-brain", ["main", "control"], control=False).results
    leaders = [check.seen for check in main.checks if check.name.startswith("who leads")]
    assert leaders == ["1 for 1, in epoch 0; for the others 0, in epoch 1"] * 2


@pytest.mark.usefixtures("_has_namespaces")
def test_a_split_loses_what_only_the_cut_leader_acknowledged(tmp_path: Path) -> None:
    alone, control = proven(tmp_path, "split-brain", ["min-isr-1", "control"]).results
    assert alone.evidence.judgement.counts.acknowledged
    assert [check.seen for check in control.checks if check.name == LOST] == ["the same"]
    assert control.failed_by.endswith("lost")
    assert (control.history.parent / "cut-leader").is_dir()


@pytest.mark.usefixtures("_has_namespaces")
def test_a_leader_without_followers_refuses(tmp_path: Path) -> None:
    (refused,) = proven(tmp_path, "followers-cut", ["min-isr-2", "control"], control=False).results
    assert refused.evidence.judgement.counts.refused == 20


@pytest.mark.usefixtures("_has_namespaces")
def test_a_controller_that_is_cut_off_decides_nothing_more(tmp_path: Path) -> None:
    (main,) = proven(tmp_path, "controller-isolated", ["main", "control"], control=False).results
    assert [row[0].rpartition(" ")[2] for row in main.tables[0].rows] == [
        "isolated",
        "mute",
        "deaf",
    ]


@pytest.mark.usefixtures("_has_namespaces")
def test_two_zones_of_three_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: one zone is cut, to be quick."""
    monkeypatch.setattr(three_zones, "CUT_IN_TURN", three_zones.ZONES[:1])
    main, control = proven(tmp_path, "three-zones", ["main", "control"]).results
    assert [row[0] for row in main.tables[0].rows] == ["a"]
    assert control.failed_by.split(" ", 1)[1].startswith("lost")


@pytest.mark.usefixtures("_has_namespaces")
def test_the_answer_that_is_swallowed_is_that_of_who_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no other client's answer is swallowed in its place, however slow the machine is.

    Method: so much time that librdkafka has no back-off left, and is the first to connect again.
    """
    told = lost_acknowledgement.without_retries

    def later(run: Run, sides: Sides, side: Side) -> None:
        run.steady_view(12.0)
        told(run, sides, side)

    monkeypatch.setattr(lost_acknowledgement, "without_retries", later)
    (main,) = proven(
        tmp_path, "lost-acknowledgement", ["main", "control"], control=False, rate=200.0
    ).results
    told_of = events_of([main.history / "never-twice.jsonl"])
    assert "AnswerTimeoutError" in [each.error for each in told_of if isinstance(each, Unknown)]


@pytest.mark.usefixtures("_has_namespaces")
@pytest.mark.parametrize("name", ["controllers-cut", "lost-acknowledgement"])
def test_a_cut_that_drops_nothing_was_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Goal: where clients are to notice nothing, that is no proof unless something was done.

    Method: links that are told to be cut, and are not.
    """
    monkeypatch.setattr(Sides, "cut", lambda *_, **__: time.monotonic() * 1000)
    scenario = load_scenario(name)
    parts = tuple(part for part in scenario.parts if part.name in {"main", "control"})
    outcome = prove(
        replace(scenario, parts=parts),
        scenario.defaults,
        tmp_path / "run",
        command="x",
        control=False,
    )
    assert outcome.exit is Exit.NOT_MADE
    assert "dropped no packet" in outcome.verdict


@pytest.mark.usefixtures("_has_namespaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root is unprivileged in every test")
def test_who_is_not_root_may_split_a_cluster_as_well() -> None:
    """The command as it is typed, by the user that owns nothing."""
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    python = [*words, "--no-new-privs", sys.executable, "-B", "-P"]
    if subprocess.run([*python, "-c", "import holdfast"], check=False).returncode != 0:
        pytest.skip("another user can't read this environment")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        command = [*python, "-m", "holdfast.cli", "prove", "split-brain", "--no-control", "--json"]
        told = subprocess.run(
            [*command, "--output", f"{folder}/run"],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 0, told.stderr
    assert {part["as_it_must"] for part in json.loads(told.stdout)["parts"]} == {True}


def test_where_namespaces_are_denied_proxies_cut_nodes_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_NETWORK", possible.PROXIES)
    main, control = proven(tmp_path, "split-brain", ["main", "control"]).results
    assert any("by proxies" in note.text for note in main.evidence.timeline.notes)
    assert [check.seen for check in control.checks if check.name == LOST] == ["the same"]
