"""Goal: no decision of the controller changes more partitions than one turn of its loop bears.

Method: more partitions than two shares; a broker dies, leaves, comes back, or is heard in the
middle of it. Each decision is counted, and what all of them come to is what one would have.
"""

from __future__ import annotations

import pytest
from tests.core.control_kit import SESSION_MS, Cluster

from holdfast.core.controller.broker_sessions import expire_sessions, go_on
from holdfast.core.controller.decisions import CHANGES_MAX
from holdfast.core.metadata.image import NO_LEADER, Partition

COUNT = 2 * CHANGES_MAX + 200


def many(replicas: int = 3) -> Cluster:
    cluster = Cluster(elr=False).start(0, 1, 2)
    cluster.create("t", *([(index + n) % 3 for n in range(replicas)] for index in range(COUNT)))
    return cluster


def partitions(cluster: Cluster) -> list[Partition]:
    return list(cluster.state.image.partitions())


def shares(cluster: Cluster) -> list[int]:
    """Decide as the controller's timer does, turn by turn; return each decision's records."""
    counts: list[int] = []
    while True:
        decision = expire_sessions(cluster.state, cluster.now_ms)
        if not decision.records:
            decision = go_on(cluster.state, cluster.now_ms)
        if not decision.records:
            return counts
        counts.append(len(decision.records))
        cluster.apply(decision)


def die(cluster: Cluster, broker: int) -> None:
    cluster.die(broker)
    cluster.now_ms += SESSION_MS + 1
    for other in cluster.alive:
        cluster.beat(other)


def test_a_dead_broker_is_put_out_share_by_share_and_fenced_last() -> None:
    cluster = many()
    die(cluster, 1)
    first = expire_sessions(cluster.state, cluster.now_ms)
    assert len(first.records) == CHANGES_MAX
    cluster.apply(first)
    assert not cluster.state.image.brokers[1].fenced, "before it is out of every ISR"
    assert sum(shares(cluster)) == COUNT - CHANGES_MAX + 1
    assert cluster.state.image.brokers[1].fenced
    assert all(1 not in each.isr and each.leader in (0, 2) for each in partitions(cluster))


def test_each_share_is_small() -> None:
    cluster = many()
    die(cluster, 1)
    counts = shares(cluster)
    assert len(counts) == 3
    assert max(counts) <= CHANGES_MAX + 1


def test_who_is_heard_in_the_middle_is_not_fenced() -> None:
    cluster = many()
    die(cluster, 1)
    cluster.apply(expire_sessions(cluster.state, cluster.now_ms))
    cluster.beat(1)
    assert shares(cluster) == []
    assert cluster.state.image.is_active(1)
    put_out = [each for each in partitions(cluster) if 1 not in each.isr]
    assert len(put_out) == CHANGES_MAX
    assert all(each.leader != 1 for each in put_out)


def test_a_broker_that_leaves_is_let_go_when_all_its_partitions_are_elsewhere() -> None:
    cluster = many()
    cluster.beat(1, want_shut_down=True)
    assert cluster.state.is_unfinished
    while cluster.state.is_unfinished:
        decision = go_on(cluster.state, cluster.now_ms)
        assert len(decision.records) <= CHANGES_MAX
        cluster.apply(decision)
        for other in (0, 2):
            assert not cluster.beat(1, want_shut_down=True).should_shut_down
            cluster.beat(other)
    assert all(1 not in each.isr and each.leader in (0, 2) for each in partitions(cluster))
    assert cluster.beat(1, want_shut_down=True).should_shut_down


@pytest.mark.parametrize("controllers", [1, 2])
def test_all_that_waited_for_a_broker_are_led_when_it_is_back(controllers: int) -> None:
    """Also when the controller that had begun with it is not there any more."""
    cluster = Cluster(elr=False).start(0, 1, 2)
    cluster.create("t", *([1] for _ in range(COUNT)))
    die(cluster, 1)
    shares(cluster)
    assert all(each.leader == NO_LEADER for each in partitions(cluster))
    cluster.start(1)
    assert sum(each.leader == NO_LEADER for each in partitions(cluster)) == COUNT - CHANGES_MAX
    if controllers == 2:
        cluster.state.leaderless = False
        cluster.state.activate(cluster.now_ms)
    shares(cluster)
    assert all(each.leader != NO_LEADER for each in partitions(cluster))
    assert not cluster.state.is_unfinished
