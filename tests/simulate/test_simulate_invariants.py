"""Goal: what a document calls an invariant is one. Method: the table of bugs that were put in."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing.simulation.invariants import JUDGE, Invariant

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "mutants-by-hand.md"


def test_the_table_of_mutants_names_invariants() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines()]
    named = {row[2] for row in rows if len(row) == 3 and row[1].isdigit()}
    assert len(named) > 10
    assert {name for name in named if not name.startswith(JUDGE)} <= set(Invariant)
