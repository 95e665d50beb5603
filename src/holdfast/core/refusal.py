"""The shape of a refusal: what any room of `core` answers when it won't do what it is asked."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.wire.errors import ErrorCode

SHOWN_MAX: Final = 100  # characters


class Refusal(NamedTuple):
    """Why one part of a request was refused: a code, and a sentence that says what to do."""

    code: ErrorCode
    message: str


def shown(name: str) -> str:
    """Return a client's word as a reason tells it, which may be told of thousands of things.

    A request of 120 KB that names a topic of 100,000 characters, and 5,000 partitions of it, would
    be answered with half a gigabyte.
    """
    return name if len(name) <= SHOWN_MAX else f"{name[:SHOWN_MAX]}..."
