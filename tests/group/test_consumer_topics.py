"""Goal: a change of a topic reaches the groups that subscribe to it, and no other group.

Method: the index alone, then a shard whose topics count how often they are asked for.
Rules: consumer-groups.md#metadata-hash, consumer-groups.md#group-epoch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group.consumer_kit import Coordinator, Topics, assigned

from holdfast.core.group.consumer.consumer_topics import NO_TOPICS_HASH, TopicIndex


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.create("a", 2, ["r1", "r2"])
    topics.create("b", 1)
    return topics


def test_the_hash_is_that_of_what_is_there(topics: Topics) -> None:
    index = TopicIndex()
    assert index.hash_of([], topics) == NO_TOPICS_HASH
    assert index.hash_of(["x", "y"], topics) == NO_TOPICS_HASH
    both = index.hash_of(["a", "b"], topics)
    assert index.hash_of(["b", "x", "a"], topics) == both
    assert len({both, index.hash_of(["a"], topics), index.hash_of(["b"], topics), 0}) == 4
    assert -(2**63) <= both < 2**63


CHANGES: dict[str, Callable[[Topics], object]] = {
    "a partition more": lambda topics: setattr(topics.by_name["a"], "partition_count", 3),
    "another rack": lambda topics: setattr(topics.by_name["a"], "rack_names", ["r1", "r3"]),
    "a rack less": lambda topics: setattr(topics.by_name["a"], "rack_names", ["r1"]),
    "racks run together": lambda topics: setattr(topics.by_name["a"], "rack_names", ["r1r", "2"]),
    "another id": lambda topics: setattr(topics.by_name["a"], "topic_id", b"z" * 16),
    "gone": lambda topics: topics.delete("a"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_the_hash(change: Callable[[Topics], object], topics: Topics) -> None:
    index = TopicIndex()
    before = index.hash_of(["a", "b"], topics)
    change(topics)
    assert index.hash_of(["a", "b"], topics) != before


def test_a_hash_is_remembered_until_the_topic_changes_or_nobody_subscribes(topics: Topics) -> None:
    index = TopicIndex()
    index.subscribe("g", "a")
    index.subscribe("h", "a")
    before = index.hash_of(["a"], topics)
    topics.by_name["a"].partition_count = 9
    assert index.hash_of(["a"], topics) == before
    assert sorted(index.changed(["a", "b"])) == ["g", "h"]
    after = index.hash_of(["a"], topics)
    assert after != before
    topics.by_name["a"].partition_count = 2
    index.unsubscribe("g", "a")
    assert index.hash_of(["a"], topics) == after
    index.unsubscribe("h", "a")
    assert index.hash_of(["a"], topics) == before
    assert index.changed(["a"]) == []


def test_only_those_who_subscribe_look_at_a_topic_that_changed() -> None:
    coordinator = Coordinator()
    for name in ("a", "b"):
        coordinator.create(name, 2)
        assert not coordinator.join("m", name, group=name).error_code
    written = len(coordinator.log)
    coordinator.topics.asked.clear()
    coordinator.grow("a", 3)
    coordinator.heartbeat("m", 2, group="b")
    assert coordinator.topics.asked == []
    assert len(coordinator.log) == written
    coordinator.heartbeat("m", 2, group="a")
    assert set(coordinator.topics.asked) == {"a"}
    assert coordinator.group("a").state.epoch == 3
    assert coordinator.group("b").state.epoch == 2


def test_a_topic_that_comes_later_is_noticed() -> None:
    coordinator = Coordinator()
    coordinator.join("m", "a")
    assert coordinator.group().state.metadata_hash == NO_TOPICS_HASH
    topic_id = coordinator.create("a", 1)
    response = coordinator.heartbeat("m", 2)
    assert response.member_epoch == 3
    assert coordinator.group().state.owner(topic_id, 0) == "m"


def test_who_leaves_takes_its_topics_out_of_the_hash() -> None:
    """Goal: the epoch of a leave is for the topics that are left, so no other epoch follows."""
    coordinator = Coordinator()
    coordinator.create("a", 1)
    coordinator.create("b", 1)
    coordinator.join("m", "a")
    coordinator.join("n", "b")
    coordinator.heartbeat("m", -1)
    coordinator.heartbeat("n", 3)
    state = coordinator.group().state
    assert state.epoch == 4
    coordinator.fail_over()
    coordinator.heartbeat("n", 4)
    assert coordinator.group().state.epoch == 4


def test_quiet_heartbeats_ask_for_nothing() -> None:
    coordinator = Coordinator()
    coordinator.create("a", 2)
    coordinator.heartbeat("m", 2, owned=assigned(coordinator.join("m", "a")))
    coordinator.topics.asked.clear()
    written = len(coordinator.log)
    for _ in range(10):
        coordinator.advance(5_000)
        assert coordinator.heartbeat("m", 2).assignment is None
    assert coordinator.topics.asked == []
    assert len(coordinator.log) == written


def test_a_change_of_racks_is_a_new_epoch() -> None:
    coordinator = Coordinator()
    coordinator.create("a", 2, ["r1"])
    coordinator.join("m", "a")
    coordinator.topics.by_name["a"].rack_names = ["r2"]
    coordinator.topics.version += 1
    coordinator.shard.topics_changed(coordinator.topics, changed=["a"])
    coordinator.heartbeat("m", 1)
    assert coordinator.group().state.epoch == 2


def test_groups_that_are_gone_leave_nothing_in_the_index() -> None:
    coordinator = Coordinator()
    coordinator.create("abc", 1)
    coordinator.join("m", "abc", "xyz")
    coordinator.join("n", subscribed_topic_regex="ab*", subscribed_topic_names=None)
    coordinator.resolve()
    coordinator.heartbeat("m", -1)
    coordinator.heartbeat("n", -1)
    index = coordinator.shard.around.index
    assert (index._groups, index._hashes) == ({}, {})
