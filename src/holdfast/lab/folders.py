"""Judges the folder of any run again: by what the run left there, as it was judged at its end.

Owns the table of what runs there are. Nothing is run, and nothing in the folder is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.lab.demo.demo_plan import KIND as DEMO
from holdfast.lab.journal import Exit, FolderError, read_manifest
from holdfast.lab.outcome import Outcome
from holdfast.lab.prove import KIND as PROOF
from holdfast.lab.prove import judge_again
from holdfast.lab.report import Check

if TYPE_CHECKING:
    from holdfast.lab.demo.demo_check import DemoVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """What was seen in one part of a run."""

    title: str
    text: str
    checks: Sequence[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a folder proves. `values` is all of it for a program."""

    exit: Exit
    verdict: str
    chapters: Sequence[Chapter]
    values: dict[str, Any]


def judge_folder(directory: Path) -> Judged:
    """Judge the folder of a run. FolderError: it holds none, or not what the run left."""
    kind = read_manifest(directory)["kind"]
    if kind == PROOF:
        return judged_proof(judge_again(directory))
    if kind == DEMO:
        # SQLAlchemy, which proofs don't need
        from holdfast.lab.demo.demo_check import check_demo  # noqa: PLC0415

        return judged_demo(check_demo(directory))
    raise FolderError(f"{directory}: holdfast knows no run of the kind {kind!r}.")


def judged_demo(verdict: DemoVerdict) -> Judged:
    return Judged(
        exit=verdict.exit,
        verdict=verdict.sentence,
        chapters=[Chapter(title="", text="", checks=verdict.checks)],
        values=verdict.as_json(),
    )


def judged_proof(outcome: Outcome) -> Judged:
    return Judged(
        exit=outcome.exit,
        verdict=outcome.verdict,
        chapters=[
            Chapter(title=result.part.title, text=result.sentence(), checks=result.checks)
            for result in outcome.results
        ],
        values=outcome.as_json(),
    )
