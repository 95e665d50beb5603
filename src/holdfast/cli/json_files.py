"""The JSON files that Kafka's tools take, and what is said of one that can't be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if

T = TypeVar("T")


def read_json(named: str, path: Path, shape: str, things: str, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of a file's content. `named`: the option with the file.

    CommandError: it can't be read, has another shape, or names none of the `things`.
    """
    try:
        found = read(json.loads(path.read_bytes()))
    except OSError as error:
        raise CommandError(f"{named}: {error.strerror}.", code=EXIT_USAGE) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandError(f"{named}: {shape} is wanted.", code=EXIT_USAGE) from None
    refuse_if(not found, f"{named} names no {things}.")
    return found


def read_partitions(
    named: str, path: Path, shape: str, value_of: Callable[[Any], T]
) -> dict[tuple[str, int], T]:
    """Read a file of partitions, each with what `value_of` makes of its entry.

    CommandError: as `read_json`, or one of them is named twice.
    """

    def read(content: Any) -> dict[tuple[str, int], T]:
        found: dict[tuple[str, int], T] = {}
        for entry in content["partitions"]:
            key = (str(entry["topic"]), whole(entry["partition"]))
            refuse_if(key in found, f"{named} names {key[0]}-{key[1]} twice.")
            found[key] = value_of(entry)
        return found

    return read_json(named, path, shape, "partition", read)


def whole(value: object) -> int:
    """Return a number of a file in JSON. ValueError, TypeError: it is none, or has a fraction.

    `int` would cut 0.5 to 0 and take true for 1, and so move or delete something else.
    """
    if isinstance(value, bool | float):
        raise ValueError(f"{value} is not a whole number")  # noqa: TRY004 - of a file, not a type
    return int(value)  # type: ignore[call-overload, no-any-return]
