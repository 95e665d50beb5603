"""Says at the end of a run which fresh seeds were tried, also when all were clean."""

from __future__ import annotations

from typing import Any

from tests.simulate.fresh import CHUNKS, FIRST, SEEDS


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    tried = sum("test_fresh_seeds_are_clean" in report.nodeid for report in reports)
    if tried:
        terminalreporter.write_line(
            f"simulator: {tried * SEEDS} fresh seeds of {FIRST} to {FIRST + CHUNKS * SEEDS - 1}; "
            "one again: make simulate SEED=... ARGS='--scale light'"
        )
