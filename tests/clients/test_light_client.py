"""Goal: a light client asks where its member says, wakes when that has to say something, and ends.

Method: connections in memory to a small coordinator; the loop is a real one, nothing waits long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest
from tests.clients.light_coordinators import ConsumerCoordinator

from holdfast.clients.group_member import light_client
from holdfast.clients.group_member.light_client import LightClient
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_crowd import Crowd, NotSettledError, is_whole
from holdfast.clients.group_member.light_member import Phase, Place, Plan, Topic
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from holdfast.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

TOPICS = (Topic("t", b"t" * 16, 2),)
PLAN = Plan(group_id="g", topics=TOPICS, retry_ms=1)
BOOTSTRAP, COORDINATOR = ("b", 1), ("c", 2)
BOUND_S = 30.0
Story: TypeAlias = "Callable[[Cluster], Coroutine[None, None, None]]"


class Cluster:
    """Two brokers, one of which coordinates."""

    def __init__(self) -> None:
        self.coordinator = ConsumerCoordinator([(b"t" * 16, 0), (b"t" * 16, 1)])
        self.connections: list[Memory] = []
        self.refuses = 0

    async def connect(self, host: str, port: int, client_id: str) -> Memory:
        del client_id
        await asyncio.sleep(0)
        if self.refuses:
            self.refuses -= 1
            raise ConnectionRefusedError
        self.connections.append(Memory(self, (host, port)))
        return self.connections[-1]


class Memory:
    """A connection to one of them."""

    def __init__(self, cluster: Cluster, place: Place) -> None:
        self.cluster, self.place = cluster, place
        self.is_open = True

    def ask(self, request: Any, version_max: int | None = None) -> asyncio.Future[Any]:
        assert self.is_open
        if isinstance(request, OffsetCommitRequest | OffsetFetchRequest):
            assert version_max == 9, "a newer version names topics by their ids"
        future = asyncio.get_running_loop().create_future()
        if isinstance(request, FindCoordinatorRequest):
            one = Coordinator(key="g", node_id=1, host=COORDINATOR[0], port=COORDINATOR[1])
            future.set_result(FindCoordinatorResponse(coordinators=[one]))
        elif isinstance(request, OffsetCommitRequest):
            future.set_result(OffsetCommitResponse())
        elif isinstance(request, OffsetFetchRequest):
            future.set_result(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")]))
        else:
            assert self.place == COORDINATOR
            future.set_result(self.cluster.coordinator.ask(0, request, 0))
        return future

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(light_client, "connect", made.connect)
    return made


def client(name: str = "m") -> LightClient:
    return LightClient(ConsumerMember(PLAN, name), BOOTSTRAP, "test")


async def stable(crowd: Crowd) -> None:
    await crowd.until(lambda: is_whole(crowd.members, TOPICS), "a group", BOUND_S)


async def joins_and_leaves(cluster: Cluster) -> None:
    """Its next heartbeat is seconds away: it wakes to leave."""
    cluster.refuses = 2
    async with Crowd() as crowd:
        one = client()
        await crowd.start([one])
        with pytest.raises(ConnectionError, match="no coordinator"):
            await one.commit({("t", 0): 1})
        await stable(crowd)
        assert [made.place for made in cluster.connections] == [BOOTSTRAP, COORDINATOR]
        assert [made.is_open for made in cluster.connections] == [False, True]
        assert await one.commit({("t", 0): 1}) == {}
        assert await one.committed([("t", 0)]) == ({}, 0)
        async with asyncio.timeout(BOUND_S):
            await crowd.leave([one])
        assert one.member.phase is Phase.LEFT
        assert not cluster.coordinator.members
        assert not crowd.clients
    assert not any(made.is_open for made in cluster.connections)


async def is_killed(cluster: Cluster) -> None:
    async with Crowd() as crowd:
        await crowd.start([client()])
        await stable(crowd)
    assert not any(made.is_open for made in cluster.connections)
    assert cluster.coordinator.members, "nobody has told the coordinator"


async def looks_again(cluster: Cluster) -> None:
    """A lost connection costs it its place, and not its membership."""
    async with Crowd() as crowd:
        one = client()
        await crowd.start([one])
        await stable(crowd)
        epoch = one.member.epoch
        one.member.lost(0)  # it sleeps, and wakes to leave
        async with asyncio.timeout(BOUND_S):
            await crowd.leave([one])
        assert one.member.epoch == epoch
        assert not cluster.coordinator.members
        assert [made.place for made in cluster.connections].count(BOOTSTRAP) == 2


async def is_told_why(cluster: Cluster) -> None:
    del cluster
    async with Crowd() as crowd:
        one = client()
        await crowd.start([one])
        one.member.phase, one.member.failure = Phase.FAILED, "because"
        with pytest.raises(NotSettledError, match="because"):
            await stable(crowd)


async def is_waited_for_in_vain(cluster: Cluster) -> None:
    cluster.refuses = 1 << 60
    async with Crowd() as crowd:
        await crowd.start([client("a"), client("b")])
        with pytest.raises(NotSettledError, match="2 JOINING"):
            await crowd.until(lambda: False, "nothing", 0)


@pytest.mark.parametrize(
    "story", [joins_and_leaves, is_killed, looks_again, is_told_why, is_waited_for_in_vain]
)
def test_a_client(
    cluster: Cluster, story: Callable[[Cluster], Coroutine[None, None, None]]
) -> None:
    asyncio.run(story(cluster))
