"""`holdfast prove` before anything is started: flags that a scenario has no use for, --list."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.lab import scenarios
from holdfast.lab.scenario import IDLE, SCENARIOS

if TYPE_CHECKING:
    from tests.cli.conftest import Run

FOLDER = Path(scenarios.__file__).parent
# How steps use a parameter. A rate is a producer's, which `start_clients` starts, too.
USES = {
    "kills": r"parameters\.kills",
    "count": r"parameters\.count",
    "rate": r"start_producer\(|start_clients\(",
    "duration_s": r"\.steady\(|parameters\.duration_s",
}


def source(module: str) -> str:
    """The steps of a scenario, and those of other scenarios that it takes over for its control."""
    text = (FOLDER / f"{module}.py").read_text()
    others = re.findall(r"from holdfast\.lab\.scenarios\.(\w+) import", text)
    return text + "".join((FOLDER / f"{other}.py").read_text() for other in others)


@pytest.mark.parametrize("parameter", USES)
def test_what_steps_have_no_use_for_is_known(parameter: str) -> None:
    """Goal: the table is true, in both directions. Method: the steps' own text."""
    idle = {
        name for name, module in SCENARIOS.items() if not re.search(USES[parameter], source(module))
    }
    assert idle == IDLE[parameter]


@pytest.mark.parametrize(
    ("name", "flag"),
    [(name, flag) for flag, names in IDLE.items() for name in sorted(names)],
)
def test_a_flag_without_use_is_refused(run: Run, name: str, flag: str) -> None:
    """Goal: `--kills` where nothing is killed again is told, not ignored. Method: every pair."""
    option = f"--{flag.removesuffix('_s')}"
    outcome = run("prove", name, option, "7")
    assert (outcome.status, outcome.output) == (2, "")
    assert f"{option} has no effect in {name}" in outcome.errors


def test_the_list_goes_alone(run: Run) -> None:
    """Goal: a flag beside --list isn't ignored. Method: a scenario, a flag; then JSON."""
    for more in (["one-broker-down"], ["--kills", "3"], ["--config", "a=b"], ["--no-control"]):
        outcome = run("prove", "--list", *more)
        assert (outcome.status, outcome.output) == (2, "")
        assert "--list" in outcome.errors
    rows = json.loads(run("prove", "--list", "--json").output)
    assert [row["name"] for row in rows] == list(SCENARIOS)
    assert all(row["summary"] for row in rows)
