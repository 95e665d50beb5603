"""Goal: what is committed is what is fetched, from this coordinator and from the next.

Method: cases. Seen to fail: with metadata counted in bytes or characters, with a retention that is
not kept, with a topic's id that is lost, with room that a refused offset takes, with an offset that
is left in the index of topics, and with tombstones for what is not there.

Rules: committed-offsets.md#committing, committed-offsets.md#fetching,
committed-offsets.md#deletion, committed-offsets.md#deleted-topics, committed-offsets.md#bounds.
"""

from __future__ import annotations

import pytest
from tests.group.shard_kit import Coordinator, commit_request, subscription

from holdfast.core.group.any_group import Caller
from holdfast.core.group.classic import classic_state
from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.core.group.offsets.tombstone_batch import RECORDS_MAX
from holdfast.wire.codec import encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from holdfast.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from holdfast.wire.uuids import NULL_UUID

TOPIC_ID = bytes(range(16))


def test_every_field_is_kept() -> None:
    coordinator = Coordinator()
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=TOPIC_ID,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=3,
                        committed_offset=2**40,
                        committed_leader_epoch=7,
                        committed_metadata="all of it: é 𐍈",
                    )
                ],
            )
        ],
    )
    response = coordinator.ask(coordinator.shard.commit_offsets, request, version=10)
    assert (response.topics[0].name, response.topics[0].topic_id) == ("t", TOPIC_ID)
    for _ in range(2):
        (topic,) = coordinator.fetch("g").topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, partition.error_code) == ("t", 3, 0)
        assert (partition.committed_offset, partition.committed_leader_epoch) == (2**40, 7)
        assert partition.metadata == "all of it: é 𐍈"
        kept = coordinator.shard._offsets.get("g", "t", 3)
        assert kept is not None
        assert (kept.committed_ms, kept.topic_id) == (coordinator.now_ms, TOPIC_ID)
        coordinator.move()


def test_null_metadata_is_none() -> None:
    coordinator = Coordinator()
    coordinator.commit("g", {("t", 0): 1}, metadata=None)
    assert coordinator.fetch("g", {"t": [0]}).topics[0].partitions[0].metadata == ""


def test_what_was_not_committed_has_no_offset() -> None:
    coordinator = Coordinator()
    coordinator.commit("g", {("t", 0): 5})
    for group, topic, index in (("g", "t", 1), ("g", "u", 0), ("h", "t", 0)):
        for require_stable in (False, True):
            response = coordinator.fetch(group, {topic: [index]}, require_stable=require_stable)
            (partition,) = response.topics[0].partitions
            assert response.error_code == partition.error_code == ErrorCode.NONE
            assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, -1)
            assert partition.metadata == ""
    assert coordinator.fetch("h").topics == []


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 8, ErrorCode.NONE),
        ("x" * 9, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 8, ErrorCode.NONE),
        ("𐍈" * 4, ErrorCode.NONE),
        ("𐍈" * 4 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("𐍈" * 5, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_has_a_bound_in_units_of_utf_16(metadata: str, code: ErrorCode) -> None:
    coordinator = Coordinator(offset_metadata_max=8)
    coordinator.commit("g", {("t", 1): 1})
    assert coordinator.commit("g", {("t", 0): 5}, metadata=metadata) == {("t", 0): code}
    assert (("t", 0) in coordinator.offsets("g")) == (code is ErrorCode.NONE)


def test_one_partition_is_refused_and_the_other_is_not() -> None:
    coordinator = Coordinator(offset_metadata_max=8)
    request = commit_request("g", {("t", 0): 1, ("t", 1): 2})
    request.topics[0].partitions[0].committed_metadata = "too much of it"
    response = coordinator.ask(coordinator.shard.commit_offsets, request)
    codes = [each.error_code for each in response.topics[0].partitions]
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert coordinator.offsets("g") == {("t", 1): 2}


def test_a_shard_has_room_for_so_many_offsets() -> None:
    coordinator = Coordinator(offsets_bytes_max=1000)
    results = coordinator.commit("g", {("t", index): 1 for index in range(4)})
    assert list(results.values()) == [ErrorCode.NONE] * 3 + [ErrorCode.POLICY_VIOLATION]
    assert coordinator.commit("h", {("t", 0): 1}) == {("t", 0): ErrorCode.POLICY_VIOLATION}
    assert coordinator.commit("g", {("t", 2): 9}) == {("t", 2): ErrorCode.NONE}
    coordinator.delete_offsets("g", ("t", 0))
    assert coordinator.commit("h", {("t", 0): 1}) == {("t", 0): ErrorCode.NONE}


def test_a_commit_keeps_a_session_alive() -> None:
    coordinator = Coordinator()
    (a,) = coordinator.stable("g", "a")
    for _ in range(3):
        coordinator.pass_time(9000)
        assert coordinator.commit("g", {("t", 0): 1}, member_id=a, generation=1)[("t", 0)] == 0
    coordinator.pass_time(10_000)
    assert coordinator.state("g") == "Empty"


def test_commits_of_a_turn_share_a_batch() -> None:
    coordinator = Coordinator()
    shard, now_ms = coordinator.shard, coordinator.now_ms
    decisions = [
        shard.commit_offsets(Caller(call, 9), commit_request("g", {("t", call): call}), now_ms)
        for call in range(3)
    ]
    with pytest.raises(AssertionError, match="open decision"):
        shard.delete_group(Caller(9, 2), "g", now_ms)
    with pytest.raises(AssertionError, match="open decision"):
        shard.due(now_ms)
    answers = [*shard.apply(decisions[0]), *shard.apply(decisions[1])]
    answers += shard.refuse(decisions[2], ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [answer.call for answer in answers] == [0, 1, 2]
    codes = [answer.response.topics[0].partitions[0].error_code for answer in answers]
    assert codes == [0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert coordinator.offsets("g") == {("t", 0): 0, ("t", 1): 1}


def test_transactions_have_a_door() -> None:
    coordinator = Coordinator()
    for group, code in (("g", ErrorCode.UNSUPPORTED_VERSION), ("", ErrorCode.INVALID_GROUP_ID)):
        request = TxnOffsetCommitRequest(
            group_id=group,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
                )
            ],
        )
        response = coordinator.ask(coordinator.shard.commit_transaction_offsets, request, version=5)
        assert response.topics[0].partitions[0].error_code == code
        assert encode(response, 5)
    assert not coordinator.log


# -- deletion ----------------------------------------------------------------------------------


def test_only_what_is_there_is_deleted() -> None:
    coordinator = Coordinator()
    coordinator.commit("g", {("t", 0): 1, ("t", 1): 2})
    before = len(coordinator.log)
    response = coordinator.delete_offsets("g", ("t", 0), ("t", 7), ("u", 0))
    assert [each.partitions[0].error_code for each in response.topics] == [0, 0, 0]
    assert len(coordinator.log) == before + 1
    assert coordinator.offsets("g") == {("t", 1): 2}


def test_what_is_behind_a_subscription_is_not_looked_at() -> None:
    coordinator = Coordinator()
    newer = b"\0\1" + subscription("t")[2:-10] + b"\0\0\0\7 damage"
    (a,) = coordinator.stable("g", "a", protocols={"range": newer})
    coordinator.commit("g", {("t", 0): 1, ("u", 0): 1}, member_id=a, generation=1)
    response = coordinator.delete_offsets("g", ("t", 0), ("u", 0))
    codes = [each.partitions[0].error_code for each in response.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


def test_a_subscription_that_cannot_be_read_may_be_to_any_topic() -> None:
    coordinator = Coordinator()
    (a,) = coordinator.stable("g", "a", protocols={"range": b"\0"})
    coordinator.commit("g", {("t", 0): 1}, member_id=a, generation=1)
    response = coordinator.delete_offsets("g", ("t", 0))
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    coordinator.leave("g", (a, None))
    response = coordinator.delete_offsets("g", ("t", 0))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_deleted_topic_takes_its_offsets_along_whoever_has_them() -> None:
    coordinator = Coordinator()
    for group in ("g", "h", "i"):
        coordinator.commit(group, {("t", 0): 1, ("u", 0): 2})
    coordinator.commit("j", {("u", 0): 3})
    before = len(coordinator.log)
    coordinator.shard.topics_deleted(
        [("t", NULL_UUID), ("nobody reads it", NULL_UUID)], coordinator.now_ms
    )
    coordinator.run_due()
    assert len(coordinator.log) == before + 3
    assert [coordinator.offsets(group) for group in "ghi"] == [{("u", 0): 2}] * 3


def commit_of(topic_id: bytes, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[partition])
    return OffsetCommitRequest(group_id="g", topics=[topic])


def test_what_was_committed_of_a_topic_of_the_same_name_stays() -> None:
    """Goal: who reads a topic that was made anew keeps its place.

    Method: the log does not take the tombstones at first, and by the next time there is another.
    """
    coordinator = Coordinator()
    shard = coordinator.shard
    coordinator.ask(shard.commit_offsets, commit_of(TOPIC_ID, 5), version=10)
    shard.topics_deleted([("t", TOPIC_ID)], coordinator.now_ms)
    shard.refuse(shard.due(coordinator.now_ms), ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinator.ask(shard.commit_offsets, commit_of(TOPIC_ID[::-1], 1), version=10)
    coordinator.pass_time(60_000)
    assert coordinator.offsets("g") == {("t", 0): 1}
    shard.topics_deleted([("t", TOPIC_ID[::-1])], coordinator.now_ms)
    coordinator.run_due()
    assert coordinator.offsets("g") == {}


def test_who_asks_by_a_topic_s_id_is_told_nothing_of_its_namesake() -> None:
    """Goal: nobody begins to read a topic where another one ended. Method: both ids, and none."""
    coordinator = Coordinator()
    coordinator.ask(coordinator.shard.commit_offsets, commit_of(TOPIC_ID, 5), version=10)
    told = []
    for topic_id in (TOPIC_ID, TOPIC_ID[::-1], NULL_UUID):
        topic = OffsetFetchRequestTopic(name="t", topic_id=topic_id, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
        response = coordinator.ask(coordinator.shard.fetch_offsets, group, version=10)
        told.append(response.topics[0].partitions[0].committed_offset)
    assert told == [5, -1, 5]


def test_a_topic_of_many_offsets_goes_in_parts() -> None:
    coordinator = Coordinator()
    count = RECORDS_MAX + 1
    coordinator.commit("g", {("t", index): 1 for index in range(count)})
    coordinator.commit("g", {("u", 0): 1})
    shard = coordinator.shard
    shard.topics_deleted([("t", NULL_UUID), ("u", NULL_UUID)], coordinator.now_ms)
    sizes = []
    for code in (None, ErrorCode.NOT_ENOUGH_REPLICAS, None):
        assert shard.deadline_ms <= coordinator.now_ms
        decision = shard.due(coordinator.now_ms)
        sizes.append(len(decision.records))
        if code is None:
            shard.apply(decision)
        else:
            shard.refuse(decision, code)
            coordinator.now_ms += 5000
    assert sizes == [RECORDS_MAX, 2, 2]
    assert shard.deadline_ms > coordinator.now_ms
    assert coordinator.offsets("g") == {}


def test_a_batch_of_long_names_is_not_too_large() -> None:
    coordinator = Coordinator()
    long = "g" * 30_000
    coordinator.commit(long, {("t", index): 1 for index in range(10)})
    coordinator.shard.topics_deleted([("t", NULL_UUID)], coordinator.now_ms)
    decision = coordinator.shard.due(coordinator.now_ms)
    assert 1 < len(decision.records) < 10
    coordinator.perform(decision)
    coordinator.run_due()
    assert coordinator.offsets(long) == {}


@pytest.mark.parametrize(("most", "expected"), [(4, {"a", "b", "c"}), (3, None)])
def test_who_names_very_many_topics_reads_any(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: set[str] | None
) -> None:
    """Goal: what a group reads is known, unless finding it out would hold up everybody.

    Then nothing of it expires, and none of its offsets is deleted.
    """
    monkeypatch.setattr(classic_state, "NAMES_MAX", most)
    coordinator = Coordinator(initial_rebalance_delay_ms=100)
    for names in (("a", "b"), ("b", "c")):
        coordinator.join("g", version=3, protocols={"range": subscription(*names)})
    for _ in range(2):  # another step for who came in the first
        coordinator.now_ms += 100
        coordinator.run_due()
    group = coordinator.shard._groups.get("g")
    assert isinstance(group, ClassicGroup)
    assert group.state.subscribed == expected
    assert group.subscribes_to("z") is (expected is None)
