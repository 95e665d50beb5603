"""What was measured, round by round. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(slots=True)
class Results:
    """Everything that was measured: case, engine, metric, one value a round."""

    values: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    # Case and engine of what still grew cheaper when it was measured: its figures are too bad.
    still_warming: list[str] = field(default_factory=list)

    def add(self, case: str, engine: str, measured: dict[str, float]) -> None:
        """Note one run."""
        metrics = self.values.setdefault(case, {}).setdefault(engine, {})
        for name, value in measured.items():
            metrics.setdefault(name, []).append(value)

    def summary(self) -> dict[str, Any]:
        """Medians, with the rounds they come from."""
        return {
            case: {
                engine: {
                    name: {"median": median(values), "rounds": values}
                    for name, values in metrics.items()
                }
                for engine, metrics in engines.items()
            }
            for case, engines in self.values.items()
        }
