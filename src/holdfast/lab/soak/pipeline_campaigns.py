"""The lab's scenarios of Spark queries, each again and again, controls included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from holdfast.lab.background import PIPELINE
from holdfast.lab.prove import prove
from holdfast.lab.scenario import Scenario
from holdfast.lab.soak.campaign import Campaign

RUNS = 10
# Nothing else proves anything by these: they are named here, or edits would leave results standing.
_OWN: Final = (
    "holdfast/lab/pipelines",
    "holdfast/lab/scenarios/pipelines",
    "holdfast/lab/soak/pipeline_campaigns.py",
)
EXERCISED: Final = (*PIPELINE, *_OWN)
MODULES = (
    "driver_killed",
    "executor_killed",
    "broker_killed",
    "rebalanced",
    "database_down",
    "data_gone",
    "topic_recreated",
    "zombie",
)


def scenarios() -> list[Scenario]:
    return [import_module(f"holdfast.lab.scenarios.pipelines.{name}").SCENARIO for name in MODULES]


def prove_one(
    directory: Path, *, scenario: Scenario, say: Callable[[str], None] = lambda _line: None
) -> dict[str, Any]:
    """Prove a scenario with its own settings, all its parts."""
    command = f"holdfast prove {scenario.name}"
    outcome = prove(scenario, scenario.defaults, directory, command=command, say=say)
    failed = [c.name for result in outcome.results for c in result.checks if not c.kept]
    return {"kept": outcome.exit.kept, "verdict": outcome.verdict, "failed": failed}


CAMPAIGNS = tuple(
    Campaign(
        name=scenario.name,
        text=scenario.summary,
        runs=RUNS,
        run=partial(prove_one, scenario=scenario),
        exercises=EXERCISED,
    )
    for scenario in scenarios()
)
