"""Goal: a crowd of light members is a group to Apache Kafka, of both protocols.

Method: twenty join one group, and one is taken away; each partition has one owner before and after,
the coordinator calls the group stable, and what a member commits is what the group has.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_client import LightClient
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_crowd import Crowd, is_whole, topics_of
from holdfast.clients.group_member.light_member import LightMember, Plan, Topic
from holdfast.wire.administration import create_topic
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest

pytestmark = pytest.mark.apache

MEMBERS = 20
PARTITIONS = 45  # no multiple of 20, nor of 19
TOPIC = "light"
HEARTBEAT_MS = 500


@pytest.fixture(scope="module")
def topics(apache_kafka: str) -> tuple[Topic, ...]:
    with Driver(apache_kafka) as driver:
        asked = create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
        driver.perform(asked, node="controller")
        return topics_of(driver, [TOPIC])


def classic(plan: Plan) -> LightMember:
    return ClassicMember(plan)


def consumer(plan: Plan) -> LightMember:
    return ConsumerMember(plan, str(uuid.uuid4()))


@pytest.mark.parametrize("make", [classic, consumer])
def test_twenty_share_and_one_leaves(
    apache_kafka: str, topics: tuple[Topic, ...], make: Callable[[Plan], LightMember]
) -> None:
    asyncio.run(share(apache_kafka, topics, make))


async def share(
    bootstrap: str, topics: tuple[Topic, ...], make: Callable[[Plan], LightMember]
) -> None:
    host, _, port = bootstrap.partition(":")
    group = f"light-{make.__name__}"
    plan = Plan(group_id=group, topics=topics, heartbeat_ms=HEARTBEAT_MS)
    async with Crowd() as crowd:
        clients = [LightClient(make(plan), (host, int(port)), "light") for _ in range(MEMBERS)]
        await crowd.start(clients)
        await crowd.until(partial(whole, crowd, topics), f"{MEMBERS} members to share")
        assert spread(crowd) == {2, 3}
        assert await asyncio.to_thread(state_of, bootstrap, group) == "Stable"

        one = clients[0]
        offsets = dict.fromkeys(one.member.assignment, 7)
        assert await one.commit(offsets) == {}
        assert await clients[1].committed(offsets) == (offsets, 0)

        await crowd.leave([one])
        await crowd.until(partial(whole, crowd, topics), "the others to share")
        assert len(crowd.clients) == MEMBERS - 1
        assert spread(crowd) == {2, 3}
        await crowd.leave(crowd.clients)
    assert await asyncio.to_thread(state_of, bootstrap, group) == "Empty"


def whole(crowd: Crowd, topics: tuple[Topic, ...]) -> bool:
    return is_whole(crowd.members, topics)


def spread(crowd: Crowd) -> set[int]:
    return {len(member.assignment) for member in crowd.members}


def state_of(bootstrap: str, group: str) -> str:
    """What the coordinator calls it."""
    with Driver(bootstrap) as driver:
        coordinators = Coordinators(driver)
        coordinators.ask([group], lambda _, groups: dict.fromkeys(groups))
        peer = driver.peer(coordinators.of(group).node)
        described = peer.send(ConsumerGroupDescribeRequest(group_ids=[group])).groups[0]
        if described.error_code:
            described = peer.send(DescribeGroupsRequest(groups=[group])).groups[0]
        return str(described.group_state)
