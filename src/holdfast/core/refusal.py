"""The shape of a refusal: what any room of `core` answers when it won't do what it is asked."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.wire.errors import ErrorCode


class Refusal(NamedTuple):
    """Why one part of a request was refused: a code, and a sentence that says what to do."""

    code: ErrorCode
    message: str
