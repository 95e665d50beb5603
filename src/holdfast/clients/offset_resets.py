"""Where a group's offsets would be set to: by what was asked, within what the logs have.

Plans only; `group_changes.commit_offsets` does it. What can't be had as it was asked is changed as
Kafka's own tool changes it, and each change has a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_descriptions import Committed
from holdfast.clients.log_offsets import PATIENCE_S, Found, log_ends, log_starts, offsets_at
from holdfast.wire.administration import AdminError, TopicPartition
from holdfast.wire.errors import ErrorCode

NO_OFFSET: Final = -1


class Aim(Enum):
    """What offsets are set to."""

    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()  # the number
    SHIFT = auto()  # the committed offset, and so much more or less
    TIMESTAMP = auto()  # the first record of that time or later
    CURRENT = auto()  # what is committed, or else the end


@dataclass(frozen=True, slots=True)
class Reset:
    """An aim, with the number or the milliseconds that it needs."""

    aim: Aim
    value: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """New offsets, and a sentence for each that is not what was asked."""

    offsets: dict[TopicPartition, int]
    notes: list[str]


class ResetError(Exception):
    """Nothing is planned; the text says which partitions are in the way."""


def plan(
    driver: Driver,
    reset: Reset,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    *,
    patience_s: float = PATIENCE_S,
) -> Plan:
    """Return where to set these partitions of a group. ResetError; AdminError: a refusal."""
    ask = _Asking(driver, sorted(partitions), patience_s)
    if reset.aim is Aim.EARLIEST:
        return Plan(ask.starts(), [])
    if reset.aim is Aim.LATEST:
        return Plan(ask.ends(), [])
    if reset.aim is Aim.TIMESTAMP:
        return _at(ask, reset.value)
    if reset.aim is Aim.OFFSET:
        return within(dict.fromkeys(ask.keys, reset.value), ask.starts(), ask.ends())
    if reset.aim is Aim.SHIFT:
        missing = [name(key) for key in ask.keys if key not in committed]
        if missing:
            raise ResetError(f"nothing is committed of {', '.join(missing)}, so nothing can shift")
        shifted = {key: committed[key].offset + reset.value for key in ask.keys}
        return within(shifted, ask.starts(), ask.ends())
    assert reset.aim is Aim.CURRENT, "every aim has its branch"
    offsets = {key: committed[key].offset for key in ask.keys if key in committed}
    others = _Asking(driver, [key for key in ask.keys if key not in committed], patience_s)
    return Plan(dict(sorted((offsets | others.ends()).items())), [])


def plan_of(
    driver: Driver, wanted: Mapping[TopicPartition, int], *, patience_s: float = PATIENCE_S
) -> Plan:
    """Return a plan of offsets partition by partition, as a file has it."""
    ask = _Asking(driver, sorted(wanted), patience_s)
    return within({key: wanted[key] for key in ask.keys}, ask.starts(), ask.ends())


def within(
    wanted: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Plan:
    """Return offsets that the logs have, the nearest to those wanted. Pure."""
    plan = Plan({}, [])
    for key, offset in wanted.items():
        bounded = min(max(offset, starts[key]), ends[key])
        plan.offsets[key] = bounded
        if bounded != offset:
            side = "higher than latest" if offset > ends[key] else "lower than earliest"
            plan.notes.append(
                f"New offset ({offset}) is {side} offset for topic partition {name(key)}. "
                f"Value will be set to {bounded}"
            )
    return plan


def name(key: TopicPartition) -> str:
    """Return a partition as it is written."""
    return f"{key[0]}-{key[1]}"


def _at(ask: _Asking, timestamp_ms: int) -> Plan:
    found = ask.at(timestamp_ms)
    late = [key for key, offset in found.items() if offset == NO_OFFSET]
    ends = _Asking(ask.driver, late, ask.patience_s).ends()
    notes = [f"{name(key)} has no record of that time or later: its end is taken" for key in late]
    return Plan({key: ends.get(key, offset) for key, offset in found.items()}, notes)


@dataclass(frozen=True, slots=True)
class _Asking:
    """The offsets of some partitions. AdminError, ResetError: one of them can't be had."""

    driver: Driver
    keys: Sequence[TopicPartition]
    patience_s: float

    def starts(self) -> dict[TopicPartition, int]:
        return _numbers(log_starts(self.driver, self.keys, patience_s=self.patience_s))

    def ends(self) -> dict[TopicPartition, int]:
        return _numbers(log_ends(self.driver, self.keys, patience_s=self.patience_s))

    def at(self, timestamp_ms: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(self.keys, timestamp_ms)
        return _numbers(offsets_at(self.driver, wanted, patience_s=self.patience_s))


def _numbers(found: Found) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    unknown: list[str] = []
    for key, answer in sorted(found.items()):
        if not isinstance(answer, AdminError):
            numbers[key] = answer.offset
        elif answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            unknown.append(name(key))
        else:
            raise answer
    if unknown:
        raise ResetError(f"there is no partition {', '.join(unknown)}")
    return numbers
