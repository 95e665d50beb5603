"""Makes a failing plan smaller: fewer events, while the same invariant still breaks.

Owns the search (delta debugging over the list of events). It works because events are data, each
with an end of its own: leaving one out changes nothing about the others' times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from holdfast.testing.simulation.plan import Event, Plan
from holdfast.testing.simulation.run import run_plan

TRIES_MAX: Final = 400


def minimise(
    plan: Plan, invariant: str, *, tell: Callable[[str], None], tries_max: int = TRIES_MAX
) -> Plan:
    """Return the smallest plan found that breaks this invariant."""
    tries = 0

    def breaks(events: Sequence[Event]) -> bool:
        nonlocal tries
        if tries >= tries_max:
            return False
        tries += 1
        outcome = run_plan(replace(plan, events=tuple(events)))
        broken = outcome.violation is not None and outcome.violation.invariant == invariant
        if broken:
            tell(f"{len(events)} events still break it ({tries} runs)")
        return broken

    return replace(plan, events=tuple(shrink(plan.events, breaks)))


def shrink(events: Sequence[Event], breaks: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """Drop ever smaller pieces for as long as what is left still breaks."""
    kept = list(events)
    size = max(1, len(kept) // 2)
    while kept:
        before = kept
        for at in reversed(range(0, len(kept), size)):
            fewer = kept[:at] + kept[at + size :]
            if breaks(fewer):
                kept = fewer
        if size == 1 and kept is before:
            break
        size = max(1, size // 2)
    return kept
