"""What drivers of proofs and their Spark say, for whoever wants to meet a task at its work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Spark's words of one that died, whose rows come again; with the query and the batch it was of.
LOST_TASK = re.compile(r"TaskSetManager: (\[[^]]*\] )*Lost task")
UNKNOWN_MS = 50.0  # what a driver says of a function that was not called before


def lost_tasks(log: Path) -> int:
    """Return how many tasks a driver's Spark has seen die, by its log."""
    return len(LOST_TASK.findall(log.read_text(errors="replace")))


def lasts_s(told: Iterable[Mapping[str, Any]]) -> float:
    """Return how long takes what a driver has come to last, by what it has said of that place.

    The least of all times: once it may have waited for an executor to be there.
    """
    told = list(told)
    here = [each["lasted_ms"] for each in told if each["place"] == told[-1]["place"]]
    known = [lasted_ms for lasted_ms in here if lasted_ms != UNKNOWN_MS]
    return float(min(known, default=UNKNOWN_MS)) / 1_000
