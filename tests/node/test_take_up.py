"""Goal: a broker that starts takes up what it holds a few at a time, and loses sight of nothing
that is decided meanwhile. What it leads comes first, for others ask for that.

Method: a cluster in memory; how many replicas get a role in one turn, and which role comes first;
and a topic that is deleted and made anew while a broker that starts has its old replicas and has
taken up none of them.
Seen to fail: all replicas in one turn; leaders between followers; and an old log under the new
topic's name.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.control.control_world import play

from holdfast.core.metadata.image import Partition as Decided
from holdfast.log.directories import LogDirectories, LogDirectory
from holdfast.node.broker import replicas
from holdfast.node.broker.replica import Partition
from holdfast.node.broker.replicas import Partitions
from holdfast.testing.ground.loop import VirtualLoop
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

PARTITIONS = 20
SLICE = 3
STARTS = 2  # the broker that is looked at
DELETION = DeleteTopicsRequest(
    topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=5000
)


async def produce(client: ClusterClient, value: bytes) -> None:
    async def once() -> int:
        client.forget()
        leader = await client.leader("t", 0)
        return await client.produce("t", 0, [value], acks=-1, node=leader)

    await client.until(once)


def test_a_turn_takes_up_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "SLICE", SLICE)
    turns = 0
    found: Counter[int] = Counter()
    turn, follow = VirtualLoop._run_once, Partition.follow

    def counted(self: VirtualLoop) -> None:
        nonlocal turns
        turns += 1
        turn(self)

    def noted(self: Partition, leader_id: int, leader_epoch: int) -> object:
        if self._surroundings.node == STARTS:
            found[turns] += 1
        return follow(self, leader_id, leader_epoch)

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, STARTS]] * PARTITIONS)
        cluster.crash(STARTS)
        monkeypatch.setattr(VirtualLoop, "_run_once", counted)
        monkeypatch.setattr(Partition, "follow", noted)
        cluster.start_node(STARTS)
        await cluster.until_ready(STARTS)
        assert found.total() >= PARTITIONS
        assert max(found.values()) <= SLICE

    play(story)


def test_what_a_broker_leads_is_taken_up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "SLICE", SLICE)
    taken: list[bool] = []
    take_up = Partitions._take_up

    def noted(self: Partitions, decided: Decided, *args: Any, is_new: bool) -> bool:
        if self._node == STARTS:
            taken.append(decided.leader == STARTS)
        return take_up(self, decided, *args, is_new=is_new)

    async def story(cluster: SimulatedCluster) -> None:
        monkeypatch.setattr(Partitions, "_take_up", noted)
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, STARTS], [STARTS, 0, 1]] * PARTITIONS)
        await cluster.until(lambda: len(taken) == 2 * PARTITIONS, "it has taken up all of them")
        assert taken == [True] * PARTITIONS + [False] * PARTITIONS

    play(story)


def test_what_is_deleted_before_it_was_taken_up_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_still = False
    take_up = Partitions._take_up_some

    def slowly(self: Partitions) -> None:
        if stands_still and self._node == STARTS:
            self._slice = asyncio.get_running_loop().call_later(0.05, self._take_up_some)
        else:
            take_up(self)

    monkeypatch.setattr(Partitions, "_take_up_some", slowly)

    async def story(cluster: SimulatedCluster) -> None:
        nonlocal stands_still
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, STARTS]])
        await produce(client, b"old")
        cluster.crash(STARTS)
        stands_still = True
        cluster.start_node(STARTS)

        def starts() -> bool:
            node = cluster.nodes.get(STARTS)
            broker = node.broker if node is not None else None
            return broker is not None and broker.partitions._started is not None

        await cluster.until(starts, "it has begun to take up what it holds")
        await client.ask(DELETION)
        await client.create_topic("t", assignments=[[0, 1, STARTS]])
        stands_still = False
        await cluster.until_ready(STARTS)
        await produce(client, b"new")
        broker = cluster.nodes[STARTS].broker
        assert broker is not None

        def read() -> bool:
            log = broker.directories.get("t", 0)
            return log is not None and log.end == 1

        await cluster.until(read, "it has what the new topic has")
        log = broker.directories.get("t", 0)
        assert log is not None
        assert log.topic_id == cluster.image.topics["t"].topic_id
        assert b"new" in log.read(0, 1 << 20, 1).records

    play(story)


@pytest.mark.parametrize("ending", ["a namesake", "a clean stop"])
def test_logs_of_a_deleted_topic_go_in_turns(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is served no more at once. A namesake finds nothing of it, and a stop leaves nothing.

    A namesake waits until all logs are gone, so that checkpoints are made durable once, and not for
    each of its replicas: that stops the loop for as long as the disk takes.

    Method: the broker's turns stand still after the deletion. A namesake's leaders are due before
    the turn of their old logs has come, for these go in another order.
    """
    stands_still = False
    taken: list[int] = []
    synced: list[LogDirectory] = []
    take_up, delete = Partitions._take_up_some, LogDirectories.delete
    write_now = LogDirectory.write_now

    def written(self: LogDirectory) -> None:
        synced.append(self)
        write_now(self)

    def slowly(self: Partitions) -> None:
        if stands_still and self._node == STARTS:
            self._slice = asyncio.get_running_loop().call_later(0.05, self._take_up_some)
        else:
            taken.append(0)
            take_up(self)

    def noted(self: LogDirectories, topic: str, partition: int) -> None:
        if taken:
            taken[-1] += 1
        delete(self, topic, partition)

    async def story(cluster: SimulatedCluster) -> None:
        nonlocal stands_still
        monkeypatch.setattr(replicas, "SLICE", SLICE)
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, STARTS], [STARTS, 0, 1]] * PARTITIONS)
        await produce(client, b"old")
        broker = cluster.nodes[STARTS].broker
        assert broker is not None
        old = {name: broker.directories.get(*name) for name in broker.partitions.by_name}
        places = {log.directory for log in old.values() if log is not None}
        assert len(places) == 2 * PARTITIONS
        monkeypatch.setattr(Partitions, "_take_up_some", slowly)
        monkeypatch.setattr(LogDirectories, "delete", noted)
        monkeypatch.setattr(LogDirectory, "write_now", written)
        stands_still = True
        await client.ask(DELETION)
        await cluster.until(lambda: not broker.partitions.by_name, "nothing of it is served")
        assert {name: broker.directories.get(*name) for name in old} == old
        taken.clear()
        (home,) = broker.directories.directories
        if ending == "a clean stop":
            await cluster.stop(STARTS)
            left = cluster.machine(STARTS).disk.list(home.path)
            assert not [each for each in left if f"{home.path}/{each}" in places]
            return
        await client.create_topic("t", assignments=[[0, 1, STARTS], [STARTS, 0, 1]] * PARTITIONS)
        stands_still = False
        await cluster.until(
            lambda: len(broker.partitions.by_name) == len(old), "it has taken up the new ones"
        )
        made_anew = cluster.image.topics["t"].topic_id
        for name in old:
            log = broker.directories.get(*name)
            assert log is not None
            assert (log.topic_id, log.end) == (made_anew, 0)
        assert max(taken) <= SLICE
        assert synced.count(home) == 1

    play(story)
