"""Where a query begins and where it ends, as its options say it. Pure.

Offsets, or the first record at or after a time. Of the three options that say it, the first one
that is given counts, in the JVM connector's order: a time, times by partition, offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.pipelines.intake.option_values import Given, OptionError, time_ms, times_by_partition
from holdfast.pipelines.offsets import Offsets, OffsetsError, Partition, from_text
from holdfast.wire.well_known import EARLIEST, LATEST

# None: not known yet. What holds for both is checked when the source is loaded.
Mode = Literal["stream", "batch"] | None
STRATEGY = "startingOffsetsByTimestampStrategy"


@dataclass(frozen=True, slots=True)
class ByTime:
    """The first record at or after a time, in milliseconds since 1970, of each partition.

    A partition without a record that late counts from its end with `or_latest`, and is an error
    without. `option` is the one that said it.
    """

    option: str
    times: int | dict[Partition, int]
    or_latest: bool = False


Bound = int | Offsets | ByTime  # LATEST or EARLIEST; offsets by partition; by time


def option_of(bound: Bound, otherwise: str) -> str:
    """Return the option that said it; offsets and their names come from one only."""
    return bound.option if isinstance(bound, ByTime) else otherwise


def starting(given: Given, mode: Mode) -> Bound:
    """Return where a query begins. OptionError: not a place to begin at."""
    or_latest = _or_latest(given)
    bound = _bound(given, "starting", "latest" if mode == "stream" else "earliest", or_latest)
    if mode != "batch":
        return bound
    if bound == LATEST:
        raise OptionError("startingOffsets: a batch query can't start at latest")
    if isinstance(bound, dict) and LATEST in bound.values():
        raise OptionError("startingOffsets: a batch query can't start at latest (-1)")
    return bound


def ending(given: Given, mode: Mode) -> Bound:
    """Return where a batch query ends. OptionError: not a place to end at, or a stream's."""
    if mode == "stream":
        for option in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if option.lower() in given:
                raise OptionError(f"{option}: a stream has no end; leave it out, or use read")
    # Who asks for what was there up to a time has all of it, when nothing is that late.
    bound = _bound(given, "ending", "latest", or_latest=True)
    if bound == EARLIEST or (isinstance(bound, dict) and EARLIEST in bound.values()):
        raise OptionError("endingOffsets: a query can't end at earliest (-2)")
    return bound


def in_order(start: Bound, end: Bound) -> None:
    """Refuse an end that is earlier than the beginning whatever the log holds."""
    if not (isinstance(start, ByTime) and isinstance(end, ByTime)):
        return
    if isinstance(start.times, int) and isinstance(end.times, int) and end.times < start.times:
        raise OptionError(
            f"{end.option}: {end.times} is before {start.option}, which is {start.times}"
        )


def _bound(given: Given, edge: str, default: str, or_latest: bool) -> Bound:
    option = f"{edge}Timestamp"
    time = time_ms(given, option)
    if time is not None:
        return ByTime(option, time, or_latest)
    option = f"{edge}OffsetsByTimestamp"
    times = times_by_partition(given, option)
    if times is not None:
        return ByTime(option, times, or_latest)
    return _offsets(given, f"{edge}Offsets", default)


def _or_latest(given: Given) -> bool:
    text = given.get(STRATEGY.lower(), "error").strip().lower()
    if text not in {"error", "latest"}:
        raise OptionError(f"{STRATEGY}: {text!r}; use error or latest")
    return text == "latest"


def _offsets(given: Given, name: str, default: str) -> int | Offsets:
    text = given.get(name.lower(), default).strip()
    if text.lower() == "earliest":
        return EARLIEST
    if text.lower() == "latest":
        return LATEST
    try:
        return from_text(text)
    except OffsetsError as error:
        raise OptionError(
            f'{name}: {error}; use earliest, latest or {{"topic":{{"0":17,"1":-2}}}}'
        ) from error
