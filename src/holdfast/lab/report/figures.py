"""Figures for people, which say no more than was seen: shares and percentiles."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.judge import series
from holdfast.lab.report.scales import duration

NONE = "-"
TO = " to "  # between the least and the most of several
AT_LEAST = "≥"  # before a figure that may be greater, and is no smaller
DECIMALS_MAX = 17  # as close to all or to nothing as a share can come
FEW = "A dash: of so few events nobody can tell that percentile."


def percent(share: float | None, decimals: int = 1) -> str:
    """Return a share, 0 to 1, in percent; with more decimals where it would look like all or none.

    One event that is missing of a million is what a reader looks for. None: of nothing.
    """
    if share is None:
        return NONE
    texts = (f"{100 * share:.{count}f}" for count in range(decimals, DECIMALS_MAX + 1))
    return next(text for text in texts if (float(text) in {0, 100}) == (share in {0, 1})) + " %"


def percentile(ordered: Sequence[float], per_mille: int) -> float | None:
    """Return the value of that rank, as the judge does; None: no event can lie beyond it.

    What is returned was seen: between two values there may be none.
    """
    if not has_percentile(len(ordered), per_mille):
        return None
    return series.percentile(ordered, per_mille / 1000)


def has_percentile(count: int, per_mille: int) -> bool:
    """Say whether so many events have it: with fewer it would be the greatest by another name."""
    return count * (1000 - per_mille) >= 1000


def time_of(count: int, per_mille: int, ms: float) -> str:
    """Return a percentile of so many times, for people; 1000: the greatest."""
    told = has_percentile(count, per_mille) if per_mille < 1000 else count > 0
    return duration(ms) if told else NONE
