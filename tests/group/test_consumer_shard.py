"""Goal: what a shard asks of a group of the consumer protocol, and bounds, beside the transcripts.

Rules: consumer-groups.md#offsets, consumer-groups.md#settings, consumer-groups.md#describe,
consumer-groups.md#timeouts, consumer-groups.md#records.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.group.consumer_kit import GROUP, START_MS, Coordinator, assigned, durable

from holdfast.core.deadlines import NEVER_MS
from holdfast.core.group.any_group import Committer
from holdfast.core.group.assignors.subscriber import partition_count
from holdfast.core.group.consumer.consumer_group import ConsumerGroup
from holdfast.core.group.consumer.consumer_member import told_bytes
from holdfast.core.group.consumer.consumer_settings import (
    ConsumerGroupSettings,
    GroupOverrides,
    MigrationPolicy,
)
from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_groups import DeletableGroupResult
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.messages.sync_group import SyncGroupRequest
from holdfast.wire.records.group_tables import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    CurrentTopicPartitions,
)

_E = ErrorCode


def two_members() -> Coordinator:
    """Return a coordinator with m at epoch 2, which has all, and n at epoch 3, with nothing."""
    coordinator = Coordinator()
    coordinator.create("t", 2)
    coordinator.join("m", "t")
    coordinator.join("n", "t")
    return coordinator


@pytest.mark.parametrize("classic", [None, ClassicMemberMetadata()])
def test_a_member_without_protocols_is_no_classic(classic: ClassicMemberMetadata | None) -> None:
    """What is left out in its record reads as an empty one; older brokers left out null."""
    coordinator = two_members()
    key = ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="m")
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, server_assignor=None, classic_member_metadata=classic
    )
    coordinator.group().replay(key, value)
    assert coordinator.group().state.members["m"].classic is None


# -- offsets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "expected"),
    [
        ("m", 2, 9, _E.NONE),
        ("m", 3, 9, _E.STALE_MEMBER_EPOCH),
        ("m", 1, 9, _E.STALE_MEMBER_EPOCH),
        ("m", 0, 9, _E.STALE_MEMBER_EPOCH),
        ("m", -1, 9, _E.STALE_MEMBER_EPOCH),
        ("n", 3, 10, _E.NONE),
        ("n", 2, 9, _E.STALE_MEMBER_EPOCH),
        ("n", 3, 8, _E.UNSUPPORTED_VERSION),
        ("x", 2, 9, _E.UNKNOWN_MEMBER_ID),
        ("", -1, 9, _E.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit(member_id: str, epoch: int, version: int, expected: ErrorCode) -> None:
    coordinator = two_members()
    mine = [(coordinator.topics.by_name["t"].topic_id, index) for index in range(2)]
    committer = Committer(member_id, epoch)
    code = coordinator.group().check_commit(committer, mine, version, START_MS)
    assert code is expected


def test_anybody_may_commit_while_nobody_is_there() -> None:
    coordinator = two_members()
    coordinator.heartbeat("m", -1)
    coordinator.heartbeat("n", -1)
    group = coordinator.group()
    assert group.check_commit(Committer("", -1), (), 9, START_MS) is _E.NONE
    assert group.check_commit(Committer("m", 1), (), 9, START_MS) is _E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, _E.NONE),
        ("m", 2, _E.NONE),
        ("m", 3, _E.STALE_MEMBER_EPOCH),
        ("x", 1, _E.UNKNOWN_MEMBER_ID),
        (None, 1, _E.UNKNOWN_MEMBER_ID),
        ("", -1, _E.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_fetch(member_id: str | None, epoch: int, expected: ErrorCode) -> None:
    assert two_members().group().check_fetch(member_id, epoch) is expected


def test_offsets_of_topics_that_are_read_stay() -> None:
    coordinator = two_members()
    group = coordinator.group()
    before = group.retention_version
    assert group.subscribes_to("t")
    assert not group.subscribes_to("u")
    assert group.offsets_expire_from(7) == 7
    assert group.check_offset_delete() is _E.NONE
    coordinator.heartbeat("m", -1)
    coordinator.heartbeat("n", -1)
    assert not group.subscribes_to("t")
    assert group.retention_version > before


def test_a_group_is_deleted_when_it_is_empty() -> None:
    coordinator = two_members()

    def delete() -> DeletableGroupResult:
        caller = coordinator.call(2)
        decision = coordinator.shard.delete_group(caller, GROUP, coordinator.now_ms)
        result: DeletableGroupResult = coordinator.only(coordinator.perform(decision), caller)
        return result

    assert delete().error_code == _E.NON_EMPTY_GROUP
    coordinator.heartbeat("m", -1)
    coordinator.heartbeat("n", -1)
    assert delete().error_code == _E.NONE
    assert delete().error_code == _E.GROUP_ID_NOT_FOUND
    assert coordinator.shard.deadline_ms == NEVER_MS
    assert list(coordinator.loaded()._groups.all()) == []


# -- settings ----------------------------------------------------------------------------------


def test_a_group_may_have_its_own_settings_which_may_change() -> None:
    coordinator = Coordinator()
    coordinator.create("t")
    overrides = coordinator.shard.around.overrides
    overrides[GROUP] = GroupOverrides(session_timeout_ms=50_000, heartbeat_interval_ms=6_000)
    assert coordinator.join("m", "t").heartbeat_interval_ms == 6_000
    coordinator.advance(49_999)
    assert coordinator.heartbeat("m", 2).error_code == _E.NONE
    del overrides[GROUP]
    assert coordinator.heartbeat("m", 2).heartbeat_interval_ms == 5_000
    coordinator.advance(45_000)
    assert coordinator.heartbeat("m", 2).error_code == _E.UNKNOWN_MEMBER_ID


def test_settings_of_a_group_are_drawn_into_the_broker_s_bounds() -> None:
    settings = ConsumerGroupSettings()
    low = settings.of_group(GroupOverrides(session_timeout_ms=1, heartbeat_interval_ms=1))
    assert (low.session_timeout_ms, low.heartbeat_interval_ms) == (45_000, 5_000)
    high = settings.of_group(GroupOverrides(session_timeout_ms=10**6, heartbeat_interval_ms=10**6))
    assert (high.session_timeout_ms, high.heartbeat_interval_ms) == (60_000, 15_000)
    assert low.assignment_interval_ms == high.assignment_interval_ms == 0, "as the broker's"
    bounded = ConsumerGroupSettings(
        min_assignment_interval_ms=100, assignment_interval_ms=200, max_assignment_interval_ms=300
    )
    for own, held in ((0, 100), (250, 250), (301, 300)):
        of_group = bounded.of_group(GroupOverrides(assignment_interval_ms=own))
        assert of_group.assignment_interval_ms == held
    assert settings.of_group(GroupOverrides()) is settings


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [("disabled", 0, 0), ("upgrade", 1, 0), ("downgrade", 0, 1), ("bidirectional", 1, 1)],
)
def test_migration_policies(policy: str, up: int, down: int) -> None:
    found = MigrationPolicy(policy)
    assert (found.may_upgrade, found.may_downgrade) == (bool(up), bool(down))


def test_members_may_tell_so_much_of_themselves() -> None:
    coordinator = Coordinator(bytes_max=13_100)
    long = [f"{number:0200}" for number in range(30)]
    assert coordinator.join("m", *long).error_code == _E.NONE
    assert coordinator.join("n", *long).error_code == _E.GROUP_MAX_SIZE_REACHED
    assert coordinator.join("n", *long[:4]).error_code == _E.NONE
    told: dict[str, Any] = {"subscribed_topic_names": long[:20]}
    assert coordinator.heartbeat("n", 3, **told).error_code == _E.GROUP_MAX_SIZE_REACHED
    assert coordinator.heartbeat("m", 2, **told).error_code == _E.NONE
    assert coordinator.heartbeat("n", 3, subscribed_topic_regex="x" * 9_000 + "*").error_code == (
        _E.GROUP_MAX_SIZE_REACHED
    )
    assert coordinator.heartbeat("m", -1).error_code == _E.NONE
    assert coordinator.heartbeat("n", 3, **told).error_code == _E.NONE
    # The bound was lowered: who tells less than before comes nearer to it.
    coordinator.shard.around.settings = ConsumerGroupSettings(bytes_max=1)
    told = {"subscribed_topic_names": long[:19]}
    epoch = coordinator.group().state.members["n"].epoch
    assert coordinator.heartbeat("n", epoch, **told).error_code == _E.NONE


def test_what_members_tell_is_counted_as_it_changes() -> None:
    coordinator = Coordinator()
    coordinator.join("m", "t")
    coordinator.join("n", "t", "u", subscribed_topic_regex="abc*")
    coordinator.heartbeat("n", 2, subscribed_topic_regex="abcdef*")
    coordinator.heartbeat("n", 2, subscribed_topic_names=["t"])
    coordinator.heartbeat("m", -1)
    state = coordinator.group().state
    assert state.told_bytes == told_bytes(state.members["n"])
    coordinator.heartbeat("n", -1)
    assert state.told_bytes == 0


def test_members_with_one_subscription_share_its_names() -> None:
    coordinator = Coordinator()
    for number in range(5):
        coordinator.join(f"m{number}", "a", "b", "c")
    for group in (coordinator.group(), coordinator.loaded_group()):
        assert len({id(each.topics) for each in group.state.members.values()}) == 1
    state = coordinator.group().state
    assert len(state._shared_topics) == 1
    for topics in (["x"], ["y"], ["a", "b", "c"]):
        coordinator.heartbeat("m0", state.members["m0"].epoch, subscribed_topic_names=topics)
    assert list(state._shared_topics) == [("a", "b", "c")]
    for number in range(5):
        coordinator.heartbeat(f"m{number}", -1)
    assert state._shared_topics == {}


# -- the classic protocol ----------------------------------------------------------------------


def test_a_member_of_the_consumer_protocol_has_no_classic_requests() -> None:
    coordinator = two_members()
    shard, now_ms = coordinator.shard, coordinator.now_ms
    beat = HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1)
    fetch = SyncGroupRequest(group_id=GROUP, member_id="m", generation_id=1)
    caller = coordinator.call(4)
    decision = shard.heartbeat(caller, beat, now_ms)
    assert coordinator.only(coordinator.perform(decision), caller).error_code == (
        _E.UNKNOWN_MEMBER_ID
    )
    caller = coordinator.call(5)
    decision = shard.sync(caller, fetch, now_ms)
    assert coordinator.only(coordinator.perform(decision), caller).error_code == (
        _E.UNKNOWN_MEMBER_ID
    )


def test_a_subscription_that_can_t_be_read_is_refused() -> None:
    coordinator = two_members()
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0")
    request = JoinGroupRequest(
        group_id=GROUP,
        member_id="x",
        session_timeout_ms=45_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    caller = coordinator.call(9)
    decision = coordinator.shard.join(caller, request, coordinator.now_ms)
    response = coordinator.only(coordinator.perform(decision), caller)
    assert response.error_code == _E.UNKNOWN_SERVER_ERROR
    assert "x" not in coordinator.group().state.members


# -- operators ---------------------------------------------------------------------------------


def describe(coordinator: Coordinator, group_id: str) -> Any:
    caller = coordinator.call(1)
    decision = coordinator.shard.describe_consumer_group(caller, group_id, coordinator.now_ms)
    return coordinator.only(coordinator.perform(decision), caller)


def test_describe_tells_what_members_told() -> None:
    coordinator = Coordinator()
    coordinator.create("abc", 1)
    coordinator.join("m", "t", instance_id="i", rack_id="r", subscribed_topic_regex="a*")
    found = describe(coordinator, GROUP)
    member = found.members[0]
    assert (found.error_code, found.group_id, found.assignor_name) == (0, GROUP, "uniform")
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.client_id, member.client_host) == ("m", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "a*")
    assert member.member_type == 1


def test_describe_tells_what_a_member_has_yet_to_give_up() -> None:
    """Goal: nothing looks free that nobody else may have."""
    coordinator = two_members()
    assert assigned(coordinator.heartbeat("m", 2)) == {
        coordinator.topics.by_name["t"].topic_id: (0,)
    }
    found = {each.member_id: each for each in describe(coordinator, GROUP).members}
    assert [each.partitions for each in found["m"].assignment.topic_partitions] == [[0, 1]]
    assert [each.partitions for each in found["m"].target_assignment.topic_partitions] == [[0]]
    assert found["n"].assignment.topic_partitions == []


def test_the_first_member_is_told_two() -> None:
    """Goal: epochs count from what Apache Kafka 4.3 counts from, and nobody is told 0."""
    coordinator = Coordinator(assignment_interval_ms=1_000)
    coordinator.create("t", 2)
    assert coordinator.join("m", "t").member_epoch == 2
    assert coordinator.join("n", "t").member_epoch == 2, "its assignment is not due"
    assert coordinator.join("o", subscribed_topic_regex="x*", group="h").member_epoch == 1


def test_describe_of_what_is_no_such_group() -> None:
    coordinator = Coordinator()
    missing = describe(coordinator, "x")
    assert (missing.error_code, missing.group_id) == (_E.GROUP_ID_NOT_FOUND, "x")
    coordinator.shard._groups.make_sure("simple")
    other = describe(coordinator, "simple")
    assert other.error_code == _E.GROUP_ID_NOT_FOUND
    assert "is not a consumer group" in other.error_message


# -- time --------------------------------------------------------------------------------------


def test_those_whose_sessions_end_together_go_in_one_epoch() -> None:
    coordinator = Coordinator()
    coordinator.create("t", 8)
    for number in range(6):
        coordinator.join(f"m{number}", "t")
    epoch = coordinator.group().state.epoch
    coordinator.advance(45_000)
    assert coordinator.group().state.epoch == epoch + 1
    assert coordinator.group().is_empty
    assert coordinator.group().deadline_ms == NEVER_MS


def test_a_crowd_whose_sessions_end_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.group.consumer.consumer_group.EXPIRED_MAX", 4)
    coordinator = Coordinator()
    for number in range(10):
        coordinator.join(f"m{number}", "t")
    batches = len(coordinator.batches)
    coordinator.advance(45_000)
    assert coordinator.group().is_empty
    assert len(coordinator.batches) == batches + 3


def test_a_member_that_leaves_takes_its_timers_along() -> None:
    coordinator = two_members()
    coordinator.heartbeat("m", 1)
    coordinator.heartbeat("m", -1)
    coordinator.heartbeat("n", -1)
    assert len(coordinator.group().core.timers) == 0


def test_a_static_member_that_is_away_is_not_late_with_what_it_had_to_give_up() -> None:
    coordinator = Coordinator()
    coordinator.shard.around.overrides[GROUP] = GroupOverrides(session_timeout_ms=60_000)
    coordinator.create("t", 2)
    coordinator.join("m", "t", instance_id="i", rebalance_timeout_ms=10_000)
    coordinator.join("n", "t")
    coordinator.heartbeat("m", 2, instance_id="i")
    coordinator.heartbeat("m", -2, instance_id="i")
    coordinator.advance(59_999)
    assert "m" in coordinator.group().state.members


def test_no_member_takes_a_place_under_another_ones_id() -> None:
    """Seen to fail: the pattern of the other one stayed, and with it the offsets of its topics."""
    coordinator = Coordinator()
    coordinator.create("t", 2)
    coordinator.join("m", "t", instance_id="i")
    coordinator.heartbeat("m", -2, instance_id="i")
    coordinator.heartbeat("n", 0, owned={}, subscribed_topic_regex="p*", rebalance_timeout_ms=9_000)
    refused = coordinator.join("n", "t", instance_id="i", subscribed_topic_regex="")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert set(coordinator.group().state.members) == {"m", "n"}


def test_a_new_group_is_assigned_for_at_once_whatever_the_time_is() -> None:
    coordinator = Coordinator(assignment_interval_ms=1_000)
    coordinator.now_ms = 0
    assert coordinator.join("m", "t").member_epoch == 2


def test_an_assignment_that_is_due_with_the_end_of_a_session_is_for_who_is_left() -> None:
    coordinator = Coordinator(assignment_interval_ms=1_000)
    coordinator.create("t", 4)
    coordinator.join("m", "t")
    coordinator.advance(44_000)
    coordinator.join("n", "t")
    coordinator.advance(500)
    coordinator.join("o", "t")
    coordinator.advance(500)
    state = coordinator.group().state
    assert set(state.members) == set(state.targets) == {"n", "o"}
    assert state.assignment_epoch == state.epoch == 5


def test_nothing_is_assigned_to_nobody() -> None:
    coordinator = Coordinator(assignment_interval_ms=1_000)
    coordinator.join("m", "t")
    coordinator.join("n", "t")
    coordinator.heartbeat("m", -1)
    coordinator.heartbeat("n", -1)
    written = len(coordinator.log)
    coordinator.advance(1_000)
    assert len(coordinator.log) == written


# -- what the log may say ------------------------------------------------------------------------


def test_a_state_that_is_not_known_here_is_fenced_until_it_owns_nothing() -> None:
    coordinator = two_members()
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="m")
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=2, state=99)
    coordinator.shard.replay(key, value)
    assert coordinator.heartbeat("m", 2).error_code == _E.FENCED_MEMBER_EPOCH
    response = coordinator.heartbeat("m", 2, owned={})
    assert (response.error_code, response.member_epoch) == (_E.NONE, 3)


def test_what_kafka_before_4_1_wrote_of_topics_is_removed() -> None:
    coordinator = two_members()
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    coordinator.shard.replay(key, ConsumerGroupPartitionMetadataValue())
    coordinator.heartbeat("n", 3)
    assert key not in [each for batch in coordinator.batches for each, _ in batch]
    coordinator.grow("t", 3)
    coordinator.heartbeat("n", 3)
    assert (key, None) in coordinator.batches[-1]
    coordinator.grow("t", 4)
    coordinator.heartbeat("n", 4)
    assert (key, None) not in coordinator.batches[-1]


def test_tombstones_of_what_is_not_there_do_nothing() -> None:
    coordinator = two_members()
    before = repr(durable(coordinator.group()))
    decision = Decision()
    coordinator.group().tombstones(decision)
    keys: list[Any] = [key for key, _ in decision.records if hasattr(key, "member_id")]
    assert len(keys) == 6
    for key in keys:
        key.member_id = "x"
        coordinator.group().replay(key, None)
    assert repr(durable(coordinator.group())) == before


def test_a_group_that_is_removed_has_nothing_left() -> None:
    coordinator = two_members()
    group = coordinator.group()
    decision = Decision()
    group.tombstones(decision)
    for key, value in decision.records:
        group.replay(key, value)
    assert group.state_name == "Dead"
    empty = ConsumerGroup("h", coordinator.shard.around)
    assert {**durable(group), "state": None} == {**durable(empty), "state": None}


def test_a_member_without_its_first_record_is_taken_as_it_comes() -> None:
    """Goal: compaction may leave what a member has before what it told of itself."""
    coordinator = two_members()
    turned = sorted(coordinator.compacted(tombstones=True), key=lambda record: record[0][1] == 5)
    loaded = coordinator.loaded_group(turned)
    assert durable(loaded) == durable(coordinator.group())


def test_a_member_lets_go_of_what_it_has_by_the_first_of_its_tombstones() -> None:
    coordinator = two_members()
    state = coordinator.group().state
    (topic_id,) = state.members["m"].assigned
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="m")
    coordinator.shard.replay(key, None)
    assert state.owner(topic_id, 0) is None
    assert (state.members["m"].epoch, state.members["m"].topics) == (-1, ("t",))


def test_two_owners_in_a_log_end_as_one() -> None:
    """Goal: whoever wrote the log, the later record wins, and the other one lets go in vain."""
    coordinator = two_members()
    state = coordinator.group().state
    (topic_id,) = state.members["m"].assigned
    listed = state.members["m"].assigned
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="n")
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=2, previous_member_epoch=2)
    value.assigned_partitions = [
        CurrentTopicPartitions(topic_id=topic_id, partitions=list(listed[topic_id]))
    ]
    coordinator.shard.replay(key, value)
    assert state.owner(topic_id, 0) == "n"
    coordinator.heartbeat("m", -1)
    assert state.owner(topic_id, 0) == "n"


def test_a_request_may_name_a_topic_twice() -> None:
    coordinator = two_members()
    (topic_id,) = coordinator.group().state.members["m"].assigned
    response = coordinator.heartbeat("m", 2, owned={topic_id: (0, 0, 1)})
    assert assigned(response) == {topic_id: (0,)}


def test_a_clock_that_was_ahead_holds_up_no_assignment() -> None:
    """Goal: who joins is assigned to, whenever the last coordinator believes it has assigned.

    Method: another one leads, whose clock is an hour behind. Seen to fail: an hour of nothing.
    """
    coordinator = Coordinator(assignment_interval_ms=1000)
    coordinator.create("t", 2)
    coordinator.join("A", "t")
    coordinator.now_ms -= 60 * 60 * 1000
    coordinator.fail_over()
    coordinator.join("B", "t")
    coordinator.advance(1000)
    targets = coordinator.group().state.targets
    assert {name: partition_count(target) for name, target in targets.items()} == {"A": 1, "B": 1}


def test_an_instance_that_a_member_is_no_more_is_free() -> None:
    """Goal: a member that joins as one instance after the other keeps no name but the last."""
    coordinator = Coordinator()
    coordinator.create("t")
    for number in range(3):
        coordinator.join("A", "t", instance_id=f"i{number}")
    assert coordinator.group().state.static_ids == {"i2": "A"}
    assert coordinator.join("B", "t", instance_id="i0").error_code == ErrorCode.NONE
    assert durable(coordinator.group()) == durable(coordinator.loaded_group())
