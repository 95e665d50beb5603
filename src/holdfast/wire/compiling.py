"""What `encoder` and `decoder` share: the text they write and the tables they read.

Owns the growing source and its constants. Must never hold anything that came from a peer: only
our own declarations become code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct as Layout
from typing import Any, Final

from holdfast.wire.schema import Field, Kind, Message, Struct, default_value

FIXED: Final[dict[str, tuple[str, int]]] = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}
"""Types of one size: their code in a struct layout, and that size."""

RUN_MAX: Final = 16
_INDENT: Final = " "


class Source:
    """The text of one function, and the names that it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, object] = {}
        self.depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append(_INDENT * self.depth + text)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Write what follows under a line such as `else:`; without one, where it stands."""
        if not head:
            yield
            return
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self, prefix: str) -> str:
        """Return a variable's name not used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """Return the name that `value` has in the function; the same for the same object."""
        for name, known in self.scope.items():
            if known is value:
                return name
        name = self.name(prefix.upper())
        self.scope[name] = value
        return name

    def runs(self, code: str, method: str) -> str:
        """Return the name of the bound methods for 0 to `RUN_MAX` fields of one code.

        Arrays of numbers are short, replicas mostly, and a layout by text costs three times this.
        """
        name = f"{method}s_{code.replace('?', 'x')}"
        if name not in self.scope:
            self.scope[name] = tuple(
                getattr(_layout(f"{count}{code}"), method) for count in range(RUN_MAX + 1)
            )
        return name

    def method(self, codes: str, method: str) -> str:
        """Return the name of a layout's bound method."""
        name = f"{method}_{codes.replace('?', 'x')}"
        if name not in self.scope:
            self.scope[name] = getattr(_layout(codes), method)
        return name

    def default(self, field: Field) -> str:
        """Return an expression for a field's default."""
        value = default_value(field)
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, list):
            return "[]"
        return self.constant("d", value)

    def compile(self, head: str, title: str) -> Callable[..., Any]:
        """Return the function. `title` is the file name that a traceback shows."""
        text = "\n".join([head, *self.lines])
        exec(compile(text, f"<{title}>", "exec"), self.scope)  # noqa: S102 - of our own tables
        function: Callable[..., Any] = self.scope["function"]  # type: ignore[assignment]
        return function


@cache
def _layout(codes: str) -> Layout:
    """Return one struct layout per text, so that all functions share it."""
    return Layout(">" + codes)


def element_kind(field: Field) -> str:
    """Return the name of an array's primitive element type, or `struct`."""
    return field.element.name if isinstance(field.element, Kind) else "struct"


def size_min(field: Field, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a field takes."""
    if field.kind != "struct":
        return _primitive_size_min(field.kind, flexible)
    if field.is_nullable(version):
        return 1
    return struct_size_min(struct_class(field), version, flexible)


def element_size_min(field: Field, version: int, flexible: bool) -> int:
    """Return the fewest bytes that an array's element takes; at least one, so that counts bound."""
    size = (
        _primitive_size_min(field.element.name, flexible)
        if isinstance(field.element, Kind)
        else struct_size_min(struct_class(field), version, flexible)
    )
    assert size > 0, "an element without bytes would let a count allocate"
    return size


def struct_size_min(cls: type[Struct], version: int, flexible: bool) -> int:
    """Return the fewest bytes that a struct takes."""
    size = 1 if flexible else 0
    for field in cls.FIELDS:
        if field.present(version) and not (flexible and field.is_tagged(version)):
            size += size_min(field, version, flexible)
    return size


def holds_records(cls: type[Struct]) -> bool:
    """True if record batches are somewhere in the struct."""
    return any(
        field.kind == "records"
        or (isinstance(field.element, type) and holds_records(field.element))
        for field in cls.FIELDS
    )


def struct_class(field: Field) -> type[Struct]:
    assert isinstance(field.element, type)
    return field.element


def null_struct(field: Field, version: int) -> int:
    """Return the byte that stands for a struct that is null; 1 goes before one that is there."""
    return 0 if field.is_tagged(version) else -1


def check_version(cls: type[Message], version: int, error: type[Exception]) -> None:
    """Raise the error unless the class has that version."""
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise error(
            f"{cls.__name__} version {version} is not known here"
            f" ({cls.MIN_VERSION} to {cls.MAX_VERSION} are)"
        )


def _primitive_size_min(kind: str, flexible: bool) -> int:
    """Return the size of a type of one size, or that of another one's length."""
    if kind in FIXED:
        return FIXED[kind][1]
    if flexible:
        return 1
    return 2 if kind == "string" else 4
