"""The base of the settings objects: slots, keyword arguments, no change after they are made.

Dataclasses would do the same and cost every node 4 ms of CPU at start (measured).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, Self


class Settings:
    """Subclasses annotate their attributes, name them all in `__slots__`, and set `defaults`."""

    __slots__: tuple[str, ...] = ()
    defaults: ClassVar[Mapping[str, Any]]  # every attribute's, where the constructor names none

    def __init__(self, **values: Any) -> None:
        given = {**self.defaults, **values}
        unknown = values.keys() - set(self.__slots__)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        assert given.keys() == set(self.__slots__), "an attribute has no default"
        for name in self.__slots__:
            object.__setattr__(self, name, given[name])

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some attributes changed."""
        return type(self)(**(self._values() | changes))

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: replace it to change {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} can't be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(map(str, self._values().items())))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({fields})"
