"""Reads amounts as people write them: `200ms`, `1MB/s`, `5%`. Pure."""

from __future__ import annotations

import re
from typing import Final

from holdfast.cluster.layout import UsageError

SHARE_WHOLE: Final = 10_000  # a share is a number of ten thousandths
_NUMBER: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-zA-Zµ%/]*)")
_TIMES_US: Final = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000}
_RATES: Final = {
    "B/s": 1,
    "kB/s": 1_000,
    "KB/s": 1_000,
    "MB/s": 1_000_000,
    "GB/s": 1_000_000_000,
    "bit/s": 1 / 8,
    "kbit/s": 125,
    "Mbit/s": 125_000,
    "Gbit/s": 125_000_000,
}


def time_us(text: str) -> int:
    """Return microseconds of a time up to a minute, such as `200ms`. UsageError: it is none."""
    amount = _amount(text, _TIMES_US, "a time such as 200ms or 1.5s")
    if amount > 60_000_000:
        raise UsageError(f"{text!r} is more than a minute.")
    if 0 < amount < 1:  # rounded it could be none, which nobody asked for
        raise UsageError(f"{text!r} is less than 1us, which is the least.")
    return round(amount)


def rate(text: str) -> int:
    """Return bytes a second of a rate such as `1MB/s`. UsageError: it is none."""
    value = round(_amount(text, _RATES, "a rate such as 1MB/s or 500kbit/s"))
    if value < 1000:
        raise UsageError(f"{text!r} is less than 1kB/s, which is less than a packet a second.")
    return value


def share(text: str) -> int:
    """Return ten thousandths of a share such as `5%`. UsageError: it is none, or above 100 %."""
    amount = _amount(text, {"%": SHARE_WHOLE // 100}, "a share such as 5%")
    if amount > SHARE_WHOLE:
        raise UsageError(f"{text!r} is more than all.")
    if 0 < amount < 1:  # rounded it could be none, which nobody asked for
        raise UsageError(f"{text!r} is less than 0.01%, one in ten thousand, which is the least.")
    return round(amount)


def _amount(text: str, units: dict[str, float] | dict[str, int], what: str) -> float:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise UsageError(f"{text!r} is not {what}.")
    return float(found[1]) * units[found[2]]
