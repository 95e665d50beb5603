"""Proofs of scenarios, by those of their parts that a test needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome
from holdfast.lab.prove import prove
from holdfast.lab.scenario import IDLE, load_scenario


def proven(
    directory: Path, name: str, parts: Sequence[str], *, control: bool = True, **flags: object
) -> Outcome:
    """Prove a scenario by these of its parts; without `control` its control is not run."""
    scenario = load_scenario(name)
    chosen = tuple(part for part in scenario.parts if part.name in parts)
    assert [part.name for part in chosen] == list(parts)
    quickly = {} if name in IDLE["duration_s"] else {"duration_s": 0.5}
    parameters = scenario.with_flags(quickly | flags)
    said: list[str] = []
    outcome = prove(
        replace(scenario, parts=chosen),
        parameters,
        directory / "run",
        command="x",
        control=control,
        say=said.append,
    )
    assert outcome.exit is Exit.KEPT, "\n".join(said)
    return outcome
