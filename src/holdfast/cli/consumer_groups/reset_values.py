"""What kafka-consumer-groups' options are given as: partitions, times, durations, CSV files. Pure.

Rules: tools.md#resetting-offsets.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.wire.administration import TopicPartition

PARTITION_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1
# A value of the CSV that Kafka's tool writes has quotes where it is longer, or has any of these.
UNQUOTED_MAX: Final = 24
UNQUOTED_LEAST: Final = "-"
FILE_BYTES_MAX: Final = 256 << 20
SHORT: Final = ("topic", "partition", "offset")
LONG: Final = ("group", *SHORT)
SHAPE: Final = f"{','.join(LONG)}, or with one --group {','.join(SHORT)}"
_MILLISECOND: Final = timedelta(milliseconds=1)
_DURATION: Final = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d{1,10})D)?"
    r"(?P<time>T(?:(?P<hours>[+-]?\d{1,10})H)?(?:(?P<minutes>[+-]?\d{1,10})M)?"
    r"(?:(?P<seconds>[+-]?\d{1,10})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}

Offsets = dict[TopicPartition, int]


def parse_duration(text: str) -> int:
    """Read a duration of ISO 8601 as Java does, in milliseconds: PnDTnHnMnS. CommandError."""
    found = _DURATION.fullmatch(text)
    values = found.groupdict() if found else {}
    has_value = any(values.get(unit) for unit in _MS)
    refuse_if(
        not has_value or (values.get("time") or "").upper() == "T",
        f"--by-duration {text}: days, hours, minutes and seconds are wanted as in P7D, PT1H30M or "
        "P1DT0.5S.",
    )
    total = sum(int(values[unit] or 0) * ms for unit, ms in _MS.items())
    if fraction := values["fraction"]:
        ms = int(fraction.ljust(9, "0")) // 1_000_000
        total += -ms if (values["seconds"] or "").startswith("-") else ms
    return -total if values["sign"] == "-" else total


def parse_datetime(text: str) -> int:
    """Read a moment in milliseconds since 1970; without a time zone it is UTC's. CommandError."""
    try:
        if "T" not in text:
            raise ValueError("no time")  # noqa: TRY301 - as any other mistake in it
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--to-datetime {text}: 2026-01-31T12:00:00.000 is wanted, with Z, +01:00 or nothing "
            "(which is UTC) behind.",
            code=EXIT_USAGE,
        ) from None
    moment = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Read every --topic, NAME or NAME:0,1; None: all its partitions. CommandError."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        refuse_if(not topic, f"--topic {text!r} has no name.")
        if not colon:
            found[topic] = None
            continue
        partitions = [_partition(each, f"--topic {text}") for each in numbers.split(",")]
        known = found.setdefault(topic, [])
        if known is not None:  # all of them are meant already
            known.extend(each for each in partitions if each not in known)
    return found


def _partition(text: str, named: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    refuse_if(
        not is_number or int(text) > PARTITION_MAX,
        f"{named}: {text!r} is not a partition; NAME:0,1,2 is wanted.",
    )
    return int(text)


# CSV, as --export writes it and --from-file reads it.


def read_plan(path: Path, groups: Sequence[str]) -> dict[str, Offsets]:
    """Read the file of --from-file: topic,partition,offset of one group, or with group in front.

    CommandError: it can't be read, or a line is neither.
    """
    named = f"--from-file {path}"
    plan: dict[str, Offsets] = {}
    try:
        refuse_if(path.stat().st_size > FILE_BYTES_MAX, f"{named} is too large for a plan.")
        rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")))
        for number, row in enumerate(rows, 1):
            if row:
                _add_row(plan, row, groups, f"{named}, line {number}")
    except OSError as error:
        raise CommandError(f"{named}: {error.strerror}.", code=EXIT_USAGE) from None
    except (UnicodeDecodeError, csv.Error):
        raise CommandError(f"{named} is not text of {SHAPE}.", code=EXIT_USAGE) from None
    refuse_if(not plan, f"{named} names no partition.")
    return plan


def _add_row(
    plan: dict[str, Offsets], row: Sequence[str], groups: Sequence[str], named: str
) -> None:
    is_short = len(row) == len(SHORT)
    refuse_if(
        len(row) != len(LONG) and not (is_short and len(groups) == 1),
        f"{named}: {','.join(row)!r} is not {SHAPE}.",
    )
    group = groups[0] if is_short else row[0]
    topic, partition, offset = (cell.strip() for cell in row[-len(SHORT) :])
    refuse_if(not topic, f"{named}: it names no topic.")
    refuse_if(
        re.fullmatch(r"-?\d{1,19}", offset, re.ASCII) is None or abs(int(offset)) > OFFSET_MAX,
        f"{named}: {offset!r} is no offset.",
    )
    key = (topic, _partition(partition, named))
    offsets = plan.setdefault(group, {})
    refuse_if(key in offsets, f"{named}: {topic}-{partition} is there twice.")
    offsets[key] = int(offset)


def csv_lines(offsets: Mapping[str, Mapping[TopicPartition, int]], *, of_one: bool) -> list[str]:
    """Return a plan as --export prints it; `of_one`: without the group in front."""
    return [
        ",".join(
            _quoted(cell)
            for cell in ([] if of_one else [group]) + [topic, str(number), str(offset)]
        )
        for group, theirs in offsets.items()
        for (topic, number), offset in theirs.items()
    ]


def _quoted(cell: str) -> str:
    """Quote what Kafka's tool quotes, which is more than has to be."""
    is_plain = len(cell) <= UNQUOTED_MAX and all(letter >= UNQUOTED_LEAST for letter in cell)
    return cell if is_plain else f'"{cell.replace(chr(34), chr(34) * 2)}"'
