"""Goal: a group that an Apache Kafka has written is here what it is there, with its epochs.

Method: two members share a topic of its broker, which revokes of the one what the other gets. Each
keeps in mind in which epoch it was told of a partition first. Then what lies in
`__consumer_offsets` is replayed here: each has its partitions since those epochs.

Rules: consumer-groups.md#assignment-epochs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.group.consumer_kit import Coordinator, Log, as_listed, assigned

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.processes import wait_until
from holdfast.core.group.any_group import Committer
from holdfast.core.group.consumer.consumer_group import ConsumerGroup
from holdfast.wire.administration import create_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest

pytestmark = [pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(200)]

GROUP = TOPIC = "records-of-theirs"
BOUND_S = 60.0
VERSION = 9  # of OffsetCommit
NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Member:
    """It gives up at once what it is not to have any more."""

    def __init__(self, driver: Driver, node: int, name: str) -> None:
        self.driver, self.node, self.name = driver, node, name
        self.epoch = 0
        self.since: dict[tuple[bytes, int], int] = {}

    def beat(self) -> None:
        owned: dict[bytes, tuple[int, ...]] = {}
        for topic_id, index in sorted(self.since):
            owned[topic_id] = (*owned.get(topic_id, ()), index)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=as_listed(owned),
        )
        response = self.driver.send(request, node=self.node)
        if response.error_code in NOT_YET:
            return
        assert response.error_code == ErrorCode.NONE, response.error_message
        self.epoch = response.member_epoch
        given = assigned(response)
        if given is not None:
            now = [(topic_id, index) for topic_id, each in given.items() for index in each]
            self.since = {each: self.since.get(each, self.epoch) for each in now}


@pytest.fixture
def members(apache_kafka: str) -> Iterator[tuple[Member, Member]]:
    with Driver(apache_kafka) as driver:
        driver.perform(create_topic(TOPIC, partitions=4, replication_factor=1), node="controller")
        (node,) = driver.nodes()
        driver.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), node=node)
        yield Member(driver, node, "a"), Member(driver, node, "b")


def log_of(bootstrap: str) -> Log:
    """Return all that lies in `__consumer_offsets`."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True}
    )
    try:
        partitions = consumer.list_topics("__consumer_offsets", BOUND_S)
        ids = partitions.topics["__consumer_offsets"].partitions
        consumer.assign([TopicPartition("__consumer_offsets", each, 0) for each in ids])
        log: Log = []
        ends = 0
        while ends < len(ids):
            message = consumer.poll(BOUND_S)
            assert message is not None, "it ends"
            if message.error() is not None:
                ends += 1
            else:
                key = message.key()
                assert isinstance(key, bytes)
                log.append((key, message.value()))
        return log
    finally:
        consumer.close()


def test_members_have_their_partitions_since_when_they_got_them(
    members: tuple[Member, Member], apache_kafka: str
) -> None:
    a, b = members

    def has(member: Member, count: int) -> bool:
        for each in members:
            if each is a or member is b:
                each.beat()
        return len(member.since) == count

    wait_until(lambda: has(a, 4), timeout_s=BOUND_S, what="all partitions")
    wait_until(lambda: has(b, 2), timeout_s=BOUND_S, what="half of them")
    a.beat()
    assert a.epoch == b.epoch
    kept = dict(a.since)
    assert max(kept.values()) < a.epoch == min(b.since.values())

    coordinator = Coordinator()
    group = coordinator.loaded(log_of(apache_kafka))._groups.get(GROUP)
    assert isinstance(group, ConsumerGroup)
    for member in members:
        found = group.state.members[member.name]
        assert found.epoch == member.epoch
        assert member.since == {
            (topic_id, index): epoch
            for topic_id, epochs in found.since.items()
            for index, epoch in epochs.items()
        }
    before = Committer("a", a.epoch - 1)
    assert group.check_commit(before, kept, VERSION, 0) is ErrorCode.NONE
    assert group.check_commit(before, b.since, VERSION, 0) is ErrorCode.STALE_MEMBER_EPOCH
