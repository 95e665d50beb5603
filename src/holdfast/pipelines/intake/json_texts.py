"""Partitions and offsets in texts of JSON, as options and checkpoints have them. Pure.

What is refused here would count for something else than it says, or end in a client's own words.
"""

from __future__ import annotations

import json
from typing import Any, Final

# Kafka's numbers have so many bits, and a sign.
OFFSETS_END: Final = 1 << 63
PARTITIONS_END: Final = 1 << 31


def is_partition(number: object) -> bool:
    """Return whether a text is a partition's number, in the one spelling that it has.

    >>> is_partition("12"), is_partition("012"), is_partition("4294967296")
    (True, False, False)
    """
    if not (isinstance(number, str) and number.isascii() and number.isdigit()):
        return False
    return (
        len(number) <= len(str(PARTITIONS_END))
        and str(int(number)) == number
        and (int(number) < PARTITIONS_END)
    )


def json_of(text: str) -> Any:
    """Return what a text of JSON says. ValueError, RecursionError: it is none, or says it twice.

    Of one name twice all but the last would be passed over: partitions that nobody reads.
    """
    return json.loads(text, object_pairs_hook=_each_once)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"{next(name for name in names if names.count(name) > 1)!r} is there twice"
        )
    return found
