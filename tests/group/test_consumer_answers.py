"""What a member is told again, because it may not have heard it.

Goal: an answer that its client waited for no longer costs nobody a partition. Method: answers that
are thrown away, as librdkafka does, and heartbeats that tell nothing new behind them.

Rules: consumer-groups.md#answers.
"""

from __future__ import annotations

import pytest
from tests.group.consumer_kit import Coordinator, assigned
from tests.group.librdkafka_client import LibrdkafkaConsumer

INTERVAL_MS = 5000


def two_of(partitions: int) -> tuple[Coordinator, bytes]:
    """Return a coordinator of A, which has all, and of B, which has joined and waits for some."""
    coordinator = Coordinator(heartbeat_interval_ms=INTERVAL_MS)
    topic_id = coordinator.create("t", partitions)
    everything = assigned(coordinator.join("A", "t"))
    assert coordinator.heartbeat("A", 2, owned=everything).assignment is None
    coordinator.join("B", "t")
    return coordinator, topic_id


def test_what_a_member_has_to_give_up_it_is_told_until_it_says_so() -> None:
    """Seen to fail: it was told once, never gave anything up, and was put out in the end."""
    coordinator, topic_id = two_of(4)
    lost = coordinator.heartbeat("A", 2)
    assert assigned(lost) == {topic_id: (0, 1)}
    assert coordinator.heartbeat("A", 2).assignment is None, "its client may be at it"
    for _ in range(6):  # as often as it beats: B waits for it
        coordinator.advance(INTERVAL_MS)
        coordinator.heartbeat("B", 3)
        again = coordinator.heartbeat("A", 2)
        assert (again.member_epoch, assigned(again)) == (2, {topic_id: (0, 1)})
    assert coordinator.heartbeat("A", 2, owned=assigned(again)).member_epoch == 3
    coordinator.advance(INTERVAL_MS)
    assert coordinator.heartbeat("A", 3).assignment is None


def test_what_is_taken_in_the_request_that_says_so_is_not_confirmed() -> None:
    """It may say what it has after an error, at the very moment when it is given nothing else."""
    coordinator, topic_id = two_of(4)
    lost = coordinator.heartbeat("A", 2, owned={topic_id: (0, 1)})
    assert assigned(lost) == {topic_id: (0, 1)}
    assert "A" in coordinator.group().core.tellings.unconfirmed


def test_what_a_member_is_given_it_is_told_until_it_has_it() -> None:
    """Seen to fail: nobody read it, for as long as the group stayed as it was."""
    coordinator, topic_id = two_of(4)
    coordinator.heartbeat("A", 2)
    coordinator.heartbeat("A", 2, owned={topic_id: (0, 1)})
    lost = coordinator.heartbeat("B", 3)
    assert assigned(lost) == {topic_id: (2, 3)}
    told = []
    for number in range(8):
        coordinator.advance(INTERVAL_MS)
        coordinator.heartbeat("A", 3, owned={topic_id: (0, 1)})
        part = {topic_id: (2,)} if number == 2 else None
        told.append(assigned(coordinator.heartbeat("B", 3, owned=part)))
    assert told[0] == assigned(lost)
    assert told[4:].count(assigned(lost)) == 1, "a part is not all"
    coordinator.heartbeat("B", 3, owned=assigned(lost))
    coordinator.advance(INTERVAL_MS)
    assert coordinator.heartbeat("B", 3).assignment is None


def test_who_has_gone_is_told_nothing_any_more() -> None:
    coordinator, _ = two_of(4)
    coordinator.heartbeat("A", 2)
    group = coordinator.group()
    assert list(group.core.tellings.unconfirmed) == ["A"]
    coordinator.heartbeat("A", -1)
    assert not group.core.tellings.unconfirmed


# -- as librdkafka takes answers ---------------------------------------------------------------


class Crowd:
    """C and D share six partitions. A has joined them, and is given its own one by one."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(heartbeat_interval_ms=INTERVAL_MS)
        self.topic_id = self.coordinator.create("t", 6)
        self.c, self.d, self.a = (self.consumer(name) for name in "CDA")
        self.others = [self.c, self.d]
        for each in (self.c, self.c, self.d, self.c, self.c, self.d, self.d):
            each.beat()
        assert [len(each.held) for each in self.others] == [3, 3]
        self.a.beat()
        self.c.beat()
        self.c.beat()  # gives up one
        self.d.beat()  # is told to give up one, and is at it

    def consumer(self, name: str) -> LibrdkafkaConsumer:
        return LibrdkafkaConsumer(self.coordinator, name, self.topic_id)

    def three_more(self) -> None:
        news = [self.consumer(f"B{number}") for number in range(3)]
        for each in news:
            each.beat()
        self.others += news
        self.all_beat(3)

    def all_beat(self, times: int) -> None:
        for _ in range(times):
            for each in self.others:
                each.beat()

    def a_is_at_its_first_and_knows_of_two(self) -> None:
        self.a.beat()
        self.a.is_at_work = True
        self.d.beat()
        self.a.beat()
        assert self.a.behind is not None
        assert len(self.a.behind) == 2

    def read_each_once(self) -> None:
        """Assert that each partition is read by one of them."""
        read = [index for each in (self.a, *self.others) for index in each.reads]
        assert sorted(read) == list(range(6))

    def is_member(self, consumer: LibrdkafkaConsumer) -> bool:
        return consumer.name in self.coordinator.group().state.members


def test_what_a_member_confirms_is_what_it_was_told_before() -> None:
    """Seen to fail: two members read one partition for good.

    A is at its first partition, and knows of the second one, when its word of the first comes. That
    very request takes the second one from it, and its answer is lost.
    """
    crowd = Crowd()
    a = crowd.a
    crowd.a_is_at_its_first_and_knows_of_two()
    crowd.three_more()
    a.is_at_work = False
    crowd.coordinator.advance(INTERVAL_MS)
    a.beat(lost=True)
    assert "A" in crowd.coordinator.group().core.tellings.unconfirmed
    crowd.all_beat(4)
    for _ in range(3):
        crowd.coordinator.advance(INTERVAL_MS)
        a.beat()
        crowd.all_beat(1)
    crowd.read_each_once()


@pytest.mark.parametrize("meanwhile", ["", "told again", "fail-over", "fail-over, told again"])
def test_a_late_word_of_the_first_is_not_one_of_the_reduced(meanwhile: str) -> None:
    """Seen to fail: two members read one partition for good.

    The second one is taken from it one request before its word of the first comes, and it does not
    hear of that: it says that it has what it was told first, and goes on to what it was told then.
    """
    crowd = Crowd()
    a = crowd.a
    crowd.a_is_at_its_first_and_knows_of_two()
    crowd.three_more()
    a.beat(lost=True)
    if "fail-over" in meanwhile:
        crowd.coordinator.fail_over()
    if "told again" in meanwhile:
        crowd.coordinator.advance(INTERVAL_MS)
        assert assigned(a.beat(lost=True)) is not None
    a.is_at_work = False
    a.beat()
    assert len(a.reads) == 1, "it is told once more before it can go on"
    crowd.all_beat(4)
    for _ in range(3):
        crowd.coordinator.advance(INTERVAL_MS)
        a.beat()
        crowd.all_beat(1)
    crowd.read_each_once()


def test_who_is_busy_with_a_partition_that_was_taken_back_is_waited_for() -> None:
    """Its application restores state in the callback of an assignment that is another one since.

    Seen to fail: its silence was taken for deafness. Made to tell everything, it told what it had
    before the callback; another one was given the partition, and it read that too in the end.
    """
    crowd = Crowd()
    a = crowd.a
    a.beat()
    a.beat()
    crowd.d.beat()
    a.beat()
    assert a.moving_to is not None
    assert len(a.moving_to) == 2
    a.is_at_work = True
    crowd.three_more()
    for _ in range(10):  # 50 of the 60 seconds that a rebalance may take; no answer is lost
        crowd.coordinator.advance(INTERVAL_MS)
        assert not a.beat().error_code
        crowd.all_beat(1)
    a.is_at_work = False
    others = {index for each in crowd.others for index in each.reads}
    assert not others & set(a.reads)
    for _ in range(3):
        crowd.coordinator.advance(INTERVAL_MS)
        a.beat()
        crowd.all_beat(1)
    crowd.read_each_once()


def test_who_can_not_know_that_it_has_to_give_up_is_put_out_by_its_time_out() -> None:
    """As in Kafka. It has confirmed one partition, and never heard that it was given a second one.

    So what it is told, the first one alone, is nothing new to it, and it says nothing: nobody can
    tell it from one that is busy with both.
    """
    crowd = Crowd()
    a = crowd.a
    a.beat()
    a.beat()
    crowd.d.beat()
    a.beat(lost=True)
    crowd.three_more()
    for _ in range(10):
        crowd.coordinator.advance(INTERVAL_MS)
        a.beat()
        crowd.all_beat(1)
    assert crowd.is_member(a)
    crowd.coordinator.advance(3 * INTERVAL_MS)
    assert not crowd.is_member(a)


def test_who_has_what_it_is_told_is_told_ever_more_rarely() -> None:
    """Its grant was lost and taken back: librdkafka hears nothing new, and says nothing.

    Seen to fail: it was told all that it has in each heartbeat for good.
    """
    coordinator = Coordinator(heartbeat_interval_ms=INTERVAL_MS)
    topic_id = coordinator.create("t", 4)
    a, b, c = (LibrdkafkaConsumer(coordinator, name, topic_id) for name in "ABC")
    a.beat()
    a.beat()
    b.beat()
    a.beat()  # is to give up two, and does
    coordinator.heartbeat("B", -1)
    a.beat(lost=True)  # says so; gets them back, and does not hear it
    c.beat()
    a.beat()  # says so again
    told = []
    for _ in range(100):
        coordinator.advance(INTERVAL_MS)
        told.append(a.beat().assignment is not None)
        c.beat()
    assert (a.reads, c.reads) == ((0, 1), (2, 3))
    assert sum(told[:20]) > 2
    assert 0 < sum(told[50:]) < 5


def test_who_says_that_it_has_what_another_one_has_is_told_what_is_its_own() -> None:
    coordinator, topic_id = two_of(4)
    coordinator.heartbeat("A", 2)
    coordinator.heartbeat("A", 2, owned={topic_id: (0, 1)})
    coordinator.heartbeat("B", 3)
    coordinator.heartbeat("B", 3, owned={topic_id: (2, 3)})
    coordinator.heartbeat("A", 3, owned={topic_id: (0, 1)})
    everything = {topic_id: (0, 1, 2, 3)}
    assert assigned(coordinator.heartbeat("A", 3, owned=everything)) == {topic_id: (0, 1)}
    assert coordinator.heartbeat("A", 3, owned={topic_id: (0, 1)}).assignment is None


def test_a_new_coordinator_tells_until_it_is_done_what_has_to_be_given_up() -> None:
    """Seen to fail: it took it that everybody had heard what its predecessor had said."""
    coordinator = Coordinator(heartbeat_interval_ms=INTERVAL_MS)
    topic_id = coordinator.create("t", 4)
    c, d = (LibrdkafkaConsumer(coordinator, name, topic_id) for name in "CD")
    c.beat()
    c.beat()
    d.beat()
    c.beat(lost=True)
    coordinator.fail_over()
    c.beat(lost=True)
    for _ in range(4):
        coordinator.advance(INTERVAL_MS)
        c.beat()
        d.beat()
    assert (len(c.reads), len(d.reads)) == (2, 2)


@pytest.mark.parametrize("lost", [0, 3])
def test_a_new_coordinator_tells_again_what_was_given(lost: int) -> None:
    """Whatever is lost of that, too.

    Seen to fail: it told once, and if that was lost nobody ever read the partitions.
    """
    coordinator = Coordinator(heartbeat_interval_ms=INTERVAL_MS)
    topic_id = coordinator.create("t", 4)
    c, d = (LibrdkafkaConsumer(coordinator, name, topic_id) for name in "CD")
    c.beat()
    c.beat()
    d.beat()
    c.beat()
    c.beat()
    d.beat(lost=True)
    coordinator.fail_over()
    for number in range(20):
        coordinator.advance(INTERVAL_MS)
        c.beat()
        d.beat(lost=number < lost)
    assert (len(c.reads), len(d.reads)) == (2, 2)
