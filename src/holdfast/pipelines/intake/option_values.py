"""How the value of an option is read: numbers, times, names with partitions. Pure.

Every function gets all options under their lower-case names and the one that it reads as the JVM
connector spells it. OptionError names the option and says what is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from holdfast.pipelines.intake.json_texts import (
    OFFSETS_END,
    PARTITIONS_END,
    is_partition,
    json_of,
)
from holdfast.pipelines.offsets import Partition

Given = Mapping[str, str]
DIGITS_MAX = 18  # what is longer than that is not a number of 64 bits, and nobody means it

# Spark's own spellings of a time, in nanoseconds.
_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "min": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
_INTERVAL = re.compile(rf"([0-9]{{1,{DIGITS_MAX}}})\s*([a-z]*)")


class OptionError(ValueError):
    """An option is unknown, missing or has a value that makes no sense. The message names it."""


def whole(given: Given, name: str, *, least: int = 1, most: int | None = None) -> int | None:
    """Return a whole number from `least` to `most`, or None if the option is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not _is_number(text.strip()) or int(text) < least:
        kind = "positive whole number" if least == 1 else f"whole number from {least} on"
        raise OptionError(f"{name}: {text!r} is no {kind}")
    if most is not None and int(text) > most:
        raise OptionError(f"{name}: {int(text)} is more than {most}, the most there can be")
    return int(text)


def boolean(given: Given, name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise OptionError(f"{name}: {text!r}; use true or false")
    return text == "true"


def interval_ms(given: Given, name: str, default: str) -> int:
    """Return a time in milliseconds, rounded down: "15m", "90 s", or a bare number of them.

    >>> interval_ms({}, "maxTriggerDelay", "15m")
    900000
    """
    text = given.get(name.lower(), default)
    found = _INTERVAL.fullmatch(text.strip().lower())
    if found is None or (found[2] or "ms") not in _UNITS_NS:
        raise OptionError(f"{name}: {text!r} is no time; use 15m, 90s or milliseconds")
    return int(found[1]) * _UNITS_NS[found[2] or "ms"] // _UNITS_NS["ms"]


def time_ms(given: Given, name: str) -> int | None:
    """Return a time in milliseconds since 1970, or None if the option is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not _is_number(text.strip()):
        raise OptionError(f"{name}: {text!r} is no time in milliseconds since 1970")
    return int(text)


def times_by_partition(given: Given, name: str) -> dict[Partition, int] | None:
    """Return a time in milliseconds since 1970 for each partition that is named."""
    text = given.get(name.lower())
    if text is None:
        return None
    wanted = OptionError(f'{name}: {text!r} is not of the form {{"topic":{{"0":1700000000000}}}}')
    topics = _parsed(text, name)
    if not isinstance(topics, dict) or not topics:
        raise wanted
    times: dict[Partition, int] = {}
    for topic, numbers in topics.items():
        if not isinstance(numbers, dict):
            raise wanted
        for number, time in numbers.items():
            if not is_partition(number) or type(time) is not int or not 0 <= time < OFFSETS_END:
                raise wanted
            times[Partition(topic, int(number))] = time
    return times


def partitions(given: Given, name: str) -> tuple[Partition, ...]:
    """Return the partitions that `{"topic":[0,1]}` names, in order."""
    value = _parsed(given[name.lower()], name)
    well_formed = isinstance(value, dict) and all(
        isinstance(numbers, list)
        and all(type(n) is int and 0 <= n < PARTITIONS_END for n in numbers)
        for numbers in value.values()
    )
    found = {Partition(t, n) for t, ns in value.items() for n in ns} if well_formed else set()
    if not found:
        text = given[name.lower()]
        raise OptionError(f'{name}: {text!r} is not of the form {{"topic":[0,1]}}')
    return tuple(sorted(found))


def nearest(name: str, known: Mapping[str, str]) -> str | None:
    """Return the name among `known` (as it is compared: as it is shown) that was meant, perhaps.

    >>> nearest("startingofset", {"startingoffsets": "startingOffsets"})
    'startingOffsets'
    """
    found = get_close_matches(name, known, n=1)
    return known[found[0]] if found else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX


def _parsed(text: str, name: str) -> Any:
    try:
        return json_of(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name}: not JSON: {error}") from error
