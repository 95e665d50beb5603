"""The messages of groups, which are not in the table of API keys yet.

Goal: they say what Kafka's say, and hostile bytes do no more harm than with the others. Method:
that of test_messages_oracles.py and of test_hostile.py, by their own functions.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import kio
import pytest
from kio.serial import entity_reader, entity_writer
from tests.wire import test_hostile as hostile
from tests.wire.test_messages_oracles import (
    KAFKA_PYTHON_UNKNOWN,
    _Sink,
    case_id,
    kafka_python_class,
    known_to_kafka_python,
    to_kafka_python,
    to_kio,
)

from holdfast.wire.codec import decode, encode
from holdfast.wire.decoder import ELEMENTS_MAX
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.frame import encode_request
from holdfast.wire.messages import API_NAMES
from holdfast.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from holdfast.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.wire.messages.describe_producers import (
    DescribeProducersRequest,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from holdfast.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
)
from holdfast.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from holdfast.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from holdfast.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from holdfast.wire.schema import Message

Messages = Callable[[type[Message], int], Iterator[Any]]

PAIRS: list[tuple[type[Message], type[Message]]] = [
    (OffsetCommitRequest, OffsetCommitResponse),
    (HeartbeatRequest, HeartbeatResponse),
    (LeaveGroupRequest, LeaveGroupResponse),
    (SyncGroupRequest, SyncGroupResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (OffsetDeleteRequest, OffsetDeleteResponse),
    (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
]
CLASSES = [cls for pair in PAIRS for cls in pair]
EVERY = [
    (cls, version) for cls in CLASSES for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]


def kio_folder(cls: type[Message]) -> str:
    """Return the folder of an API in kio, which is named as our module."""
    return cls.__module__.rpartition(".")[2]


def kio_class(cls: type[Message], version: int) -> Any:
    file = "request" if cls.__name__.endswith("Request") else "response"
    module = import_module(f"kio.schema.{kio_folder(cls)}.v{version}.{file}")
    return getattr(module, cls.__name__)


@pytest.mark.parametrize(("cls", "version"), EVERY, ids=case_id)
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


@pytest.mark.parametrize(
    ("cls", "version"), [case for case in EVERY if known_to_kafka_python(case)], ids=str
)
def test_same_bytes_as_kafka_python(
    cls: type[Message], version: int, messages_of: Messages
) -> None:
    theirs = kafka_python_class(cls)
    for message in messages_of(cls, version):
        other = to_kafka_python(message, theirs, version)
        written = bytes(other.encode(version=version))
        encoded = encode(message, version)
        assert encoded == written
        assert theirs.decode(encoded, version=version) == other
        assert decode(cls, version, written) == message


@pytest.mark.parametrize("cls", CLASSES)
def test_whole_ranges(cls: type[Message]) -> None:
    """Goal: no version is missing. Method: kio has those of Kafka 4.3, and no others."""
    theirs = Path(kio.__file__).parent / "schema" / kio_folder(cls)
    ours = {f"v{version}" for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)}
    assert {path.name for path in theirs.glob("v*")} == ours


def test_what_kafka_python_lacks() -> None:
    unknown = {case[0] for case in EVERY if not known_to_kafka_python(case)}
    assert unknown == {ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse}
    assert "ConsumerGroupHeartbeat" in KAFKA_PYTHON_UNKNOWN  # nor does it have that protocol


@pytest.mark.parametrize(("request_cls", "response_cls"), PAIRS)
def test_pairs(request_cls: type[Message], response_cls: type[Message]) -> None:
    for name in ("KEY", "MIN_VERSION", "MAX_VERSION", "FLEXIBLE"):
        assert getattr(request_cls, name) == getattr(response_cls, name)
    assert request_cls.KEY not in API_NAMES, "test_messages_oracles.py has it now: not here too"


def test_a_request_has_its_header_without_the_table() -> None:
    """Goal: clients and tests can ask before the table knows. Method: both header versions."""
    plain = encode_request(HeartbeatRequest(group_id="g", member_id="m"), 3, 7, "c")
    assert plain == bytes.fromhex("00000017 000c 0003 00000007 000163 000167 00000000 00016d ffff")
    flexible = encode_request(HeartbeatRequest(group_id="g", member_id="m"), 4, 7, "c")
    assert flexible == bytes.fromhex(
        "00000016 000c 0004 00000007 000163 00 0267 00000000 026d 00 00"
    )


@pytest.mark.parametrize(
    ("message", "version", "why"),
    [
        (LeaveGroupRequest(members=[MemberIdentity()]), 2, "members is not in version 2"),
        (LeaveGroupRequest(member_id="m"), 3, "member_id is not in version 3"),
        (HeartbeatRequest(group_instance_id="s"), 2, "group_instance_id is not in version 2"),
        (ListGroupsRequest(types_filter=["classic"]), 4, "types_filter is not in version 4"),
        (
            DescribeGroupsResponse(groups=[DescribedGroup(error_message="gone")]),
            5,
            "error_message is not in version 5",
        ),
        (TxnOffsetCommitRequest(generation_id=1), 2, "generation_id is not in version 2"),
    ],
)
def test_what_a_version_can_not_carry(message: Message, version: int, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        encode(message, version)


def test_an_offset_commit_names_its_topic_in_one_way() -> None:
    """Goal: one request serves all versions. Method: both names given, one of them carried."""
    partition = OffsetCommitRequestPartition(committed_offset=5, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", topic_id=b"i" * 16, partitions=[partition])
    request = OffsetCommitRequest(group_id="g", topics=[topic], retention_time_ms=9)
    by_name = decode(OffsetCommitRequest, 9, encode(request, 9))
    assert (by_name.topics[0].name, by_name.topics[0].topic_id) == ("t", bytes(16))
    by_id = decode(OffsetCommitRequest, 10, encode(request, 10))
    assert (by_id.topics[0].name, by_id.topics[0].topic_id) == ("", b"i" * 16)
    assert (by_name.retention_time_ms, by_id.retention_time_ms) == (-1, -1)


# --- hostile bytes --------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES)
def test_cuts_and_changes(cls: type[Message], messages_of: Messages) -> None:
    hostile.test_cuts_and_changes(cls, messages_of)


@pytest.mark.parametrize("filler", [b"\xff", b"\x7f", b"\x80", b"\x01", b"\x02", b"\0"])
@pytest.mark.parametrize("cls", CLASSES)
def test_the_same_byte_for_ever(cls: type[Message], filler: bytes) -> None:
    hostile.test_the_same_byte_for_ever(cls, filler)


@pytest.mark.parametrize(
    ("cls", "version", "text"),
    [
        (SyncGroupRequest, 0, "0000 00000000 0000 7fffffff"),
        (SyncGroupRequest, 0, "0000 00000000 0000 00000001 0000 7fffffff"),
        (SyncGroupRequest, 5, "01 00000000 01 00 00 00 ffffffff0f"),
        (LeaveGroupRequest, 5, "01 ffffffff0f"),
        (OffsetCommitRequest, 2, "0000 00000000 0000 ffffffffffffffff 7fffffff"),
        (OffsetCommitRequest, 10, "01 00000000 01 00 ffffffff0f"),
        (OffsetCommitRequest, 10, "01 00000000 01 00 02" + "00" * 16 + "ffffffff0f"),
        (OffsetDeleteRequest, 0, "0000 7fffffff"),
        (DescribeGroupsRequest, 6, "ffffffff0f"),
        (DeleteGroupsRequest, 1, "7fffffff"),
        (ListGroupsRequest, 5, "01 ffffffff0f"),
        (ConsumerGroupDescribeRequest, 1, "ffffffff0f"),
        (TxnOffsetCommitRequest, 0, "0000 0000" + "00" * 10 + "7fffffff"),
        (ListConfigResourcesRequest, 1, "ffffffff0f"),
        (DescribeProducersRequest, 0, "02 01 ffffffff0f"),
    ],
)
def test_giant_lengths_allocate_nothing(cls: type[Message], version: int, text: str) -> None:
    hostile.test_giant_lengths_allocate_nothing(cls, version, text)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (DescribeGroupsRequest(groups=[""] * (ELEMENTS_MAX + 1)), 5),
        (DeleteGroupsRequest(groups_names=[""] * (ELEMENTS_MAX + 1)), 2),
        (ListConfigResourcesRequest(resource_types=[0] * (ELEMENTS_MAX + 1)), 1),
    ],
)
def test_elements_are_counted(message: Message, version: int) -> None:
    data = encode(message, version)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="ask for less at a time"):
            decode(type(message), version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data) + 100_000
