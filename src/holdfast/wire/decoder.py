"""Compiles a message's table, in one version, into a function that reads it from bytes.

Owns the text of that function. The bytes are hostile: every length is held against what remains
before anything is allocated, and nothing is read behind the end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from struct import unpack_from
from typing import Any, Final

from holdfast.wire.compiling import (
    FIXED,
    RUN_MAX,
    Source,
    check_version,
    element_kind,
    element_size_min,
    holds_records,
    null_struct,
    struct_class,
)
from holdfast.wire.errors import WireError
from holdfast.wire.primitives import TAGS_MAX, read_uvarint, read_uvarint_rest, skip_tags
from holdfast.wire.schema import Field, Message, Request, Struct

ELEMENTS_MAX: Final = 120_000
"""In all arrays of a request together: one of 100,000 partitions has as many, and a few topics.

An element may have a single byte, and becomes an object, or several with those of its answer.
"""
STRING_BYTES_MAX: Final = 32_767
"""Of a request's string, in versions whose length could say more, too, as in Kafka."""


def compile_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """Return `function(data, offset)`, and keep it in the class.

    It may raise IndexError, `struct.error` or UnicodeDecodeError too: `codec.decode` translates.
    WireError: the class does not have that version.
    """
    check_version(cls, version, WireError)
    reader = _Reader(cls, version)
    reader.struct(cls, "o")
    reader.flush()
    text = f"{cls.__name__}: bytes behind the end"
    reader.source.line(f"if p != end: raise WireError({text!r})")
    reader.source.line("return o")
    kind = "memoryview" if reader.sliced else "bytes"
    head = f"def function(data, p):\n d = {kind}(data); end = len(d)"
    if reader.is_counted:
        head += f"; left = {reader.elements_max}"
    function = reader.source.compile(head, f"{cls.__name__} v{version} decoder")
    cls.DECODERS[version] = function
    return function


class _Reader:
    """Writes the function. `run` holds fields of fixed size that are not read yet."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.source = Source()
        self.source.scope.update(
            WireError=WireError,
            new=object.__new__,
            unpack_from=unpack_from,
            uvarint=read_uvarint,
            more=read_uvarint_rest,
            skip=skip_tags,
        )
        self.version = version
        self.flexible = version >= cls.FLEXIBLE
        # Whoever may ask is nobody that we know; answers come from nodes of ours.
        self.is_counted = issubclass(cls, Request)
        self.elements_max = cls.ELEMENTS_MAX or ELEMENTS_MAX
        self.too_many = (
            f"{cls.__name__}: more than {self.elements_max} elements, ask for less at a time"
        )
        # Where there are record batches the data stays a view, so that they are slices of it;
        # elsewhere it is bytes, whose slices are quicker to come by.
        self.sliced = holds_records(cls)
        self.run: list[tuple[str, str, int]] = []

    def flush(self) -> None:
        if not self.run:
            return
        source = self.source
        size = sum(width for _, _, width in self.run)
        if len(self.run) == 1 and self.run[0][0] == "B":
            source.line(f"{self.run[0][1]} = d[p]; p += 1")
        else:
            targets = ", ".join(target for _, target, _ in self.run)
            comma = "," if len(self.run) == 1 else ""
            method = source.method("".join(code for code, _, _ in self.run), "unpack_from")
            source.line(f"{targets}{comma} = {method}(d, p); p += {size}")
        self.run = []

    def struct(self, cls: type[Struct], variable: str) -> None:
        source = self.source
        source.line(f"{variable} = new({source.constant('c', cls)})")
        tagged: list[Field] = []
        for field in cls.FIELDS:
            present = field.present(self.version)
            if present and not (self.flexible and field.is_tagged(self.version)):
                self.field(cls, field, f"{variable}.{field.name}")
                continue
            source.line(f"{variable}.{field.name} = {source.default(field)}")
            if present:
                tagged.append(field)
        if self.flexible:
            self.tags(cls, tagged, variable)

    def field(self, cls: type[Struct], field: Field, target: str) -> None:
        kind = field.kind
        where = f"{cls.__name__}.{field.name}"
        if kind in FIXED:
            self.run.append((FIXED[kind][0], target, FIXED[kind][1]))
        elif kind == "struct":
            self.nested(field, target)
        elif kind == "array":
            self.array(field, target, where)
        else:
            self.data(kind, target, where, field.is_nullable(self.version))

    def prefix(self, code: str, where: str, nullable: bool) -> tuple[str, str]:
        """Read a length. Return its variable, and a condition that is true for null.

        In flexible versions the variable is one more than the length.
        """
        source = self.source
        size = source.name("n")
        if self.flexible:
            self.run.append(("B", size, 1))
            self.flush()
            with source.block(f"if {size} > 127:"):
                source.line(f"{size}, p = more(d, p, {size})")
                if code == "h" and self.is_counted:
                    text = f"{where} is longer than {STRING_BYTES_MAX} bytes"
                    source.line(f"if {size} > {STRING_BYTES_MAX + 1}: raise WireError({text!r})")
            null = f"not {size}"
        else:
            self.run.append((code, size, 2 if code == "h" else 4))
            self.flush()
            null = f"{size} < 0"
        if not nullable:
            text = f"{where} is null"
            source.line(f"if {null}: raise WireError({text!r})")
        return size, null

    def data(self, kind: str, target: str, where: str, nullable: bool) -> None:
        """Read a string, bytes or record batches."""
        source = self.source
        size, null = self.prefix("h" if kind == "string" else "i", where, nullable)
        one = " - 1" if self.flexible else ""
        text = f"{where} is longer than what remains"
        with self.unless_null(nullable, null, target):
            source.line(f"e = p + {size}{one}")
            source.line(f"if e > end: raise WireError({text!r})")
            source.line(f"{target} = {self.slice_of(kind)}; p = e")

    def unless_null(self, nullable: bool, null: str, target: str) -> AbstractContextManager[None]:
        """Write what follows for a value that is not null, and None for one that is."""
        if nullable:
            self.source.line(f"if {null}: {target} = None")
        return self.source.block("else:" if nullable else "")

    def slice_of(self, kind: str) -> str:
        if kind == "string":
            return "str(d[p:e], 'utf-8')" if self.sliced else "d[p:e].decode()"
        return "bytes(d[p:e])" if self.sliced and kind != "records" else "d[p:e]"

    def array(self, field: Field, target: str, where: str) -> None:
        source = self.source
        nullable = field.is_nullable(self.version)
        size, null = self.prefix("i", where, nullable)
        with self.unless_null(nullable, null, target):
            if self.flexible:
                source.line(f"{size} -= 1")
            width = element_size_min(field, self.version, self.flexible)
            text = f"{where} has more elements than bytes remain for"
            source.line(f"if {size} * {width} > end - p: raise WireError({text!r})")
            self.counted(size)
            kind = element_kind(field)
            if kind in FIXED:
                self.fixed_elements(kind, target, size)
            else:
                self.elements(field, kind, target, size, where)

    def counted(self, size: str) -> None:
        """Count what is about to be read against what a request may have altogether."""
        if self.is_counted:
            self.source.line(f"left -= {size}")
            self.source.line(f"if left < 0: raise WireError({self.too_many!r})")

    def fixed_elements(self, kind: str, target: str, size: str) -> None:
        code, width = FIXED[kind]
        if kind == "uuid":
            self.source.line(f"e = p + {size} * 16")
            one = "bytes(d[i : i + 16])" if self.sliced else "d[i : i + 16]"
            self.source.line(f"{target} = [{one} for i in range(p, e, 16)]; p = e")
        else:
            short = f"{self.source.runs(code, 'unpack_from')}[{size}](d, p)"
            long = f"unpack_from(f'>{{{size}}}{code}', d, p)"
            self.source.line(f"{target} = [*({short} if {size} <= {RUN_MAX} else {long})]")
            self.source.line(f"p += {size} * {width}")

    def elements(self, field: Field, kind: str, target: str, size: str, where: str) -> None:
        source = self.source
        values, add, element = source.name("l"), source.name("a"), source.name("o")
        source.line(f"{values} = []; {add} = {values}.append")
        with source.block(f"for _ in range({size}):"):
            if kind == "struct":
                self.struct(struct_class(field), element)
                self.flush()
            else:
                self.data(kind, element, where, nullable=False)
            source.line(f"{add}({element})")
        source.line(f"{target} = {values}")

    def nested(self, field: Field, target: str) -> None:
        source = self.source
        variable = source.name("o")
        nullable, null = field.is_nullable(self.version), ""
        if nullable:
            present = source.name("n")
            self.run.append(("b", present, 1))
            self.flush()
            null = f"{present} <= {null_struct(field, self.version)}"
        with self.unless_null(nullable, null, target):
            self.struct(struct_class(field), variable)
            self.flush()
            source.line(f"{target} = {variable}")

    def tags(self, cls: type[Struct], tagged: list[Field], variable: str) -> None:
        """Read the block of tagged fields. Tags not known here are skipped (KIP-482)."""
        source = self.source
        count = source.name("n")
        self.run.append(("B", count, 1))
        self.flush()
        tag, stop = source.name("g"), source.name("q")
        text = f"{cls.__name__}: a tagged field is longer than what remains"
        wrong = f"{cls.__name__}: a tagged field's size is wrong"
        many = f"{cls.__name__}: more than {TAGS_MAX} tagged fields in one place"
        with source.block(f"if {count}:"):
            source.line(f"if {count} > 127: {count}, p = more(d, p, {count})")
            self.counted(count)
            if not tagged:
                source.line(f"p = skip(d, p, {count})")
                return
            source.line(f"if {count} > {TAGS_MAX}: raise WireError({many!r})")
            with source.block(f"for _ in range({count}):"):
                source.line(f"{tag}, p = uvarint(d, p)")
                source.line(f"{stop}, p = uvarint(d, p); {stop} += p")
                source.line(f"if {stop} > end: raise WireError({text!r})")
                word = "if"
                for field in tagged:
                    with source.block(f"{word} {tag} == {field.tag}:"):
                        self.field(cls, field, f"{variable}.{field.name}")
                        self.flush()
                    word = "elif"
                source.line(f"else: p = {stop}")
                source.line(f"if p != {stop}: raise WireError({wrong!r})")
