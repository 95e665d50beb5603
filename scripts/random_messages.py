"""Messages made from our own tables, at random but repeatably.

Used by the tests of the wire format and by `make fuzz`. Fields outside a version keep their
defaults, others do now and then.
"""

from __future__ import annotations

from random import Random
from typing import Any

from holdfast.wire.errors import ErrorCode
from holdfast.wire.schema import Field, Kind, Struct

TEXTS = ("", "a", "topic-1", "é", "€uro", "\U0001f980", "x" * 126, "x" * 127, "y" * 300)
BLOBS = (b"", b"\0", b"abc", b"z" * 126, b"z" * 127, b"z" * 400)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# What an oracle represents by a type of its own, it can't represent beyond that type.
TIME_MAX = 4_000_000_000_000
ERRORS = [int(code) for code in ErrorCode]


def _integer(random: Random, bits: int) -> int:
    edge = 1 << (bits - 1)
    return random.choice((0, -1, 1, -edge, edge - 1, random.randrange(-edge, edge)))


def _primitive(random: Random, field: Field, kind: str) -> Any:
    if field.name in {"log_append_time_ms", "retention_time_ms"}:
        return random.randrange(-1, TIME_MAX)
    if kind == "int16" and field.name.endswith("error_code"):
        return random.choice(ERRORS)
    if kind in INTEGERS:
        return _integer(random, INTEGERS[kind])
    match kind:
        case "uint16":
            return random.randrange(1 << 16)
        case "uint32":
            return random.randrange(1 << 32)
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "bool":
            return random.random() < 0.5
        case "uuid":
            return random.choice((bytes(16), random.randbytes(16)))
        case "string":
            return random.choice(TEXTS)
        case "bytes" | "records":
            return random.choice(BLOBS)
    raise AssertionError(kind)


def _value(random: Random, field: Field, version: int) -> Any:
    element = field.element
    if field.is_nullable(version) and random.random() < 0.3:
        return None
    if field.kind == "array":
        # Now and then more than a one-byte length can say.
        scalar = isinstance(element, Kind)
        count = 130 if scalar and random.random() < 0.03 else random.randrange(4)
        return [_element(random, field, version) for _ in range(count)]
    if field.kind == "struct":
        return _element(random, field, version)
    return _primitive(random, field, field.kind)


def _element(random: Random, field: Field, version: int) -> Any:
    if isinstance(field.element, Kind):
        return _primitive(random, field, field.element.name)
    assert field.element is not None
    return make_struct(random, field.element, version)


def make_struct(random: Random, cls: type[Struct], version: int) -> Any:
    """Return a struct; fields outside `version` keep their defaults, others do now and then."""
    values = {
        field.name: _value(random, field, version)
        for field in cls.FIELDS
        if field.present(version) and random.random() < 0.85
    }
    return cls(**values)
