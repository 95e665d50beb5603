"""What was so, and from when on: one value after the other. Owns no clock and no rule."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any


class Timeline:
    """The values of one thing. At first there is nothing: None."""

    __slots__ = ("_at", "_values")

    def __init__(self) -> None:
        self._at: list[float] = []
        self._values: list[Any] = []

    @property
    def last(self) -> Any:
        return self._values[-1] if self._values else None

    def put(self, at_s: float, value: Any) -> None:
        """From now on it is so. Two changes of one moment have their order."""
        self._at.append(at_s)
        self._values.append(value)

    def since(self, begin_s: float) -> list[Any]:
        """Return all that it has been from then on, beginning with what it was just before."""
        first = bisect_left(self._at, begin_s) - 1
        return [None, *self._values] if first < 0 else self._values[first:]
