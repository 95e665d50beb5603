"""The messages of groups: what is told of them alone.

Goal: what a version can't carry is refused, and giant lengths cost nothing. Method: by hand, beside
what test_messages_oracles.py and test_hostile.py do with all messages.
"""

from __future__ import annotations

import tracemalloc

import pytest
from tests.wire import test_hostile as hostile

from holdfast.wire.codec import decode, encode
from holdfast.wire.decoder import ELEMENTS_MAX
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
)
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.wire.messages.describe_producers import (
    DescribeProducersRequest,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.leave_group import (
    LeaveGroupRequest,
    MemberIdentity,
)
from holdfast.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
)
from holdfast.wire.messages.list_groups import ListGroupsRequest
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.messages.offset_delete import OffsetDeleteRequest
from holdfast.wire.messages.sync_group import SyncGroupRequest
from holdfast.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
)
from holdfast.wire.schema import Message


def test_both_headers_of_a_request() -> None:
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


def _commit(*counts: int) -> OffsetCommitRequest:
    """A commit of so many partitions of each topic."""
    one = OffsetCommitRequestPartition(committed_offset=5, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[one] * count) for count in counts]
    return OffsetCommitRequest(group_id="g", topics=topics)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (_commit(OffsetCommitRequest.ELEMENTS_MAX), 2),
        (_commit(OffsetCommitRequest.ELEMENTS_MAX), 9),
        (_commit(*[0] * (OffsetCommitRequest.ELEMENTS_MAX + 1)), 9),
        (DescribeGroupsRequest(groups=[""] * (ELEMENTS_MAX + 1)), 5),
        (DeleteGroupsRequest(groups_names=[""] * (ELEMENTS_MAX + 1)), 2),
        (ListConfigResourcesRequest(resource_types=[0] * (ELEMENTS_MAX + 1)), 1),
    ],
)
def test_elements_are_counted(message: Message, version: int) -> None:
    """Goal: no object is made of any of them. Method: what decoding takes in memory at most."""
    data = encode(message, version)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="ask for less at a time"):
            decode(type(message), version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data) + 100_000


def test_a_commit_names_fewer_than_other_requests() -> None:
    """Seen to fail: one of 60,000 partitions held a loop for 60 ms, only to be refused."""
    half = OffsetCommitRequest.ELEMENTS_MAX // 2
    most = _commit(half - 1, half - 1)
    for version in (2, 9):
        assert decode(OffsetCommitRequest, version, encode(most, version)) == most
        with pytest.raises(WireError, match=f"more than {2 * half} elements, ask for less"):
            decode(OffsetCommitRequest, version, encode(_commit(half, half - 1), version))
