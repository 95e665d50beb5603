"""What the tests of replicas share: a replica over a real log, and what the controller decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.log.log_kit import TOPIC_ID

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata import image
from holdfast.core.replica.replication import Proposal
from holdfast.log.log import Log
from holdfast.node.broker.leading_replica import LeadingReplica, Surroundings
from holdfast.node.broker.replica import FollowingReplica, Partition
from holdfast.node.door.waiting_room import WaitingRoom
from holdfast.runtime.ports import Runtime


def decided(index: int = 0, **values: Any) -> image.Partition:
    """Return what the controller has decided of one partition: 0 leads alone, unless given."""
    alone: dict[str, Any] = {"replicas": (0,), "isr": (0,), "leader": 0}
    return image.Partition(topic="t", topic_id=TOPIC_ID, index=index, **alone | values)


def replica(
    runtime: Runtime,
    log: Log,
    node: int = 0,
    propose: Callable[[LeadingReplica, Proposal], None] = lambda _leading, _proposal: None,
) -> Partition:
    """Return a broker's replica over this log, without a role yet."""
    surroundings = Surroundings(
        node=node,
        lag_ms_max=1000,
        clock=runtime.clock,
        waiting=WaitingRoom(asyncio.get_running_loop(), runtime.clock),
        propose=propose,
    )
    return Partition(surroundings, decided(log.partition), log, TopicSettings())


def leading(partition: Partition) -> LeadingReplica:
    assert partition.leading is not None
    return partition.leading


def following(partition: Partition) -> FollowingReplica:
    assert partition.following is not None
    return partition.following


def alive(*nodes: int) -> dict[int, image.Broker]:
    """Return what is registered of these brokers; each is in broker epoch 1."""
    return {
        node: image.Broker(broker_id=node, epoch=1, incarnation_id=bytes(16), fenced=False)
        for node in nodes
    }
