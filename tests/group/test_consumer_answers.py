"""What a member is told again, because it may not have heard it.

Goal: an answer that its client waited for no longer costs nobody a partition. Method: answers that
are thrown away, as librdkafka does, and heartbeats that tell nothing new behind them.

Rules: consumer-groups.md#answers.
"""

from __future__ import annotations

from tests.group.consumer_kit import Coordinator, assigned
from tests.group.librdkafka_client import LibrdkafkaConsumer

from holdfast.core.group.consumer.consumer_tellings import SILENT_MAX
from holdfast.wire.errors import ErrorCode

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
    for _ in range(SILENT_MAX):
        coordinator.advance(INTERVAL_MS)
        again = coordinator.heartbeat("A", 2)
        assert (again.member_epoch, assigned(again)) == (2, {topic_id: (0, 1)})
    assert coordinator.heartbeat("A", 2, owned=assigned(again)).member_epoch == 3
    coordinator.advance(INTERVAL_MS)
    assert coordinator.heartbeat("A", 3).assignment is None


def test_what_a_member_is_given_it_is_told_until_it_has_it() -> None:
    """Seen to fail: nobody read it, for as long as the group stayed as it was."""
    coordinator, topic_id = two_of(4)
    coordinator.heartbeat("A", 2)
    coordinator.heartbeat("A", 2, owned={topic_id: (0, 1)})
    lost = coordinator.heartbeat("B", 3)
    assert assigned(lost) == {topic_id: (2, 3)}
    for _ in range(3):
        coordinator.advance(INTERVAL_MS)
        again = coordinator.heartbeat("B", 3)
        assert assigned(again) == {topic_id: (2, 3)}
    coordinator.heartbeat("B", 3, owned={topic_id: (2,)})
    coordinator.advance(INTERVAL_MS)
    assert assigned(coordinator.heartbeat("B", 3)) == assigned(again), "a part is not all"
    coordinator.heartbeat("B", 3, owned=assigned(again))
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

    def is_member(self, consumer: LibrdkafkaConsumer) -> bool:
        return consumer.name in self.coordinator.group().state.members


def test_what_a_member_confirms_is_what_it_was_told_before() -> None:
    """Seen to fail: two members read one partition for good.

    A is at its first partition, and knows of the second one, when its word of the first comes. That
    very request takes the second one from it, and its answer is lost.
    """
    crowd = Crowd()
    a = crowd.a
    a.beat()
    a.is_at_work = True
    crowd.d.beat()
    a.beat()
    assert a.behind is not None
    assert len(a.behind) == 2
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
    read = [index for each in (a, *crowd.others) for index in each.reads]
    assert sorted(read) == list(range(6))


def test_who_can_not_know_that_it_has_to_give_up_is_made_to_tell_everything() -> None:
    """Seen to fail: it was told so again and again, said nothing, and was put out in the end.

    It has confirmed one partition and never heard that it was given a second one. So what it is
    told, the first one alone, is nothing new to it.
    """
    crowd = Crowd()
    a = crowd.a
    a.beat()
    a.beat()
    assert len(a.held) == 1
    crowd.d.beat()
    assert len(assigned(a.beat(lost=True))[crowd.topic_id]) == 2  # type: ignore[index]
    crowd.three_more()
    codes = []
    for _ in range(SILENT_MAX + 3):
        crowd.coordinator.advance(INTERVAL_MS)
        crowd.all_beat(1)
        assert crowd.is_member(a)
        codes.append(ErrorCode(a.beat().error_code))
    assert codes.count(ErrorCode.COORDINATOR_NOT_AVAILABLE) == 1
    assert a.epoch == crowd.c.epoch
    assert len(a.held) == 1


def test_who_is_at_giving_up_is_left_alone_once_it_has_said_what_it_has() -> None:
    coordinator, topic_id = two_of(4)
    coordinator.heartbeat("A", 2)
    codes = []
    for number in range(12):
        coordinator.advance(INTERVAL_MS)
        everything = {topic_id: (0, 1, 2, 3)} if number == SILENT_MAX + 1 else None
        codes.append(coordinator.heartbeat("A", 2, owned=everything).error_code)
        coordinator.heartbeat("B", 3)
    assert codes.count(ErrorCode.COORDINATOR_NOT_AVAILABLE) == 1


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


def test_a_new_coordinator_tells_again_what_was_given_and_once() -> None:
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
    told = []
    for _ in range(4):
        coordinator.advance(INTERVAL_MS)
        told.append((assigned(c.beat()), assigned(d.beat())))
    assert (len(c.reads), len(d.reads)) == (2, 2)
    assert told[0] == ({topic_id: (0, 1)}, {topic_id: (2, 3)})
    assert told[1:] == [(None, None)] * 3
