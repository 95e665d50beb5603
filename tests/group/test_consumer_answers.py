"""What a member is told again, because it may not have heard it.

Goal: an answer that its client waited for no longer costs nobody a partition. Method: answers that
are thrown away, as librdkafka does, and heartbeats that tell nothing new behind them.

Rules: consumer-groups.md#answers.
"""

from __future__ import annotations

from tests.group.consumer_kit import Coordinator, assigned

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
    for _ in range(3):
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
    assert list(group.core.unconfirmed) == ["A"]
    coordinator.heartbeat("A", -1)
    assert not group.core.unconfirmed
