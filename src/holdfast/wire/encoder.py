"""Compiles a message's table, in one version, into a function that appends its bytes to a list.

Owns the text of that function: straight-line code, one `struct` call per run of fields of fixed
size, lengths packed together with what stands in front of them. Compiled when first used.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

from holdfast.wire.compiling import (
    FIXED,
    Source,
    check_version,
    element_kind,
    null_struct,
    struct_class,
)
from holdfast.wire.errors import EncodeError
from holdfast.wire.primitives import uvarint
from holdfast.wire.schema import Field, Message, Struct


def compile_encoder(cls: type[Message], version: int) -> Callable[..., None]:
    """Return `function(message, out, cuts)`, and keep it in the class.

    It appends buffers to `out`; `cuts` gets the positions of those that are record batches.
    EncodeError: the class does not have that version.
    """
    check_version(cls, version, EncodeError)
    writer = _Writer(cls, version)
    writer.struct(cls, "o")
    writer.flush()
    writer.source.line("return")
    head = "def function(o, out, cuts):\n add = out.append"
    function = writer.source.compile(head, f"{cls.__name__} v{version} encoder")
    cls.ENCODERS[version] = function
    return function


class _Writer:
    """Writes the function. `run` holds fields of fixed size that are not written out yet."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.source = Source()
        self.source.scope.update(uvarint=uvarint, pack=pack, EncodeError=EncodeError)
        self.version = version
        self.flexible = version >= cls.FLEXIBLE
        self.run: list[tuple[str, str]] = []
        self.add = "add"

    def flush(self) -> None:
        if self.run:
            self.source.line(f"{self.add}({self.packed(self.run)})")
            self.run = []

    def packed(self, run: list[tuple[str, str]]) -> str:
        """Return an expression for the bytes of a run."""
        if all(code == "B" and value == "0" for code, value in run):
            return repr(bytes(len(run)))
        method = self.source.method("".join(code for code, _ in run), "pack")
        return f"{method}({', '.join(value for _, value in run)})"

    def struct(self, cls: type[Struct], variable: str) -> None:
        tagged: list[Field] = []
        for field in cls.FIELDS:
            if not field.present(self.version):
                self.absent(cls, field, variable)
            elif self.flexible and field.is_tagged(self.version):
                tagged.append(field)
            else:
                self.field(cls, field, f"{variable}.{field.name}")
        if self.flexible:
            self.tags(cls, tagged, variable)

    def absent(self, cls: type[Struct], field: Field, variable: str) -> None:
        """Refuse a value that would get lost, unless Kafka says that it may be."""
        if field.ignorable:
            return
        value = f"{variable}.{field.name}"
        text = f"{cls.__name__}.{field.name} is not in version {self.version}"
        self.source.line(f"if {self.differs(field, value)}: raise EncodeError({text!r})")

    def differs(self, field: Field, value: str) -> str:
        """Return a condition: the value is not the field's default."""
        default = self.source.default(field)
        if default == "[]":
            return f"{value} is None or {value}" if field.nullable is not None else value
        if default in {"None", "True", "False"}:
            return f"{value} is not {default}"
        if field.kind == "struct":
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def field(self, cls: type[Struct], field: Field, value: str) -> None:
        kind = field.kind
        if kind == "uuid":
            self.uuid(value)
        elif kind in FIXED:
            self.run.append((FIXED[kind][0], value))
        elif kind == "struct":
            self.nested(field, value)
        else:
            variable = self.source.name("v")
            self.source.line(f"{variable} = {value}")
            self.refuse_null(cls, field, variable)
            if kind == "array":
                self.array(cls, field, variable)
            else:
                self.data(kind, variable, field.is_nullable(self.version))

    def refuse_null(self, cls: type[Struct], field: Field, variable: str) -> None:
        if not field.is_nullable(self.version):
            text = f"{cls.__name__}.{field.name} can't be null in version {self.version}"
            self.source.line(f"if {variable} is None: raise EncodeError({text!r})")

    def uuid(self, value: str) -> None:
        # A layout pads and cuts without a word, so the size is checked here.
        self.source.line(f"if len({value}) != 16: raise EncodeError('a UUID has 16 bytes')")
        self.run.append(("16s", value))

    def data(self, kind: str, variable: str, nullable: bool) -> None:
        """Write a string, bytes or record batches, held by a variable that may be overwritten."""
        source = self.source
        size = source.name("n")
        encoded = f"{variable} = {variable}.encode()" if kind == "string" else ""
        length = f"{size} = len({variable})" + (" + 1" if self.flexible else "")
        body = f"{encoded}; {length}" if encoded else length
        if nullable:
            null = 0 if self.flexible else -1
            source.line(f"if {variable} is None: {variable} = b''; {size} = {null}")
            source.line(f"else: {body}")
        else:
            source.line(body)
        self.prefix("h" if kind == "string" else "i", size)
        if kind == "records":
            source.line(f"if {variable}: cuts.append(len(out)); add({variable})")
            assert self.add == "add", "record batches are not in tagged fields"
        else:
            source.line(f"{self.add}({variable})")

    def prefix(self, code: str, size: str) -> None:
        """Write a length, together with the run in front of it."""
        if not self.flexible:
            self.run.append((code, size))
            self.flush()
            return
        source = self.source
        short = self.packed([*self.run, ("B", size)])
        source.line(f"if {size} < 128: {self.add}({short})")
        with source.block("else:"):
            self.flush()
            source.line(f"{self.add}(uvarint({size}))")

    def array(self, cls: type[Struct], field: Field, variable: str) -> None:
        source = self.source
        size = source.name("n")
        one = " + 1" if self.flexible else ""
        if field.is_nullable(self.version):
            null = 0 if self.flexible else -1
            source.line(f"if {variable} is None: {variable} = (); {size} = {null}")
            source.line(f"else: {size} = len({variable}){one}")
        else:
            source.line(f"{size} = len({variable}){one}")
        self.prefix("i", size)
        kind = element_kind(field)
        if kind in FIXED and kind != "uuid":
            code = FIXED[kind][0]
            source.line(
                f"if {variable}: {self.add}(pack(f'>{{len({variable})}}{code}', *{variable}))"
            )
            return
        element = source.name("o")
        with source.block(f"for {element} in {variable}:"):
            if kind == "struct":
                self.struct(struct_class(field), element)
            elif kind == "uuid":
                self.uuid(element)
            else:
                text = f"{cls.__name__}.{field.name} holds a null"
                source.line(f"if {element} is None: raise EncodeError({text!r})")
                self.data(kind, element, nullable=False)
            self.flush()

    def nested(self, field: Field, value: str) -> None:
        source = self.source
        variable = source.name("o")
        source.line(f"{variable} = {value}")
        if not field.is_nullable(self.version):
            self.struct(struct_class(field), variable)
            return
        self.flush()
        null = bytes([null_struct(field, self.version) & 0xFF])
        source.line(f"if {variable} is None: {self.add}({null!r})")
        with source.block("else:"):
            self.run.append(("B", "1"))
            self.struct(struct_class(field), variable)
            self.flush()

    def tags(self, cls: type[Struct], tagged: list[Field], variable: str) -> None:
        """Write the block of tagged fields; only what is not a default goes into it."""
        if not tagged:
            self.run.append(("B", "0"))
            return
        source = self.source
        conditions = []
        for field in tagged:
            value = source.name("v")
            source.line(f"{value} = {variable}.{field.name}")
            conditions.append((field, value, self.differs(field, value)))
        whole = " or ".join(condition for _, _, condition in conditions)
        source.line(f"if not ({whole}): {self.add}({self.packed([*self.run, ('B', '0')])})")
        with source.block("else:"):
            self.flush()
            self.tagged(cls, conditions)

    def tagged(self, cls: type[Struct], conditions: list[tuple[Field, str, str]]) -> None:
        """Write the number of tagged fields that have a value, and those."""
        source = self.source
        outer, count, parts = self.add, source.name("n"), source.name("t")
        source.line(f"{count} = 0; {parts} = []")
        for field, value, condition in sorted(conditions, key=lambda item: item[0].tag or 0):
            inner = source.name("t")
            self.add = source.name("a")
            with source.block(f"if {condition}:"):
                source.line(f"{inner} = []; {self.add} = {inner}.append; {count} += 1")
                self.field(cls, field, value)
                self.flush()
                source.line(f"{inner} = b''.join({inner})")
                head = f"uvarint({field.tag}), uvarint(len({inner}))"
                source.line(f"{parts} += ({head}, {inner})")
        self.add = outer
        source.line(f"{outer}(uvarint({count})); {outer}(b''.join({parts}))")
