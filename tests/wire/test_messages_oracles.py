"""Every message in every version, held against two independent implementations.

Goal: our tables say what Kafka's say. Method: messages made at random are rebuilt, field by
field and by name, as the oracle's own objects; both must encode to the same bytes and decode the
other's. `NEITHER` lists what no oracle knows; golden bytes stand in for it elsewhere.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import kio
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from holdfast.wire.codec import decode, encode
from holdfast.wire.messages import (
    API_NAMES,
    FLEXIBLE_SINCE,
    module_name,
    request_class,
    response_class,
)
from holdfast.wire.messages.api_versions import ApiVersionsResponse
from holdfast.wire.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from holdfast.wire.schema import Message, Struct, default_value

Messages = Callable[[type[Message], int], Iterator[Any]]
Case = tuple[type[Message], int]

CONTROL_RECORDS: dict[type[Message], str] = {
    KRaftVersionRecord: "k_raft_version_record",
    LeaderChangeMessage: "leader_change_message",
    SnapshotFooterRecord: "snapshot_footer_record",
    SnapshotHeaderRecord: "snapshot_header_record",
    VotersRecord: "voters_record",
}

NEITHER: set[Case] = set()
"""Messages that no oracle knows; KRaft's metadata records beside them (test_records)."""

KAFKA_PYTHON_UNKNOWN = {
    "ConsumerGroupDescribe",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "AlterPartition",
    "Envelope",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "UnregisterBroker",
    "AllocateProducerIds",
    "AssignReplicasToDirs",
    "ControllerRegistration",
    "FetchSnapshot",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "UpdateRaftVoter",
    "ConsumerGroupHeartbeat",
}

KAFKA_PYTHON_MODULES = (
    "kafka.protocol.producer",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.admin",
)


def every_case() -> list[Case]:
    classes: list[type[Message]] = []
    for key in API_NAMES:
        classes += (request_class(key), response_class(key))
    classes += CONTROL_RECORDS
    return [
        (cls, version) for cls in classes for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
    ]


def case_id(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


EVERY = every_case()


# --- kio ------------------------------------------------------------------------------------


def kio_module(cls: type[Message], version: int) -> str:
    if cls in CONTROL_RECORDS:
        folder, file = CONTROL_RECORDS[cls], "data"
    else:
        folder = module_name(cls.KEY)
        file = "request" if cls.__name__.endswith("Request") else "response"
    return f"kio.schema.{folder}.v{version}.{file}"


def kio_knows(cls: type[Message], version: int) -> bool:
    """Look for the file: each worker would spend a second on importing them all to collect."""
    file = Path(*kio_module(cls, version).split(".")[1:]).with_suffix(".py")
    return (Path(kio.__file__).parent / file).exists()


@cache
def kio_class(cls: type[Message], version: int) -> Any:
    module = importlib.import_module(kio_module(cls, version))
    return getattr(module, cls.__name__)


@cache
def kio_fields(cls: Any) -> list[tuple[str, str, Any]]:
    """Return (name, type, nested class) of each field of a kio class."""
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        kind = field.metadata.get("kafka_type", "struct")
        found.append((field.name, kind, nested_class(hints[field.name])))
    return found


def nested_class(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        found = nested_class(argument)
        if found is not None:
            return found
    return None


def kio_value(kind: str, nested: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(kio_value(kind, nested, one) for one in value)
    if isinstance(value, Struct):
        return to_kio(value, nested)
    if value is None:
        return None
    match kind:
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return (
                None
                if value == -1
                else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
            )
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "records" | "bytes":
            return bytes(value)
    return value


def to_kio(message: Struct, cls: Any) -> Any:
    values = {}
    for name, kind, nested in kio_fields(cls):
        plain = name.removesuffix("_")  # it avoids Python's own names
        ours = plain if hasattr(message, plain) else name + "_ms"
        values[name] = kio_value(kind, nested, getattr(message, ours))
    return cls(**values)


@pytest.mark.parametrize(
    ("cls", "version"), [case for case in EVERY if kio_knows(*case)], ids=case_id
)
def test_same_bytes_as_kio(cls: type[Message], version: int, messages_of: Messages) -> None:
    theirs = kio_class(cls, version)
    write, read = entity_writer(theirs), entity_reader(theirs)
    for message in messages_of(cls, version):
        other = to_kio(message, theirs)
        written = bytearray()
        write(_Sink(written), other)
        encoded = encode(message, version)
        assert encoded == bytes(written)
        assert read(encoded, 0) == (other, len(encoded))
        assert decode(cls, version, bytes(written)) == message


class _Sink:
    """What kio's writers write to."""

    def __init__(self, into: bytearray) -> None:
        self.into = into

    def write(self, data: bytes) -> None:
        self.into += data


# --- kafka-python ---------------------------------------------------------------------------


@cache
def kafka_python_class(cls: type[Message]) -> Any:
    for name in KAFKA_PYTHON_MODULES:
        found = getattr(importlib.import_module(name), cls.__name__, None)
        if found is not None:
            return found
    return None


def kafka_python_value(field: Any, version: int, value: Any) -> Any:
    if isinstance(value, list):
        return [kafka_python_value(field, version, one) for one in value]
    if isinstance(value, Struct):
        return to_kafka_python(value, field.data_class, version)
    if isinstance(value, bytes) and "uuid" in field.type_str:
        return uuid.UUID(bytes=value) if any(value) else None
    if field.type_str == "bitfield":
        bits = {bit for bit in range(32) if value >> bit & 1}
        return None if bits == {31} else bits
    return value


def to_kafka_python(message: Struct, cls: Any, version: int) -> Any:
    values = {}
    ours = {field.name: field for field in message.FIELDS}
    for name, field in cls.fields.items():
        if not field.for_version_q(version):
            continue
        if name == "authorized_operations" and name not in ours:
            declared = ours.get("cluster_" + name) or ours["topic_" + name]
        else:
            declared = ours[name]
        value = getattr(message, declared.name)
        if declared.is_tagged(version) and value == default_value(declared):
            continue  # theirs writes a tagged struct of defaults, where Kafka leaves it out
        values[name] = kafka_python_value(field, version, value)
    return cls(version=version, **values)


def known_to_kafka_python(case: Case) -> bool:
    cls, version = case
    found = kafka_python_class(cls)
    return found is not None and version <= found.max_version


@pytest.mark.parametrize(
    ("cls", "version"), [case for case in EVERY if known_to_kafka_python(case)], ids=case_id
)
def test_same_bytes_as_kafka_python(
    cls: type[Message], version: int, messages_of: Messages
) -> None:
    theirs = kafka_python_class(cls)
    for message in messages_of(cls, version):
        if cls is ApiVersionsResponse:
            message.error_code = 0  # with an error, theirs reads version 0 only
        other = to_kafka_python(message, theirs, version)
        written = bytes(other.encode(version=version))
        encoded = encode(message, version)
        assert encoded == written
        assert theirs.decode(encoded, version=version) == other
        assert decode(cls, version, written) == message


# --- the oracles' reach ---------------------------------------------------------------------


def test_what_neither_knows_is_listed() -> None:
    """Goal: no case escapes both oracles unnoticed. Method: compare with the lists above."""
    assert {case for case in EVERY if not kio_knows(*case) and not known_to_kafka_python(case)} == (
        NEITHER
    )
    unknown = {
        cls.__name__.removesuffix("Request")
        for cls, _ in EVERY
        if cls.__name__.endswith("Request") and kafka_python_class(cls) is None
    }
    assert unknown == KAFKA_PYTHON_UNKNOWN
    assert not [case for case in EVERY if case[0] not in CONTROL_RECORDS and not kio_knows(*case)]


def test_flexible_versions_agree_with_the_classes() -> None:
    """Goal: headers are read as the messages are. Method: compare the two tables."""
    for key, since in FLEXIBLE_SINCE.items():
        assert since == request_class(key).FLEXIBLE
        assert since == response_class(key).FLEXIBLE
        assert request_class(key).KEY == response_class(key).KEY == key
    assert FLEXIBLE_SINCE.keys() == API_NAMES.keys()
