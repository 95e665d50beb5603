"""How long the lab itself held a fault that it undid: a cut until it heals, a kill until the start.

So long a partition that could not go on has waited for the lab, and not for the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.judge.timeline import CUT, HEAL, HURTS, UP_ACTIONS, WHOLE, Timeline

Hold = tuple[float, float]  # monotonic ms, from the fault until it is undone


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
            yield from change(pair, link.at_ms, hurt=link.state != WHOLE)
