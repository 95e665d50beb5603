"""Goal: a commit in an older epoch is taken for what the member has had since then, and for nothing
that was somebody else's in between.

Method: two consumers share a topic of four partitions. What each commits goes through the shard as
a request, before and after partitions are given up, got back, loaded from the log, taken over.

Rules: consumer-groups.md#assignment-epochs, consumer-groups.md#offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.group.consumer_client import Consumer
from tests.group.consumer_kit import GROUP, Coordinator

from holdfast.core.group.any_group import Committer
from holdfast.core.group.consumer.consumer_epochs import epochs_of, no_epochs, only_of
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.records.group_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    CurrentTopicPartitions,
)

_E = ErrorCode
VERSION = 9  # of OffsetCommit


class Pair:
    """Consumers a and b of topic t, which has four partitions. a has joined."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.topic_id = self.coordinator.create("t", 4)
        self.a, self.b = Consumer(self.coordinator, "a"), Consumer(self.coordinator, "b")
        self.a.start("t")
        self.a.beat()
        assert (self.a.epoch, self.numbers(self.a)) == (2, [0, 1, 2, 3])

    def numbers(self, consumer: Consumer) -> list[int]:
        return sorted(index for _, index in consumer.held)

    def share(self) -> None:
        """Let b in, in epoch 3, and give it half."""
        self.b.start("t")
        for _ in range(2):
            for consumer in (self.b, self.a):
                consumer.beat()
                consumer.revoke()
        self.b.beat()
        assert (self.a.epoch, self.b.epoch) == (3, 3)
        assert (self.numbers(self.a), self.numbers(self.b)) == ([0, 1], [2, 3])

    def go_back(self) -> None:
        """Let b leave: in epoch 4 a has all again."""
        self.b.leave()
        self.a.beat()
        assert (self.a.epoch, self.numbers(self.a)) == (4, [0, 1, 2, 3])

    def commit(
        self, member_id: str, epoch: int, indexes: Iterable[int], *, words: Mapping[int, str] = {}
    ) -> dict[int, ErrorCode]:
        """Commit an offset for each partition, and return what is answered of each."""
        coordinator = self.coordinator
        topic = OffsetCommitRequestTopic(
            name="t",
            topic_id=self.topic_id,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=7, committed_metadata=words.get(index)
                )
                for index in indexes
            ],
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[topic],
        )
        caller = coordinator.call(VERSION)
        decision = coordinator.shard.commit_offsets(caller, request, coordinator.now_ms)
        response = coordinator.only(coordinator.perform(decision), caller)
        return {each.partition_index: _E(each.error_code) for each in response.topics[0].partitions}

    def taken(self, member_id: str, epoch: int) -> list[int]:
        """Return the partitions of which a commit in this epoch is taken, each for itself."""
        codes = {index: self.commit(member_id, epoch, [index])[index] for index in range(4)}
        assert set(codes.values()) <= {_E.NONE, _E.STALE_MEMBER_EPOCH}
        return [index for index, code in codes.items() if code is _E.NONE]

    def listed(self, member_id: str) -> dict[int, int]:
        """Return the epochs that the last record has of what a member has, and has to give up."""
        (value,) = [
            value
            for batch in self.coordinator.batches
            for key, value in batch
            if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey)
            and key.member_id == member_id
        ][-1:]
        return {
            index: epoch
            for topic in (*value.assigned_partitions, *value.partitions_pending_revocation)
            for index, epoch in zip(topic.partitions, topic.assignment_epochs, strict=True)
        }


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_what_a_member_keeps_it_commits_in_the_epoch_before(pair: Pair) -> None:
    pair.share()
    a, b = pair.a.member_id, pair.b.member_id
    assert pair.taken(a, 2) == [0, 1]
    assert pair.taken(a, 1) == [], "it was not there yet"
    assert pair.taken(a, 4) == [], "that epoch is still to come"
    assert pair.taken(b, 2) == [], "it has them since 3"
    assert pair.taken(b, 3) == pair.taken(a, 3) == [0, 1, 2, 3], "its own epoch is not looked into"
    assert pair.listed(a) == {0: 2, 1: 2}
    assert pair.listed(b) == {2: 3, 3: 3}


def test_one_partition_that_is_not_its_own_refuses_them_all(pair: Pair) -> None:
    """As Apache Kafka: nothing of such a request is written."""
    pair.share()
    a = pair.a.member_id
    written = len(pair.coordinator.log)
    assert pair.commit(a, 2, [0, 2, 1]) == dict.fromkeys((0, 2, 1), _E.STALE_MEMBER_EPOCH)
    assert len(pair.coordinator.log) == written
    assert pair.commit(a, 2, [0, 1]) == dict.fromkeys((0, 1), _E.NONE)


def test_a_partition_that_is_refused_for_something_else_is_not_looked_into(pair: Pair) -> None:
    pair.share()
    told = pair.commit(pair.a.member_id, 2, [2, 0], words={2: "x" * 5_000})
    assert told == {2: _E.OFFSET_METADATA_TOO_LARGE, 0: _E.NONE}


def test_what_was_another_s_in_between_is_not_committed_in_an_epoch_before(pair: Pair) -> None:
    """A commit of before that comes late would move back what the other one has committed."""
    pair.share()
    pair.go_back()
    a = pair.a.member_id
    assert pair.listed(a) == {0: 2, 1: 2, 2: 4, 3: 4}
    assert pair.taken(a, 2) == [0, 1]
    assert pair.taken(a, 3) == [0, 1]
    assert pair.taken(a, 4) == [0, 1, 2, 3]


def test_the_same_when_the_other_one_only_might_have_had_it(pair: Pair) -> None:
    """A gives up 2 and 3, and gets them again in one step, as b has gone meanwhile."""
    pair.b.start("t")
    pair.b.beat()
    pair.a.beat()
    pair.a.revoke()
    pair.b.leave()
    pair.a.beat()
    pair.a.beat()
    a = pair.a.member_id
    assert (pair.a.epoch, pair.numbers(pair.a)) == (4, [0, 1, 2, 3])
    assert pair.taken(a, 2) == [0, 1]


def test_what_a_member_has_to_give_up_it_still_commits(pair: Pair) -> None:
    pair.share()
    pair.go_back()
    pair.b.start("t")
    pair.b.beat()
    pair.a.beat()
    assert pair.a.epoch == 4
    (member,) = [
        each
        for each in pair.coordinator.group().state.members.values()
        if each.member_id == pair.a.member_id
    ]
    assert member.revoking == {pair.topic_id: (2, 3)}
    assert pair.taken(pair.a.member_id, 3) == [0, 1]
    (kept,) = [value for key, value in member.since.items() if key == pair.topic_id]
    assert kept == {0: 2, 1: 2, 2: 4, 3: 4}


def test_what_it_has_to_give_up_by_a_change_of_its_own(pair: Pair) -> None:
    """It is there since 2, and after another epoch it may still be committed with that."""
    pair.coordinator.create("u", 1)
    pair.a.topics = ["t", "u"]
    pair.a.beat()
    assert pair.a.epoch == 3
    pair.a.topics = ["u"]
    pair.a.beat()
    assert pair.taken(pair.a.member_id, 2) == [0, 1, 2, 3]
    pair.a.revoke()
    pair.a.beat()
    assert pair.taken(pair.a.member_id, 2) == []


def test_epochs_are_kept_over_other_epochs_and_over_another_coordinator(pair: Pair) -> None:
    pair.share()
    for count in (5, 6):
        pair.coordinator.grow("t", count)
        pair.coordinator.fail_over()
        pair.a.beat()
        pair.b.beat()
    a = pair.a.member_id
    assert pair.a.epoch == 5
    pair.coordinator.fail_over()
    assert pair.taken(a, 2) == [0, 1]
    assert pair.taken(pair.b.member_id, 3) == [2, 3]
    for tombstones in (True, False):
        log = pair.coordinator.compacted(tombstones=tombstones)
        loaded = pair.coordinator.loaded_group(log).state.members[a]
        assert loaded == pair.coordinator.group().state.members[a]


def test_who_joins_again_with_its_id_has_its_partitions_since_then(pair: Pair) -> None:
    pair.share()
    pair.coordinator.join(pair.a.member_id, "t")
    assert pair.taken(pair.a.member_id, 2) == [0, 1]


def test_a_static_member_that_comes_back_has_them_since_its_former_self_got_them() -> None:
    """Apache Kafka has 0 there: it would take a commit of before somebody else had them."""
    pair = Pair()
    pair.a.leave()
    static = Consumer(pair.coordinator, "s", instance_id="i")
    static.start("t")
    static.beat()
    epoch, old = static.epoch, static.member_id
    pair.coordinator.grow("t", 5)
    static.beat()
    static.leave()
    assert pair.listed(old) == {0: epoch, 1: epoch, 2: epoch, 3: epoch, 4: epoch + 1}
    assert set(pair.commit(old, epoch, range(4)).values()) == {_E.STALE_MEMBER_EPOCH}, "it is away"
    static.start("t")
    static.beat()
    new = static.member_id
    assert static.epoch == epoch + 1
    assert pair.listed(new) == {0: epoch, 1: epoch, 2: epoch, 3: epoch, 4: epoch + 1}
    assert pair.taken(new, epoch) == [0, 1, 2, 3]
    assert pair.taken(new, epoch - 1) == []
    assert set(pair.commit(old, epoch, range(4)).values()) == {_E.UNKNOWN_MEMBER_ID}


def test_who_reads_needs_its_own_epoch(pair: Pair) -> None:
    pair.share()
    group = pair.coordinator.group()
    assert group.check_fetch(pair.a.member_id, 3) is _E.NONE
    assert group.check_fetch(pair.a.member_id, 2) is _E.STALE_MEMBER_EPOCH


def test_partitions_are_looked_at_only_for_an_older_epoch(pair: Pair) -> None:
    group, a = pair.coordinator.group(), pair.a.member_id
    for epoch, expected, looked_at in (
        (2, _E.NONE, 0),
        (3, _E.STALE_MEMBER_EPOCH, 0),
        (1, _E.STALE_MEMBER_EPOCH, 1),
    ):
        partitions = [(pair.topic_id, 0)]
        taken = (partitions.pop() for _ in range(1))
        assert group.check_commit(Committer(a, epoch), taken, VERSION, 0) is expected
        assert len(partitions) == 1 - looked_at


# -- the records -------------------------------------------------------------------------------


def topic(partitions: list[int], epochs: list[int] | None) -> CurrentTopicPartitions:
    return CurrentTopicPartitions(
        topic_id=b"t" * 16, partitions=partitions, assignment_epochs=epochs
    )


@pytest.mark.parametrize(
    ("listed", "member_epoch", "expected"),
    [
        ([topic([2, 0], [7, 5])], 9, {0: 5, 2: 7}),
        ([topic([0, 1], None)], 9, {0: 9, 1: 9}),
        ([topic([0, 1], [])], 9, {0: 9, 1: 9}),
        ([topic([0, 1], [4])], 9, {0: 9, 1: 9}),
        ([topic([0], [1, 2])], 9, {0: 9}),
        ([topic([0], None)], -2, {0: 0}),
        ([topic([0], [3]), topic([0, 1], [5, 6])], 9, {0: 3, 1: 6}),
    ],
)
def test_what_a_record_says(listed: Any, member_epoch: int, expected: dict[int, int]) -> None:
    """One from before KIP-1251 has no epochs, and one that is damaged not as many."""
    assert epochs_of(listed, member_epoch) == {b"t" * 16: expected}


def test_a_member_of_an_older_broker_has_its_partitions_since_its_epoch(pair: Pair) -> None:
    coordinator, a = pair.coordinator, pair.a.member_id
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5,
        previous_member_epoch=4,
        state=0,
        assigned_partitions=[topic([0, 1], None)],
        partitions_pending_revocation=[topic([2], None)],
    )
    coordinator.group().replay(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=a), value
    )
    committer = Committer(a, 4)
    member = coordinator.group().state.members[a]
    assert member.since == {b"t" * 16: {0: 5, 1: 5, 2: 5}}
    code = coordinator.group().check_commit(committer, [(b"t" * 16, 0)], VERSION, 0)
    assert code is _E.STALE_MEMBER_EPOCH


def test_only_those_that_are_asked_for_are_kept() -> None:
    epochs = {b"a": {0: 1, 1: 2}, b"b": {0: 3}}
    assert only_of(epochs, {b"a": (1,)}, {b"b": (0,)}) == {b"a": {1: 2}, b"b": {0: 3}}
    assert only_of(epochs) == no_epochs()
