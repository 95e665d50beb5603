"""How long the lab itself held a fault that it undid: a cut until it heals, a kill until the start.

So long a partition that could not go on has waited for the lab, and not for the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.judge.history import Event, Fault
from holdfast.judge.timeline import CUT, HEAL, HURTS, UP_ACTIONS, Timeline

Hold = tuple[float, float]  # monotonic ms, from the fault until it is undone


class Waits(Protocol):
    """Reckons how long clients waited, from a history that it is fed with."""

    def feed(self, event: Event) -> None: ...

    @property
    def longest_ms(self) -> float | None: ...


class Longest:
    """From when until when the longest of all waits was: it ends with the event that makes it so.

    None also where no event does: who waits at the end, and what is taken in with a later fault.
    """

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._found: Hold | None = None
        self._found_ms: float | None = None

    def feed(self, event: Event) -> None:
        """Feed the waits, and look what has come of it."""
        self._waits.feed(event)
        longest_ms = self._waits.longest_ms
        if longest_ms is not None and longest_ms != self._found_ms:
            self._found_ms = longest_ms
            is_end = not isinstance(event, Fault)
            self._found = (event.at_ms - longest_ms, event.at_ms) if is_end else None

    @property
    def span(self) -> Hold | None:
        return self._found if self._waits.longest_ms == self._found_ms else None


def held_ms(timeline: Timeline, begin_ms: float, end_ms: float) -> float:
    """Return how much of [begin_ms, end_ms] the lab held faults that it undid in it.

    One that lasts longer does not count: what ended this time meanwhile was no end of the fault.
    """
    found = sorted(
        (max(begin, begin_ms), end) for begin, end in _holds(timeline) if begin_ms < end < end_ms
    )
    total, until_ms = 0.0, begin_ms
    for begin, end in found:
        total += max(0.0, end - max(begin, until_ms))
        until_ms = max(until_ms, end)
    return total


def _holds(timeline: Timeline) -> Iterator[Hold]:
    """Yield each hold that ended. A node's links and its process are hurt and healed apart."""
    since: dict[object, float] = {}

    def change(what: object, at_ms: float, *, hurt: bool) -> Iterator[Hold]:
        if hurt:
            since.setdefault(what, at_ms)
        elif what in since:
            yield since.pop(what), at_ms

    for fault in timeline.faults:
        if fault.action in HURTS | UP_ACTIONS:
            what = (fault.node, fault.action in {CUT, HEAL})
            yield from change(what, fault.at_ms, hurt=fault.action in HURTS)
    for link in timeline.links:
        for pair in link.pairs:
            yield from change(pair, link.at_ms, hurt=link.state == CUT)
