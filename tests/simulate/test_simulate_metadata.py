"""The oracle sees: each invariant of committed metadata is broken by hand, and told.

Method: records as a controller would commit them; each test commits one that must never be, beside
it the nearest one that may. Seen to fail: each check taken out of `metadata` turns one red.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.core.metadata.image import MetadataImage
from holdfast.testing.simulation.metadata import Metadata
from holdfast.testing.simulation.oracle import Oracle
from holdfast.wire.records import metadata as wire

TOPIC_ID = bytes(range(16))


class World:
    """Three brokers, and a partition on them that broker 0 leads."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.image = MetadataImage()
        self.metadata = Metadata(
            lambda invariant, _: self.told.append(invariant),
            Counter(),
            static={},
            elected=lambda _key, _epoch, _election: None,
        )
        self.commit(
            *[registered(node) for node in range(3)],
            wire.TopicRecord(name="t", topic_id=TOPIC_ID),
            partition(),
        )
        assert not self.told

    def commit(self, *records: Any) -> list[str]:
        """Commit one batch; return what the oracle has told until now."""
        self.image.apply(list(records))
        self.image.offset += len(records)
        self.metadata.apply(records, self.image.offset + 1)
        return self.told

    def change(self, **fields: Any) -> list[str]:
        return self.commit(wire.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **fields))


def registered(node: int) -> wire.RegisterBrokerRecord:
    return wire.RegisterBrokerRecord(broker_id=node, broker_epoch=node, fenced=False)


def partition(**fields: Any) -> wire.PartitionRecord:
    values: dict[str, Any] = {
        "partition_id": 0,
        "topic_id": TOPIC_ID,
        "replicas": [0, 1, 2],
        "isr": [0, 1, 2],
        "leader": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return wire.PartitionRecord(**(values | fields))


def test_of_a_deleted_topic_no_copy_is_missed() -> None:
    """A broker that hears late of it commits what a follower had, whose copy is gone by then.

    Seen to fail: with the lowest min ISR kept for ever. Found by a seed: the follower is deleted,
    and its leader, which was cut off, first hears that another one has left the ISR.
    """
    world, other = World(), bytes(range(16, 32))
    world.commit(
        wire.TopicRecord(name="u", topic_id=other),
        wire.ConfigRecord(
            resource_type=2, resource_name="u", name="min.insync.replicas", value="2"
        ),
        partition(topic_id=other),
    )
    oracle = Oracle()
    oracle.metadata = world.metadata
    truth = oracle.truth((other, 0))
    assert truth.copies_min() == 2
    world.commit(wire.RemoveTopicRecord(topic_id=other))
    assert truth.copies_min() == 1


def test_a_quiet_life_breaks_nothing() -> None:
    world = World()
    assert world.change(isr=[0, 1]) == []
    assert world.change(isr=[0, 1, 2]) == []
    assert world.change(leader=1) == []
    assert world.change(leader=-1, isr=[1], eligible_leader_replicas=[0]) == []
    assert world.change(leader=0, isr=[0], eligible_leader_replicas=[]) == []
    world.metadata.compare(9, world.image)
    assert world.told == []


@pytest.mark.parametrize(
    ("fields", "invariant"),
    [
        ({"isr": [1, 2]}, "the ISR contains the leader"),
        ({"isr": [0, 1, 2, 3]}, "only replicas are in sync"),
        ({"isr": [0, 1], "eligible_leader_replicas": [1]}, "who is in sync is not merely eligible"),
        ({"isr": [0, 1, 1]}, "nobody is there twice"),
        ({"replicas": [0, 1, 2, 2]}, "nobody is there twice"),
    ],
)
def test_who_is_in_sync(fields: dict[str, Any], invariant: str) -> None:
    world = World()
    if invariant == "only replicas are in sync":
        world.commit(registered(3))
    assert world.change(**fields) == [invariant]


def test_a_new_partition_is_looked_at_as_well() -> None:
    world = World()
    assert world.commit(partition(partition_id=1, leader=2, isr=[0, 1])) != []
    assert world.told[0] == "the ISR contains the leader"


@pytest.mark.parametrize("how", ["fenced", "leaving", "unknown", "fenced by a change"])
def test_nobody_joins_who_does_not_serve(how: str) -> None:
    world = World()
    assert world.change(isr=[0, 1]) == []
    gone = {
        "fenced": wire.FenceBrokerRecord(id=2, epoch=2),
        "leaving": wire.BrokerRegistrationChangeRecord(
            broker_id=2, broker_epoch=2, in_controlled_shutdown=1
        ),
        "unknown": wire.UnregisterBrokerRecord(broker_id=2, broker_epoch=2),
        "fenced by a change": wire.BrokerRegistrationChangeRecord(
            broker_id=2, broker_epoch=2, fenced=1
        ),
    }
    assert world.commit(gone[how]) == []
    assert world.change(isr=[0, 1, 2]) == ["nobody joins an ISR who is fenced or leaving"]


def test_who_comes_back_in_the_same_batch_may_join() -> None:
    world = World()
    world.change(isr=[0, 1])
    world.commit(wire.FenceBrokerRecord(id=2, epoch=2))
    joins = wire.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[0, 1, 2])
    assert world.commit(joins, wire.UnfenceBrokerRecord(id=2, epoch=2)) == []


def test_who_may_lack_something_leads_only_where_that_is_allowed() -> None:
    unclean = "nobody who may lack something is elected unless it is allowed"
    world = World()
    world.change(isr=[0, 1])
    assert world.change(leader=2, isr=[2]) == [unclean]
    world = World()
    world.change(isr=[0, 1])
    allowing = wire.ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    world.commit(allowing)
    assert world.change(leader=2, isr=[2], leader_recovery_state=1) == []


def test_a_change_of_a_partition_that_is_not_there() -> None:
    world = World()
    change = wire.PartitionChangeRecord(partition_id=7, topic_id=TOPIC_ID, isr=[0])
    world.metadata.apply([change], 99)
    assert world.told == ["records follow one another"]


def test_a_broker_epoch_that_falls() -> None:
    world = World()
    later = wire.RegisterBrokerRecord(broker_id=2, broker_epoch=7, fenced=True)
    assert world.commit(later) == []
    earlier = wire.RegisterBrokerRecord(broker_id=2, broker_epoch=6, fenced=True)
    world.metadata.apply([earlier], 99)
    assert world.told == ["broker epochs rise"]


def test_an_image_that_says_something_else() -> None:
    contradicts = "no broker's image contradicts a committed record"
    world = World()
    world.metadata.apply(
        [wire.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[0, 1])],
        world.image.offset + 2,
    )
    world.metadata.compare(9, world.image)  # it is behind, and knows it
    assert world.told == []
    world.image.offset += 1
    world.metadata.compare(9, world.image)
    assert world.told == [contradicts]

    world = World()
    world.metadata.apply([], world.image.offset + 1)
    world.image.apply([partition(partition_id=1)])
    world.metadata.compare(9, world.image)
    assert world.told == [contradicts]
