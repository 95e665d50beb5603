"""How a message is declared: the class is its own table of fields.

Owns the field declarations, the classes made of them and their constructors. Must never look at
bytes: `encoder` and `decoder` compile these tables into code, per class and version, when first
used. Declaring a class must stay cheap, because a node imports many when it starts.

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)

Defaults that are structs are shared and immutable: assign a new struct, never change one in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final, dataclass_transform

from holdfast.wire.uuids import NULL_UUID

VERSION_MAX: Final = 32767
_UNSET: Final = object()


class Field:
    """One field of a struct: its type, and in which versions it is there, nullable, tagged."""

    __slots__ = (
        "default",
        "element",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "since",
        "tag",
        "tagged_since",
        "until",
    )

    def __init__(
        self,
        kind: str,
        element: Kind | type[Struct] | None,
        *,
        since: int,
        until: int,
        nullable: int | None,
        tag: int | None,
        tagged_since: int | None,
        ignorable: bool,
        default: object,
    ) -> None:
        self.kind = kind
        self.element = element
        self.name = ""
        self.since = since
        self.until = until
        self.nullable = nullable
        self.tag = tag
        self.tagged_since = since if tagged_since is None else tagged_since
        self.ignorable = ignorable
        self.default = default

    def present(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version >= self.tagged_since

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version >= self.nullable


class Kind:
    """A primitive type. Called, it declares a field; named, it is an element type of an array."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: object) -> None:
        self.name = name
        self.default = default

    def __call__(
        self,
        *,
        since: int = 0,
        until: int = VERSION_MAX,
        nullable: int | None = None,
        tag: int | None = None,
        tagged_since: int | None = None,
        ignorable: bool = False,
        default: object = _UNSET,
    ) -> Any:
        """Declare a field. `nullable` is the first version that allows null.

        A field that is not `ignorable` must have its default when it is encoded in a version
        that does not carry it.
        """
        return Field(
            self.name,
            None,
            since=since,
            until=until,
            nullable=nullable,
            tag=tag,
            tagged_since=tagged_since,
            ignorable=ignorable,
            default=self.default if default is _UNSET else default,
        )


int8: Final = Kind("int8", 0)
int16: Final = Kind("int16", 0)
int32: Final = Kind("int32", 0)
int64: Final = Kind("int64", 0)
uint16: Final = Kind("uint16", 0)
boolean: Final = Kind("bool", False)
uuid: Final = Kind("uuid", NULL_UUID)
string: Final = Kind("string", "")
blob: Final = Kind("bytes", b"")
batches: Final = Kind("records", None)
"""Record batches: opaque, a slice of the frame when decoded, not copied when encoded."""


def array(
    element: Kind | type[Struct],
    *,
    since: int = 0,
    until: int = VERSION_MAX,
    nullable: int | None = None,
    tag: int | None = None,
    tagged_since: int | None = None,
    ignorable: bool = False,
    default: object = _UNSET,
) -> Any:
    """Declare a list of primitives or structs; empty by default, or None where that is given."""
    assert default is _UNSET or default is None, "an array's default is empty or null"
    return Field(
        "array",
        element,
        since=since,
        until=until,
        nullable=nullable,
        tag=tag,
        tagged_since=tagged_since,
        ignorable=ignorable,
        default=() if default is _UNSET else None,
    )


def struct(
    element: type[Struct],
    *,
    since: int = 0,
    until: int = VERSION_MAX,
    nullable: int | None = None,
    tag: int | None = None,
    tagged_since: int | None = None,
    ignorable: bool = False,
    default: object = _UNSET,
) -> Any:
    """Declare a nested struct; by default one with its own defaults, shared and immutable."""
    assert default is _UNSET or default is None, "a struct's default is its own or null"
    return Field(
        "struct",
        element,
        since=since,
        until=until,
        nullable=nullable,
        tag=tag,
        tagged_since=tagged_since,
        ignorable=ignorable,
        default=default,
    )


def _construct_first(self: Struct, **values: object) -> None:
    # The first construction of a class compiles its constructor and puts it in place.
    _compile_constructor(type(self))(self, **values)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Makes a slotted class of the fields that its body declares, behind those of its bases."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructType:
        fields = []
        for key, value in list(namespace.items()):
            if type(value) is Field:
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(field.name for field in fields)
        inherited = (field for base in bases for field in getattr(base, "FIELDS", ()))
        namespace["FIELDS"] = (*inherited, *fields)
        namespace["__init__"] = _construct_first  # never a base's, which knows fewer fields
        namespace["ENCODERS"] = {}
        namespace["DECODERS"] = {}
        namespace["__match_args__"] = ()
        return super().__new__(cls, name, bases, namespace, **keywords)


class Struct(metaclass=StructType):
    """A part of a message, or (`Message`) a whole one; its constructor takes keywords only."""

    FIELDS: ClassVar[tuple[Field, ...]]
    ENCODERS: ClassVar[dict[int, Callable[..., None]]]
    DECODERS: ClassVar[dict[int, Callable[..., Any]]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.FIELDS is not other.FIELDS:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(
            f"{field.name}={_brief(getattr(self, field.name))}" for field in self.FIELDS
        )
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A request, a response or a record: what can be encoded by itself, and in which versions."""

    KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE: ClassVar[int] = 0  # the first flexible version; VERSION_MAX: none is
    ELEMENTS_MAX: ClassVar[int] = 0  # of a request in all arrays; 0: what any other may have

    def __init_subclass__(
        cls,
        *,
        key: int = -1,
        versions: tuple[int, int] = (0, 0),
        flexible: int = VERSION_MAX,
        elements_max: int = 0,
        **keywords: object,
    ) -> None:
        super().__init_subclass__(**keywords)
        cls.ELEMENTS_MAX = elements_max
        cls.KEY = key
        cls.MIN_VERSION, cls.MAX_VERSION = versions
        cls.FLEXIBLE = flexible


class Request(Message):
    """What a client asks."""


class BrokerRequest(Request):
    """What a broker asks the active controller, in the life that its epoch says."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class Response(Message):
    """What a broker answers."""


class ThrottledResponse(Response):
    """One that begins with how long its client has to hold back."""

    throttle_time_ms: int = int32()


class RefusableResponse(ThrottledResponse):
    """One with an error of the whole request next."""

    error_code: int = int16()


class ExplainedResponse(RefusableResponse):
    """One that has words for its error, too."""

    error_message: str | None = string(nullable=0)


class Record(Message):
    """What the metadata log holds."""


@cache
def default_of(cls: type[Struct]) -> Struct:
    """Return the shared, immutable struct that holds every default of `cls`."""
    frozen: Any = StructType("Default" + cls.__name__, (cls,), {"__setattr__": _refuse})
    # The same table, and not an equal one: it is what structs of one class are told by.
    frozen.FIELDS = cls.FIELDS
    made: Struct = object.__new__(frozen)
    for field in cls.FIELDS:
        object.__setattr__(made, field.name, default_value(field))
    return made


def default_value(field: Field) -> Any:
    """Return a field's default; a new list each time for arrays."""
    if field.kind == "array" and field.default is not None:
        return []
    if field.kind == "struct" and field.default is not None:
        assert isinstance(field.element, StructType)
        return default_of(field.element)
    return field.default


def _refuse(self: Struct, name: str, _value: object) -> None:
    raise AttributeError(
        f"{type(self).__name__}.{name}: a default is shared; assign a new struct instead"
    )


def _compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    """Make `cls.__init__`: keyword parameters, one store each."""
    parameters: list[str] = []
    body: list[str] = []
    scope: dict[str, object] = {}
    for field in cls.FIELDS:
        name = field.name
        if field.kind == "array" and field.default is not None:
            parameters.append(f"{name}=_UNSET")
            body.append(f" self.{name} = [] if {name} is _UNSET else {name}")
        else:
            scope[f"d_{name}"] = default_value(field)
            parameters.append(f"{name}=d_{name}")
            body.append(f" self.{name} = {name}")
    scope["_UNSET"] = _UNSET
    head = (
        f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"
    )
    source = "\n".join([head, *(body or [" pass"])])
    exec(source, scope)  # noqa: S102 - the text is made of our own tables only
    constructor: Callable[..., None] = scope["__init__"]  # type: ignore[assignment]
    type.__setattr__(cls, "__init__", constructor)
    return constructor


def _brief(value: object) -> str:
    if isinstance(value, (bytes, memoryview)) and len(value) > 64:
        return f"<{len(value)} bytes>"
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return repr(value)
