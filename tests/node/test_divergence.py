"""Replicas that have parted find each other again (KIP-101, KIP-279, KIP-595).

Goal: whatever elections came before, with appends in between or without, a follower that asks its
leader ends with the leader's records, in a bounded number of rounds, and keeps all that both had.
Method: real partitions over real logs on a disk in memory; a history of elections and appends, then
the follower's own loop of asking and truncating, without a network.
Rules: replication.md#diverging-logs, replication.md#truncation, losses.md#replication-traps.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.log_kit import (
    NOW_MS,
    TOPIC_ID,
    after_crash,
    crash,
    make_batch,
    open_directories,
    virtual,
)
from tests.node.replica_kit import decided, following, leading, replica

from holdfast.config.topic import TopicSettings
from holdfast.log.directories import LogDirectories
from holdfast.node.api.fetch_readers import UNKNOWN_EPOCH, parting
from holdfast.node.broker.replica import Partition
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import FetchPartition

REPLICAS = (0, 1, 2)
ROUNDS_MAX = 12
READ_BYTES = 1 << 20


@dataclass
class Replicas:
    """Three replicas of one partition, and who leads in which epoch."""

    partitions: list[Partition]
    leader: int = -1
    epoch: int = -1
    written: int = 0

    def elect(self, node: int) -> None:
        self.leader, self.epoch = node, self.epoch + 1
        elected = decided(
            replicas=REPLICAS,
            isr=(node,),
            leader=node,
            leader_epoch=self.epoch,
            partition_epoch=self.epoch,
        )
        for number, partition in enumerate(self.partitions):
            if number == node:
                partition.lead(elected, {})
            else:
                partition.follow(node, self.epoch)

    def append(self, count: int) -> None:
        for _ in range(count):
            self.written += 1
            batch = memoryview(bytearray(make_batch(1, timestamp=NOW_MS + self.written)))
            leader = leading(self.partitions[self.leader])
            assert leader.append(batch, 1).error is ErrorCode.NONE

    def follow(self, node: int, *, rounds: int, batches: int = READ_BYTES) -> bool:
        """Let one follower fetch some rounds; True once it has all that the leader has."""
        follower = following(self.partitions[node])
        leader = leading(self.partitions[self.leader])
        for _ in range(rounds):
            wanted = FetchPartition(
                fetch_offset=follower.log.end, last_fetched_epoch=follower.log.latest_epoch
            )
            diverging = parting(leader.log, wanted)
            assert diverging is not UNKNOWN_EPOCH, "a leader knows every epoch up to its own"
            if diverging is not None:
                follower.truncate_for(diverging.epoch, diverging.end_offset)
                continue
            assert wanted.fetch_offset <= leader.log.end
            records, _, error = leader.log.read(wanted.fetch_offset, batches, leader.log.end)
            assert error is ErrorCode.NONE
            if not records:
                return True
            assert follower.append_fetched(memoryview(records), 0, 0) is ErrorCode.NONE
        return False

    def delete_all(self) -> None:
        """All that the leader has is committed, and deleted: its log begins at its end."""
        log = leading(self.partitions[self.leader]).log
        log.high_watermark = log.end
        assert log.advance_start(log.end)

    def content(self, node: int) -> bytes:
        log = self.partitions[node].log
        assert log is not None
        return log.read(0, READ_BYTES, log.end).records if log.end else b""


def replicas(runtime: Runtime) -> tuple[list[LogDirectories], Replicas]:
    directories, partitions = [], []
    for node in REPLICAS:
        opened = open_directories(runtime, paths=[f"/node-{node}"])
        directories.append(opened)
        log = opened.create("t", 0, TOPIC_ID, TopicSettings())
        partitions.append(replica(runtime, log, node))
    return directories, Replicas(partitions)


def test_an_epoch_without_a_record_does_not_keep_a_follower_asking_for_ever() -> None:
    """KIP-279: the follower cut its log at its own end, and asked the same, for ever."""

    async def body(runtime: Runtime) -> None:
        _, three = replicas(runtime)
        three.elect(0)
        three.append(3)
        assert three.follow(1, rounds=3)
        three.elect(1)  # enters an epoch at offset 3 and writes nothing in it
        three.elect(0)
        assert three.follow(1, rounds=3), "it agrees with its leader and gets there"
        assert three.content(1) == three.content(0)

    virtual(body)


def test_two_quick_elections_leave_no_dirty_suffix() -> None:
    """KAFKA-6361: elect A, B, A with records on each that the other lacks."""

    async def body(runtime: Runtime) -> None:
        _, three = replicas(runtime)
        three.elect(0)
        three.append(5)
        assert three.follow(1, rounds=3)
        three.append(2)  # 0 alone has these
        three.elect(1)
        three.append(1)  # 1 alone has this, at an offset that 0 has as well
        three.elect(0)
        assert three.follow(1, rounds=ROUNDS_MAX)
        assert three.content(1) == three.content(0)

    virtual(body)


@pytest.mark.parametrize("count", [0, 2], ids=["nothing yet", "records"])
@pytest.mark.parametrize("committed", [True, False])
def test_what_the_leader_can_compare_no_more_is_let_go(count: int, committed: bool) -> None:
    """A follower with an uncommitted end of its own comes back when all around it is deleted.

    The leader's first epoch is later than the follower's, so that no answer says that they diverge.
    Seen to fail: after a crash the log start was the old one, and what nobody ever committed was
    read as committed.
    """

    async def body(runtime: Runtime) -> None:
        directories, three = replicas(runtime)
        three.elect(0)
        three.append(1)
        assert three.follow(1, rounds=3)
        assert three.follow(2, rounds=3)
        three.elect(1)
        three.append(4)
        if committed:
            assert three.follow(0, rounds=3)
        else:
            three.elect(0)
            three.append(4)
        three.elect(0)
        three.delete_all()
        three.append(count)
        leader, follower = leading(three.partitions[0]).log, following(three.partitions[1]).log
        follower.high_watermark = 5 if committed else 1
        wanted = FetchPartition(fetch_offset=5, last_fetched_epoch=follower.latest_epoch)
        records = leader.read(5, READ_BYTES, leader.end).records if count else b""
        if not committed:
            leader_epochs = leader.epoch_end(follower.latest_epoch)
            assert leader_epochs.end == 5, "it can't say"
        assert parting(leader, wanted) is None
        one = following(three.partitions[1])
        error = one.append_fetched(memoryview(records), leader.end, leader.start)
        assert error is ErrorCode.NONE
        assert (follower.start, follower.end, follower.high_watermark) == (5, 5 + count, 5 + count)
        for each in directories:
            crash(each)
        found = open_directories(after_crash(runtime), ["/node-1"]).get("t", 0)
        assert found is not None
        assert found.start == 5, "an unclean election may have gone before"

    virtual(body)


def let_go_of_an_uncommitted_batch(three: Replicas) -> bytes:
    """1 alone has a producer's batch at offset 1; 0 has another one there, and has deleted both."""
    three.elect(0)
    three.append(1)
    assert three.follow(1, rounds=3)
    assert three.follow(2, rounds=3)
    three.elect(1)
    batch = make_batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
    one = leading(three.partitions[1])
    assert one.append(memoryview(bytearray(batch)), 1).error is ErrorCode.NONE
    return batch


def follow_what_is_deleted(three: Replicas, node: int) -> None:
    leader = leading(three.partitions[0]).log
    nothing = memoryview(b"")
    error = following(three.partitions[node]).append_fetched(nothing, leader.end, leader.start)
    assert error is ErrorCode.NONE


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("closed", [False, True], ids=["flushed", "clean stop before"])
def test_what_was_let_go_is_not_back_after_a_crash(power: bool, closed: bool) -> None:
    """Neither the record, nor what it says of its producer: that batch is in no log.

    Seen to fail: a clean stop leaves a snapshot of producers at the very offset where the log
    begins anew, and it was believed; a high watermark was made durable before the new beginning
    was, so that after a power cut the old record lay below it.
    """

    async def body(runtime: Runtime) -> None:
        directories, three = replicas(runtime)
        batch = let_go_of_an_uncommitted_batch(three)
        one = three.partitions[1]
        assert one.log is not None
        one.log.high_watermark = 1  # another member of the ISR has not fetched it
        opened = directories[1]
        if closed:
            await opened.close()
            opened = open_directories(runtime, ["/node-1"])
            one.log = opened.get("t", 0)
            assert one.log is not None
        else:
            await one.log.flush()
        three.elect(0)
        three.append(1)
        three.delete_all()
        follow_what_is_deleted(three, 1)
        assert (one.log.start, one.log.end, one.log.high_watermark) == (2, 2, 2)
        crash(opened)
        found = open_directories(after_crash(runtime, power=power), ["/node-1"]).get("t", 0)
        assert found is not None
        assert (found.start, found.end) == (2, 2)
        assert found.latest_epoch == -1, "of nothing that it holds"
        check = found.check_producer(memoryview(bytearray(batch)))
        assert check.duplicate_offset is None, "it is in no log"

    virtual(body)


def test_who_is_told_of_the_commit_and_of_the_deletion_at_once_keeps_its_producers() -> None:
    """It heard nothing while its fetch waited. Elected, it must know a batch that comes again.

    Seen to fail: with all thrown away that was not known to be committed.
    """

    async def body(runtime: Runtime) -> None:
        _, three = replicas(runtime)
        three.elect(0)
        leader, follower = three.partitions[:2]
        batch = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
        assert leading(leader).append(memoryview(bytearray(batch)), 1).error is ErrorCode.NONE
        assert three.follow(1, rounds=3)
        three.delete_all()
        assert leader.log is not None
        assert follower.log is not None
        nothing = memoryview(b"")
        error = following(follower).append_fetched(nothing, leader.log.end, leader.log.start)
        assert error is ErrorCode.NONE
        assert (follower.log.start, follower.log.high_watermark) == (2, 2)
        three.elect(1)
        again = leading(follower).append(memoryview(bytearray(batch)), 1)
        assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
        assert follower.log.end == 2, "it is there already"

    virtual(body)


def test_a_follower_shows_consumers_nothing_before_a_leader_has_compared_it() -> None:
    """What was cut off may be back after a power cut, below a high watermark that is durable.

    Seen to fail: whoever reads from the nearest replica was given a record nobody ever committed.
    """

    async def body(runtime: Runtime) -> None:
        directories, three = replicas(runtime)
        let_go_of_an_uncommitted_batch(three)
        one = three.partitions[1]
        assert one.log is not None
        await one.log.flush()
        cut_off = three.content(1)
        three.elect(0)
        three.append(1)
        assert three.follow(1, rounds=4)
        assert three.content(1) != cut_off
        one.log.high_watermark = 2
        one.log.home.write_now()
        assert one.as_nearest() is one.log

        await leading(three.partitions[0]).log.flush()
        for each in directories:
            crash(each)
        after = after_crash(runtime, power=True)
        for node in (0, 1):
            log = open_directories(after, [f"/node-{node}"]).get("t", 0)
            assert log is not None
            three.partitions[node] = replica(runtime, log, node)
        assert three.content(1) == cut_off
        again = three.partitions[1]
        assert again.high_watermark == 2
        three.elect(0)
        assert again.as_nearest() is ErrorCode.NOT_LEADER_OR_FOLLOWER
        three.append(1)
        assert three.follow(1, rounds=4)
        assert again.as_nearest() is again.log
        assert three.content(1) == three.content(0)

    virtual(body)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("elect"), st.integers(0, 2)),
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("follow"), st.integers(0, 2)),
        st.tuples(st.just("follow once"), st.integers(0, 2)),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_every_history_of_elections_ends_in_agreement(steps: list[tuple[str, int]]) -> None:
    async def body(runtime: Runtime) -> None:
        _, three = replicas(runtime)
        three.elect(0)
        for action, number in steps:
            if action == "elect":
                three.elect(number)
            elif action == "append":
                three.append(number)
            elif number != three.leader:
                three.follow(number, rounds=1 if action == "follow once" else 4, batches=70)
        for node in REPLICAS:
            if node != three.leader:
                assert three.follow(node, rounds=ROUNDS_MAX + len(steps))
                assert three.content(node) == three.content(three.leader)

    virtual(body)
